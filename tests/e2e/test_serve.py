"""One worker, for real: a process, its sockets, an LMDB store, a snapshot, status pages. No Kafka.

`Cluster` makes nodes by hand as control and tailer would leave them; the other test_serve_* files
use it too. Golden answers are byte for byte, only the query id's digits are cut out.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.forked import NodeProcess, fork
from typer.testing import CliRunner

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.private import write_secret
from standpipe.adapters.metrics import STATES
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.store_keys import encode_key, partition_of, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.local.cli.main import app
from standpipe.local.cluster.ports import any_port
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
    PersistentQuery,
    Placement,
    QueryStatus,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
    SparkPlan,
    Window,
)
from standpipe.model_liveness import Liveness, PeerLiveness
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.worker.heavy_workers import socket_name

SECRET = "a secret of the cluster"
PARTITIONS = 4
DAY_MS = 86_400_000
#: for one read of a socket: a statement may wait 10 s for its topics, and the machine may be busy
ANSWER_S_MAX = 60.0

USERS = Source(
    name="USERS",
    kind="TABLE",
    columns=(
        Column(name="ID", type="STRING", is_key=True),
        Column(name="N", type="BIGINT"),
        Column(name="NAME", type="STRING"),
    ),
    topic="USERS",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="CREATE TABLE USERS AS SELECT ID, COUNT(*) N, LATEST_BY_OFFSET(NAME) NAME "
    "FROM EVENTS GROUP BY ID EMIT CHANGES;",
    query_id="CTAS_USERS_1",
    table_id="T1",
    is_materialized=True,
)
DAYS = msgspec.structs.replace(
    USERS,
    name="DAYS",
    topic="DAYS",
    query_id="CTAS_DAYS_2",
    table_id="T2",
    window=Window(
        kind="TUMBLING", size_ms=DAY_MS, advance_ms=DAY_MS, grace_ms=0, retention_ms=10 * DAY_MS
    ),
)
EVENTS = Source(
    name="EVENTS",
    kind="STREAM",
    columns=(
        Column(name="ID", type="STRING", is_key=True),
        Column(name="NAME", type="STRING"),
        Column(name="PRICE", type="DECIMAL(6, 2)"),
    ),
    topic="events",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="CREATE STREAM EVENTS (ID STRING KEY, NAME STRING, PRICE DECIMAL(6, 2)) "
    "WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON');",
)


def partition(key: str) -> int:
    raw = encode_key((key,), USERS.key_columns, "KAFKA")
    assert raw is not None
    return partition_of(raw, PARTITIONS)


def status(state: ReplicaState = ReplicaState.RUNNING, **changes: int) -> ReplicaStatus:
    base = ReplicaStatus(
        state=state,
        position=Offset(100),
        committed_end=Offset(100),
        log_end=Offset(100),
        batch=BatchId(7),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=Clock().boot_ms(),
        source_instant_ms=int(time.time() * 1000),
        foreign_records=0,
        rows=1,
        watermark_ms=0,
    )
    return msgspec.structs.replace(base, **changes)


@dataclass
class Node:
    """One node's folder and its workers."""

    config: NodeConfig
    workers: list[NodeProcess] = field(default_factory=list)

    @property
    def info(self) -> NodeInfo:
        return NodeInfo(
            node_id=self.config.node_id,
            public=self.config.public,
            internal=self.config.internal,
            peer=self.config.peer,
            incarnation="x",
        )

    def port(self, which: str = "public") -> int:
        return int(getattr(self.config, which).rpartition(":")[2])

    def write_status(self, source: Source, number: int, page: ReplicaStatus) -> None:
        """What the tailer says of a replica: with its rows, if there are any, and in its page."""
        identity = StoreIdentity.of(source.replica_id(number))
        path = self._store(source, number)
        if path.exists():
            writer = StoreWriter(path, identity)
            meta = StoreMeta(
                identity=identity,
                position=page.position,
                batch=page.batch,
                source_instant_ms=page.source_instant_ms,
            )
            writer.apply([], [], meta)
            writer.close()
        self.write_page(source, number, page)

    def write_page(self, source: Source, number: int, page: ReplicaStatus) -> None:
        """Of a replica whose store says by itself what its rows are."""
        path = page_path(self.config.paths.run, source.replica_id(number))
        StatusWriter(path).write(page)

    def _store(self, source: Source, number: int) -> Path:
        return self.config.paths.state / f"{source.table_id}-1" / str(number)

    def write_rows(self, source: Source, number: int, rows: dict[str, list[object]]) -> None:
        """`rows`: key -> value columns; of a windowed table the window's start comes first."""
        identity = StoreIdentity.of(source.replica_id(number))
        writer = StoreWriter(self._store(source, number), identity)
        puts: list[tuple[bytes, bytes]] = []
        for key, columns in rows.items():
            start = [int(str(columns[0]))] if source.window else []
            values = columns[1:] if source.window else columns
            puts.append((store_key((key,), ("STRING",), *start), pack_row(json_bytes(values), 5)))
        writer.apply(puts, [], StoreMeta(identity=identity, batch=BatchId(7)))
        writer.close()

    def start(self, number: int = 0, *more: str) -> NodeProcess:
        node_file = str(Path(self.config.data_dir) / "node.json")
        arguments = [f"--node-file={node_file}", f"--worker={number}", *more]
        log = self.config.paths.logs / f"worker-{number}.log"
        worker = fork("standpipe.node.worker.main", arguments, log)
        self.workers.append(worker)
        return worker

    def start_heavy(self) -> NodeProcess:
        """A heavy worker. Returns once it listens."""
        number = self.config.heavy_numbers()[0]
        started = self.start(number, "--heavy")
        until = time.monotonic() + 60
        while not _listens(self.config.paths.run / socket_name(number)):
            assert started.poll() is None, "it has ended"
            assert time.monotonic() < until
            time.sleep(0.02)
        return started

    def wait_ready(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if any(worker.poll() is not None for worker in self.workers):
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port()), 1):
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(next(iter(self.config.paths.logs.glob("*.log"))).read_text())

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait(5)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(os.path.relpath(path))
        except OSError:
            return False
        return True


@dataclass
class Cluster:
    """Nodes that share a map: USERS and DAYS, each partition on `replicas` of the nodes."""

    nodes: list[Node]
    sources: tuple[Source, ...] = (EVENTS, USERS, DAYS)
    replicas: int = 2

    @classmethod
    def make(cls, folder: Path, count: int, *, replicas: int = 2, **keys: object) -> Cluster:
        secret = folder / "secret"
        write_secret(secret, SECRET)
        nodes: list[Node] = []
        for number in range(count):
            data = folder / f"node-{number}"
            config = NodeConfig(
                node_id=NodeId(f"node-{number}"),
                data_dir=str(data),
                bootstrap_servers="",
                public=f"127.0.0.1:{any_port()}",
                internal=f"127.0.0.1:{any_port()}",
                peer=f"127.0.0.1:{any_port()}",
                secret_file=str(secret),
                config=keys,  # pyright: ignore[reportArgumentType]
            )
            config.paths.make()
            configuration.save(data / "node.json", config)
            nodes.append(Node(config))
        return cls(nodes, replicas=replicas)

    def holders(self, number: int) -> list[Node]:
        """Nodes that hold a partition, the active first."""
        return [self.nodes[(number + i) % len(self.nodes)] for i in range(self.replicas)]

    def publish(
        self, stamp: int = 1, log_index: int = 9, statuses: tuple[QueryStatus, ...] = ()
    ) -> None:
        tables = [source for source in self.sources if source.is_materialized]
        placements = tuple(
            Placement(
                table_id=table.table_id or "",
                generation=table.generation,
                partition=number,
                replicas=tuple(node.config.node_id for node in self.holders(number)),
            )
            for table in tables
            for number in range(PARTITIONS)
        )
        for node in self.nodes:
            snapshot = Snapshot(
                stamp=stamp,
                node_id=node.config.node_id,
                service_id="default_",
                cluster_id="cluster-of-tests",
                log_index=LogIndex(log_index),
                leader=NodeId("node-0"),
                nodes=tuple(node.info for node in self.nodes),
                sources=self.sources,
                queries=tuple(query_of(table) for table in tables),
                assignment=Assignment(epoch=AssignmentEpoch(stamp), placements=placements),
                query_statuses=statuses,
                published_boot_ms=Clock().boot_ms(),
            )
            published.write(node.config.paths.snapshot, snapshot)

    def fill(self, rows: dict[str, list[object]], source: Source = USERS) -> None:
        """The same rows on every replica, all of them RUNNING."""
        for number in range(PARTITIONS):
            mine = {key: columns for key, columns in rows.items() if partition(key) == number}
            for node in self.holders(number):
                node.write_rows(source, number, mine)
                node.write_status(source, number, status())

    def start(self) -> None:
        try:
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def query_of(table: Source) -> PersistentQuery:
    return PersistentQuery(
        query_id=table.query_id or "",
        sink=table.name,
        sources=("EVENTS",),
        statement=table.statement,
        plan=SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False),
    )


def json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# --------------------------------------------------------------------------------- raw HTTP


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)


def send(port: int, data: bytes, *, timeout: float = ANSWER_S_MAX) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout)
    client.sendall(data)
    return client


class Wire:
    """Reads responses off a socket, one after another."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.buffer = b""

    def reply(self) -> Reply:
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = {n.lower(): v for n, _, v in (each.partition(": ") for each in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self._take(int(headers.get("content-length", "0")))
        return Reply(int(line.split()[1]), headers, body)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while b"\r\n" not in self.buffer:
                self._more()
            size, _, self.buffer = self.buffer.partition(b"\r\n")
            chunk = self._take(int(size, 16) + 2)[:-2]
            if not chunk:
                return
            yield chunk

    def _take(self, length: int) -> bytes:
        while len(self.buffer) < length:
            self._more()
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def _more(self) -> None:
        data = self.client.recv(65536)
        if not data:
            raise ConnectionResetError("closed")
        self.buffer += data


def request(path: str, body: bytes = b"", method: str = "", **headers: str) -> bytes:
    method = method or ("POST" if body else "GET")
    headers = {"host": "localhost", **headers}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask(port: int, path: str, body: bytes = b"", method: str = "", **headers: str) -> Reply:
    with send(port, request(path, body, method, **headers)) as client:
        return Wire(client).reply()


def pull(port: int, text: str, path: str = "/query", **headers: str) -> Reply:
    name = "sql" if path == "/query-stream" else "ksql"
    return ask(port, path, json_bytes({name: text}), **headers)


def select(key: str, table: str = "USERS") -> str:
    return f"SELECT * FROM {table} WHERE ID = '{key}';"


def cut(body: bytes) -> bytes:
    return re.sub(rb"query_\d+", b"query_0", body)


# ------------------------------------------------------------------------------------- tests

ROWS: dict[str, list[object]] = {f"k{i}": [i, f"näme {i}"] for i in range(40)}


@contextmanager
def two_workers(folder: Path, **keys: object) -> Iterator[Node]:
    """A node that holds everything, with two workers on each of its ports."""
    cluster = Cluster.make(folder, 1, replicas=1, **keys)
    try:
        cluster.fill(ROWS)
        cluster.publish()
        cluster.start()
        cluster.nodes[0].start(1)
        yield cluster.nodes[0]
    finally:
        cluster.stop()


START = 1_356_998_400_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    cluster = Cluster.make(tmp_path_factory.mktemp("serve"), 1, replicas=1)
    cluster.fill(ROWS)
    cluster.fill({"a": [START, 3, "x"]}, DAYS)
    cluster.publish()
    cluster.start()
    yield cluster.nodes[0]
    cluster.stop()


HEADER = (
    b'{"queryId":"query_0","columnNames":["ID","N","NAME"],'
    b'"columnTypes":["STRING","BIGINT","STRING"]}'
)
ROW = '["k1",1,"näme 1"]'.encode()
SCHEMA = b'[{"header":{"queryId":"query_0","schema":"`ID` STRING KEY, `N` BIGINT, `NAME` STRING"}}'
ARRAY = SCHEMA + b',\n{"row":{"columns":' + ROW + b"}}]"
LINES = HEADER + b"\n" + ROW + b"\n"
OBJECTS = b"[" + HEADER + b",\n" + ROW + b"]"
V1, DELIMITED = "application/vnd.ksql.v1+json", "application/vnd.ksqlapi.delimited.v1"


@pytest.mark.parametrize(
    ("path", "accept", "media", "body", "why"),
    [
        ("/query", None, V1, ARRAY, "default of the old path"),
        ("/query", "*/*", V1, ARRAY, "what curl sends"),
        ("/query", V1, V1, ARRAY, "named"),
        ("/query", f"{V1}; charset=utf-8", V1, ARRAY, "parameters are passed over"),
        ("/query", "application/json", V1, ARRAY, "another word for it on the old path"),
        ("/query", DELIMITED, DELIMITED, LINES, "delimited on the old path"),
        ("/query-stream", None, DELIMITED, LINES, "default of the new path"),
        ("/query-stream", V1, V1, ARRAY, "array on the new path"),
        ("/query-stream", "application/json", "application/json", OBJECTS, "one array"),
        ("/query-stream", f"text/html, {V1};q=0.5", V1, ARRAY, "best that is offered"),
    ],
)
@pytest.mark.parametrize("times", [1, 2], ids=["ordinary", "remembered head"])
def test_golden(
    node: Node, path: str, accept: str | None, media: str, body: bytes, why: str, times: int
) -> None:
    headers = {"accept": accept, "x-run": str(times)} if accept else {"x-run": str(times)}
    for _ in range(times):
        reply = pull(node.port(), select("k1"), path, **headers)
    assert (reply.status, reply.headers["content-type"]) == (200, media), why
    assert cut(reply.body) == body, why


@pytest.mark.parametrize("times", [1, 2], ids=["ordinary", "remembered head"])
def test_answers_say_how_fresh_they_are(node: Node, times: int) -> None:
    for _ in range(times):
        reply = pull(node.port(), select("k1"), x_fresh=str(times))
    own = {n: v for n, v in reply.headers.items() if n.startswith("standpipe-")}
    assert int(own.pop("standpipe-replica-lag-ms")) >= 0
    assert int(own.pop("standpipe-source-lag-ms")) >= 0
    assert own == {
        "standpipe-served-by": "node-0",
        "standpipe-role": "active",
        "standpipe-state": "RUNNING",
        "standpipe-offset-lag": "0",
        "standpipe-batch": "7",
    }


def test_missing_key_is_an_answer_without_rows(node: Node) -> None:
    assert cut(pull(node.port(), select("nobody")).body) == SCHEMA + b"]"


def test_windowed_lookup(node: Node) -> None:
    reply = pull(node.port(), select("a", "DAYS"), "/query-stream")
    assert reply.body.splitlines()[1] == json_bytes(["a", START, START + DAY_MS, 3, "x"])


def test_several_keys_over_several_partitions(node: Node) -> None:
    keys = [f"k{i}" for i in range(12)]
    listed = ", ".join(f"'{key}'" for key in [*keys, "nobody"])
    reply = pull(node.port(), f"SELECT * FROM USERS WHERE ID IN ({listed});", "/query-stream")
    rows = [json.loads(line) for line in reply.body.splitlines()[1:]]
    assert sorted(rows) == sorted([key, *ROWS[key]] for key in keys)


@pytest.mark.parametrize("accept", [V1, DELIMITED, "application/json"])
@pytest.mark.parametrize("count", [2, 40, 300])
def test_many_keys_are_answered_alike_by_both_paths(node: Node, count: int, accept: str) -> None:
    """The first request's head and shape are not known yet; those after it repeat both."""
    keys = [*ROWS, *(f"nobody {i}" for i in range(300))][:count]
    listed = ", ".join(f"'{key}'" for key in keys)
    text = f"SELECT * FROM USERS WHERE ID IN ({listed});"
    first, *others = [
        pull(node.port(), text, "/query-stream", accept=accept, x_many=str(count)) for _ in range(4)
    ]
    assert first.status == 200
    assert first.body.count("näme".encode()) == min(count, len(ROWS))
    for reply in others:
        assert cut(reply.body) == cut(first.body)
        assert [*reply.headers] == [*first.headers], "the same ones in the same order"
        assert reply.headers["content-length"] == str(len(reply.body))


@pytest.mark.parametrize(
    ("path", "body", "method", "status", "code", "why"),
    [
        ("/query", b"{", "", 400, 40000, "no JSON"),
        ("/query", b"[]", "", 400, 40000, "no object"),
        ("/query", b'{"x":1}', "", 400, 40000, "no statement"),
        ("/query", b'{"ksql":7}', "", 400, 40000, "statement of the wrong type"),
        ("/query", b'{"ksql":"\xff"}', "", 400, 40000, "no UTF-8"),
        ("/query", b'{"ksql":"SELECT;"}', "", 400, 40001, "no SQL"),
        ("/query", b'{"ksql":"","streamsProperties":{"ksqlx":1}}', "", 400, 40000, "property"),
        ("/query-stream", b'{"sql":"SELECT * FROM NO WHERE ID = \'a\';"}', "", 400, 40001, "table"),
        ("/ksql", b'{"ksql":"SELECT * FROM USERS;"}', "", 400, 40002, "query on /ksql"),
        ("/ksql", b'{"ksql":""}', "", 400, 40000, "nothing to do"),
        ("/ksql", b"null", "", 400, 40000, "null"),
        ("/is_valid_property/ksql.nonsense", b"", "", 400, 40000, "property"),
        ("/status/stream/NO/create", b"", "", 404, 40400, "no such command"),
    ],
)
def test_bad_requests(
    node: Node, path: str, body: bytes, method: str, status: int, code: int, why: str
) -> None:
    reply = ask(node.port(), path, body, method)
    assert (reply.status, reply.json["error_code"]) == (status, code), why
    assert reply.headers["content-type"] == "application/json"
    assert {"@type", "error_code", "message"} <= reply.json.keys()


@pytest.mark.parametrize(
    ("path", "method", "status", "text"),
    [
        ("/nothing", "GET", 404, b"Not Found"),
        ("/query", "GET", 405, b"Method Not Allowed"),
        ("/query-stream", "DELETE", 405, b"Method Not Allowed"),
        ("/ksql", "GET", 405, b"Method Not Allowed"),
        ("/info", "PUT", 405, b"Method Not Allowed"),
        ("/probe", "GET", 404, b"Not Found"),
    ],
)
def test_unknown_paths_and_methods(
    node: Node, path: str, method: str, status: int, text: bytes
) -> None:
    reply = ask(node.port(), path, method=method)
    assert (reply.status, reply.body) == (status, text)


def test_unacceptable_media_type(node: Node) -> None:
    assert pull(node.port(), select("k1"), accept="text/html").status == 406


@pytest.mark.parametrize("path", ["/query", "/ksql"])
def test_large_body_is_refused_before_it_is_read(node: Node, path: str) -> None:
    head = request(path, b"x", connection="close").replace(
        b"content-length: 1", b"content-length: 10000000"
    )
    with send(node.port(), head[:-1]) as client:
        reply = Wire(client).reply()  # not a byte of the body has been sent
        assert (reply.status, reply.json["error_code"]) == (413, 41300)


@pytest.mark.parametrize("path", ["/query", "/ksql"])
def test_large_chunked_body_is_refused(node: Node, path: str) -> None:
    head = request(path, method="POST", transfer_encoding="chunked")
    with send(node.port(), head) as client:
        chunk = b"x" * 65536
        for _ in range(40):
            client.sendall(b"10000\r\n" + chunk + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert Wire(client).reply().status == 413


def test_whole_large_body_still_gets_its_refusal(node: Node) -> None:
    body = b'{"ksql":"' + b"x" * 10_000_000 + b'"}'
    assert ask(node.port(), "/query", body).status == 413


def test_chunked_body(node: Node) -> None:
    body = json_bytes({"ksql": select("k1")})
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, body[i : i + 1]) for i in range(len(body)))
    data = request("/query", method="POST", transfer_encoding="chunked") + chunks + b"0\r\n\r\n"
    with send(node.port(), data) as client:
        assert cut(Wire(client).reply().body) == ARRAY


def test_body_that_dribbles_in(node: Node) -> None:
    data = request("/query", json_bytes({"ksql": select("k1")}))
    with send(node.port(), b"") as client:
        for at in range(0, len(data), 7):
            client.sendall(data[at : at + 7])
            time.sleep(0.001)
        assert cut(Wire(client).reply().body) == ARRAY


def test_pipelined_requests_keep_their_order(node: Node) -> None:
    """Remembered heads, unseen heads, other routes and errors, in one write and in odd pieces."""
    keys = [f"k{i % 40}" for i in range(60)]
    messages: list[bytes] = []
    for number, key in enumerate(keys):
        messages.append(request("/query-stream", json_bytes({"sql": select(key)})))
        if number % 7 == 3:
            messages.append(request("/info"))
        if number % 11 == 5:
            messages.append(request("/query", b"{"))
    data = b"".join(messages)
    for size in (len(data), 1000, 333):
        with send(node.port(), b"") as client:
            for at in range(0, len(data), size):
                client.sendall(data[at : at + size])
            wire = Wire(client)
            for number, key in enumerate(keys):
                line = wire.reply().body.splitlines()[1]
                assert json.loads(line) == [key, *ROWS[key]]
                if number % 7 == 3:
                    assert b"KsqlServerInfo" in wire.reply().body
                if number % 11 == 5:
                    assert wire.reply().status == 400


def test_connection_close_is_obeyed(node: Node) -> None:
    for _ in range(2):
        data = request("/query", json_bytes({"ksql": select("k1")}), connection="close")
        with send(node.port(), data) as client:
            wire = Wire(client)
            assert wire.reply().status == 200
            assert client.recv(1) == b""


def test_upgrade_offer_is_passed_over(node: Node) -> None:
    """Java's client offers h2c with every request."""
    body = json_bytes({"ksql": select("k1")})
    data = request("/query", body, connection="Upgrade, HTTP2-Settings", upgrade="h2c")
    for _ in range(2):
        with send(node.port(), data) as client:
            assert cut(Wire(client).reply().body) == ARRAY


def test_endless_head_is_refused(node: Node) -> None:
    with send(node.port(), b"GET / HTTP/1.1\r\n") as client:
        try:
            for _ in range(100):
                client.sendall(b"x-more: " + b"y" * 8000 + b"\r\n")
        except OSError:
            pass
        else:
            assert Wire(client).reply().status == 431


def test_lag_bound_of_a_request(node: Node) -> None:
    number = partition("k1")
    node.write_status(USERS, number, status(committed_end=110, log_end=110))
    try:
        for bound, expected in ((9, 503), ("9", 503), (10, 200), ("10", 200), (None, 200)):
            properties = {} if bound is None else {"ksql.query.pull.max.allowed.offset.lag": bound}
            body = json_bytes({"ksql": select("k1"), "streamsProperties": properties})
            for _ in range(2):
                reply = ask(node.port(), "/query", body)
                assert reply.status == expected, bound
        body = json_bytes(
            {"ksql": select("k1"), "streamsProperties": {"acceptable.offset.lag": "3"}}
        )
        refused = ask(node.port(), "/query", body)
        assert refused.json["error_code"] == 50306
        assert str(refused.json["message"]).startswith(
            f"Unable to execute pull query {select('k1')}. "
            "All nodes are dead or exceed max allowed lag."
        )
        assert "lag 10 exceeds maximum allowed lag 3" in str(refused.json["standpipe"])
        assert refused.headers["retry-after"] == "1"
    finally:
        node.write_status(USERS, number, status())


def test_table_that_is_not_ready(node: Node) -> None:
    number = partition("k1")
    page = status(ReplicaState.BOOTSTRAP, position=25, committed_end=-1)
    node.write_status(USERS, number, page)
    try:
        reply = pull(node.port(), select("k1"))
        assert (reply.status, reply.json["error_code"]) == (503, 50305)
        assert "Progress: 25 %" in str(reply.json["message"])
        assert reply.headers["retry-after"] == "1"
    finally:
        node.write_status(USERS, number, status())


def test_unknown_lags_are_left_out(node: Node) -> None:
    number = partition("k1")
    page = status(committed_end=-1, confirmed_boot_ms=0, source_instant_ms=0, batch=-1)
    node.write_status(USERS, number, page)
    try:
        headers = pull(node.port(), select("k1")).headers
        assert [n for n in headers if n.startswith("standpipe-")] == [
            "standpipe-served-by",
            "standpipe-role",
            "standpipe-state",
        ]
    finally:
        node.write_status(USERS, number, status())


def test_get_routes(node: Node) -> None:
    port = node.port()
    info = ask(port, "/info").json["KsqlServerInfo"]
    assert isinstance(info, dict)
    assert (info["ksqlServiceId"], info["serverStatus"]) == ("default_", "RUNNING")
    assert ask(port, "/is_valid_property/ksql.heartbeat.enable").status in (200, 400)
    assert ask(port, "/is_valid_property/ksql.query.pull.max.allowed.offset.lag").body == b"true"
    assert ask(port, "/v1/metadata/id").json["scope"]
    commands = ask(port, "/status").json["commandStatuses"]
    assert commands == {
        "stream/EVENTS/create": "SUCCESS",
        "table/USERS/create": "SUCCESS",
        "table/DAYS/create": "SUCCESS",
    }
    assert ask(port, "/status/table/USERS/create").json["status"] == "SUCCESS"
    root = ask(port, "/")
    assert (root.status, root.headers["location"]) == (307, "/info")
    assert ask(port, "/", accept="text/html").headers["content-type"].startswith("text/html")


def test_cluster_status(node: Node) -> None:
    hosts = ask(node.port(), "/clusterStatus").json["clusterStatus"]
    assert isinstance(hosts, dict)
    host = hosts[node.config.public]
    assert host["hostAlive"] is True
    active = host["activeStandbyPerQuery"]["CTAS_USERS_1"]["activePartitions"]
    assert active == [{"topic": "USERS", "partition": number} for number in range(PARTITIONS)]
    lags = host["hostStoreLags"]["stateStoreLags"]
    assert lags["CTAS_USERS_1#Aggregate-Aggregate-Materialize"]["lagByPartition"]["0"] == {
        "currentOffsetPosition": 100,
        "endOffsetPosition": 100,
        "offsetLag": 0,
    }
    assert host["standpipe"]["replicas"]["T1-1-0"]["state"] == "RUNNING"


def test_status_storage_of_a_node(node: Node) -> None:
    """As `standpipe status --storage --json` prints it, and as a person reads it."""
    arguments = ["status", "--storage", "--server", node.config.public]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert [n["is_up"] for n in found["nodes"]] == [True]
    stores = {(each["table"], each["partition"]): each for each in found["stores"]}
    assert set(stores) == {(name, n) for name in ("DAYS", "USERS") for n in range(PARTITIONS)}
    for (name, number), each in stores.items():
        path = node.config.paths.state / f"{'T2' if name == 'DAYS' else 'T1'}-1" / str(number)
        blocks = sum(file.stat().st_blocks for file in path.iterdir())
        assert each["store_bytes"] == 512 * blocks
        assert each["map_share"] == each["store_bytes"] / each["map_bytes"]
        assert (each["role"], each["state"], each["rows"]) == ("active", "RUNNING", 1)
    sizes = sum(each["store_bytes"] for each in stores.values())
    (total,) = found["node_totals"]
    assert (total["copies"], total["rows"], total["store_bytes"]) == (8, 8, sizes)
    assert [(t["name"], t["rows"]) for t in found["table_totals"]] == [("DAYS", 4), ("USERS", 4)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert len(re.findall(r"USERS +\d +.*RUNNING +1 ", shown.output)) == PARTITIONS


def test_metrics_count_pulls(node: Node) -> None:
    pull(node.port(), select("k1"))
    text = ask(node.port(), "/metrics").body.decode()
    found = re.search(r'standpipe_pull_requests_total\{route="local",worker="0"\} (\d+)', text)
    assert found is not None
    assert float(found[1]) >= 1
    assert 'standpipe_pull_latency_seconds_bucket{le="+Inf",worker="0"}' in text


def states_of(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """The states that a scrape finds: name -> values of its labels, as declared -> number."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(ask(port, "/metrics").body.decode()):
        for sample in family.samples:
            if sample.name in STATES:
                labels = tuple(sample.labels[name] for name in STATES[sample.name][0])
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_metrics_show_states(tmp_path: Path) -> None:
    """Of copies, queries, peers and the map, as control, tailer and pipeline left them."""
    cluster = Cluster.make(tmp_path, 2, replicas=1)
    first, second = cluster.nodes
    try:
        cluster.fill(ROWS)
        cluster.publish(
            statuses=(
                QueryStatus(
                    query_id="CTAS_USERS_1",
                    state="FAILED",
                    reason="CHECKPOINT_MISMATCH",
                    bad_records=2,
                    at_ms=int(time.time() * 1000),
                ),
            )
        )
        behind = status(ReplicaState.CATCHING_UP, position=93, foreign_records=5, rows=8)
        first.write_status(USERS, 2, behind)
        first.start()
        first.wait_ready()
        down = PeerLiveness(node_id=second.config.node_id, health=Health.DOWN)
        until = time.monotonic() + 60
        while "standpipe_peer_up" not in (found := states_of(first.port())):
            assert time.monotonic() < until, "no verdict on the metrics page"
            boot_ms = Clock().boot_ms()
            liveness = Liveness(published_boot_ms=boot_ms, peers=(down,))
            published.write(first.config.paths.liveness, liveness)
    finally:
        cluster.stop()
    assert found["standpipe_peer_up"] == {("node-1",): 0}
    states = found["standpipe_replica_state"]
    assert {labels for labels in states if labels[0] == "USERS"} == {
        ("USERS", "1", "0", "RUNNING"),
        ("USERS", "1", "2", "CATCHING_UP"),
    }, "of this node's copies only"
    copy = ("USERS", "1", "2")
    assert found["standpipe_replica_offset_lag_records"][copy] == 7
    assert found["standpipe_replica_foreign_records_total"][copy] == 5
    assert found["standpipe_replica_rows"][copy] == 8
    assert 0 <= found["standpipe_replica_lag_seconds"][copy] < 60
    assert 0 <= found["standpipe_replica_source_lag_seconds"][copy] < 60
    size = found["standpipe_replica_store_bytes"][copy]
    assert 0 < size < found["standpipe_replica_store_map_bytes"][copy]
    assert found["standpipe_query_state"] == {
        ("CTAS_USERS_1", "FAILED", "CHECKPOINT_MISMATCH"): 1,
        ("CTAS_DAYS_2", "UNRESPONSIVE", ""): 1,
    }
    assert found["standpipe_query_bad_records_total"] == {("CTAS_USERS_1",): 2}
    assert 0 <= found["standpipe_snapshot_age_seconds"][()] < 60


def test_show_and_describe(node: Node) -> None:
    body = json_bytes({"ksql": "SHOW STREAMS; SHOW TABLES; SHOW QUERIES; DESCRIBE USERS;"})
    reply = ask(node.port(), "/ksql", body)
    assert reply.headers["content-type"] == V1
    entities = json.loads(reply.body)
    kinds = [entity["@type"] for entity in entities]
    assert kinds == ["streams", "tables", "queries", "sourceDescription"]
    assert entities[0]["streams"][0]["name"] == "EVENTS"
    assert entities[3]["sourceDescription"]["fields"][0] == {
        "name": "ID",
        "schema": {"type": "STRING", "fields": None, "memberSchema": None},
        "type": "KEY",
    }


def test_nothing_is_done_when_one_statement_is_wrong(node: Node) -> None:
    body = json_bytes({"ksql": "SHOW STREAMS; DESCRIBE NOBODY;"})
    reply = ask(node.port(), "/ksql", body)
    assert (reply.status, reply.json["error_code"]) == (400, 40001)
    assert reply.json["entities"] == []


def test_failing_statement_names_those_done(node: Node) -> None:
    """There is no control behind this worker, so a statement for the log fails after its check."""
    body = json_bytes({"ksql": "SHOW STREAMS; DROP TABLE DAYS;"})
    reply = ask(node.port(), "/ksql", body)
    assert (reply.status, reply.json["error_code"]) == (503, 50307)
    assert reply.json["statementText"] == "DROP TABLE DAYS;"
    entities = reply.json["entities"]
    assert isinstance(entities, list)
    assert [entity["@type"] for entity in entities] == ["streams"]


def test_new_map_is_taken_over(tmp_path: Path) -> None:
    cluster = Cluster.make(tmp_path, 1, replicas=1)
    cluster.sources = (EVENTS,)
    cluster.fill(ROWS)
    cluster.publish()
    cluster.start()
    try:
        port = cluster.nodes[0].port()
        assert pull(port, select("k1")).status == 400
        cluster.sources = (EVENTS, USERS)
        cluster.publish(stamp=2)
        until = time.monotonic() + 60
        while pull(port, select("k1")).status != 200:
            assert time.monotonic() < until
    finally:
        cluster.stop()


def test_before_the_first_map(tmp_path: Path) -> None:
    cluster = Cluster.make(tmp_path, 1)
    cluster.start()
    try:
        port = cluster.nodes[0].port()
        assert pull(port, select("k1")).status == 503
        assert ask(port, "/info").status == 503
        assert ask(port, "/healthcheck").json["isHealthy"] is False
        cluster.publish()
        until = time.monotonic() + 60
        while ask(port, "/healthcheck").json["isHealthy"] is not True:
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        cluster.stop()


def test_two_workers_share_the_ports(tmp_path: Path) -> None:
    cluster = Cluster.make(tmp_path, 1, replicas=1)
    cluster.fill(ROWS)
    cluster.publish()
    node = cluster.nodes[0]
    node.start(0)
    node.start(1)
    try:
        node.wait_ready()
        until = time.monotonic() + 60
        # the first answers before the second listens, and would get all connections
        while not all(serves(node, number) for number in (0, 1)):
            assert time.monotonic() < until
            time.sleep(0.02)
        for _ in range(40):
            assert cut(pull(node.port(), select("k1")).body) == ARRAY
        # each tells the other once a second what it has counted
        while sum((counts := counted(node)).values()) < 40:
            assert time.monotonic() < until, counts
            time.sleep(0.1)
        assert counts.keys() == {"0", "1"}
        assert sum(counts.values()) == 40
    finally:
        cluster.stop()


def serves(node: Node, number: int) -> bool:
    """Whether a worker listens."""
    log = node.config.paths.logs / f"worker-{number}.log"
    return log.exists() and "worker serves" in log.read_text()


def counted(node: Node) -> dict[str, int]:
    """{worker: reads that it has answered from its own node}, as one of them tells."""
    text = ask(node.port(), "/metrics").body.decode()
    found = re.findall(r'requests_total\{route="local",worker="(\d)"\} (\d+)', text)
    return {worker: int(count) for worker, count in found}


def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    cluster = Cluster.make(tmp_path, 1, replicas=1)
    cluster.fill(ROWS)
    cluster.publish()
    node = cluster.nodes[0]
    worker = node.start()
    node.wait_ready()
    data = request("/query", json_bytes({"ksql": select("k1")}))
    idle = send(node.port(), b"")
    with send(node.port(), data[:-5]) as client:
        for _ in range(2):  # connections are accepted in order: it has that of the client, too
            assert ask(node.port(), "/info").status == 200
        os.kill(worker.pid, signal.SIGTERM)
        until = time.monotonic() + 60
        while is_open(node.port()):  # it has seen the signal once it accepts nobody else
            assert time.monotonic() < until
            time.sleep(0.01)
        client.sendall(data[-5:])
        assert Wire(client).reply().status == 200
    assert worker.wait(60) == 0
    assert idle.recv(1) == b""
    idle.close()


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
