"""Asks Kafka where the source topics of this node's tables end, twice a second. Never waits.

The answers date the tables, and workers learn from them whether a session can have written what its
token says.

Not here: what follows from the ends (`data/commit/query_instants.py`), ids and sizes of topics
(`adapters/kafka/topic_ids.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from standpipe.adapters.files.published import RecordWriter
from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.ends import Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.data.commit.covered_offsets import ToldEnds, TopicOffsets
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.query_instants import EndsAnswer, QueryInstants, root_topics
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.node.covered_files import ends_path

#: With `adapters.kafka.topic_ids.PROBE_MS`, by how much a source lag may be too large while nothing
#: is written.
EVERY_MS: Final = 500
#: Added for each partition: its answer costs the tailer processor time.
PER_PARTITION_MS: Final = 1


class SourceEnds:
    """The questions of one tailer, and what the answers say about each query."""

    def __init__(self, kafka: Kafka, status: Path) -> None:
        """`status`: folder for the files that workers read."""
        self._reader = EndsReader(kafka)
        self._file = RecordWriter(ends_path(status))
        self._instants = QueryInstants()
        #: the progress that the instants are of
        self._book: ProgressBook | None = None
        self._held: AbstractSet[str] = frozenset()
        self._answer: Future[Ends] | None = None
        self._due_ms = 0
        #: what Kafka said of `topics` last, and when it was asked; and as of the open question
        self._seen: tuple[int, Mapping[str, TopicSeen]] = (0, {})
        self._asked = self._seen
        #: at the beginning of the chains of the queries of this node's tables
        self.topics: frozenset[str] = frozenset()

    def heard(self, at_ms: int, seen: Mapping[str, TopicSeen]) -> None:
        """What Kafka, when it was asked at `at_ms`, said of topics, of which `topics` may be some.

        Records from before that instant are in these topics and partitions. So the ends, which are
        asked for later, are dated by it: none of a topic or a partition that is new is passed over.
        """
        self._seen = (at_ms, {topic: seen[topic] for topic in self.topics if topic in seen})

    def tick(
        self,
        now_ms: int,
        book: ProgressBook,
        query_ids: AbstractSet[str],
        writers: Mapping[str, str],
    ) -> None:
        """Take the answer that has come; ask again when it is time. `book`: of all progress.
        `query_ids`: whose tables this node holds. `writers`: {topic: the query that writes it}."""
        if book is not self._book:  # read again: what was found goes with what was known then
            self._book, self._instants, self._answer = book, QueryInstants(), None
        self._held = query_ids
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            if answer.exception() is None:  # else the lag grows until Kafka answers again
                at_ms, asked = self._asked
                ids = {topic: seen.topic_id for topic, seen in asked.items()}
                told = EndsAnswer(at_ms, self._whole(answer.result()), ids)
                self._instants.take(told, book, query_ids, writers)
                self._file.write(_for_workers(told))
        if self._answer is not None or now_ms < self._due_ms:
            return
        self.topics = root_topics(book, query_ids, writers)
        _, seen = self._asked = self._seen
        partitions = sum(each.partitions for each in seen.values())
        self._due_ms = now_ms + EVERY_MS + PER_PARTITION_MS * partitions
        if partitions:
            self._answer = self._reader.ask(
                Partition(topic, number)
                for topic, each in seen.items()
                for number in range(each.partitions)
            )

    def covered(self, book: ProgressBook) -> dict[str, int]:
        """{query: as of `QueryInstants.covered`} of the tables that this node holds."""
        if book is not self._book:
            return {}
        return {query_id: self._instants.covered(query_id, book) for query_id in self._held}

    def _whole(self, told: Ends) -> dict[str, dict[int, int]]:
        """Of the topics of which Kafka told every end."""
        found: dict[str, dict[int, int]] = {}
        for partition, end in told.items():
            if end is not None:
                found.setdefault(partition.topic, {})[partition.partition] = end
        return {
            topic: ends
            for topic, ends in found.items()
            if len(ends) == self._asked[1][topic].partitions
        }


def _for_workers(told: EndsAnswer) -> ToldEnds:
    topics = {
        topic: TopicOffsets(topic_id=told.topic_ids.get(topic, ""), offsets=dict(ends))
        for topic, ends in told.ends.items()
    }
    return ToldEnds(asked_boot_ms=told.at_ms, topics=topics)
