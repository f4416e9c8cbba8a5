"""Push queries in sessions, in simulation: reads and push queries of one table, any interleaving.

A query commits batches to the table's topic, among records that it never commits; leases move on,
and the newest batch may be committed again. Rows that such a record hides are repaired. Replicas
apply batches late. Clients keep a session in which they read at any node, follow the table by one
push query after the other, leave them where they like, and lose connections at any byte. What they
see is judged by `tests/sim/push_histories.py`, which knows only what was committed, shown and
delivered.

The code under test: `session_token`, `control.routing.session`, `data.query.push`, `push_seen`,
`push_start`, `data.commit.committed`, a worker's `PushAnswer` and `PushSession`, the reads'
`KnownToken`, and the client's `PushReader` and session. Kafka is simulated (`SimTail`), and so are
the sockets. Seeds: `tests/sim/sessions.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec
from tests.unit.node.worker.push.test_push_query import snapshot_of
from tests.unit.node.workers import USERS

from standpipe.adapters.kafka.reader import Partition
from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.exchange import (
    HandOver,
    HttpAnswer,
    NoAnswer,
    OpenStream,
    Pause,
    ReadStream,
)
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.push import RESET, PushReader
from standpipe.client.core.session import ClientSession
from standpipe.control.routing.session import Stamp
from standpipe.data.commit.progress import serialise
from standpipe.data.commit.repair import Repeated
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.data.query.record_rows import TopicRecord
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import ServerError
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress, Source
from standpipe.node.worker.pull.session_read import SessionTokens
from standpipe.node.worker.push import push_query
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.push_query import PushAnswer
from standpipe.node.worker.push.stream_loop import Ending
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.head import Form
from standpipe.sql.lookup.push import push
from standpipe.sql.plans import PushPlan
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.parser import parse
from standpipe.topics import progress_topic

from .push_histories import (
    NO_COMMIT,
    Began,
    CommittedChanges,
    Delivered,
    Drained,
    Event,
    Opened,
    Pulled,
    PushJudge,
    Whole,
)

NODES, PARTITIONS, STEPS = ("a:1", "b:1", "c:1"), 2, 4_000
#: that a push query gets in one poll
POLL_MAX: Final = 4
TABLE: Final = msgspec.structs.replace(USERS, partitions=PARTITIONS, table_id="USERS_4")
STREAM: Final = msgspec.structs.replace(
    USERS, kind="STREAM", partitions=PARTITIONS, query_id=None, table_id=None, is_materialized=False
)
TEXT: Final = "SELECT * FROM USERS EMIT CHANGES;"
PROGRESS: Final = progress_topic("")


def plan_of(source: Source) -> PushPlan:
    """Of the push query, on a table or a stream."""
    (query,) = parse(TEXT)
    assert isinstance(query, Query)
    return push(query, {"USERS": source})


ID_BYTES: Final = b"k"
#: of strays, when they were written: nothing is compacted here
YOUNG_MS: Final = 2**62


@dataclass
class SimTail:
    """What a consumer has from Kafka: a few records of any partition, each in its order."""

    world: PushWorld
    places: dict[Partition, int]
    held: set[Partition] = field(default_factory=set[Partition])
    #: everything comes that there is, as the world ends
    is_whole: bool = False

    def poll(self, count: int) -> list[tuple[str, TopicRecord]]:
        chance = self.world.random
        found: list[tuple[str, TopicRecord]] = []
        for place in chance.sample(list(self.places), len(self.places)):
            share = POLL_MAX if self.is_whole else chance.randint(0, POLL_MAX)
            records = () if place in self.held else self.world.records(place)
            for record in [each for each in records if each.offset >= self.places[place]][:share]:
                found.append((place.topic, record))
                self.places[place] = record.offset + 1
        return found

    def hold(self, wanted: set[Partition]) -> None:
        self.held = set(wanted)

    def close(self) -> None: ...


@dataclass
class SimStream:
    """One push query of a client, over all of its connections."""

    number: int
    client: SimClient
    reader: PushReader
    steps: Generator[Any, Any, None]
    order: Any = None
    answer: PushAnswer | None = None
    #: bytes that are on their way
    out: bytes = b""
    is_ending: bool = False
    #: the token that the caller knew of at the last `Whole`
    told: str = ""


@dataclass
class SimClient:
    """One session."""

    name: str
    session: ClientSession = field(default_factory=ClientSession)
    stream: SimStream | None = None


class PushWorld:
    """One world, drawn from a seed."""

    source = TABLE

    def __init__(self, seed: int) -> None:
        self.random, self.plan = random.Random(seed), plan_of(self.source)
        self.counts = Counter[str]()
        self.now = 0
        self.changes = CommittedChanges(PARTITIONS)
        self.log: dict[Partition, list[TopicRecord]] = {
            Partition(self.source.topic, number): [] for number in range(PARTITIONS)
        } | {Partition(PROGRESS, 0): []}
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.sinks: dict[int, int] = {}
        self.commits: list[Stamp] = []
        self.epoch, self.number = 1, 0
        #: {partition: the last committed record}
        self.last: dict[int, TopicRecord] = {}
        #: (partition, node) -> how many commits its replica has
        self.applied = {(number, node): 0 for number in range(PARTITIONS) for node in NODES}
        self.tokens = {node: SessionTokens() for node in NODES}
        self.clients = [SimClient("s1"), SimClient("s2")]
        self.reads: list[Generator[None]] = []
        self.judge, self.events = PushJudge(self.changes), list[Event]()
        self.begun = 0
        snapshot = msgspec.structs.replace(snapshot_of(self.source), cluster_id="c")
        self.catalog: Any = SimpleNamespace(view=ClusterView.of(snapshot))
        #: for `runner.outcome_of`
        self.scheduler: Any = SimpleNamespace(now_us=0, events=0)

    # ------------------------------------------------------------------- time goes by

    def run(self) -> None:
        """Raises AssertionError with what the judge found."""
        acts = [
            (self._commit, 3),
            (self._stray, 2),
            (self._takeover, 0.4),
            (self._repair, 1),
            (self._apply, 20),
            (self._begin_read, 8),
            (self._go_on_reading, 20),
            (self._begin_stream, 6),
            (self._go_on_streaming, 90),
        ]
        choose = partial(self.random.choices, [a for a, _ in acts], [w for _, w in acts])
        with self._kafka():
            for _ in range(STEPS):
                self.now += 1
                choose()[0]()
                self.scheduler.events += 1
            for client in self.clients:
                self._drain(client)
        self.scheduler.now_us = self.now * 1000

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        self.judge.take(event)
        assert not self.judge.found, self.judge.found[0]

    def history(self) -> str:
        return "\n".join(map(str, self.events[-40:]))

    def _kafka(self) -> Any:
        """What a worker asks Kafka, asked of this world."""
        return patch.multiple(
            push_query,
            log_starts=lambda kafka, topic, partitions: dict.fromkeys(range(partitions), 0),
            read_topic=lambda kafka, *_: iter(tuple(self.log[Partition(PROGRESS, 0)])),
            log_ends=lambda kafka, topic, partitions: {**self.ends},
            topics_now=lambda kafka, topics: {self.source.topic: TopicSeen("id", PARTITIONS)},
            TopicTail=lambda kafka, places: SimTail(self, dict(places)),
        )

    def records(self, place: Partition) -> list[TopicRecord]:
        return self.log[place]

    # ------------------------------------------------------------------------ the query

    def _append(self, partition: int, by: Commit) -> int:
        """A record with a number of its own."""
        self.number += 1
        offset = self.ends[partition] + (self.random.random() < 0.05)  # a marker of a transaction
        value = b'{"N":%d}' % self.number
        headers = ((HEADER_COMMIT, commit_header(by)),)
        record = TopicRecord(ID_BYTES, value, 5, headers, partition, offset)
        self.log[Partition(self.source.topic, partition)].append(record)
        self.ends[partition] = offset + 1
        return self.number

    def _stray(self) -> None:
        """A record that nobody commits."""
        stray = Commit(lease_epoch=LeaseEpoch(self.epoch), batch=BatchId(0), attempt=9)
        self._append(self.random.randrange(PARTITIONS), stray)

    def _commit(self, batch: int | None = None) -> None:
        number = (self.commits[-1].batch + 1 if self.commits else 0) if batch is None else batch
        by = Commit(lease_epoch=LeaseEpoch(self.epoch), batch=BatchId(number), attempt=1)
        made: list[tuple[int, int]] = []
        for _ in range(self.random.choice([0, 1, 2, 6])):
            if self.random.random() < 0.2:
                self._stray()
            partition = self.random.randrange(PARTITIONS)
            made.append((partition, self._append(partition, by)))
            self.last[partition] = self.log[Partition(self.source.topic, partition)][-1]
        self._end_commit(by)
        self.commits.append(Stamp(number, self.epoch))
        self.changes.commit(made)

    def _end_commit(self, by: Commit) -> None:
        ends = {number: Offset(end) for number, end in self.ends.items()}
        progress = Progress(
            query_id=TABLE.query_id or "",
            commit=by,
            sinks=ends,
            starts={**self.sinks},
            committed_at_ms=self.now,
        )
        self.sinks = {**self.ends}
        records = self.log[Partition(PROGRESS, 0)]
        key, value = serialise(progress)
        records.append(TopicRecord(key, value, 5, (), 0, len(records)))

    def _repair(self) -> None:
        """Append the last committed record of a partition again, if strays came after it. To the
        table it is no change."""
        if not self.commits:
            return
        lease_epoch, batch = LeaseEpoch(self.epoch), BatchId(self.commits[-1].batch)
        by = Commit(lease_epoch=lease_epoch, batch=batch, attempt=1000 + len(self.commits))
        for partition, record in self.last.items():
            records = self.log[Partition(self.source.topic, partition)]
            strays = [each.offset for each in records if each.offset > record.offset]
            if strays and self.random.random() < 0.7:
                header = Repeated(record.offset, strays[0], YOUNG_MS).header
                headers = ((HEADER_COMMIT, commit_header(by)), header)
                again = replace(record, headers=headers, offset=self.ends[partition])
                records.append(again)
                self.last[partition], self.ends[partition] = again, again.offset + 1
                self.counts["rows repaired"] += 1
        self._end_commit(by)

    def _takeover(self) -> None:
        """The next holder of the lease commits the newest batch again, or goes on."""
        self.epoch += 1
        if self.commits and self.random.random() < 0.5:
            self._commit(self.commits[-1].batch)
            self.counts["batches committed again"] += 1

    def _apply(self) -> None:
        place = self.random.choice(sorted(self.applied))
        if self.applied[place] < len(self.commits):
            self.applied[place] += self.random.randint(1, len(self.commits) - self.applied[place])

    # ------------------------------------------------------------------------- reads

    def _begin_read(self) -> None:
        if len(self.reads) < 3:
            self.reads.append(self._read(self.random.choice(self.clients)))

    def _go_on_reading(self) -> None:
        if self.reads:
            read = self.random.choice(self.reads)
            if next(read, self) is self:
                self.reads.remove(read)

    def _read(self, client: SimClient) -> Generator[None]:
        """Of one partition or both, each at a replica that covers the token; else it is refused."""
        begin, token = self.now, client.session.token
        yield
        known = self.tokens[self.random.choice(NODES)].of(token, TABLE, "c", no_files())
        parts: dict[int, int] = {}
        for number in self.random.choice(([0], [1], [0, 1])):
            nodes = self.random.sample(NODES, len(NODES))
            there = [self.applied[number, node] - 1 for node in nodes]
            covering = [at for at in there if at != NO_COMMIT and known.covers(self.meta(at))]
            if not covering:
                self.counts["reads refused"] += 1
                return
            parts[number] = covering[0]
            yield
        self.counts["reads with parts of several batches"] += len(set(parts.values())) > 1
        client.session.saw(known.token([self.commits[at] for at in parts.values()]))
        self._tell(Pulled(client.name, begin, self.now, parts))
        self.counts["reads answered"] += 1

    def meta(self, commit: int) -> StoreMeta:
        """Of rows that show this commit."""
        batch, epoch = self.commits[commit]
        return StoreMeta(
            identity=StoreIdentity(table_id="USERS_4", generation=1, partition=0),
            position=Offset(commit),
            batch=BatchId(batch),
            lease_epoch=LeaseEpoch(epoch),
        )

    # ------------------------------------------------------------------- push queries

    def _begin_stream(self) -> None:
        client = self.random.choice(self.clients)
        if client.stream is not None:
            if self.random.random() < 0.1:
                is_between = isinstance(client.stream.order, HandOver)
                self.counts["push queries left between two rows"] += is_between
                client.stream = None  # its caller leaves it, wherever it is
                self.counts["push queries left"] += 1
            return
        is_whole = self.random.random() < 0.15
        given: Mapping[str, object] = {RESET: "earliest"} if is_whole else {}
        reader = PushReader(
            Nodes(NODES), lambda: self.now / 1000, TEXT, given, 30.0, session=client.session
        )
        self.begun += 1
        self.counts["push queries"] += 1
        self.counts["push queries behind what was seen"] += bool(client.session.token)
        client.stream = SimStream(self.begun, client, reader, reader.run())
        self._tell(Began(client.name, self.begun, self.now, is_whole))
        client.stream.order = next(client.stream.steps)
        client.stream.told = reader.token

    def _go_on_streaming(self) -> None:
        running = [each.stream for each in self.clients if each.stream is not None]
        if running:
            self._step(self.random.choice(running))

    def _step(self, stream: SimStream) -> bool:
        """Carry out one order of the client; False: it waits for the node."""
        order, fact = stream.order, None
        if isinstance(order, OpenStream):
            fact = self._opened(stream, order)
        elif isinstance(order, HandOver):
            number = int(order.row["N"])
            self._tell(Delivered(stream.number, self.now, number))
            self.counts["rows delivered"] += 1
        elif isinstance(order, ReadStream):
            fact = self._arrived(stream)
            if fact is None:
                return False
        else:
            assert isinstance(order, Pause)
        try:
            stream.order = stream.steps.send(fact)
        except ServerRefused:
            stream.client.stream = None
            return True
        if not isinstance(stream.order, HandOver) and stream.reader.token != stream.told:
            stream.told = stream.reader.token
            self._tell(Whole(stream.number, self.now))
        return True

    def _opened(self, stream: SimStream, order: OpenStream) -> HttpAnswer | NoAnswer:
        stream.answer, stream.out, stream.is_ending = None, b"", False
        if self.random.random() < 0.1:
            return NoAnswer("refused", was_sent=False)
        asked = parse_lookup(order.request.body)
        answer = PushAnswer(
            plan=self.plan,
            properties=asked.properties,
            form=PushForm(Form.ARRAY),
            query_id=f"q{stream.number}",
            map=self.catalog,
            kafka="",
            session_text=asked.session,
            now_s=lambda: self.now / 50,
            wall_s=lambda: self.now / 1000,
        )
        answer.open()
        if not stream.reader.token:
            self._tell(Opened(stream.number, self.now))
        stream.answer, stream.out = answer, answer.head()
        self.counts["connections"] += 1
        return HttpAnswer(200, {}, b"")

    def _arrived(self, stream: SimStream) -> bytes | NoAnswer | None:
        """What comes next; None: nothing yet."""
        answer = stream.answer
        assert answer is not None
        if stream.out:
            whole = len(stream.out)
            cut = self.random.choice([whole, whole, self.random.randint(1, whole)])
            if self.random.random() < 0.02:
                self.counts["connections that broke"] += 1
                return NoAnswer("reset", was_sent=True)
            data, stream.out = stream.out[:cut], stream.out[cut:]
            return data
        if stream.is_ending:
            return b""
        if self.random.random() < 0.01:
            stream.out, stream.is_ending = answer.last(Ending.LEAVING), True
            self.counts["nodes that left"] += 1
            return None
        if self.random.random() < 0.004:
            stream.out, stream.is_ending = answer.failed(ServerError("it was replaced")), True
            self.counts["push queries that failed"] += 1
            return None
        said = answer.step()
        stream.out = said or b""
        return None

    def _drain(self, client: SimClient) -> None:
        """Let the push query of a client get all that is there."""
        stream = client.stream
        if stream is None:
            return
        for _ in range(20_000):
            self.now += 1
            if client.stream is None:
                return
            if stream.answer is not None:
                stream.answer._tail.is_whole = True  # type: ignore[attr-defined]
            if not self._step(stream) and self._is_idle(stream):
                self._tell(Drained(stream.number, self.now))
                self.counts["push queries followed to the end"] += 1
                return
        raise AssertionError("a push query does not come to its end")

    def _is_idle(self, stream: SimStream) -> bool:
        """Whether the node has read all, and everything it said has arrived."""
        answer: Any = stream.answer
        if stream.out or stream.is_ending or answer._query.is_ready or answer._is_token_due:
            return False
        tail: SimTail = answer._tail
        return all(
            not (records := self.log[place]) or at > records[-1].offset
            for place, at in tail.places.items()
        )


class StreamWorld(PushWorld):
    """A stream that nobody but a producer writes: what is in its topic is committed. There are no
    reads of it in sessions; what those of tables downstream wait for, is tested elsewhere."""

    source = STREAM

    def _commit(self, batch: int | None = None) -> None:
        by = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(0), attempt=1)
        chosen = self.random.choices(range(PARTITIONS), k=self.random.choice([1, 2, 6]))
        self.changes.commit([(each, self._append(each, by)) for each in chosen])

    def _stray(self) -> None: ...

    def _takeover(self) -> None: ...

    def _repair(self) -> None: ...

    def _begin_read(self) -> None: ...


def no_files() -> Any:
    """Nothing was written, so nobody asks what batches cover."""
    return SimpleNamespace(of=lambda table: None)
