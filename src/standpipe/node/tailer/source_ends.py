"""Asks Kafka where the source topics of this node's tables end, twice a second. Never waits.

Not here: what follows from the ends (`data/commit/query_instants.py`), ids and sizes of topics
(`adapters/kafka/topic_ids.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import Final

from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.ends import Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.query_instants import EndsAnswer, QueryInstants, root_topics
from standpipe.data.commit.topic_identity import TopicSeen

#: By how much a source lag may be too large while nothing is written.
EVERY_MS: Final = 500
#: Added for each partition: its answer costs the tailer processor time.
PER_PARTITION_MS: Final = 1


class SourceEnds:
    """The questions of one tailer, and what the answers say about each query."""

    def __init__(self, kafka: Kafka) -> None:
        self._reader = EndsReader(kafka)
        self._instants = QueryInstants()
        self._answer: Future[Ends] | None = None
        self._due_ms = self._asked_ms = 0
        self._asked: Mapping[str, TopicSeen] = {}
        self._seen: Mapping[str, TopicSeen] = {}
        #: at the beginning of the chains of the queries of this node's tables
        self.topics: frozenset[str] = frozenset()

    def heard(self, seen: Mapping[str, TopicSeen]) -> None:
        """What Kafka says now about topics, of which `topics` may be some."""
        self._seen = {topic: seen[topic] for topic in self.topics if topic in seen}

    def tick(
        self,
        now_ms: int,
        book: ProgressBook,
        query_ids: AbstractSet[str],
        writers: Mapping[str, str],
    ) -> None:
        """Take the answer that has come; ask again when it is time. `writers`: {topic: the query
        that writes it}."""
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            if answer.exception() is None:  # else the lag grows until Kafka answers again
                ids = {topic: seen.topic_id for topic, seen in self._asked.items()}
                told = EndsAnswer(self._asked_ms, self._whole(answer.result()), ids)
                self._instants.take(told, book, query_ids, writers)
        if self._answer is not None or now_ms < self._due_ms:
            return
        self.topics = root_topics(book, query_ids, writers)
        partitions = sum(seen.partitions for seen in self._seen.values())
        self._due_ms = now_ms + EVERY_MS + PER_PARTITION_MS * partitions
        if partitions:
            self._asked, self._asked_ms = self._seen, now_ms
            self._answer = self._reader.ask(
                Partition(topic, number)
                for topic, seen in self._asked.items()
                for number in range(seen.partitions)
            )

    def covered(self, query_id: str, book: ProgressBook) -> int:
        """As of `QueryInstants`."""
        return self._instants.covered(query_id, book)

    def _whole(self, told: Ends) -> dict[str, dict[int, int]]:
        """Of the topics of which Kafka told every end."""
        found: dict[str, dict[int, int]] = {}
        for partition, end in told.items():
            if end is not None:
                found.setdefault(partition.topic, {})[partition.partition] = end
        return {
            topic: ends
            for topic, ends in found.items()
            if len(ends) == self._asked[topic].partitions
        }
