"""When a worker collects its garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from standpipe.node.worker.garbage import IDLE_SHARE, OLDEST_MIN, TURN_MS, Garbage

BUSY_S = IDLE_SHARE * TURN_MS / 1000


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def old_ring() -> weakref.ref[Ring]:
    """One that only a collection of the oldest objects finds, which is due."""
    ring = Ring()
    gc.collect(1)
    gc.collect(1)
    found = weakref.ref(ring)
    del ring
    while gc.get_count()[2] < OLDEST_MIN:
        gc.collect(1)
    return found


def test_an_idle_worker_collects_it() -> None:
    used_s = iter([0.0, BUSY_S / 2, BUSY_S / 2])
    garbage = Garbage(used_s=lambda: next(used_s))
    ring = old_ring()
    assert ring() is not None
    garbage.turn()
    assert ring() is None


def test_a_busy_worker_waits_for_an_idle_turn() -> None:
    used_s = iter([0.0, BUSY_S, BUSY_S, 1.5 * BUSY_S, 1.5 * BUSY_S])
    garbage = Garbage(used_s=lambda: next(used_s))
    ring = old_ring()
    garbage.turn()
    assert ring() is not None
    garbage.turn()
    assert ring() is None


def test_a_worker_whose_thread_waits_for_the_processor_is_not_idle() -> None:
    """At a low priority on a busy machine it looked idle in the middle of a large text."""
    computing = [True]
    garbage = Garbage(lambda: computing[0], lambda: 0.0)
    ring = old_ring()
    garbage.turn()
    assert ring() is not None
    computing[0] = False
    garbage.turn()
    assert ring() is None


def test_where_little_was_made_nothing_is_collected() -> None:
    garbage = Garbage(used_s=lambda: 0.0)
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    garbage.turn()
    assert gc.get_stats()[2]["collections"] == before


def test_a_worker_that_is_never_idle_collects_it_in_the_end() -> None:
    used_s = iter(range(10_000))
    garbage = Garbage(used_s=lambda: float(next(used_s)))
    gc.set_threshold(1, 1, gc.get_threshold()[2])
    ring = old_ring()
    kept: list[list[object]] = []
    while ring() is not None:
        garbage.turn()
        kept += ([] for _ in range(100))
        assert len(kept) < 10_000_000, "it is never collected"
