"""What a pipeline reports of a query that waits for a replica."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.pipeline.queries_of import wanted_of

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
