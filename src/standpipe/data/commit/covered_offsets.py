"""Which offsets of its source topics a batch covers, through all queries before it. Pure.

An offset is covered if every record before it was read, by the query and by each query on the way,
and whatever came of it is in the rows. Read, not kept: records that are late or bad count.

    clients ──► S ──► FIRST ──► F ──► SECOND
                      commit: S up to 7, F ends at 4        (batch 3)
                      commit: S up to 9, F ends at 5        (batch 4)
                                      commit: F up to 4: covers S up to 7

What SECOND has read of F ends at or after the rows of FIRST's batch 3, so its rows have all of S
that batch 3 had. A topic that is reached on several ways is covered as far as on the worst. Of a
way of which nothing is known yet, nothing is covered. It is named all the same: a topic that is not
named at all is none that the table depends on.

A query that was terminated, or whose stream was dropped, counts until all that it had written is
read. The catalog has forgotten it, so it is found by the id of the topic that its commits name.

A batch that writes no rows covers more without a batch of those who read it, so what is known of a
batch may grow. It does not shrink while the same queries lead to the table.

A topic may join a chain later, by an INSERT INTO … SELECT. What is known of older batches does not
say how much of it they have, so from then on it names the topic, with nothing of it. Who judges by
a newer catalog than it was found out by waits, if another way leads to the table there.

Rejected: the pipeline composes the offsets and writes them into the progress record. The record
would grow with all topics of the chain, and older pipelines would not write them.

Not here: which commits are valid (`progress.py`); what a session wrote (`written_offsets.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

from msgspec import field
from msgspec.structs import replace

from standpipe.data.commit.commit_history import CommitHistory, PastCommit
from standpipe.data.commit.committed import written_by_one_query
from standpipe.model import Record, Snapshot

#: batches of a table that are told, and how many offsets they may have together; one is always
BATCHES_MAX: Final = 8
NUMBERS_MAX: Final = 8_192
#: looks at queries in circles for one table; beyond, nothing is taken to be covered
ROUNDS_MAX: Final = 500


class TopicOffsets(Record, frozen=True, kw_only=True):
    """Of one topic: Kafka's id, "" if it is not known, and an offset of each partition. A partition
    that is left out is at 0."""

    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict[int, int])


class CoveredBatch(Record, frozen=True, kw_only=True):
    """A batch, committed under a lease epoch, and the offsets that it covers. `topics`: all that
    its table depends on, even if nothing of them is covered."""

    batch: int
    lease_epoch: int
    topics: dict[str, TopicOffsets]


class CoveredBatches(Record, frozen=True, kw_only=True):
    """What is known of the newest batches of a table, the oldest first.

    `way`: the way to it (`QueryGraph.way_to`), by the catalog at `log_index`.
    """

    batches: tuple[CoveredBatch, ...] = ()
    way: str = ""
    log_index: int = 0

    def after(self, newest: CoveredBatch) -> CoveredBatches:
        """With what is known now of the newest batch. What an older batch covers, it does, too; a
        batch that is not newer starts the list again: Kafka has lost commits."""
        if not self.batches:
            return replace(self, batches=(newest,))
        last = self.batches[-1]
        if newest.batch < last.batch or newest.lease_epoch < last.lease_epoch:
            return replace(self, batches=(newest,))
        topics = {
            topic: _greater(last.topics.get(topic), has) for topic, has in newest.topics.items()
        }
        if topics == last.topics:
            return self
        joined = CoveredBatch(batch=newest.batch, lease_epoch=newest.lease_epoch, topics=topics)
        is_same = (last.batch, last.lease_epoch) == (newest.batch, newest.lease_epoch)
        older = [_naming(each, topics) for each in self.batches]
        kept = [*(older[:-1] if is_same else older), joined]
        numbers = sum(len(each.offsets) for each in topics.values()) or 1
        room = max(1, min(BATCHES_MAX, NUMBERS_MAX // numbers))
        return replace(self, batches=tuple(kept[-room:]))

    def on_way(self, way: str, log_index: int) -> CoveredBatches:
        """As the catalog at `log_index` has the way to the table. On another way, what was known is
        void: a query that joins reads its topics from their beginning, and may keep records that
        all the others have dropped."""
        return self if way == self.way else CoveredBatches(way=way, log_index=log_index)

    def holds_for(self, way: str, log_index: int) -> bool:
        """Whether it names all topics of the table, as this catalog has them."""
        return way == self.way or self.log_index > log_index


def _naming(batch: CoveredBatch, topics: Iterable[str]) -> CoveredBatch:
    """With these topics, too, of which nothing is covered."""
    missing = {each: TopicOffsets() for each in topics if each not in batch.topics}
    return replace(batch, topics={**batch.topics, **missing}) if missing else batch


class ToldEnds(Record, frozen=True, kw_only=True):
    """Where topics ended when Kafka was asked, at `asked_boot_ms` on the node's boot clock or
    later; each has all its partitions."""

    asked_boot_ms: int
    topics: dict[str, TopicOffsets]


@dataclass(frozen=True)
class QueryGraph:
    """Which query reads and writes which topics."""

    #: {query: topics}
    reads: Mapping[str, frozenset[str]]
    #: {topic: queries whose commits say where their rows end in it}
    writers: Mapping[str, frozenset[str]]
    #: {topic: queries that copy their rows into it, too, and do not say how far}
    copiers: Mapping[str, frozenset[str]]
    #: topics that nobody but one query writes
    owned: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> QueryGraph:
        """Of the catalog. A query that was terminated counts as long as its table or stream is
        there. Others that are gone, `Chains` finds by their commits: rows of theirs may not be read
        yet."""
        sources = (*snapshot.sources, *snapshot.successors)
        writers = [(each.stored_form().topic, each.query_id) for each in sources if each.query_id]
        owners = {query_id for _, query_id in writers}
        topics = {source.name: source.topic for source in snapshot.sources}
        writers += [
            (topics[query.sink], query.query_id)  # of an INSERT INTO … SELECT
            for query in snapshot.queries
            if query.query_id not in owners and query.sink in topics
        ]
        copies = [
            (each.public_topic, each.query_id)
            for each in snapshot.sources
            if each.public_topic and each.query_id
        ]
        return cls(
            reads={
                query.query_id: frozenset(each.topic for each in query.plan.inputs)
                for query in snapshot.queries
                if not query.served_by  # no token names what it writes
            },
            writers=_sets(writers),
            copiers=_sets(copies),
            owned=frozenset(written_by_one_query(sources)),
        )

    def way_to(self, query_id: str) -> str:
        """A digest of all that leads to a query. Of tables that a program serves, the catalog does
        not say what they are made of: that may be anything."""
        found, begun = dict[str, list[object]](), [query_id]
        while begun:
            each = begun.pop()
            if each in found:
                continue
            topics = self.reads.get(each)
            if topics is not None and not topics:
                return self._whole
            found[each] = [self._named(topic) for topic in sorted(topics or ())]
            begun += [one for topic in topics or () for one in self.writers_of(topic)]
        return _digest(sorted(found.items()))

    def writers_of(self, topic: str) -> frozenset[str]:
        """The queries that write into a topic."""
        return self.writers.get(topic, frozenset()) | self.copiers.get(topic, frozenset())

    def _named(self, topic: str) -> tuple[object, ...]:
        writers, copiers = self.writers.get(topic, ()), self.copiers.get(topic, ())
        return topic, topic in self.owned, sorted(writers), sorted(copiers)

    @cached_property
    def _whole(self) -> str:
        read = {topic for topics in self.reads.values() for topic in topics}
        named = [self._named(each) for each in sorted({*read, *self.writers, *self.copiers})]
        return _digest([sorted((each, sorted(has)) for each, has in self.reads.items()), named])


def _digest(what: object) -> str:
    return blake2b(repr(what).encode(), digest_size=12).hexdigest()


def _sets(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return {key: frozenset(values) for key, values in found.items()}


class Chains:
    """What the commits of all queries say together. Of use until the next one is taken."""

    def __init__(self, graph: QueryGraph, history: CommitHistory) -> None:
        self._graph, self._history = graph, history
        #: {topic id: queries that have written to it}
        self._wrote = history.writers()
        self._found: dict[tuple[object, ...], dict[str, TopicOffsets]] = {}
        #: queries that may lead back to themselves
        self._cyclic: frozenset[str] = frozenset()
        #: of ROUNDS_MAX, for the table at hand
        self._rounds = 0

    def before(self, query_id: str) -> frozenset[str]:
        """The query, and all on the way to it."""
        return frozenset(self._ways(query_id))

    def newest(self, query_id: str) -> CoveredBatch | None:
        """What the newest committed batch covers; None: nothing is committed."""
        commit = self._history.newest(query_id)
        if commit is None:
            return None
        self._cyclic, self._rounds = _in_cycles(self._ways(query_id)), 0
        return CoveredBatch(
            batch=commit.batch,
            lease_epoch=commit.lease_epoch,
            topics=self._covered(query_id, commit, (query_id,)),
        )

    def _ways(self, query_id: str) -> dict[str, frozenset[str]]:
        """The query and all on the way to it, each with those that it reads from."""
        found: dict[str, frozenset[str]] = {}
        begun = [query_id]
        while begun:
            each = begun.pop()
            if each not in found:
                writers = [
                    self._writers(topic, self._topic_id(each, topic)) for topic in self._reads(each)
                ]
                found[each] = frozenset[str]().union(*writers)
                begun += found[each]
        return found

    def _covered(
        self, query_id: str, commit: PastCommit | None, way: tuple[str, ...]
    ) -> dict[str, TopicOffsets]:
        """What a commit covers; None: one that is not known. `way`: the queries that lead here. Of
        queries that read each other's topics, only the first turn counts."""
        # the way matters only to those that it may lead back to
        round_ = self._cyclic.intersection(way) if query_id in self._cyclic else frozenset[str]()
        place = query_id, id(commit), round_
        found = self._found.get(place)
        if found is None:
            self._rounds += query_id in self._cyclic
            if self._rounds > ROUNDS_MAX:
                return self._nothing(query_id)
            found = self._found[place] = self._find(query_id, commit, way)
        return found

    def _nothing(self, query_id: str) -> dict[str, TopicOffsets]:
        """All topics on the way to a query, and nothing of them."""
        return {
            topic: TopicOffsets()
            for each in self._ways(query_id)
            for topic in self._reads(each)
            if topic not in self._graph.owned
        }

    def _find(
        self, query_id: str, commit: PastCommit | None, way: tuple[str, ...]
    ) -> dict[str, TopicOffsets]:
        found: dict[str, TopicOffsets] = {}
        for topic in self._reads(query_id):
            read: Mapping[int, int] = {}
            topic_id = ""
            if commit is not None:
                read = commit.sources.get(topic, read)
                topic_id = commit.topic_ids.get(topic, "")
            if topic not in self._graph.owned:
                _worse(found, topic, TopicOffsets(topic_id=topic_id, offsets=dict(read)))
            named_id = topic_id or self._topic_id(query_id, topic)
            for writer in self._writers(topic, named_id) - {*way}:
                # of a copier, no commit says how far its copy is
                is_told = writer not in self._graph.copiers.get(topic, ())
                before = self._history.read_by(writer, read, topic_id) if is_told else None
                if self._is_over(writer, topic) and before is self._history.newest(writer):
                    continue  # all that it ever wrote was read
                for each, has in self._covered(writer, before, (*way, writer)).items():
                    _worse(found, each, has)
        return found

    def _reads(self, query_id: str) -> frozenset[str]:
        newest = self._history.newest(query_id)
        planned = self._graph.reads.get(query_id, frozenset())
        # of a source that is no topic, a program's batches have a name with a colon
        read = () if newest is None else (each for each in newest.sources if ":" not in each)
        return planned.union(read)

    def _writers(self, topic: str, topic_id: str) -> frozenset[str]:
        """By the catalog, and those that it no longer has, by what they have written."""
        wrote = self._wrote.get(topic_id, frozenset()) if topic_id else frozenset[str]()
        return self._graph.writers_of(topic) | wrote

    def _is_over(self, query_id: str, topic: str) -> bool:
        """Whether a query writes no more: the catalog has neither it nor what it wrote."""
        return query_id not in self._graph.reads and query_id not in self._graph.writers_of(topic)

    def _topic_id(self, query_id: str, topic: str) -> str:
        """Of a topic that a query reads, by its newest commit."""
        newest = self._history.newest(query_id)
        return "" if newest is None else newest.topic_ids.get(topic, "")


def _in_cycles(ways: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Those of the queries that lead to themselves, and those between two such cycles."""
    left, count = {each: froms & ways.keys() for each, froms in ways.items()}, -1
    while len(left) != count:
        count = len(left)
        read = frozenset[str]().union(*left.values())
        left = {each: froms for each, froms in left.items() if froms and each in read}
        left = {each: froms & left.keys() for each, froms in left.items()}
    return frozenset(left)


def _worse(found: dict[str, TopicOffsets], topic: str, other: TopicOffsets) -> None:
    """A topic is reached on another way."""
    one = found.get(topic)
    if one is None:
        found[topic] = other
    elif one.topic_id != other.topic_id and one.topic_id and other.topic_id:
        found[topic] = TopicOffsets()  # two topics of one name: one way has yet to see the new one
    else:
        both = one.offsets.keys() & other.offsets.keys()
        least = {each: min(one.offsets[each], other.offsets[each]) for each in both}
        found[topic] = TopicOffsets(topic_id=one.topic_id or other.topic_id, offsets=least)


def _greater(one: TopicOffsets | None, other: TopicOffsets) -> TopicOffsets:
    """Both are covered; of two topics with one name, the newer one's."""
    if one is None or (one.topic_id != other.topic_id and other.topic_id):
        return other
    every = one.offsets.keys() | other.offsets.keys()
    most = {each: max(one.offsets.get(each, 0), other.offsets.get(each, 0)) for each in every}
    return TopicOffsets(topic_id=one.topic_id, offsets=most)
