"""States of queries, with a start that is told what to do and a clock that is set."""

from concurrent.futures import wait
from typing import Any, cast

import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.model import BatchId
from standpipe.pipeline.batch import BatchCounts
from standpipe.pipeline.failures import NotYet, QueryFailed
from standpipe.pipeline.queries import RETRY_S_FIRST, RETRY_S_MAX, Queries, retry_after_s
from standpipe.pipeline.query import QueryRun, Surroundings
from standpipe.pipeline.reconcile import StartQuery, StopQuery, WantedQuery
from standpipe.pipeline.stall import REPORT_S, RESTART_S_FIRST, Signs

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)
Q = WANTED.query_id


class Run:
    """Stands for a QueryRun."""

    def __init__(self) -> None:
        self.counts = BatchCounts(batch=BatchId(3), input_records=100, bad_records=1)
        self.backlog = None
        self.died: Exception | None = None
        self.is_stopped = self.has_data = False
        self.repaired_rows = 2

    def failure(self) -> Exception | None:
        return self.died

    def signs(self) -> Signs:
        return Signs(mark=(self.counts.batch,), has_data=self.has_data, doing="asleep")

    def stop(self) -> None:
        self.is_stopped = True

    def count_late(self) -> int:
        return 5


class World:
    def __init__(self, *outcomes: Run | Exception) -> None:
        self.outcomes = list(outcomes)
        self.now = 1000.0
        self.queries = Queries(cast(Surroundings, None), start=self._start, clock=lambda: self.now)
        self.queries.carry_out(StartQuery(WANTED))

    def _start(self, wanted: WantedQuery, around: Surroundings) -> QueryRun:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return cast(QueryRun, outcome)

    def tend(self) -> str:
        """One look that starts what is due, one that sees how it went."""
        self.queries.tend()
        wait([e.starting for e in cast(Any, self.queries)._entries.values() if e.starting])
        self.queries.tend()
        (status,) = self.queries.statuses()
        return f"{status.state} {status.reason}".strip()


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(1, RETRY_S_FIRST), (2, 2 * RETRY_S_FIRST), (50, RETRY_S_MAX)]
)
def test_retry_after_s(failures: int, pause_s: float) -> None:
    assert retry_after_s(failures) == pause_s


@pytest.mark.parametrize(
    ("outcome", "state", "why"),
    [
        (Run(), "RUNNING", ""),
        (NotYet("TOPIC_MISSING", "…"), "STARTING TOPIC_MISSING", "it is about to appear"),
        (QueryFailed("CHECKPOINT_MISMATCH", "…"), "FAILED CHECKPOINT_MISMATCH", "named"),
        (OSError("disk full"), "RETRYING", "not named: may pass"),
    ],
)
def test_how_a_start_ends(outcome: Run | Exception, state: str, why: str) -> None:
    assert World(outcome).tend() == state, why


def test_a_query_that_died_is_tried_again_after_its_pause() -> None:
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    first.died = RuntimeError("broker away")
    assert world.tend() == "RETRYING"
    assert world.tend() == "RETRYING", "the pause is not over"
    world.now += RETRY_S_FIRST
    assert world.tend() == "RUNNING"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("[KAFKA_DATA_LOSS] Some data may have been lost"), "DATA_LOSS"),
        (QueryFailed("CHECKPOINT_DAMAGED", "offsets/3 cannot be read"), "CHECKPOINT_DAMAGED"),
    ],
)
def test_a_named_death_is_final(error: Exception, reason: str) -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.died = error
    assert world.tend() == f"FAILED {reason}"
    world.now += 3600
    assert world.tend() == f"FAILED {reason}"


def test_the_report_has_counts_and_rate() -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.counts.input_records += 50
    world.now += 1.0
    (status,) = world.queries.statuses()
    counts = (status.bad_records, status.late_records, status.repaired_rows)
    assert (status.batch, *counts) == (3, 1, 5, 2)
    assert status.lease_epoch == 2
    assert status.input_rows_per_second == 50.0


def test_stop() -> None:
    run = Run()
    world = World(run)
    world.tend()
    world.queries.carry_out(StopQuery(Q))
    assert run.is_stopped
    assert world.queries.known() == {}


def test_stop_all() -> None:
    run = Run()
    world = World(run)
    world.tend()
    world.queries.stop_all()
    assert run.is_stopped


def test_a_query_without_progress_is_reported_and_started_anew() -> None:
    """Only while there is something to do; the run before has ended when the next one starts."""
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    world.now += RESTART_S_FIRST
    assert world.tend() == "RUNNING", "its source has no data"
    first.has_data = True
    world.now += REPORT_S - 1
    assert world.tend() == "RUNNING"
    world.now += 1
    assert world.tend() == "RUNNING NO_PROGRESS"
    first.counts.batch = BatchId(4)
    assert world.tend() == "RUNNING", "it got somewhere"
    world.now += RESTART_S_FIRST
    world.tend()
    entry = cast(Any, world.queries)._entries[Q]
    assert (entry.state, entry.stall.restarts) == ("RETRYING", 1)
    wait([entry.stopping] if entry.stopping else [])
    assert first.is_stopped
    world.now += RETRY_S_MAX
    world.tend()
    assert world.tend() == "RUNNING"
    assert entry.run is second


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[KAFKA_DATA_LOSS.X] …", "DATA_LOSS"),
        ("Partitions were changed from …", "TOPIC_CHANGED"),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] …", "PLAN_CHANGED"),
    ],
)
def test_a_known_failure_of_spark_says_what_resolves_it(message: str, reason: str) -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.died = RuntimeError(message)
    assert world.tend() == f"FAILED {reason}"
    (status,) = world.queries.statuses()
    assert "DROP TABLE A; and then CREATE TABLE A AS SELECT" in status.message
    assert message in status.message
