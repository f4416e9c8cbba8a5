"""Which replicas hold a batch up, from when to when, and for how long at most."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.commit.back_pressure import (
    MINUTE_S,
    SILENT_S,
    STUCK_S,
    Behind,
    LagBound,
    Pressure,
    ReplicaPositions,
)
from standpipe.model import BatchId, NodeId, Offset, ReplicaState
from standpipe.model_liveness import ReplicaLag

BOUND = LagBound(records=1000, ms=0, wait_s_max=5.0)
A, B = NodeId("a"), NodeId("b")
TABLE = ("t", 1)


def lag(position: int, *, partition: int = 0, ms: int | None = 0, table: str = "t") -> ReplicaLag:
    return ReplicaLag(
        table_id=table,
        generation=1,
        partition=partition,
        position=Offset(position),
        committed_end=Offset(position),
        state=ReplicaState.RUNNING,
        batch=BatchId(1),
        replica_lag_ms=ms,
    )


def test_the_furthest_behind_of_all_partitions_and_nodes_counts() -> None:
    said = ReplicaPositions()
    said.take(A, [lag(90), lag(40, partition=1)], 0.0)
    said.take(B, [lag(70), lag(45, partition=1), lag(0, table="other")], 0.0)
    worst = said.furthest_behind(TABLE, {0: 100, 1: 50}, BOUND, 0.0)
    assert worst == Behind(0.03, B, 0, 30, 0)
    assert "partition 0 on b is 30 records behind" in worst.text(BOUND)
    assert said.furthest_behind(("t", 2), {0: 100}, BOUND, 0.0) is None, "another generation"


def test_a_node_that_is_silent_does_not_count() -> None:
    said = ReplicaPositions()
    said.take(A, [lag(0)], 0.0)
    assert said.furthest_behind(TABLE, {0: 100}, BOUND, SILENT_S) is not None
    assert said.furthest_behind(TABLE, {0: 100}, BOUND, SILENT_S + 0.1) is None


def test_a_replica_that_a_node_no_longer_names_does_not_count() -> None:
    said = ReplicaPositions()
    said.take(A, [lag(0)], 0.0)
    said.take(A, [], 0.5)
    assert said.furthest_behind(TABLE, {0: 100}, BOUND, 0.5) is None


def test_a_replica_that_does_not_move_is_taken_for_dead_until_it_moves() -> None:
    said = ReplicaPositions()
    now = 0.0
    while now <= STUCK_S:
        said.take(A, [lag(10)], now)
        assert said.furthest_behind(TABLE, {0: 100}, BOUND, now) is not None
        now += 1.0
    said.take(A, [lag(10)], STUCK_S + 1)
    assert said.furthest_behind(TABLE, {0: 100}, BOUND, STUCK_S + 1) is None
    said.take(A, [lag(11)], STUCK_S + 2)
    assert said.furthest_behind(TABLE, {0: 100}, BOUND, STUCK_S + 2) is not None


def test_a_replica_at_the_end_of_an_idle_table_is_not_stuck() -> None:
    said = ReplicaPositions()
    for second in range(30):
        said.take(A, [lag(100)], float(second))
        found = said.furthest_behind(TABLE, {0: 100}, BOUND, float(second))
        assert found is not None
        assert found.part == 0.0
    found = said.furthest_behind(TABLE, {0: 5000}, BOUND, 29.0)
    assert found is not None, "it was not behind until now"
    assert found.records == 4900


def test_a_bound_in_ms_counts_the_age_of_the_report() -> None:
    bound = LagBound(records=0, ms=2000, wait_s_max=5.0)
    said = ReplicaPositions()
    said.take(A, [lag(90, ms=1000)], 0.0)
    found = said.furthest_behind(TABLE, {0: 100}, bound, 1.0)
    assert found is not None
    assert found.part == 1.0
    assert "1000 ms behind" in found.text(bound)
    idle = said.furthest_behind(TABLE, {0: 90}, bound, 1.0)
    assert idle is not None
    assert idle.part == 0.0, "it has all that is committed"


@pytest.mark.parametrize(
    ("bound", "configured", "most"), [(0, 400, 400), (100, 400, 50), (1, 9, 1)]
)
def test_a_batch_has_half_of_the_bound_at_most(bound: int, configured: int, most: int) -> None:
    assert LagBound(bound, 0, 5.0).batch_records_max(configured) == most


def behind(part: float) -> Behind:
    return Behind(part, A, 0, int(part * 1000), 0)


def test_a_wait_begins_at_half_of_the_bound_and_ends_at_a_quarter() -> None:
    pressure = Pressure(BOUND)
    pressure.begin(0.0)
    assert not pressure.holds(behind(0.5), 0.0)
    assert pressure.holds(behind(0.51), 0.1)
    assert pressure.holds(behind(0.3), 0.2), "it goes on below where it began"
    assert not pressure.holds(behind(0.25), 0.3)
    assert pressure.behind is None
    pressure.begin(0.4)
    assert not pressure.holds(behind(0.4), 0.4)


def test_nobody_to_wait_for_ends_a_wait() -> None:
    pressure = Pressure(BOUND)
    pressure.begin(0.0)
    assert pressure.holds(behind(0.9), 0.0)
    assert not pressure.holds(None, 0.1)


def waits(pressure: Pressure, batches: int, step_s: float = 0.05) -> Iterator[tuple[float, float]]:
    """(start, end) of each batch's wait, one after the other, always far behind."""
    now = 0.0
    for _ in range(batches):
        pressure.begin(now)
        start = now
        while pressure.holds(behind(9.0), now):
            now += step_s
        yield start, now
        now += 0.01


def test_a_batch_waits_for_its_limit_and_is_still_said_to_be_behind() -> None:
    pressure = Pressure(BOUND)
    ((start, end),) = waits(pressure, 1)
    assert end - start == pytest.approx(BOUND.wait_s_max, abs=0.06)
    assert pressure.behind is not None


@given(st.floats(0.2, 30.0), st.floats(0.01, 0.5))
def test_waits_take_three_quarters_of_any_minute_at_most(wait_s_max: float, step_s: float) -> None:
    found = [*waits(Pressure(LagBound(1000, 0, wait_s_max)), 60, step_s)]
    for _, until in found:
        since = until - MINUTE_S
        waited = sum(max(0.0, min(end, until) - max(start, since)) for start, end in found)
        assert waited <= MINUTE_S * 0.75 + step_s + 0.01


def test_batches_that_do_not_wait_leave_nothing_behind() -> None:
    pressure = Pressure(BOUND)
    for batch in range(1000):
        pressure.begin(float(batch))
        assert not pressure.holds(behind(0.1), batch + 0.001)
    assert len(pressure._waits) == 0
