"""What a pipeline reports of a query that waits for a replica, or that Spark says odd things of."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.model import BatchId
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.run.entry import RunEntry, status_of
from standpipe.pipeline.run.group.wanted_run import WantedRun

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)


@pytest.mark.parametrize(
    ("waited_s", "reason", "expected", "why"),
    [
        (-math.inf, "", ("", ""), "it has never waited"),
        (8.0, "", ("THROTTLED", "its batches wait: node b"), "it has just waited"),
        (4.0, "", ("", ""), "it waited for long enough before"),
        (8.0, "NO_PROGRESS", ("NO_PROGRESS", "m"), "something else is worse"),
    ],
)
def test_throttled(waited_s: float, reason: str, expected: tuple[str, str], why: str) -> None:
    counts = BatchCounts(waited_for="node b", waited_s=waited_s)
    table = SimpleNamespace(counts=counts, backlog=None, notice="", repaired_rows=0)
    run: Any = SimpleNamespace(
        tables={WANTED.query_id: table}, counts=counts, count_late=lambda _, _rested: 0
    )
    entry = RunEntry(WantedRun(members=(WANTED,)), state="RUNNING", run=cast(Any, run))
    entry.reason, entry.message = reason, "m" if reason else ""
    said = status_of(entry, WANTED, 10.0)
    assert (said.reason, said.message) == expected, why
    assert said.state == "RUNNING"


def test_what_spark_says_of_a_query_and_nobody_can_read_costs_that_detail_only() -> None:
    """One late record of a year beyond 9999 made every query of its pipeline UNRESPONSIVE."""

    def odd(*_: object) -> int:
        raise ValueError("Invalid isoformat string: '+57923-03-01T12:00:00.000Z'")

    counts = BatchCounts(batch=BatchId(3), bad_records=1)
    backlog = SimpleNamespace(backlog_records=odd, read_records=lambda: 7)
    late = SimpleNamespace(count=4)
    table = SimpleNamespace(counts=counts, backlog=backlog, notice="", repaired_rows=2, late=late)
    run: Any = SimpleNamespace(tables={WANTED.query_id: table}, counts=counts, count_late=odd)
    entry = RunEntry(WantedRun(members=(WANTED,)), state="RUNNING", run=cast(Any, run))
    said = status_of(entry, WANTED, 10.0)
    assert (said.state, said.batch, said.bad_records, said.read_records) == ("RUNNING", 3, 1, 7)
    assert said.late_records == 4, "as many as were counted before: a metric does not go back"
    assert said.backlog_records is None, "unknown"
