"""Which records of a topic are those of a batch. On a cluster: tests/e2e/test_written_once.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.unit.data.rows import commit

from standpipe.data.commit.repair import SweptRecord
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Commit, Offset
from standpipe.pipeline.commit import written_once
from standpipe.pipeline.commit.written_once import Grown, NotWrittenOnce, check_once

OURS, OTHERS = commit(3, 7, attempt=1), commit(3, 7, attempt=2)
#: of partition 0, from offset 10 on: who wrote each record
WRITERS: Sequence[Commit | None] = [OURS, OURS, OTHERS, None, OURS]
END = 10 + len(WRITERS)


def read_between(
    _kafka: object, _topic: str, partition: int, start: int, end: Offset
) -> Iterator[list[SweptRecord]]:
    """Further than it was asked for, as Kafka's client reads."""
    assert (partition, start) == (0, 10), "nothing is read of a partition that did not grow"
    assert end <= END
    for number, writer in enumerate(WRITERS):
        headers = None if writer is None else [(HEADER_COMMIT, commit_header(writer))]
        yield [SweptRecord(10 + number, b"k", b"v", headers, 5)]


@pytest.mark.parametrize(
    ("ends", "counted", "found", "why"),
    [
        ({0: END, 1: 4}, 3, None, "three are ours, and two of others"),
        ({0: END, 1: 4}, 2, 3, "a task wrote one twice"),
        ({0: END, 1: 4}, 4, 3, "one is lost"),
        ({0: END - 1, 1: 4}, 2, None, "the last one is behind the end: it is not committed"),
        ({0: END, 1: 3}, 3, None, "another broker says that partition 1 is shorter"),
        ({0: END - 2, 1: 4}, 3, None, "it grew by as many, and is not read"),
    ],
)
def test_records_of_a_batch_are_counted(
    monkeypatch: pytest.MonkeyPatch, ends: dict[int, int], counted: int, found: int | None, why: str
) -> None:
    monkeypatch.setattr(written_once, "read_between", read_between)
    grown = Grown("t", {0: 10, 1: 4}, ends)
    if found is None:
        check_once("", grown, OURS, counted)
        return
    with pytest.raises(NotWrittenOnce, match=f"{found} records in t for {counted} of the batch"):
        check_once("", grown, OURS, counted)
    assert why
