"""Seeds and planted bugs of direct tables that fit into a test run; the rest: `make sim-direct`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim import direct, direct_planted, runner
from tests.sim.direct_log import SourceLog, Written, rows_of
from tests.sim.direct_planted import DIRECT_PLANTS


@pytest.mark.parametrize("seed", range(6))
def test_seed(seed: int) -> None:
    failure = direct.run_seed(seed)[1]
    assert failure is None, failure


def test_a_seed_is_the_same_each_time() -> None:
    assert direct.run_seed(3) == direct.run_seed(3)


#: plant -> a seed shortly before the first that catches it, where those below it take long
FIRST = {
    direct_planted.forget_the_gap_when_it_stops: 130,
    direct_planted.resume_an_old_store: 40,
}


@pytest.mark.parametrize("plant", DIRECT_PLANTS, ids=lambda plant: plant.__name__)
def test_the_net_catches(plant: Callable[[], list[runner.Plant]]) -> None:
    first = FIRST.get(plant, 0)
    seed, by = runner.catch(plant, direct.run_seed, range(first, first + 60))
    assert seed is not None, by


def test_the_twin_folds_a_log() -> None:
    history = [
        Written(0, b"a", 1, 5),
        None,
        Written(2, b"a", 2, 4),
        Written(3, b"b", 3, 1),
        Written(4, b"b", None, 0),
        Written(5, b"b", 4, 1, is_bad=True),
    ]
    assert rows_of(history, 0, 6, is_versioned=False) == {b"a": (2, 4)}
    assert rows_of(history, 0, 6, is_versioned=True) == {b"a": (1, 5)}
    assert rows_of(history, 0, 4, is_versioned=False) == {b"a": (2, 4), b"b": (3, 1)}
    assert rows_of(history, 2, 3, is_versioned=True) == {b"a": (2, 4)}


def test_the_log_keeps_what_it_was() -> None:
    log = SourceLog(tombstones_ms=10)
    for number in range(4):
        log.append(b"a", number, 1)
    log.cut_off(2)
    assert (log.end, [len(each) for each in log.logs_of("id-1")]) == (2, [2, 4])
    assert log.is_cut_below(3, 0)
    assert not log.is_cut_below(2, 0)
    assert not log.is_cut_below(3, 1)
    log.make_again()
    assert (log.topic_id, log.end, list(log.logs_of("id-2"))) == ("id-2", 0, [[]])
