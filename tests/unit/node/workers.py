"""Workers of several nodes in one process: real stores and files, forwards without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.http.peer_channel import Asker, PeerChannel
from standpipe.adapters.http.peer_client import PathFailed, PeerClient, Response
from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.config import registry
from standpipe.control.routing.hedge_budget import Budget, ForwardLatency
from standpipe.data.encoding.store_keys import partition_of, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.lookup_pack import Pack
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import StandpipeError
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    Column,
    Health,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
)
from standpipe.model_liveness import KnownLag, KnownLags, Liveness, PeerLiveness, ReplicaLag
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.peer_state import PeerStateReader
from standpipe.node.worker.inspect.cluster_status import ClusterStatus
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.pull.fast_forward import FastForwards
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.hedging import HedgedReads
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.pull.slow_path import PullResponse, SlowPath
from standpipe.node.worker.request.answer import headers as fresh_headers
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker.request.head import PACK_PATH, Form
from standpipe.node.worker.statements.execute import Statements

#: a read's time, if a peer is to refuse it with reasons of its own before that, on a busy machine
FORWARDED_MS_MAX = 500
PARTITIONS = 4
USERS = Source(
    name="USERS",
    kind="TABLE",
    columns=(
        Column(name="ID", type="STRING", is_key=True),
        Column(name="N", type="BIGINT"),
    ),
    topic="USERS",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="CREATE TABLE USERS AS SELECT ID, COUNT(*) N FROM E GROUP BY ID EMIT CHANGES;",
    query_id="CTAS_USERS_1",
    table_id="T1",
    is_materialized=True,
)
#: one for each partition
KEYS = {partition_of(f"k{number}".encode(), PARTITIONS): f"k{number}" for number in range(40)}
Headers = list[tuple[bytes, bytes]]


def page(
    position: int = 100, end: int = 100, state: ReplicaState = ReplicaState.RUNNING
) -> ReplicaStatus:
    return ReplicaStatus(
        state=state,
        position=Offset(position),
        committed_end=Offset(end),
        log_end=Offset(max(end, position)),
        batch=BatchId(7),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=Clock().boot_ms(),
        source_instant_ms=0,
        foreign_records=0,
        rows=1,
        watermark_ms=0,
    )


class Wires(PeerClient):
    """Forwards go straight to the target's code; who is not there refuses the connection."""

    def __init__(self, nodes: Mapping[str, Worker]) -> None:
        super().__init__()
        self._nodes = nodes
        #: node -> headers of the forwards that it got
        self.sent: dict[str, list[dict[str, str]]] = {}
        #: of them over a connection that was kept
        self.fast_count = 0

    async def request(
        self,
        address: str,
        target: str,
        *,
        timeout_s: float,
        to: NodeId = NodeId(""),  # noqa: B008
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        silence_s: float | None = None,
        take: Callable[[bytes], None] | None = None,
    ) -> Response:
        worker = self._nodes.get(address)
        if worker is None:
            raise PathFailed("Connection refused")
        given = {**self.headers, **(headers or {})}
        self.sent.setdefault(address, []).append(given)
        answer = await worker.peer_lane(body, given)
        if take is None or answer.status != 200:
            return answer
        take(answer.body)
        return Response(200, answer.headers, b"")

    def channel(self, place: tuple[str, NodeId], body_bytes_max: int) -> PeerChannel | None:
        """There is one to each node that is there."""
        worker = self._nodes.get(place[0])
        return None if worker is None else WireChannel(self, worker, place[0], body_bytes_max)


class WireChannel(PeerChannel):
    """Answers come from the target's code, each in a task of its own."""

    def __init__(self, wires: Wires, worker: Worker, address: str, body_bytes_max: int) -> None:
        super().__init__(self._no_bytes, self._cancel, body_bytes_max)
        self._wires, self._worker, self._address = wires, worker, address
        self._bytes_max = body_bytes_max
        self._tasks: list[asyncio.Task[Response]] = []

    def send(self, message: bytes | Callable[[], bytes], asker: Asker) -> None:
        if isinstance(message, bytes):
            self._sent(message, asker)
        else:  # it may grow in this turn of the loop
            asyncio.get_running_loop().call_soon(lambda: self._sent(message(), asker))

    def _sent(self, message: bytes, asker: Asker) -> None:
        lines, _, body = message.partition(b"\r\n\r\n")
        first, *others = lines.decode().split("\r\n")
        pairs = (line.partition(": ") for line in others)
        headers = {name: value for name, _, value in pairs}
        lane = self._worker.pack_lane if PACK_PATH in first else self._worker.peer_lane
        self._wires.sent.setdefault(self._address, []).append(headers)
        self._wires.fast_count += 1

        def ended(task: asyncio.Task[Response]) -> None:
            if task.cancelled() or len(task.result().body) > self._bytes_max:
                asker.unanswered()
                return
            found = task.result()
            lines = [f"HTTP/1.1 {found.status} {HTTPStatus(found.status).phrase}"]
            lines += [f"content-type: {headers['accept']}", f"content-length: {len(found.body)}"]
            lines += [f"{name}: {value}" for name, value in found.headers.items()]
            asker.answered("\r\n".join([*lines, ""]).encode(), found.body)

        loop = asyncio.get_running_loop()
        task = loop.create_task(lane(body, headers))
        task.add_done_callback(ended)
        self._tasks.append(task)

    def _no_bytes(self, _: bytes) -> None:
        raise AssertionError("it has no connection")

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class Worker:
    """One worker of a node. `nodes`: all workers by name, which is their address too."""

    def __init__(self, folder: Path, name: str, nodes: Mapping[str, Worker]) -> None:
        self.name = NodeId(name)
        self.paths = NodePaths(folder / name)
        self.paths.make()
        settings = registry.load({"standpipe.forward.hedge.load.percent": 0})
        self.wires = Wires(nodes)
        self.clock = Clock()
        self.replicas = Replicas(self.paths.state, self.paths.status)
        self.peers = PeerStateReader(self.paths.liveness, self.paths.lags, settings)
        self.forwarder = Forwarder(self.wires, 1000, 1000)
        self.metrics = Metrics(0, self.paths.run)
        self.routes = RouteCache(self.name, settings, self.forwarder, self.peers)
        self.hedged_reads = HedgedReads(Budget(0), Budget(1.0), ForwardLatency())
        self._slow_path: SlowPath | None = None
        #: what it answers packs with; those that came; whether it knows what a pack is
        self._peer_path: LookupFastPath | None = None
        self.packs: list[Pack] = []
        self.is_packless = False
        #: a query that was planned before
        self.planned = "SELECT * FROM USERS WHERE ID = 'k';"

    @property
    def slow_path(self) -> SlowPath:
        if self._slow_path is None:
            self._slow_path = SlowPath(
                node_id=self.name,
                map=Map(self.paths.snapshot, self.replicas),
                replicas=self.replicas,
                forwarder=self.forwarder,
                metrics=self.metrics,
                routes=self.routes,
                hedged_reads=self.hedged_reads,
                forward_timeout_ms=20_000,
                routing_timeout_ms=20_000,
                scan_timeout_ms=20_000,
                clock=self.clock,
            )
        return self._slow_path

    @property
    def peer_path(self) -> LookupFastPath:
        if self._peer_path is None:
            self._peer_path = self.fast_path(is_peer=True)
        return self._peer_path

    def publish(
        self,
        names: list[str],
        placed: Mapping[int, list[str]],
        *,
        epoch: int = 1,
        source: Source = USERS,
        successors: tuple[Source, ...] = (),
        feature_level: int = 1,
    ) -> None:
        nodes = tuple(
            NodeInfo(node_id=NodeId(n), public=n, internal=n, peer=n, incarnation="x")
            for n in names
        )
        placements = tuple(
            Placement(
                table_id=source.table_id or "",
                generation=source.generation,
                partition=number,
                replicas=tuple(map(NodeId, replicas)),
            )
            for number, replicas in placed.items()
        )
        snapshot = Snapshot(
            stamp=epoch,
            node_id=self.name,
            service_id="default_",
            cluster_id="c",
            log_index=LogIndex(epoch),
            leader=NodeId(names[0]),
            nodes=nodes,
            sources=(source,),
            successors=successors,
            queries=(),
            assignment=Assignment(epoch=AssignmentEpoch(epoch), placements=placements),
            published_boot_ms=1,
            feature_level=feature_level,
        )
        published.write(self.paths.snapshot, snapshot)
        if self._slow_path is not None:
            self._slow_path.map.refresh()

    def hold(
        self,
        number: int,
        status: ReplicaStatus,
        *,
        generation: int = 1,
        more: Mapping[str, bytes] | None = None,
    ) -> None:
        """A replica with the row of the partition's key, and its page. `more`: as in `apply`."""
        self.apply(
            number,
            position=status.position,
            batch=status.batch,
            epoch=status.lease_epoch,
            generation=generation,
            more=more,
        )
        replica_id = ReplicaId("T1", generation, number)
        StatusWriter(page_path(self.paths.run, replica_id)).write(status)

    def apply(
        self,
        number: int,
        *,
        position: int = 100,
        batch: int = 7,
        epoch: int = 1,
        generation: int = 1,
        value: bytes = b"[1]",
        more: Mapping[str, bytes] | None = None,
    ) -> None:
        """A transaction of the tailer, which has not written the page yet. `more`: stored rows of
        further keys."""
        identity = StoreIdentity(table_id="T1", generation=generation, partition=number)
        self.replicas.close()  # a process opens a store once
        writer = StoreWriter(store_path(self.paths.state, identity.replica_id), identity)
        rows = {KEYS[number]: pack_row(value, 5), **(more or {})}
        puts = [(store_key((key,), ("STRING",)), data) for key, data in rows.items()]
        meta = StoreMeta(
            identity=identity,
            position=Offset(position),
            batch=BatchId(batch),
            lease_epoch=LeaseEpoch(epoch),
            source_instant_ms=2**45,  # in the future: its lag is 0
        )
        writer.apply(puts, [], meta)
        writer.close()

    def hear(self, *lags: tuple[str, int, int, int], reported_ms_ago: int = 0) -> None:
        """What control tells: (node, partition, position, committed end) of peers that are alive.

        Their lags in ms were 40 and 900 when they were reported.
        """
        now_ms = Clock().boot_ms()
        peers = tuple(PeerLiveness(node_id=NodeId(name), health=Health.ALIVE) for name, *_ in lags)
        known = tuple(
            KnownLag(
                node_id=NodeId(name),
                lag=ReplicaLag(
                    table_id="T1",
                    generation=1,
                    partition=number,
                    position=Offset(position),
                    committed_end=Offset(end),
                    state=ReplicaState.RUNNING,
                    batch=BatchId(7),
                    replica_lag_ms=40,
                    source_lag_ms=900,
                ),
                at_boot_ms=now_ms,
                reported_boot_ms=now_ms - reported_ms_ago,
            )
            for name, number, position, end in lags
        )
        published.write(self.paths.liveness, Liveness(published_boot_ms=now_ms, peers=peers))
        published.write(self.paths.lags, KnownLags(published_boot_ms=now_ms, known=known))
        self.peers.refresh()

    async def answer(self, text: str, lag_max: int | None = None) -> PullResponse:
        return await self.slow_path.answer(RequestFormat(Form.LINES), body_of(text, lag_max))

    def forwarding_path(self) -> LookupFastPath:
        """As `fast_path`, with forwards, of which none is late on a busy machine."""
        self.hedged_reads.latency.slow_ms = FORWARDED_MS_MAX * 10
        return self.fast_path(
            forwards=FastForwards(
                self.forwarder, self.hedged_reads, self.routes, self.replicas, self.metrics, 20_000
            )
        )

    def fast_path(
        self, *, is_peer: bool = False, forwards: FastForwards | None = None
    ) -> LookupFastPath:
        """An earlier query of that shape has taken the slow path. It forwards nothing."""
        self.slow_path.map.view.plans.plan(self.planned, {})
        return LookupFastPath(
            node_id=self.name,
            map=self.slow_path.map,
            replicas=self.replicas,
            routes=self.routes,
            metrics=self.metrics,
            body_bytes_max=100_000,
            is_peer=is_peer,
            clock=self.clock,
            forwards=forwards,
        )

    def statements(self) -> Statements:
        """What POST /ksql does here. Close its lanes."""
        known = self.slow_path.map
        return Statements(
            map=known,
            replicas=self.replicas,
            control=self.wires,
            internal_address="",
            producer=RowProducer(""),
            settings=registry.load({}),
            metrics=self.metrics,
            routes=Routes(known, self.replicas, self.routes, self.clock),
        )

    def fast(self, text: str, lag_max: int | None = None) -> bytes | None:
        """The response of the fast path; None: it leaves the request to the slow path."""
        found = self.fast_path().answer(RequestFormat(Form.LINES), body_of(text, lag_max))
        assert found is None or isinstance(found, bytes)
        return found

    async def peer_lane(self, body: bytes, headers: Mapping[str, str]) -> Response:
        """What the peer listener answers on the slow path."""
        try:
            answer = await self.slow_path.answer(peer_format(headers), body)
        except StandpipeError as error:
            return Response(error.status, {}, msgspec.json.encode(error.body()))
        fresh = {name.decode(): value.decode() for name, value in fresh_headers(answer.fresh)}
        return Response(200, fresh, answer.body)

    async def pack_lane(self, body: bytes, headers: Mapping[str, str]) -> Response:
        """What the peer listener answers to a pack."""
        if self.is_packless:
            return Response(404, {}, b"Not Found")
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        token = self.peer_path.classify(PACK_PATH.encode(), given)
        assert token is not None
        assert token.is_whole_pack
        pack = Pack.parse(body)
        self.packs.append(pack)
        return Response(200, {}, self.peer_path.answers(token, pack))

    def fast_peer_lane(self, body: bytes, headers: Mapping[str, str]) -> str:
        """What it answers on the fast path; empty: nothing."""
        found = self.fast_path(is_peer=True).answer(peer_format(headers), body)
        assert found is None or isinstance(found, bytes)
        return (found or b"").decode()

    def cluster_status(self) -> dict[str, object]:
        page = ClusterStatus(
            self.name,
            self.slow_path.map,
            self.replicas,
            self.forwarder,
            self.peers,
            Clock(),
            self.paths.restores,
        ).page()
        return json.loads(msgspec.json.encode(page))["clusterStatus"]

    async def close(self) -> None:
        await self.forwarder.close()
        self.replicas.close()


def body_of(text: str, lag_max: int | None = None) -> bytes:
    name = "ksql.query.pull.max.allowed.offset.lag"
    properties = {} if lag_max is None else {name: lag_max}
    return json.dumps({"ksql": text, "streamsProperties": properties}).encode()


def peer_format(headers: Mapping[str, str]) -> RequestFormat:
    """Of a forward's head."""
    listed = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = RequestFormat.read(b"/query", listed, is_peer=True)
    assert found is not None
    return found


def select(*numbers: int) -> str:
    """The keys of some partitions."""
    listed = ", ".join(f"'{KEYS[number]}'" for number in numbers)
    return f"SELECT * FROM USERS WHERE ID IN ({listed});"
