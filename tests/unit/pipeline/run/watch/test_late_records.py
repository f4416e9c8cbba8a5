"""What is said of late records, from Spark's progress reports as they are over py4j."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from standpipe.pipeline.run.watch.late_records import LateRecords, ranges

WATERMARK = "2013-01-01T00:00:00.500Z"


def progress(batch: int, *dropped: int, at: str = "", watermark: str = WATERMARK) -> Any:
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
        eventTime=lambda: {"watermark": watermark or None},  # py4j has None for what is not there
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
    ("watermark", "at_ms", "why"),
    [
        ("1970-01-01T00:00:00.000Z", 0, "before the first event"),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999, "the last year of Python's dates"),
        ("+10000-01-01T00:00:00.000Z", 253_402_300_800_000, "and the next one"),
        ("+57923-02-28T12:00:00.250Z", 1_765_711_137_600_250, "a record's time in microseconds"),
        ("+294247-01-10T04:00:54.775Z", 9_223_372_036_854_775, "the last one of Spark"),
        ("the day after", None, "not known"),
        ("", None, "not told"),
    ],
)
def test_the_watermark_of_a_report(watermark: str, at_ms: int | None, why: str) -> None:
    """Years beyond 9999 raised ValueError, and the pipeline sent no report of any query."""
    (line,) = LateRecords("Q").take([progress(4, 1, watermark=watermark)])
    assert json.loads(line)["watermark_ms"] == at_ms, why


def test_a_report_that_cannot_be_read_at_once_is_read_later() -> None:
    """It counted as read before it was, and its late records were never told."""
    late, odd = LateRecords("Q"), progress(4, 2)
    sources, odd.sources = odd.sources, None
    with pytest.raises(TypeError):
        late.take([odd])
    odd.sources = sources
    (line,) = late.take([odd])
    assert (json.loads(line)["batch"], late.count) == (4, 2)


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
