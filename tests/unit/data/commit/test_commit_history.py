"""Which commits are kept, and up to which of them a reader has come."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from standpipe.data.commit.commit_history import COMMITS_MAX, COMMITS_MIN, CommitHistory
from standpipe.data.commit.progress import ProgressBook, fence
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress


class Topic:
    """A progress topic, read as it is written."""

    def __init__(self) -> None:
        self.book, self.history = ProgressBook(), CommitHistory()

    def write(self, progress: Progress) -> None:
        self.book.take(progress)
        self.history.take(progress, self.book)

    def commit(
        self,
        query_id: str,
        batch: int,
        sources: Mapping[str, Mapping[int, int]],
        sinks: Mapping[int, int],
        epoch: int = 1,
        ids: Mapping[str, str] | None = None,
        own_id: str = "",
    ) -> None:
        by = Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(batch), attempt=batch)
        self.write(
            Progress(
                query_id=query_id,
                commit=by,
                sources={topic: dict(ends) for topic, ends in sources.items()},
                sinks={partition: Offset(end) for partition, end in sinks.items()},
                source_topic_ids=dict(ids or {}),
                topic_id=own_id,
            )
        )


def test_a_reader_has_come_up_to_a_commit() -> None:
    topic = Topic()
    for batch, end in enumerate([3, 3, 5, 9]):
        topic.commit("Q", batch, {"S": {0: batch}}, {0: end, 1: 1})
    for offsets, batch in [
        ({0: 9, 1: 1}, 3),
        ({0: 99, 1: 9}, 3),
        ({0: 8, 1: 1}, 2),
        ({0: 3, 1: 1}, 1),  # of two with the same ends, the newer one
        ({0: 2, 1: 1}, None),
        ({0: 9}, None),  # a partition of which nothing was read
    ]:
        found = topic.history.read_by("Q", offsets)
        assert (None if found is None else found.batch) == batch, offsets
    assert topic.history.read_by("OTHER", {0: 9}) is None


def test_a_reader_of_another_topic_of_that_name_has_read_nothing() -> None:
    topic = Topic()
    topic.commit("Q", 0, {}, {0: 4}, own_id="old")
    topic.commit("Q", 1, {}, {0: 4})
    topic.commit("Q", 2, {}, {0: 4}, own_id="new")
    for topic_id, batch in [("new", 2), ("", 2), ("old", 1)]:
        found = topic.history.read_by("Q", {0: 9}, topic_id)
        assert found is not None
        assert found.batch == batch, "of one that does not say which, nothing is known"


def test_only_what_is_committed_counts() -> None:
    topic = Topic()
    topic.commit("Q", 0, {"S": {0: 1}}, {0: 1})
    topic.write(fence("Q", LeaseEpoch(3), nonce=1))
    topic.commit("Q", 1, {"S": {0: 7}}, {0: 7}, epoch=2)
    newest = topic.history.newest("Q")
    assert newest is not None
    assert newest.batch == 0, "neither a fence nor what comes from behind it"
    assert topic.history.take_news() == {"Q"}
    assert topic.history.take_news() == frozenset()


def test_ends_go_on_where_a_batch_says_nothing() -> None:
    topic = Topic()
    topic.commit("Q", 0, {}, {0: 4, 1: 4})
    topic.commit("Q", 1, {}, {1: 6})
    newest = topic.history.newest("Q")
    assert newest is not None
    assert newest.ends == {0: 4, 1: 6}


@pytest.mark.parametrize(("partitions", "kept_max"), [(1, COMMITS_MAX), (5_000, COMMITS_MIN)])
def test_it_is_bounded_and_keeps_the_newest(partitions: int, kept_max: int) -> None:
    topic, batches = Topic(), 5 * kept_max
    for batch in range(batches):
        ends = dict.fromkeys(range(partitions), batch + 1)
        topic.commit("Q", batch, {"S": ends}, ends)
        newest = topic.history.newest("Q")
        assert newest is not None
        assert newest.batch == batch
    kept = topic.history._commits["Q"]
    assert len(kept) <= kept_max
    assert [each.batch for each in kept] == sorted(each.batch for each in kept)
    found = topic.history.read_by("Q", dict.fromkeys(range(partitions), batches - 1))
    assert found is not None, "an older one, less exact"
    assert found.ends[0] <= batches - 1
