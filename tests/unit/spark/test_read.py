"""Which tables can be read as a DataFrame, and which batch is read.

Its rows, by Spark: tests/e2e/test_read_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace
from tests.samples import sample_stream, sample_table
from tests.unit.data.rows import commit

from standpipe.control.metadata.catalog import EMPTY
from standpipe.data.commit.committed import Range
from standpipe.data.commit.progress import fence
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.encoding.store_keys import commit_header
from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch, Progress, Source
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.spark.errors import ServeRefused
from standpipe.spark.read import USABLE_MS_MAX, newest_batch, readable
from standpipe.topics import TOMBSTONES_MS

TABLE = sample_table(query_id="Q", table_id="T_1")
NOW_MS = 2 * TOMBSTONES_MS
B0, B1 = commit(1, 0), commit(1, 1)


def progress(batch: int, end: int, start: int, clean: int = 0, *, epoch: int = 1) -> Progress:
    return Progress(
        query_id="Q",
        commit=commit(epoch, batch),
        sinks={0: end},
        starts={0: start},
        clean_through={0: clean},
        committed_at_ms=NOW_MS - 1,
        since_ms=NOW_MS - 2,
        topic_id="ID",
    )


@dataclass
class Topics:
    """The progress topic and the table's topic. `then`: what a second reading finds."""

    records: list[Progress]
    then: list[list[Progress]] = field(default_factory=list[list[Progress]])
    log_end: int = 9
    topic_id: str = "ID"
    topic: str = "default__progress"

    def end(self) -> int:
        return len(self.records)

    def end_offsets(self, topic: str, _partitions: int) -> dict[int, int]:
        assert topic != self.topic, "a broker may answer less than what was appended"
        return {0: self.log_end}

    def records_until(self, offset: int) -> Iterator[Progress]:
        assert offset == len(self.records) - 1, "nobody waits for a record that is not there"
        yield from self.records
        self.records = self.then.pop(0) if self.then else self.records

    def ask_topics(self, names: list[str]) -> object:
        seen = {name: TopicSeen(self.topic_id, 1) for name in names if self.topic_id}
        return lambda: seen

    def log(self) -> ProgressLog:
        return cast(ProgressLog, self)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "there is no table T"),
        (sample_stream(name="T", query_id="Q"), "T is a stream"),
        (sample_table(), "T shows a topic that other programs write"),
        (sample_table(query_id="Q", is_direct=True), "T shows a topic that other programs write"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(source: Source | None, words: str) -> None:
    catalog = replace(EMPTY, sources={"T": source} if source else {})
    with pytest.raises(ServeRefused, match=words):
        readable(catalog, "T")


def test_a_table_is_read_as_its_query_writes_it() -> None:
    copied = replace(TABLE, changelog="copy", value_format="DELIMITED")
    catalog = replace(EMPTY, sources={"T": TABLE, "C": replace(copied, name="C")})
    assert readable(catalog, "T") == TABLE
    assert (readable(catalog, "C").topic, readable(catalog, "C").value_format) == ("copy", "JSON")


def test_the_newest_batch_with_its_ranges_and_its_time() -> None:
    zombie = progress(2, 9, 7)
    records = [progress(0, 5, 0), progress(1, 7, 5, 5), fence("Q", LeaseEpoch(2), nonce=1), zombie]
    found = newest_batch(TABLE, Topics(records).log(), NOW_MS)
    assert found.progress == records[1], "what a zombie names is not committed"
    assert found.ranges == {0: [Range(0, 5, None), Range(5, 7, commit_header(B1))]}
    assert (found.log_ends, found.doubtful) == ({0: 9}, {})
    assert found.usable_until_ms == NOW_MS + USABLE_MS_MAX


def test_a_program_that_was_away_for_long_leaves_doubts() -> None:
    old = replace(progress(0, 7, 0, 7), committed_at_ms=1)
    found = newest_batch(TABLE, Topics([old], log_end=9).log(), NOW_MS)
    assert found.doubtful == {0: (7, 9)}


@pytest.mark.parametrize("records", [[], [fence("Q", LeaseEpoch(1), nonce=1)]])
def test_nothing_is_committed_yet(records: list[Progress]) -> None:
    with pytest.raises(ServeRefused, match="no batch of T is committed yet"):
        newest_batch(TABLE, Topics(records).log(), NOW_MS)


def test_records_that_are_removed_meanwhile_are_read_again() -> None:
    # the reader was paused: tombstones took records whose successor lies behind its end
    hole = [progress(0, 5, 0), progress(2, 9, 7)]
    whole = [*hole, progress(3, 9, 9, 7)]
    found = newest_batch(TABLE, Topics(hole, then=[whole]).log(), NOW_MS)
    assert found.progress == whole[-1]
    with pytest.raises(KafkaUnavailable, match="is removed faster than it is read"):
        newest_batch(TABLE, Topics(hole).log(), NOW_MS)


@pytest.mark.parametrize(("log_end", "is_stale"), [(6, True), (7, False)])
def test_an_end_below_what_was_committed_is_refused(log_end: int, is_stale: bool) -> None:
    """A broker that was deposed answers less: the rows of the batch would be missing."""
    topics = Topics([progress(0, 7, 0)], log_end=log_end)
    if is_stale:
        with pytest.raises(KafkaUnavailable, match=r"stale offsets for .*: partition 0 ends at 6"):
            newest_batch(TABLE, topics.log(), NOW_MS)
    else:
        assert newest_batch(TABLE, topics.log(), NOW_MS).log_ends == {0: 7}


@pytest.mark.parametrize("topic_id", ["OTHER", ""])
def test_another_topic_of_that_name_is_not_read(topic_id: str) -> None:
    topics = Topics([progress(0, 5, 0)], topic_id=topic_id)
    with pytest.raises(ServeRefused, match="is not the one to which T was committed"):
        newest_batch(TABLE, topics.log(), NOW_MS)
