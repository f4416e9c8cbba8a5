"""Requests that take long, answered by a heavy worker while others serve lookups. No Kafka."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.forked import NodeProcess
from tests.e2e.test_http2 import curl
from tests.e2e.test_serve import (
    PARTITIONS,
    Cluster,
    Node,
    Reply,
    Wire,
    ask,
    cut,
    json_bytes,
    pull,
    request,
    select,
    send,
)

SCAN = "SELECT ID, N FROM USERS WHERE N >= 0;"
ROWS: dict[str, list[object]] = {f"k{i}": [i, f"näme {i}"] for i in range(10_000)}
#: ten texts for each row: it does not end while a test looks
ENDLESS = "SELECT ID FROM USERS WHERE " + " OR ".join(
    f"LEN(REPLACE(RPAD(NAME, 6000, 'x{n}'), 'x', 'yy')) < {n}" for n in range(10)
)
#: the other node may be silent for a while: the machine is busy with other tests
PATIENT = {
    "ksql.query.pull.forwarding.timeout.ms": 20_000,
    "ksql.query.pull.routing.timeout.ms": 60_000,
}
FORMS = ["application/vnd.ksql.v1+json", "application/vnd.ksqlapi.delimited.v1", "application/json"]


@dataclass
class World:
    cluster: Cluster
    heavy: list[NodeProcess] = field(default_factory=list[NodeProcess])
    _before: Counter[str] = field(default_factory=Counter[str])

    @property
    def node(self) -> Node:
        return self.cluster.nodes[0]

    def begin(self) -> None:
        """A heavy worker at each node, and nothing counted."""
        self.end_heavy()
        self.heavy = [node.start_heavy() for node in self.cluster.nodes]
        self._before = self._counted()

    def end_heavy(self) -> None:
        for process in self.heavy:
            process.kill()
            process.wait(10)

    def passed_on(self) -> Counter[str]:
        """Outcome -> requests of this test that the node's worker left to its heavy worker."""
        return self._counted() - self._before

    def _counted(self) -> Counter[str]:
        text = ask(self.node.port(), "/metrics").body.decode()
        sample = r'^standpipe_requests_passed_on_total\{outcome="(\w+)",worker="0"\} (\d+)'
        return Counter({outcome: int(n) for outcome, n in re.findall(sample, text, re.M)})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two nodes, each partition on one of them."""
    cluster = Cluster.make(tmp_path_factory.mktemp("heavy"), 2, replicas=1, **PATIENT)
    try:
        cluster.fill(ROWS)
        cluster.publish()
        cluster.start()
        yield World(cluster)
    finally:
        cluster.stop()


@pytest.fixture
def world(both: World) -> World:
    both.begin()
    return both


def eventually(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def looked_up(node: Node) -> None:
    for key in ("k0", "k1", "k2", "k3"):
        assert b'"' + key.encode() + b'"' in pull(node.port(), select(key), "/query-stream").body


def begun(node: Node, text: str = ENDLESS) -> socket.socket:
    """A request that the heavy worker computes, and goes on computing."""
    before = busy_ms(node)
    client = send(node.port(), request("/query-stream", json_bytes({"sql": f"{text};"})))
    eventually("it is computed", lambda: busy_ms(node) > before + 200)
    return client


def busy_ms(node: Node) -> float:
    """Processor time of the node's heavy worker."""
    number = node.config.heavy_numbers()[0]
    pid = (node.config.paths.run / f"heavy-{number}.pid").read_text().strip()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 10 * (int(fields[11]) + int(fields[12]))


@pytest.mark.parametrize("media", FORMS)
@pytest.mark.parametrize("path", ["/query", "/query-stream"])
def test_the_answer_is_the_same(world: World, path: str, media: str) -> None:
    """Its own partitions and those of the other node; beside it, without a heavy worker."""

    def answer() -> Reply:
        return pull(world.node.port(), SCAN, path, accept=media)

    theirs = answer()
    assert world.passed_on() == {"answered": 1}
    world.end_heavy()
    own = answer()
    assert world.passed_on() == {"answered": 1, "unreached": 1}
    assert theirs.status == own.status == 200, (theirs.body[:500], own.body[:500])
    assert sorted(cut(theirs.body).splitlines()) == sorted(cut(own.body).splitlines())
    assert cut(theirs.body).count(b'"k') == len(ROWS)
    volatile = {"standpipe-age-ms", "standpipe-lag-ms", "standpipe-source-lag-ms", "date"}
    assert theirs.headers.keys() - volatile == own.headers.keys() - volatile
    assert theirs.headers["content-type"] == own.headers["content-type"]


def test_errors_are_the_same(world: World) -> None:
    texts = [
        "SELECT ID, N + NAME FROM USERS WHERE N >= 0;",
        "SELECT * FROM NOWHERE WHERE N >= 0;",
        "SELECT * FROM USERS WHERE " + " AND ".join(["N >= 0"] * 400) + " AND;",
    ]
    theirs = [pull(world.node.port(), text) for text in texts]
    world.end_heavy()
    own = [pull(world.node.port(), text) for text in texts]
    assert [(each.status, each.body) for each in theirs] == [(e.status, e.body) for e in own]
    assert {each.status for each in own} == {400}
    assert world.passed_on()["answered"] > 0


def test_large_statements_are_carried_out_there(world: World) -> None:
    text = "SHOW TABLES;" * 199
    reply = ask(world.node.port(), "/ksql", json_bytes({"ksql": text}))
    assert reply.status == 200, reply.body[:300]
    assert len(list(reply.json)) == 199
    assert world.passed_on() == {"answered": 1}


def test_lookups_go_on_while_it_stands_still(world: World) -> None:
    for process in world.heavy:
        process.send_signal(signal.SIGSTOP)
    with send(world.node.port(), request("/query", json_bytes({"ksql": SCAN}))) as scanning:
        for _ in range(50):
            looked_up(world.node)
        for process in world.heavy:
            process.send_signal(signal.SIGCONT)
        assert Wire(scanning).reply().status == 200
    assert world.passed_on() == {"answered": 1}


def test_a_heavy_worker_that_dies_costs_its_own_requests_only(world: World) -> None:
    with begun(world.node) as client:
        looked_up(world.node)
        world.heavy[0].kill()
        reply = Wire(client).reply()
    assert (reply.status, reply.json["error_code"]) == (503, 50313), reply.body
    assert reply.headers["retry-after"] == "1"
    looked_up(world.node)
    assert pull(world.node.port(), SCAN).status == 200, "its worker answers by itself"
    world.heavy.append(world.node.start_heavy())
    assert pull(world.node.port(), SCAN).status == 200
    assert world.passed_on() == {"ended": 1, "unreached": 1, "answered": 1}


def test_nobody_knows_what_became_of_statements_whose_heavy_worker_dies(world: World) -> None:
    world.heavy[0].send_signal(signal.SIGSTOP)  # it takes the request, and does nothing
    body = json_bytes({"ksql": "SHOW TABLES;" * 199})
    before = connected(world)
    with send(world.node.port(), request("/ksql", body)) as client:
        eventually("it is passed on", lambda: connected(world) > before)
        world.heavy[0].kill()
        reply = Wire(client).reply()
    assert (reply.status, reply.json["error_code"]) == (503, 50312), reply.body


def connected(world: World) -> int:
    """Unix sockets of the node's worker that are connected; accepted or not, to a heavy worker."""
    table = Path("/proc/net/unix").read_text().splitlines()[1:]  # of all processes
    made = {fields[6] for fields in map(str.split, table) if fields[5] == "03"}
    found = 0
    for file in Path(f"/proc/{world.node.workers[0].pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            found += str(file.readlink()).removeprefix("socket:[").rstrip("]") in made
    return found


def test_half_an_answer_is_no_answer(world: World) -> None:
    """Its heavy worker dies while the client reads: the client must see that rows are missing."""
    text = "SELECT ID, RPAD(NAME, 3000, 'x') FROM USERS;"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", world.node.port()))
        client.sendall(request("/query-stream", json_bytes({"sql": text})))
        assert client.recv(1024).startswith(b"HTTP/1.1 200")
        world.heavy[0].kill()
        rest = b""
        with suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                rest += part
    assert not rest.endswith(b"\r\n0\r\n\r\n"), "the end of an answer in chunks"
    looked_up(world.node)
    assert world.passed_on() == {"ended": 1}


def test_by_http2(world: World) -> None:
    theirs = curl(world.node, "/query", body=json_bytes({"ksql": SCAN}))
    assert world.passed_on() == {"answered": 1}
    world.end_heavy()
    own = curl(world.node, "/query", body=json_bytes({"ksql": SCAN}))
    assert theirs[0] == own[0] == "2 200"
    assert sorted(cut(theirs[1]).splitlines()) == sorted(cut(own[1]).splitlines())
    assert theirs[1].count(b'"k') == len(ROWS)


def test_a_client_of_http_1_0(world: World) -> None:
    body = json_bytes({"ksql": SCAN})
    data = request("/query", body).replace(b" HTTP/1.1", b" HTTP/1.0", 1)
    with send(world.node.port(), data) as client:
        reply = Wire(client).reply()
    assert (reply.status, reply.body.count(b'"k')) == (200, len(ROWS))
    assert "content-length" in reply.headers
    assert world.passed_on() == {"answered": 1}


def test_a_client_that_leaves_ends_the_work(world: World) -> None:
    begun(world.node).close()
    eventually("it is told", lambda: world.passed_on().get("abandoned") == 1)

    def is_idle() -> bool:
        before = busy_ms(world.node)
        time.sleep(0.5)  # a slice takes 20 ms
        return busy_ms(world.node) - before < 100

    eventually("it works no longer", is_idle)


def test_the_connection_is_kept(world: World) -> None:
    """Scans and lookups by turns over one connection, a scan pipelined before a lookup."""
    scan = request("/query-stream", json_bytes({"sql": SCAN}))
    lookup = request("/query-stream", json_bytes({"sql": select("k1")}))
    with send(world.node.port(), scan + lookup) as client:
        wire = Wire(client)
        for _ in range(5):
            scanned = wire.reply()
            assert scanned.body.count(b'["k') == len(ROWS), scanned.body[:500]
            assert wire.reply().body.count(b'["k1"') == 1
            client.sendall(scan + lookup)
    assert world.passed_on()["answered"] >= 5


def test_a_client_cannot_say_that_it_is_a_peer(world: World) -> None:
    """And the socket stands where only the node's user may enter."""
    run = world.node.config.paths.run
    assert run.stat().st_mode & 0o777 == 0o700
    reply = ask(
        world.node.port(), "/query", json_bytes({"ksql": SCAN}), standpipe_passed_on="peers"
    )
    assert reply.status == 200, "a client's own header means nothing"
    assert reply.body.count(b'"k') == len(ROWS), "not one partition, as for a peer"
    assert PARTITIONS > 1
