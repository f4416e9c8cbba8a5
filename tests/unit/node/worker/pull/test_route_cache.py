"""A decided route holds until something that it came from changes, or an end is too old."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.workers import USERS, Worker, page

from standpipe.adapters.clock import Clock
from standpipe.config import lags
from standpipe.control.routing.bounds import NOTHING_ASKED, AskedBounds
from standpipe.node.worker.pull.route_cache import TAILER_SILENT_MS_MAX

AGE_MS_MAX = lags.LAG_END_AGE.default
BOOT_MS = 1_000_000


class StoppedClock(Clock):
    """Shows `now_ms` as the time since boot."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = BOOT_MS

    def boot_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    made = Worker(tmp_path, "a", {})
    made.publish(["a"], {number: ["a"] for number in range(USERS.partitions)})
    made.routes.clock = StoppedClock()
    return made


def why(worker: Worker, now_ms: int, known_boot_ms: int, bound: int | None) -> str:
    clock = worker.routes.clock
    assert isinstance(clock, StoppedClock)
    clock.now_ms = now_ms
    status = changed(page(100, 100), confirmed_boot_ms=0, known_boot_ms=known_boot_ms)
    bounds = worker.routes.bounds(AskedBounds(bound), USERS)
    view = worker.slow_path.map.view
    (verdict,) = worker.routes.of(view, USERS.replica_id(0), status, bounds).verdicts
    return verdict.why


@pytest.mark.parametrize(
    ("age_ms", "bound", "expected", "reason"),
    [
        (0, 10, "Usable.", "Kafka has just confirmed the end"),
        (AGE_MS_MAX - 1, 10, "Usable.", "not yet"),
        (AGE_MS_MAX, 10, f"Kafka last answered here {AGE_MS_MAX} ms ago", "a lag of 0 is a guess"),
        (AGE_MS_MAX, 0, "Kafka last answered here", "also where none is allowed"),
        (10 * AGE_MS_MAX, None, "Usable.", "without a bound, any age is served"),
    ],
)
def test_a_bound_needs_an_end_that_is_known(
    worker: Worker, age_ms: int, bound: int | None, expected: str, reason: str
) -> None:
    assert expected in why(worker, BOOT_MS, BOOT_MS - age_ms, bound), reason


@pytest.mark.parametrize(
    ("silent_ms", "bound", "expected", "reason"),
    [
        (0, 10, "Usable.", "the tailer has just written the page"),
        (TAILER_SILENT_MS_MAX - 1, 10, "Usable.", "not yet"),
        (
            TAILER_SILENT_MS_MAX,
            10,
            f"Lag is not known: this host's tailer has been silent for {TAILER_SILENT_MS_MAX} ms.",
            "dead: although Kafka answered it less than a minute ago",
        ),
        (TAILER_SILENT_MS_MAX, None, "Usable.", "without a bound its rows are served"),
    ],
)
def test_a_bound_needs_a_tailer_that_lives(
    worker: Worker, silent_ms: int, bound: int | None, expected: str, reason: str
) -> None:
    clock = worker.routes.clock
    assert isinstance(clock, StoppedClock)
    clock.now_ms = BOOT_MS
    told_ms = BOOT_MS - silent_ms
    status = changed(
        page(100, 100),
        confirmed_boot_ms=told_ms,
        known_boot_ms=told_ms,
        beat_boot_ms=told_ms,
    )
    view, bounds = worker.slow_path.map.view, worker.routes.bounds(AskedBounds(bound), USERS)

    def verdict_at(now_ms: int) -> str:
        clock.now_ms = now_ms
        (verdict,) = worker.routes.of(view, USERS.replica_id(0), status, bounds).verdicts
        return verdict.why

    assert verdict_at(BOOT_MS) == expected, reason
    is_refused = "silent" in verdict_at(told_ms + TAILER_SILENT_MS_MAX)
    assert is_refused is (bound is not None), "a decided route ends with the tailer's silence"


def test_a_silent_kafka_is_no_dead_tailer(worker: Worker) -> None:
    """Its page is written all the time, and Kafka answered a while ago."""
    clock = worker.routes.clock
    assert isinstance(clock, StoppedClock)
    clock.now_ms = BOOT_MS
    known_ms = BOOT_MS - AGE_MS_MAX + 1
    status = changed(
        page(100, 100), confirmed_boot_ms=0, known_boot_ms=known_ms, beat_boot_ms=BOOT_MS
    )
    view, bounds = worker.slow_path.map.view, worker.routes.bounds(AskedBounds(10), USERS)
    (verdict,) = worker.routes.of(view, USERS.replica_id(0), status, bounds).verdicts
    assert verdict.why == "Usable."


def test_a_decided_route_ends_when_its_end_becomes_too_old(worker: Worker) -> None:
    """Kafka is dead, so nothing else changes: neither page nor map."""
    clock = worker.routes.clock
    assert isinstance(clock, StoppedClock)
    view, replica_id = worker.slow_path.map.view, USERS.replica_id(0)
    status = changed(page(100, 100), confirmed_boot_ms=BOOT_MS, known_boot_ms=BOOT_MS)
    bounds = worker.routes.bounds(AskedBounds(10), USERS)

    def route_at(now_ms: int):
        clock.now_ms = now_ms
        return worker.routes.of(view, replica_id, status, bounds)

    first = route_at(BOOT_MS)
    assert route_at(BOOT_MS + AGE_MS_MAX - 1) is first, "kept"
    assert [each.ok for each in first.verdicts] == [True]
    assert [each.ok for each in route_at(BOOT_MS + AGE_MS_MAX).verdicts] == [False]
    unbounded = worker.routes.of(view, replica_id, status, replace(bounds, lag_records_max=2**63))
    assert [each.ok for each in unbounded.verdicts] == [True]


def test_a_tables_bounds_in_ms_are_in_force_without_a_request_for_them(worker: Worker) -> None:
    times = (50, None)
    table = changed(USERS, time_bounds=times)
    bounds = worker.routes.bounds(NOTHING_ASKED, table)
    assert (bounds.replica_lag_ms_max, bounds.is_time_bounded) == (50, True)
    assert worker.routes.bounds(NOTHING_ASKED, table) is bounds, "routes are kept by it"
    assert worker.routes.bounds(NOTHING_ASKED, USERS) is worker.routes.own
    asked = worker.routes.bounds(AskedBounds(replica_lag_ms_max=70), table)
    assert asked.replica_lag_ms_max == 70
