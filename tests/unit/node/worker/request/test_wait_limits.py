"""How many reads of a worker may wait, by what they wait for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from standpipe.adapters.metrics import Metrics
from standpipe.errors import TooManyRequests
from standpipe.node.worker.request.wait_limits import WaitKind, WaitLimit, WaitLimits


def numbers(metrics: Metrics) -> tuple[dict[str, int], dict[str, int]]:
    """Waiting and refused, by kind."""
    counts = metrics.counts["standpipe_waiting_reads_refused"]
    return metrics.gauges["standpipe_waiting_reads"], counts


def test_places_are_given_back_whatever_ends_the_wait(tmp_path: Path) -> None:
    metrics = Metrics(0, tmp_path)
    limit = WaitLimit(WaitKind.SESSION, metrics, waiters_max=2)
    with limit.place():
        with pytest.raises(KeyError), limit.place():
            raise KeyError
        with limit.place():
            with pytest.raises(TooManyRequests, match="2 reads wait for replicas to cover their"):
                limit.place().__enter__()
            assert numbers(metrics) == ({"session": 2}, {"session": 1})
        with limit.place():
            assert limit.count == 2, "there is room again"
    assert numbers(metrics) == ({"session": 0}, {"session": 1})


@pytest.mark.parametrize("full", WaitKind)
def test_one_kind_leaves_room_for_the_others(tmp_path: Path, full: WaitKind) -> None:
    metrics = Metrics(0, tmp_path)
    limits = WaitLimits(metrics)
    waiting_for_rows = (limits.session, limits.snapshot, limits.linearizable)
    of = {each.kind: each for each in (*waiting_for_rows, limits.barrier, limits.costly_rows)}
    waiters_max = of[full].waiters_max
    assert waiters_max == (100 if full is WaitKind.COSTLY_ROWS else 10_000)
    assert numbers(metrics) == ({kind.value: 0 for kind in WaitKind}, {}), "known from the start"
    with ExitStack() as waiting:
        for _ in range(waiters_max):
            waiting.enter_context(of[full].place())
        for kind, limit in of.items():
            if kind is full:
                with pytest.raises(TooManyRequests, match=f"{waiters_max} "):
                    waiting.enter_context(limit.place())
            else:
                waiting.enter_context(limit.place())
        assert numbers(metrics)[1] == {full.value: 1}


def test_none_waits_in_a_worker_that_is_short_of_memory(tmp_path: Path) -> None:
    metrics = Metrics(0, tmp_path)

    def may_begin() -> None:
        raise TooManyRequests("short")

    limits = WaitLimits(metrics, may_begin)
    with pytest.raises(TooManyRequests, match="short"), limits.session.place():
        pass
    assert numbers(metrics) == ({kind.value: 0 for kind in WaitKind}, {"session": 1})
