"""The last commits of each query, so that a reader of its topic can tell what it has read. Pure.

`ProgressBook` knows the newest commit only. But what a query has read of another one's topic mostly
ends at an older commit of that one. A bounded number of commits is kept: which of the older ones go
costs precision, never truth, since a reader that passes the newest one is known to have it all.

Not here: what follows from them (`covered_offsets.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.source_instant import Offsets
from standpipe.model import Progress

#: commits of a query that are kept, and how many offsets they may have together
COMMITS_MAX: Final = 32
NUMBERS_MAX: Final = 32_768
#: whatever their size
COMMITS_MIN: Final = 4


class PastCommit(NamedTuple):
    """A batch of a query was committed: what it had read, and where its own topic ended."""

    batch: int
    lease_epoch: int
    sources: Offsets
    #: Kafka's ids of the sources and of its own topic; "": not given
    topic_ids: Mapping[str, str]
    own_topic_id: str
    ends: Mapping[int, int]

    @property
    def numbers(self) -> int:
        """How many offsets it has."""
        return len(self.ends) + sum(map(len, self.sources.values()))


class CommitHistory:
    """Commits come in the order of the progress topic."""

    def __init__(self) -> None:
        self._commits: dict[str, list[PastCommit]] = {}
        self._news = set[str]()

    def take(self, progress: Progress, book: ProgressBook) -> None:
        """A record that the book has just taken. It counts if it commits something."""
        if book.newest(progress.query_id) is not progress:
            return
        ends = book.committed_ends(progress.query_id)
        commit = PastCommit(
            progress.commit.batch,
            progress.commit.lease_epoch,
            progress.sources,
            progress.source_topic_ids,
            progress.topic_id,
            ends,
        )
        commits = self._commits.setdefault(progress.query_id, [])
        commits.append(commit)
        self._news.add(progress.query_id)
        if len(commits) > max(COMMITS_MIN, min(COMMITS_MAX, NUMBERS_MAX // (commit.numbers or 1))):
            del commits[1:-1:2]

    def newest(self, query_id: str) -> PastCommit | None:
        """The newest commit; None: there is none."""
        commits = self._commits.get(query_id)
        return commits[-1] if commits else None

    def read_by(
        self, query_id: str, offsets: Mapping[int, int], topic_id: str = ""
    ) -> PastCommit | None:
        """The newest commit whose rows all lie below these offsets of the query's own topic. None:
        none that is known. `topic_id`: of the topic that was read; "": not given."""
        for commit in reversed(self._commits.get(query_id, ())):
            if topic_id and commit.own_topic_id and commit.own_topic_id != topic_id:
                continue
            if all(offsets.get(partition, 0) >= end for partition, end in commit.ends.items()):
                return commit
        return None

    def writers(self) -> dict[str, frozenset[str]]:
        """{Kafka's id of a topic: the queries whose newest commits wrote to it}."""
        found: dict[str, set[str]] = {}
        for query_id, commits in self._commits.items():
            if commits[-1].own_topic_id:
                found.setdefault(commits[-1].own_topic_id, set()).add(query_id)
        return {topic_id: frozenset(queries) for topic_id, queries in found.items()}

    def take_news(self) -> frozenset[str]:
        """The queries with commits since the last call."""
        news, self._news = frozenset(self._news), set[str]()
        return news
