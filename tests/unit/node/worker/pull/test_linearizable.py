"""Reads at level `linearizable` by every path to a row: local, forwarded, many keys, scans.

Real stores, pages and workers of three nodes in one process; forwards without sockets; barriers as
a broker and a controller would answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.test_slow_path import Nodes, cluster
from tests.unit.node.workers import KEYS, USERS, Worker, page, peer_format, select

from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.control.metadata.feature_levels import LINEARIZABLE_READS
from standpipe.control.routing.route import Verdict
from standpipe.data.replica.barrier import BARRIER_KEY, Barrier
from standpipe.errors import (
    BadRequest,
    KafkaUnavailable,
    LogUnavailable,
    NoReplica,
    OutcomeUnknown,
    StandpipeError,
    TooManyRequests,
)
from standpipe.model import BatchId, NodeId, Offset, ReplicaId, ReplicaState, ReplicaStatus
from standpipe.node.worker.pull import linearizable
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.forward_headers import BARRIER_HEADER, RequestFormat
from standpipe.node.worker.pull.linearizable import Barriers, first_caught_up
from standpipe.node.worker.query_batch.request_body import parse_batch
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.session_writes import session_writes
from standpipe.session_token import (
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
)

Story = Callable[[Nodes], Coroutine[Any, Any, None]]
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
SCAN = "SELECT * FROM USERS;"
LINES = RequestFormat(Form.LINES)
LEVEL: Mapping[str, object] = {LEVEL_PROPERTY: "linearizable"}


class Kafka:
    """Appends barriers: each at the next offset of one progress topic, once it may."""

    def __init__(self, end: int = 10) -> None:
        self.end, self.log_index, self.topic_id = end, 1, ""
        self.sent = 0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.fails: StandpipeError | None = None

    async def append(self) -> Barrier:
        self.sent += 1
        await self.is_open.wait()
        if self.fails is not None:
            raise self.fails
        self.end += 1
        return Barrier(self.end, self.log_index, self.topic_id)


def run(
    folder: Path,
    story: Callable[[Nodes, Kafka], Awaitable[None]],
    placed: dict[int, list[str]] | None = None,
    level: int = LINEARIZABLE_READS,
) -> None:
    async def whole() -> None:
        where = placed or {0: ["a", "b"]}
        async with cluster(folder, where) as nodes, asyncio.timeout(60):
            kafka = Kafka()
            for node in nodes.values():
                node.publish(["a", "b", "c"], where, feature_level=level)
                node.slow_path.map.refresh()
                node.slow_path.barriers = Barriers(kafka.append, every_s=0)
            await story(nodes, kafka)

    asyncio.run(whole())


def at(end: int, batch: int = 7, **changes: Any) -> ReplicaStatus:
    """A page whose rows have all that progress below `end` commits."""
    return changed(page(), progress_end=end, batch=BatchId(batch), **changes)


def show(node: Worker, number: int, shown: ReplicaStatus) -> None:
    StatusWriter(page_path(node.paths.run, ReplicaId("T1", 1, number))).write(shown)


def body(text: str, properties: Mapping[str, object] = LEVEL) -> bytes:
    return json.dumps({"ksql": text, "streamsProperties": dict(properties)}).encode()


async def read(node: Worker, text: str = ONE) -> list[Any]:
    """Rows."""
    answer = await node.slow_path.answer(LINES, body(text))
    whole = answer.body
    if answer.pieces is not None:
        whole = b"".join([piece async for piece in answer.pieces])
    return [json.loads(line) for line in whole.splitlines()[1:]]


async def waiters(nodes: Nodes, count: int) -> None:
    """Until so many reads wait for pages."""
    while sum(node.slow_path.own.waits.count for node in nodes.values()) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("text", [ONE, select(0), SCAN])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_replica_at_the_barrier_answers(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        for number in range(4):
            nodes["a"].hold(number, at(11))
        assert [KEYS[0], 1] in await read(nodes[entry], text)
        assert kafka.sent == 1, "one for all partitions"
        for sent in nodes["c"].wires.sent.get("a", []):
            assert sent[BARRIER_HEADER] == "11,1"

    run(tmp_path, story, {number: ["a"] for number in range(4)})


@pytest.mark.parametrize("text", [ONE, SCAN])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_replica_that_is_behind_is_waited_for(tmp_path: Path, entry: str, text: str) -> None:
    """And its rows are those of the batch that it then has."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        for number in range(4):
            nodes["a"].hold(number, at(10))
        reading = asyncio.create_task(read(nodes[entry], text))
        await waiters(nodes, 4 if text == SCAN else 1)
        for number in range(4):
            nodes["a"].apply(number, position=120, batch=8, value=b"[2]")
            show(nodes["a"], number, at(11, 8, position=Offset(120)))
        assert [KEYS[0], 2] in await reading
        await waiters(nodes, 0)

    run(tmp_path, story, {number: ["a"] for number in range(4)})


def test_the_first_replica_that_catches_up_answers(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        for name in ("a", "b"):
            nodes[name].hold(0, at(3))
        for entry in ("a", "c"):
            reading = asyncio.create_task(read(nodes[entry]))
            await waiters(nodes, 2)
            show(nodes["b"], 0, at(kafka.end))
            assert await reading == [[KEYS[0], 1]]
            await waiters(nodes, 0)

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_what_is_not_reached_in_time_is_refused(tmp_path: Path, entry: str) -> None:
    """By level, wanted and had, of each replica; never answered with older rows."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(10))
        nodes["b"].hold(0, at(4))
        nodes[entry].slow_path.routing_timeout_ms = 300
        with pytest.raises(NoReplica) as failed:
            await read(nodes[entry])
        told: Any = failed.value.body()["standpipe"]
        wanted = "Level linearizable: wanted all that progress below offset 11 commits, had what is"
        assert [one["why"] for one in told["verdicts"]] == [
            f"{wanted} below offset 10.",
            f"{wanted} below offset 4.",
        ]
        await waiters(nodes, 0)

    run(tmp_path, story)


def test_rows_of_a_replaced_store_are_not_taken_for_those_of_the_page(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        node = nodes["a"]
        node.hold(0, at(99, 9))
        node.apply(0, batch=8)
        node.slow_path.routing_timeout_ms = 50
        with pytest.raises(NoReplica, match="had rows that are older than the replica's status"):
            await read(node)

    run(tmp_path, story, {0: ["a"]})


def test_a_barrier_serves_who_came_before_it_was_sent(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(11))
        kafka.is_open.clear()
        early = [asyncio.create_task(read(nodes["a"])) for _ in range(3)]
        await asyncio.sleep(0.01)
        late = [asyncio.create_task(read(nodes["a"])) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert kafka.sent == 1, "one in flight, whoever waits"
        kafka.is_open.set()
        assert await asyncio.gather(*early) == [[[KEYS[0], 1]]] * 3
        await waiters(nodes, 3)
        assert kafka.sent == 2, "the others need one that was sent after they came"
        show(nodes["a"], 0, at(12))
        assert await asyncio.gather(*late) == [[[KEYS[0], 1]]] * 3

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("error", [KafkaUnavailable("cannot write"), LogUnavailable("no leader")])
def test_without_kafka_or_a_quorum_the_level_is_refused(
    tmp_path: Path, error: StandpipeError
) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        kafka.fails = error
        with pytest.raises(NoReplica, match=rf"Level linearizable: wanted .* {error.message}"):
            await read(nodes["a"])
        kafka.is_open.clear()
        nodes["a"].slow_path.routing_timeout_ms = 50
        with pytest.raises(NoReplica, match="had none after 50 ms"):
            await read(nodes["a"])
        eventual = await nodes["a"].answer(ONE)
        assert b"[" in eventual.body, "other levels need neither"

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("text", [ONE, SCAN], ids=["a key", "a scan"])
def test_reads_that_wait_keep_no_slot_of_a_store(tmp_path: Path, text: str) -> None:
    """With 512 that waited, other workers of the node could not open the store."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(3))
        reading = [asyncio.create_task(read(nodes["a"], text)) for _ in range(20)]
        await waiters(nodes, 20)
        (environment,) = filter(
            None, (each.store._environment for each in nodes["a"].replicas._open.values())
        )
        assert "no active readers" in environment.readers()
        for each in reading:
            each.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    run(tmp_path, story, {0: ["a"]})


def test_the_replica_that_is_asked_first_goes_on_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow scan of a replica that has it all was given up, and made again by all others."""
    monkeypatch.setattr(linearizable, "ALONE_MS_MAX", 1)
    asked: list[str] = []

    async def attempt(verdict: Verdict, left_ms: int) -> PartitionAnswer:
        asked.append(verdict.node_id)
        if verdict.node_id == "a":
            await asyncio.sleep(0.05)
            return cast("PartitionAnswer", "of a")
        await asyncio.sleep(60)
        raise AssertionError

    async def refused(verdict: Verdict, left_ms: int) -> PartitionAnswer:
        asked.append(verdict.node_id)
        if verdict.node_id == "a":
            raise ForwardRefused("behind")
        return cast("PartitionAnswer", "of another")

    candidates = [
        Verdict(node_id=NodeId(name), role="ACTIVE", ok=True, why="", is_local=name == "a")
        for name in "bac"
    ]
    both = [
        asyncio.run(first_caught_up(candidates, each, 20_000, ScanRequester()))
        for each in (attempt, refused)
    ]
    assert both == ["of a", "of another"]
    assert (asked[0], asked[3]) == ("a", "a"), "no node is asked for what this one has"


def test_a_worker_without_kafka_says_so(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].slow_path.barriers = Barriers()
        with pytest.raises(NoReplica, match="started without Kafka"):
            await read(nodes["a"])

    run(tmp_path, story, {0: ["a"]})


def test_reads_that_wait_for_a_barrier_are_bounded(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].slow_path.limits.barrier.waiters_max = 2
        nodes["a"].hold(0, at(99))
        kafka.is_open.clear()
        reading = [asyncio.create_task(read(nodes["a"])) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(TooManyRequests, match="2 linearizable reads wait"):
            await read(nodes["a"])
        kafka.is_open.set()
        await asyncio.gather(*reading)
        assert await read(nodes["a"]), "and are counted down"

    run(tmp_path, story, {0: ["a"]})


def refused_and_waiting(node: Worker, kind: str) -> tuple[int, int]:
    """As its metrics say."""
    refused = node.metrics.counts["standpipe_waiting_reads_refused"].get(kind, 0)
    return refused, node.metrics.gauges["standpipe_waiting_reads"][kind]


@pytest.mark.parametrize("entry", ["a", "c"])
def test_sessions_and_linearizable_reads_do_not_refuse_each_other(
    tmp_path: Path, entry: str
) -> None:
    """They shared 1,000 places of a worker: readers of one kind, whose replica was behind, had
    those of the other refused."""
    seen = SessionToken({TableKey("c", "T1"): SeenBatch(1, 9, 1)})
    of_session = {TOKEN_PROPERTY: seen.text()}

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        holder, asked = nodes["a"], nodes[entry].slow_path
        holder.hold(0, at(3, batch=7))
        limits = holder.slow_path.limits
        limits.session.waiters_max = limits.linearizable.waiters_max = 2
        both = {"session": of_session, "linearizable": LEVEL}
        reading = [
            asyncio.create_task(asked.answer(LINES, body(ONE, properties)))
            for properties in both.values()
            for _ in range(2)
        ]
        await waiters(nodes, 4)
        for kind, properties in both.items():
            error = TooManyRequests if entry == "a" else NoReplica  # the refusal of its only peer
            with pytest.raises(error, match=r"2 .*reads wait for replicas to"):
                await asked.answer(LINES, body(ONE, properties))
            assert refused_and_waiting(holder, kind) == (1, 2)
        holder.hold(0, at(99, batch=9))
        await asyncio.gather(*reading)
        assert refused_and_waiting(holder, "session") == (1, 0)
        assert refused_and_waiting(holder, "linearizable") == (1, 0)
        assert refused_and_waiting(nodes[entry], "barrier") == (0, 0)

    run(tmp_path, story, {0: ["a"]})


def test_in_a_cluster_of_an_earlier_level_it_is_refused_by_name(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        with pytest.raises(
            BadRequest, match=r"read level linearizable needs feature level 12, .* at 11: `standpi"
        ):
            await read(nodes["a"])
        assert kafka.sent == 0

    run(tmp_path, story, {0: ["a"]}, LINEARIZABLE_READS - 1)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_what_was_decided_before_is_seen(tmp_path: Path, entry: str) -> None:
    """A table that was dropped: the map of the node that is asked is older than the read index."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        kafka.log_index = 5
        reading = asyncio.create_task(read(nodes[entry]))
        await asyncio.sleep(0.03)
        assert not reading.done()
        other = changed(USERS, name="OTHERS")
        for node in nodes.values():
            node.publish(
                ["a", "b", "c"], {}, epoch=5, source=other, feature_level=LINEARIZABLE_READS
            )
        with pytest.raises(StandpipeError, match="USERS"):
            await reading

    run(tmp_path, story, {0: ["a"]})


def test_a_map_that_stays_behind_is_no_answer(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        kafka.log_index = 5
        nodes["a"].slow_path.routing_timeout_ms = 50
        with pytest.raises(NoReplica, match="wanted a map with log index 5, this node had 1"):
            await read(nodes["a"])

    run(tmp_path, story, {0: ["a"]})


def test_reads_that_wait_for_a_map_look_at_it_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 that looked each 5 ms took a whole worker; and a client that left was waited for."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].slow_path.limits.barrier.waiters_max = 50
        node, looks, is_gone = nodes["a"], list[int](), [False]
        node.hold(0, at(99))
        kafka.log_index = 5
        monkeypatch.setattr(node.slow_path.map, "refresh", lambda: looks.append(1))

        class Leaving(ScanRequester):
            @property
            def is_gone(self) -> bool:
                return is_gone[0]

        async def one() -> None:
            await node.slow_path.answer(LINES, body(ONE), Leaving())

        reading = [asyncio.create_task(one()) for _ in range(50)]
        while len(looks) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(TooManyRequests, match="50 linearizable reads wait"):
            await read(node)
        looks.clear()
        await asyncio.sleep(10 * linearizable._LOOK_S)
        assert len(looks) < 20
        is_gone[0] = True
        for each in reading:
            with pytest.raises(BadRequest, match="the client disconnected"):
                await each

    run(tmp_path, story, {0: ["a"]})


def test_the_target_needs_the_map_as_well(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        kafka.log_index = 5
        placed = {0: ["a"]}
        nodes["c"].publish(["a", "b", "c"], placed, epoch=5, feature_level=LINEARIZABLE_READS)
        nodes["c"].slow_path.routing_timeout_ms = 100
        with pytest.raises(NoReplica, match="wanted a map with log index 5, this node had 1"):
            await read(nodes["c"])
        nodes["a"].publish(["a", "b", "c"], placed, epoch=5, feature_level=LINEARIZABLE_READS)
        assert await read(nodes["c"]) == [[KEYS[0], 1]]

    run(tmp_path, story, {0: ["a"]})


def test_a_forward_without_its_barrier_is_refused(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(99))
        reply = await nodes["a"].peer_lane(body(ONE), {"standpipe-forwarded": "1"})
        assert (reply.status, b"names no barrier" in reply.body) == (400, True)
        with pytest.raises(BadRequest, match="malformed"):
            peer_format({"standpipe-forwarded": "1", BARRIER_HEADER: "many"})

    run(tmp_path, story, {0: ["a"]})


def test_the_fast_path_leaves_it(tmp_path: Path) -> None:
    """Even if it knows the text, and the answer to it at another level."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(3))
        fast = nodes["a"].fast_path()
        for _ in range(5):
            assert fast.answer(LINES, body(ONE, {})) is not None
            assert fast.answer(LINES, body(ONE)) is None
            assert fast.answer(LINES, body(select(0))) is None
        peer = nodes["a"].fast_path(is_peer=True)
        head = peer_format({"standpipe-forwarded": "1", BARRIER_HEADER: "1,1"})
        assert peer.answer(head, body(ONE)) is None

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize(
    "properties",
    [
        {LEVEL_PROPERTY: "linearizable", TOKEN_PROPERTY: ""},
        {LEVEL_PROPERTY: "linearizable", "ksql.query.pull.consistency.token.enabled": "true"},
        {LEVEL_PROPERTY: "Linearizable"},
    ],
)
def test_what_contradicts_it(properties: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match=r"linearizable|Linearizable"):
        parse_lookup(body(ONE, properties))


def test_who_has_no_such_level() -> None:
    with pytest.raises(BadRequest, match="linearizable is not for batches"):
        parse_batch(json.dumps({"table": "T", "keys": [], "properties": dict(LEVEL)}).encode())
    with pytest.raises(BadRequest, match="linearizable is for pull queries on tables, not for INS"):
        session_writes({LEVEL_PROPERTY: "linearizable"}, RowProducer(""))


class Producer:
    """Says where a record is, as a broker does."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.sent: list[tuple[str, int, bytes, object]] = []
        #: of the topic, as it is told from now on
        self.topic_id = ""
        self.tells_ids = asyncio.Event()
        self.tells_ids.set()
        self.asked = 0
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()
        self.fault: Exception | None = None

    async def topic_ids(self, topics: list[str]) -> dict[str, str]:
        self.asked += 1
        await self.tells_ids.wait()
        if self.topic_id == "?":
            raise KafkaUnavailable("no answer")
        return dict.fromkeys(topics, self.topic_id) if self.topic_id else {}

    async def send(
        self, topic: str, key: bytes, value: object, at_ms: int, *, partition: int
    ) -> WrittenRow:
        assert at_ms > 10**12
        self.sent.append((topic, partition, key, value))
        await self.acknowledges.wait()
        if self.fault is not None:
            raise self.fault
        return WrittenRow(topic, partition, self.offset)


def test_a_barrier_is_a_tombstone_in_the_progress_topic(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        async def index() -> int:
            return 1

        producer: Any = Producer(41)
        barriers = Barriers.in_topic(producer, "p", index, nodes["a"].metrics)
        found = await barriers.begun(nodes["a"].slow_path.map, None, 1000, ScanRequester())
        assert found.barrier == Barrier(42, 1), "behind the record"
        assert producer.sent == [("p", 0, BARRIER_KEY, None)], "where progress is"
        producer.offset = -1
        with pytest.raises(NoReplica, match="did not say at which offset"):
            await barriers.begun(nodes["a"].slow_path.map, None, 1000, ScanRequester())

    run(tmp_path, story)


@pytest.mark.parametrize("kind", [OutcomeUnknown, BadRequest])
def test_a_read_without_a_barrier_is_refused_as_a_read(
    tmp_path: Path, kind: type[StandpipeError]
) -> None:
    """What becomes of the barrier's own record is nothing to a client that reads."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        async def index() -> int:
            return 1

        producer = Producer(41)
        producer.fault = kind("topic p takes no such row")
        barriers = Barriers.in_topic(cast("RowProducer", producer), "p", index, nodes["a"].metrics)
        with pytest.raises(NoReplica, match="had none: topic p takes no such row"):
            await barriers.begun(nodes["a"].slow_path.map, None, 1000, ScanRequester())

    run(tmp_path, story)


def test_a_barrier_names_its_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizable, "_ID_S", 0.01)

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        async def index() -> int:
            return 1

        producer = Producer(41)
        given = cast("RowProducer", producer)
        barriers = Barriers.in_topic(given, "p", index, nodes["a"].metrics)
        barriers._shared._every_s = 0

        async def named() -> str:
            known = nodes["a"].slow_path.map
            return (await barriers.begun(known, None, 1000, ScanRequester())).barrier.topic_id

        producer.tells_ids.clear()
        assert await named() == "", "the answer is waited for, but not for long"
        producer.tells_ids.set()
        for answer in ["?", "", "X", "X"]:
            producer.topic_id = answer
            assert await named() == answer.strip("?")
        for answer in ["?", ""]:
            producer.topic_id = answer
            with pytest.raises(NoReplica, match="Kafka did not say whether topic p is still the"):
                await named()  # it may be another one by now
        producer.topic_id = "X"
        assert await named() == "X"
        producer.topic_id = "Y"
        with pytest.raises(NoReplica, match="had none: topic p was deleted and created again"):
            await named()  # the barrier may be in either of them
        assert await named() == "Y"

    run(tmp_path, story)


def test_a_topic_that_is_created_again_while_a_barrier_is_sent(tmp_path: Path) -> None:
    """The producer tries until there is a topic again. The id was asked for beside that, so the
    barrier named the topic of before with an offset of the next one: a page that said more of the
    former, and less than what was committed when the read arrived, let rows of before through."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        async def index() -> int:
            return 1

        producer = Producer(149)
        producer.topic_id = "X"
        barriers = Barriers.in_topic(cast("RowProducer", producer), "p", index, nodes["a"].metrics)
        nodes["a"].slow_path.barriers = barriers
        nodes["a"].hold(0, at(150, progress_topic_id="X"))
        assert await read(nodes["a"])
        producer.acknowledges.clear()
        reading = asyncio.create_task(read(nodes["a"]))
        while len(producer.sent) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)  # whatever is asked beside it is answered
        producer.topic_id, producer.offset = "Y", 0
        producer.acknowledges.set()
        with pytest.raises(NoReplica, match="topic p was deleted and created again"):
            await reading

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("text", [ONE, SCAN], ids=["a key", "a scan"])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_progress_topic_that_was_created_again_ends_the_wait(
    tmp_path: Path, entry: str, text: str, is_waiting: bool
) -> None:
    """It was waited for to the end of the read's time: the new topic is far from that offset. And
    if it was not, rows of before could be taken for those that were wanted."""

    async def story(nodes: Nodes, kafka: Kafka) -> None:
        kafka.topic_id = "X"
        node, count = nodes["a"], 4 if text == SCAN else 1
        for number in range(4):
            node.hold(number, at(3, progress_topic_id="X" if is_waiting else "Y"))
        if not is_waiting:
            for number in range(4):
                show(node, number, at(99, progress_topic_id="Y"))
        reading = asyncio.create_task(read(nodes[entry], text))
        if is_waiting:
            await waiters(nodes, count)
            for number in range(4):
                show(node, number, at(0, progress_topic_id="Y"))
        with pytest.raises(NoReplica, match="wanted progress of topic X, had that of topic Y: it "):
            await reading
        kafka.topic_id, kafka.end = "Y", 4
        for number in range(4):
            show(node, number, at(5, progress_topic_id="Y"))
        assert [KEYS[0], 1] in await read(nodes[entry], text), "and a new read gets a new barrier"

    run(tmp_path, story, {number: ["a"] for number in range(4)})


def counted(node: Worker) -> tuple[int, int, int]:
    """Barriers that were sent, have failed, and are in flight."""
    counts, gauges = node.metrics.counts, node.metrics.gauges
    sent, failed = counts["standpipe_barriers_sent"], counts["standpipe_barriers_failed"]
    in_flight = gauges["standpipe_unacknowledged_barriers"][""]
    return sent.get("", 0), failed.get("", 0), in_flight


def timed(node: Worker, name: str) -> int:
    return sum(node.metrics.timings[f"standpipe_barrier_{name}_seconds"].counts)


def test_barriers_are_counted(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        node = nodes["a"]
        node.slow_path.barriers = Barriers(kafka.append, node.metrics, every_s=0)
        assert counted(node) == (0, 0, 0)
        node.hold(0, at(3))
        kafka.is_open.clear()
        reading = [asyncio.create_task(read(node)) for _ in range(3)]
        while not kafka.sent:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert counted(node) == (1, 0, 1)
        kafka.is_open.set()
        await waiters(nodes, 3)
        assert counted(node) == (1, 0, 0), "one for three reads"
        assert (timed(node, "append"), timed(node, "seen")) == (1, 0)
        show(node, 0, at(99))
        await asyncio.gather(*reading)
        assert (timed(node, "append"), timed(node, "seen")) == (1, 1), "once, not for each read"
        kafka.fails = KafkaUnavailable("away")
        with pytest.raises(NoReplica):
            await read(node)
        assert counted(node) == (2, 1, 0)
        assert timed(node, "append") == 1

    run(tmp_path, story, {0: ["a"]})


def test_a_barrier_is_seen_where_it_was_sent_if_rows_are_there(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        for name in "ac":
            node = nodes[name]
            node.slow_path.barriers = Barriers(kafka.append, node.metrics, every_s=0)
        nodes["a"].hold(0, at(99))
        assert await read(nodes["c"])
        assert counted(nodes["c"]) == (1, 0, 0)
        assert (timed(nodes["c"], "append"), timed(nodes["c"], "seen")) == (1, 0), "it has no rows"
        assert counted(nodes["a"]) == (0, 0, 0)
        assert timed(nodes["a"], "seen") == 0, "by its own clock it knows nothing of it"

    run(tmp_path, story, {0: ["a"]})


def test_a_replica_that_stops_answering_ends_the_wait(tmp_path: Path) -> None:
    async def story(nodes: Nodes, kafka: Kafka) -> None:
        nodes["a"].hold(0, at(3))
        reading = asyncio.create_task(read(nodes["a"]))
        await waiters(nodes, 1)
        show(nodes["a"], 0, at(3, state=ReplicaState.FAILED))
        with pytest.raises(NoReplica):
            await reading

    run(tmp_path, story, {0: ["a"]})
