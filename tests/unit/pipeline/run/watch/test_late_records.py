"""What is said of late records, from Spark's progress reports as they are over py4j."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from standpipe.pipeline.run.watch.late_records import LateRecords, ranges


def progress(batch: int, *dropped: int, at: str = "") -> Any:
    source = SimpleNamespace(
        startOffset=lambda: f'{{"s":{{"0":{batch}0,"1":3}}}}',
        endOffset=lambda: f'{{"s":{{"0":{batch + 1}0,"1":3}}}}',
    )
    operators = [SimpleNamespace(numRowsDroppedByWatermark=lambda n=n: n) for n in dropped]
    return SimpleNamespace(
        batchId=lambda: batch,
        timestamp=lambda: at or f"2013-01-01T00:00:{batch:02}.000Z",
        stateOperators=lambda: operators,
        sources=lambda: [source],
        eventTime=lambda: {"watermark": "2013-01-01T00:00:00.500Z"},
    )


def test_each_batch_with_late_records_has_an_entry_once() -> None:
    late = LateRecords("Q")
    first = [progress(4), progress(5, 2, 1)]
    (line,) = late.take(first)
    said = json.loads(line)
    assert said.pop("at_ms") > 0
    assert said == {
        "query_id": "Q",
        "reason": "LATE",
        "batch": 5,
        "count": 3,
        "watermark_ms": 1_356_998_400_500,
        "ranges": [{"topic": "s", "partition": 0, "from": 50, "to": 60}],
    }
    assert late.take(first) == [], "Spark tells the newest hundred, each time"
    (line,) = late.take([*first, progress(6, 0), progress(7, 1)])
    assert json.loads(line)["batch"] == 7
    assert late.count == 4


def test_a_batch_is_told_that_an_idle_report_had_announced() -> None:
    """A query that was idle for 10 s lost the late records of its next batch."""
    late = LateRecords("Q")
    idle = [progress(4), progress(5, 0, at="2013-01-01T00:00:15.000Z")]
    assert late.take(idle) == []
    ran = [*idle, progress(5, 2, at="2013-01-01T00:00:17.500Z")]
    (line,) = late.take(ran)
    assert json.loads(line)["count"] == 2
    assert late.take(ran) == []


@pytest.mark.parametrize(
    ("start", "end", "found", "why"),
    [
        (None, '{"s":{"0":7}}', [("s", 0, -1, 7)], "the first batch"),
        ('{"s":{"0":7}}', '{"s":{"0":7}}', [], "nothing was read of it"),
        ('{"s":{"0":7}}', '{"s":{"0":9,"1":2}}', [("s", 0, 7, 9), ("s", 1, -1, 2)], "a new one"),
        (None, None, [], "a source without data"),
    ],
)
def test_ranges(
    start: str | None, end: str | None, found: list[tuple[str, int, int, int]], why: str
) -> None:
    assert [tuple(each.values()) for each in ranges([(start, end)])] == found, why
