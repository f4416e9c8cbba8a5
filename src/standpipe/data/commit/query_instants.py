"""Up to which instant all source records are in the newest committed batch of each query. Pure.

A node asks Kafka where the topics end that clients write. If the newest batch of a query covers
these ends, it has all records from before the question, whether or not anything was written since:
an idle source is shown to be idle, even while no pipeline runs.

    clients ──► topic ──► query ──► its own topic ──► another query
    ends, asked at t      covers t: up to its committed ends now, all from before t is there

A query that reads another one's topic is dated through it: once its batch covers what the other one
had committed, it has what that one had. So a lag counts from the first topic of a chain, and the
records of a dead pipeline, which no commit covers, do not count.

Instants are on the caller's clock, which must not go back. Not here: asking Kafka
(`node/tailer/source_ends.py`); the instants that the pipeline finds (`source_instant.py`), which
date a replica before a node has asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.source_instant import Offsets, SourceInstants
from standpipe.model import Progress


@dataclass(frozen=True)
class EndsAnswer:
    """Where topics end, in all their partitions. `topic_ids`: Kafka's; "": it has none."""

    at_ms: int
    ends: Offsets
    topic_ids: Mapping[str, str]


def root_topics(
    book: ProgressBook, query_ids: Iterable[str], writers: Mapping[str, str]
) -> frozenset[str]:
    """The topics at the beginning of the chains that end in these queries. `writers`: {topic: the
    query that writes it}."""
    found = set[str]()
    for query_id in _with_upstream(book, query_ids, writers):
        newest = book.newest(query_id)
        found |= newest.sources.keys() - writers.keys() if newest else set()
    return frozenset(found)


def _with_upstream(
    book: ProgressBook, query_ids: Iterable[str], writers: Mapping[str, str]
) -> list[str]:
    """These queries and those before them, each after all that it reads."""
    found: dict[str, None] = {}
    begun = set[str]()

    def visit(query_id: str) -> None:
        if query_id in begun:
            return
        begun.add(query_id)
        newest = book.newest(query_id)
        for topic in newest.sources if newest else ():
            if topic in writers:
                visit(writers[topic])
        found[query_id] = None

    for query_id in sorted(query_ids):
        visit(query_id)
    return [*found]


class QueryInstants:
    """What the answers of Kafka say about the queries whose rows a node keeps."""

    def __init__(self) -> None:
        self._of: dict[str, SourceInstants] = {}

    def take(
        self,
        answer: EndsAnswer,
        book: ProgressBook,
        query_ids: AbstractSet[str],
        writers: Mapping[str, str],
    ) -> None:
        """A newer answer. `writers`: as of `root_topics`."""
        wanted = _with_upstream(book, query_ids, writers)
        self._of = {each: self._of.get(each) or SourceInstants() for each in wanted}
        for query_id in wanted:
            newest = book.newest(query_id)
            if newest is not None and newest.sources:
                self._take_one(query_id, newest, answer, book, writers)

    def _take_one(
        self,
        query_id: str,
        newest: Progress,
        answer: EndsAnswer,
        book: ProgressBook,
        writers: Mapping[str, str],
    ) -> None:
        at_ms, ends = answer.at_ms, dict[str, Mapping[int, int]]()
        for topic, covered in newest.sources.items():
            writer = writers.get(topic)
            if writer is not None:
                at_ms = min(at_ms, self.covered(writer, book))
                ends[topic] = book.committed_ends(writer)
            elif _is_same_topic(topic, covered, newest, answer):
                ends[topic] = answer.ends[topic]
            else:
                return
        if at_ms > 0:
            self._of[query_id].probed(at_ms, ends)

    def covered(self, query_id: str, book: ProgressBook) -> int:
        """The instant up to which the newest committed batch has all source records; 0: unknown.
        It does not fall."""
        newest, instants = book.newest(query_id), self._of.get(query_id)
        if newest is None or instants is None:
            return 0
        return instants.covered(newest.sources)


def _is_same_topic(
    topic: str, covered: Mapping[int, int], newest: Progress, answer: EndsAnswer
) -> bool:
    """Whether Kafka spoke of the topic that the batch has read. One of the same name that was
    created since has another id; its ends may lie below those of the batch, as they do when Kafka
    has lost records. An answer from before the batch does, too, and the next one will not."""
    ends = answer.ends.get(topic)
    if ends is None:
        return False
    read, told = newest.source_topic_ids.get(topic, ""), answer.topic_ids.get(topic, "")
    if read and told and read != told:
        return False
    return all(ends.get(partition, -1) >= offset for partition, offset in covered.items())
