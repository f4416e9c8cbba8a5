"""Whether a query's topics are still those that its commits name, with the same partitions.

Spark and Kafka use names and offsets. A topic that was deleted and recreated would be read from the
middle, or written to until its offsets look like the old ones. So the ids of all topics are
requested at the query's start, before a batch writes and before it commits, each time in parallel
with another request, and every few seconds while no batch runs. If they differ, the query is FAILED
as TOPIC_CHANGED, with the statements that resolve it.

New partitions of the table's own topic are not a failure: Standpipe does not use them. A `notice`
reports them, because other programs may. Another notice reports a public topic that was recreated:
nothing reads it here, and the next start fills it (`Checkpoint.is_published`). New partitions of a
source are a failure: keys move to other partitions from then on, so offsets no longer show the
newest record of a key.

The decisions are in `data/commit/topic_identity.py`, the requests to Kafka in
`adapters/kafka/topic_ids.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from standpipe.data.commit.takeover import standing
from standpipe.data.commit.topic_identity import Change, How, TopicKnown, TopicSeen, changes
from standpipe.errors import KafkaUnavailable
from standpipe.model import Progress
from standpipe.pipeline.failures import GONE_S, NotYet, QueryFailed
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.wanted import WantedQuery
from standpipe.topics import is_never_written


class TopicCheck:
    """The topics of one run of one query. Safe to ask from several threads."""

    def __init__(
        self, wanted: WantedQuery, log: ProgressLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wanted, self.log, self._clock = wanted, log, clock
        self._known = {
            topic: TopicKnown("", wanted.partitions.get(topic, 0))
            for topic in (source.topic for source in wanted.query.plan.inputs)
        }
        self._known[wanted.table.topic] = TopicKnown("", wanted.table.partitions)
        self._gone_since: float | None = None
        #: the failure that `look` has found; None: none, or not known
        self.failure: QueryFailed | None = None
        #: Kafka's id of the public topic, as it was at the start; "": unknown, or there is none
        self.public_id = ""
        self._own_notice = self._public_notice = ""

    @property
    def notice(self) -> str:
        """What to report although the query continues."""
        return " ".join(filter(None, (self._own_notice, self._public_notice)))

    # ---------------------------------------------------------------------------- at the start

    def need(self, service_id: str) -> dict[str, TopicSeen]:
        """All topics that the query needs, as they are now. Raises NotYet, KafkaUnavailable, and
        QueryFailed if it would write a topic that is internal to the service."""
        self._check_sinks(service_id)
        published = self._wanted.published_topic
        names = {*self._known, self.log.topic} | ({published} if published else set[str]())
        seen = self.log.ask_topics(names)()
        absent = sorted(names - seen.keys())
        if absent:
            what = f"waiting for topics: {', '.join(absent)}"
            raise NotYet("TOPIC_MISSING", what, self._gone(seen))
        return seen

    def _check_sinks(self, service_id: str) -> None:
        table = self._wanted.table
        for topic in filter(None, (table.topic, self._wanted.published_topic)):
            if is_never_written(topic, service_id):
                raise QueryFailed(
                    "TOPIC_INTERNAL",
                    f"{table.name} is stored in {topic}, which is internal. An older release let a"
                    f" statement name it: DROP {table.kind} {table.name}.",
                )

    def begin(self, newest: Progress | None, seen: Mapping[str, TopicSeen]) -> None:
        """Compare `seen` with what was committed. Raises QueryFailed, NotYet.

        `newest`: the query's newest valid progress record. Ids that it lacks (nothing is committed
        yet, or an older release committed it) are taken from `seen`.
        """
        self._name(newest)
        self._judge(seen)
        if published := self._wanted.published_topic:
            self.public_id = seen[published].topic_id
        for topic, known in self._known.items():
            if not known.topic_id:
                self._known[topic] = TopicKnown(seen[topic].topic_id, known.partitions)

    def _name(self, newest: Progress | None) -> None:
        table = self._wanted.table.topic
        for topic, known in self._known.items():
            ids = newest.source_topic_ids if newest else {}
            named = ids.get(topic, "")
            if topic == table and newest is not None:
                named = newest.topic_id
            self._known[topic] = TopicKnown(named, known.partitions)

    def _gone(self, seen: Mapping[str, TopicSeen]) -> QueryFailed | None:
        """The failure if commits name an absent topic: a topic with its id cannot return."""
        if self.log.topic not in seen:
            return None
        wanted = self._wanted
        self._name(standing(self.log.records(), wanted.query_id, wanted.lease_epoch).newest)
        gone = [each for each in changes(self._known, seen) if each.how is How.GONE]
        return self._failed(gone) if gone else None

    # -------------------------------------------------------------------------- while it runs

    @property
    def topic_id(self) -> str:
        """`Progress.topic_id` of the next record."""
        return self._known[self._wanted.table.topic].topic_id

    @property
    def source_topic_ids(self) -> dict[str, str]:
        """`Progress.source_topic_ids` of the next record."""
        sources = {source.topic for source in self._wanted.query.plan.inputs}
        return {t: known.topic_id for t, known in self._known.items() if t in sources}

    def ask(self) -> Callable[[], None]:
        """Send the request. The returned function waits for the answer; it raises QueryFailed if a
        topic was recreated, and KafkaUnavailable if Kafka does not answer."""
        answer = self.log.ask_topics(self._known)

        def check() -> None:
            try:
                self._judge(answer())
            except NotYet as error:
                raise KafkaUnavailable(f"Kafka: {error.message}") from error

        return check

    def names(self) -> set[str]:
        """The topics that `look` checks."""
        published = self._wanted.published_topic
        return {*self._known, published} if published else {*self._known}

    def look(self, seen: Mapping[str, TopicSeen]) -> None:
        """Check while no batch runs, and record the outcome. `seen`: what Kafka has just said of
        these topics, and others. Never raises."""
        self._look_at_public(seen)
        try:
            self._judge(seen)
        except QueryFailed as failure:
            self.failure = failure
        except NotYet as missing:
            now = self._clock()
            self._gone_since = now if self._gone_since is None else self._gone_since
            if now - self._gone_since >= GONE_S:
                self.failure = missing.final_failure
        else:
            self._gone_since = None

    def _look_at_public(self, seen: Mapping[str, TopicSeen]) -> None:
        """A public topic that was recreated lacks the rows from before until the next start."""
        published, query_id = self._wanted.published_topic, self._wanted.query_id
        known = {published: TopicKnown(self.public_id, 0)} if published else {}
        found = [each for each in changes(known, seen) if each.how is How.RECREATED]
        self._public_notice = "".join(
            f"{each}, and lacks older rows. To write them: PAUSE {query_id}; and once SHOW QUERIES "
            f"says PAUSED, RESUME {query_id};"
            for each in found
        )

    def _judge(self, seen: Mapping[str, TopicSeen]) -> None:
        found = changes(self._known, seen)
        harmless = [each for each in found if self._is_harmless(each)]
        self._own_notice = self._message(harmless) if harmless else ""
        final = [each for each in found if each not in harmless and each.how is not How.GONE]
        if final:
            raise self._failed(final)
        if gone := [each for each in found if each.how is How.GONE]:
            names = ", ".join(each.topic for each in gone)
            raise NotYet("TOPIC_MISSING", f"waiting for topics: {names}", self._failed(gone))

    def _is_harmless(self, change: Change) -> bool:
        is_sink = change.topic == self._wanted.table.topic
        return is_sink and change.how is How.PARTITIONS and _has_more(change)

    # ------------------------------------------------------------------------------- messages

    def _failed(self, found: list[Change]) -> QueryFailed:
        return QueryFailed("TOPIC_CHANGED", self._message(found))

    def _message(self, found: list[Change]) -> str:
        return f"{'; '.join(map(str, found))}. {self._next_step(found)}"

    def _next_step(self, found: list[Change]) -> str:
        table, topics = self._wanted.table, {each.topic for each in found}
        drop, create = f"DROP {table.kind} {table.name}", f"and then {self._wanted.query.statement}"
        if table.topic in topics:
            if all(map(self._is_harmless, found)):
                said = f"{table.name} does not use the new ones. To remove them"
            else:
                said = f"What was committed to {table.topic} is lost. To rebuild the table"
            # the topic under a CREATE SOURCE TABLE must not be deleted
            return f"{said}: {drop}{'' if table.is_read_only else ' DELETE TOPIC'}; {create}"
        sources = sorted(
            f"{'TABLE' if source.is_table else 'STREAM'} {source.source}"
            for source in self._wanted.query.plan.inputs
            if source.topic in topics
        )
        if any(each.how is How.PARTITIONS for each in found):
            drops = "".join(f" DROP {source};" for source in sources)
            return (
                "Records of a key are in other partitions than before, so their order is unknown. "
                f"To start again: {drop};{drops} declare {', '.join(sources)} again, {create}"
            )
        return f"To start again with the topic as it is: {drop}; {create}"


def look_at_all(checks: Sequence[TopicCheck]) -> None:
    """Let each of them look, with one request for all, if Kafka answers. Never raises."""
    if not checks:
        return
    names = set[str]().union(*(each.names() for each in checks))
    with suppress(KafkaUnavailable):
        seen, silent = checks[0].log.ask_each(names)
        for each in checks:
            if not each.names() & silent:
                each.look(seen)


def _has_more(change: Change) -> bool:
    return change.seen is not None and change.seen.partitions > change.known.partitions
