"""Long scans beside lookups and a busy writer, over real workers. No Kafka."""

from __future__ import annotations

import json
import select as sockets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.e2e.test_serve import (
    PARTITIONS,
    USERS,
    Cluster,
    Node,
    Reply,
    Wire,
    ask,
    json_bytes,
    partition,
    pull,
    request,
    select,
    send,
    status,
)

from standpipe.adapters.store.reader_watch import PinWatch
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import BatchId, Offset
from standpipe.node.tailer.main import PIN_MS_MAX

LARGE = 0  # the partition with many rows; the others have none
#: a scan of them takes longer than a forwarded lookup may, 1 s
ROWS_MANY = 200_000
#: every so many rows there is one that each batch changes
MARKS_EVERY = 1000
SCAN = "SELECT ID, N FROM USERS WHERE N >= 0;"


def key_of(number: int) -> bytes:
    return store_key((f"key-{number:08d}",), ("STRING",))


def marks(batch: int) -> list[tuple[bytes, bytes]]:
    row = pack_row(json_bytes([batch, "mark"]), 5)
    return [(key_of(number), row) for number in range(0, ROWS_MANY, MARKS_EVERY)]


@dataclass
class Writer:
    """The tailer's part: batch after batch into the stores of a partition, and its PinWatch."""

    nodes: list[Node]
    #: ids of workers that the tailer would have killed
    late: set[int] = field(default_factory=set)
    batches: int = 0
    _stores: list[StoreWriter] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def fill(self) -> None:
        row = pack_row(json_bytes([0, "never changed"]), 5)
        rows = [(key_of(number), row) for number in range(ROWS_MANY)]
        for node in self.nodes:
            identity = StoreIdentity(table_id="T1", generation=1, partition=LARGE)
            store = StoreWriter(node.config.paths.state / "T1-1" / str(LARGE), identity)
            store.apply([*rows, *marks(0)], [], self._meta(store))
            self._stores.append(store)

    def write(self) -> None:
        watches = [PinWatch() for _ in self._stores]
        while not self._is_over.is_set():
            self.batches += 1
            for watch, store in zip(watches, self._stores, strict=True):
                store.apply(marks(self.batches), [], self._meta(store))
                now_ms = time.monotonic_ns() // 1_000_000
                self.late |= watch.look([store], now_ms, PIN_MS_MAX)
            self._is_over.wait(0.02)

    def end(self) -> None:
        self._is_over.set()
        for store in self._stores:
            store.close()

    def _meta(self, store: StoreWriter) -> StoreMeta:
        position, batch = Offset(100 + self.batches), BatchId(self.batches)
        return StoreMeta(identity=store.identity, position=position, batch=batch)


@dataclass
class World:
    cluster: Cluster
    writer: Writer

    @property
    def holders(self) -> list[Node]:
        return self.cluster.holders(LARGE)

    @property
    def outsider(self) -> Node:
        return next(node for node in self.cluster.nodes if node not in self.holders)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    keys = {
        # the machine may be busy with other tests
        "standpipe.query.pull.scan.timeout.ms": 600_000,
        "standpipe.forward.hedge.load.percent": 0,
    }
    cluster = Cluster.make(tmp_path_factory.mktemp("scans"), 3, **keys)
    writer = Writer(cluster.holders(LARGE))
    writer.fill()
    for number in range(PARTITIONS):
        for node in cluster.holders(number):
            if number == LARGE:
                node.write_page(USERS, number, status())
                continue
            node.write_rows(USERS, number, {})
            node.write_status(USERS, number, status())
    cluster.publish()
    cluster.start()
    writing = threading.Thread(target=writer.write)
    writing.start()
    yield World(cluster, writer)
    writer._is_over.set()
    writing.join()
    writer.end()
    cluster.stop()


def while_it_scans(node: Node, beside: Node, text: str) -> tuple[Reply, list[Reply]]:
    """The answer of a scan, and those of the lookups that were answered before it."""
    key = next(f"key-{n:08d}" for n in range(ROWS_MANY) if partition(f"key-{n:08d}") == LARGE)
    lookup = request("/query-stream", json_bytes({"sql": select(key)}))
    scan = request("/query-stream", json_bytes({"sql": text}))
    found: list[Reply] = []
    with send(beside.port(), lookup) as client, send(node.port(), b"", timeout=60) as scanning:
        lookups = Wire(client)
        assert rows(lookups.reply()), "connected, and nothing goes on yet"
        scanning.sendall(scan)
        while not sockets.select([scanning], [], [], 0)[0]:
            client.sendall(lookup)
            found.append(lookups.reply())
        return Wire(scanning).reply(), found


def rows(reply: Reply) -> list[list[object]]:
    assert reply.status == 200, reply.body[:500]
    return [json.loads(line) for line in reply.body.splitlines()[1:]]


@pytest.mark.parametrize("is_here", [True, False], ids=["on this node", "forwarded"])
def test_a_long_scan_stops_nobody(world: World, is_here: bool) -> None:
    active = world.holders[0]
    node = active if is_here else world.outsider
    before = world.writer.batches
    reply, lookups = while_it_scans(node, active, SCAN)
    found = rows(reply)
    assert len(found) == ROWS_MANY
    assert len({n for _, n in found[::MARKS_EVERY]}) == 1, "rows of one batch"
    assert world.writer.batches > before, "while others came"
    # one or two may be answered before the scan has begun
    assert len(lookups) > 5
    assert all(len(rows(each)) == 1 for each in lookups)
    assert world.writer.late == set(), "the tailer would have killed the worker"
    assert [worker.poll() for each in world.cluster.nodes for worker in each.workers] == [None] * 3
    served_by = active.config.node_id
    assert served_by in reply.headers["standpipe-served-by"]
    # no breaker: lookups still go to the active, in both directions
    for each in world.cluster.nodes:
        after = pull(each.port(), select("key-00000000"), "/query-stream")
        assert after.status == 200
        hosts = ask(each.port(), "/clusterStatus").json["clusterStatus"]
        assert isinstance(hosts, dict)
        assert all(host["hostAlive"] for host in hosts.values())


def test_scans_at_once(world: World) -> None:
    """More than may go on at a time, from everywhere: each is answered, whole and of one batch."""
    wires: list[Wire] = []
    active = world.holders[0]
    for node in (active, world.outsider, active, world.holders[1]):
        data = request("/query-stream", json_bytes({"sql": SCAN}))
        wires.append(Wire(send(node.port(), data, timeout=600)))
    for wire in wires:
        found = rows(wire.reply())
        wire.client.close()
        assert len(found) == ROWS_MANY
        assert len({n for _, n in found[::MARKS_EVERY]}) == 1
    assert world.writer.late == set()
