"""How far a query is in its topics, from what Spark says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from standpipe.model import BatchId
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.run.watch.backlog import Backlog, Unread, behind, is_unread

STARTS = {"s": {0: 10, 1: 0}}
COUNTS = BatchCounts(batch=BatchId(4), covered={"s": {0: 50, 1: 20}})
IDLE = {"message": "Waiting for data to arrive", "isDataAvailable": False}
BUSY = {"message": "Processing new data", "isDataAvailable": True}


def backlog(status: dict[str, object], batch: int | None, *ends: tuple[str, str]) -> Backlog:
    sources = [
        SimpleNamespace(endOffset=lambda end=end: end, latestOffset=lambda latest=latest: latest)
        for end, latest in ends
    ]
    said = SimpleNamespace(batchId=lambda: batch, sources=lambda: sources)
    java = SimpleNamespace(lastProgress=lambda: None if batch is None else said)
    query = SimpleNamespace(status=status, _jsq=java)
    return Backlog(cast(Any, query), COUNTS, STARTS)


def test_records_of_before_the_topic_began_do_not_count() -> None:
    assert backlog(BUSY, None).read_records() == 60


@pytest.mark.parametrize(
    ("status", "batch", "records", "why"),
    [
        (IDLE, None, 0, "a pipeline that took over finds nothing new"),
        (BUSY, None, None, "it has said nothing yet"),
        (BUSY, 3, None, "what it said is of an older batch"),
        (BUSY, 4, 5, "as its newest batch was planned"),
    ],
)
def test_backlog(status: dict[str, object], batch: int | None, records: int, why: str) -> None:
    found = backlog(status, batch, ('{"s":{"0":50,"1":20}}', '{"s":{"0":53,"1":22}}'))
    assert found.backlog_records() == records, why


@pytest.mark.parametrize(
    ("sources", "records"),
    [
        ([('{"s":{"0":5}}', '{"s":{"0":5}}')], 0),
        ([('{"s":{"0":5}}', '{"s":{"0":9}}'), ('{"t":{"0":1}}', '{"t":{"0":2}}')], 5),
        ([('{"s":{"0":5}}', '{"s":{"0":9,"1":2}}')], 6),
        ([('{"s":{"0":5}}', None)], None),
        ([(None, None)], None),
    ],
)
def test_behind(sources: list[tuple[str | None, str | None]], records: int | None) -> None:
    assert behind(sources) == records


@pytest.mark.parametrize(
    ("covered", "starts", "ends", "is_there", "why"),
    [
        ({0: 5, 1: 9}, {}, {0: 5, 1: 9}, False, "all is covered"),
        ({0: 5, 1: 9}, {}, {0: 5, 1: 10}, True, "one record is not"),
        ({}, {0: 3}, {0: 3}, False, "retention took all that there was"),
        ({}, {0: 3}, {0: 4}, True, "nothing was read yet"),
        ({0: 5}, {0: 0, 1: 0}, {0: 5, 1: 1}, True, "a partition that is new"),
        ({0: 5}, {}, {0: 4}, False, "an old answer of a broker"),
    ],
)
def test_is_unread(
    covered: dict[int, int], starts: dict[int, int], ends: dict[int, int], is_there: bool, why: str
) -> None:
    assert is_unread(covered, starts, ends) == is_there, why


class Log:
    """Kafka, where `s` has one record beyond what the query covers, or none."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.asked: list[str] = []

    def partition_count(self, topic: str) -> int:
        self.asked.append(topic)
        return 2

    def end_offsets(self, _topic: str, _partitions: int) -> dict[int, int]:
        return self.ends

    def start_offsets(self, _topic: str, _partitions: int) -> dict[int, int]:
        raise AssertionError("all partitions are covered")


@pytest.mark.parametrize(("end", "is_there"), [(50, False), (51, True)])
def test_unread_goes_by_kafka_and_looks_at_a_topic_once(end: int, is_there: bool) -> None:
    log = Log({0: end, 1: 20})
    unread = Unread(log=cast(Any, log), counts=COUNTS, topics=frozenset({"s"}))
    assert [unread.is_there(), unread.is_there()] == [is_there] * 2
    assert log.asked == ["s"]
