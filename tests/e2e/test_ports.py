"""Clients that hold on to the ports of a whole node: cut in time, others served, nothing restarts.

Ten thousand idle connections, two hundred half heads and a hundred slow bodies, on each listener.
Beside them a client asks all three, over new connections and kept ones, and every answer is good.
Deadlines are lowered so that the test takes less than a minute; what is asserted are counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.test_serve import SECRET, Node, Wire, ask, node, request, send

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.adapters.process import read_pid
from standpipe.adapters.raft.wire import MAGIC
from standpipe.adapters.sealed.handshake import MAGIC as SEALED
from standpipe.adapters.sealed.handshake import PEER, PeerIdentity
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.liveness.wire import PROBE_PATH

__all__ = ["node"]  # a fixture

HEAD_MS = 3000
SOURCES = 10  # addresses of the attacker: 127.0.0.2 and so on
HALF_HEADS = 200
SLOW_BODIES = 100
LISTENERS = ("public", "peer", "internal")
WAIT_S_MAX = 120.0
TRIES = 3


@dataclass
class WholeNode:
    """A parent with its children, without Kafka."""

    config: NodeConfig
    process: subprocess.Popen[bytes]

    def address(self, listener: str) -> str:
        found: str = getattr(self.config, listener)
        return found

    def pids(self) -> dict[str, int | None]:
        run = self.config.paths.run
        return {path.stem: read_pid(path) for path in sorted(run.glob("*.pid"))}

    def descriptors(self) -> dict[str, int]:
        """Open files of each child."""
        return {
            name: len(list(Path(f"/proc/{pid}/fd").iterdir()))
            for name, pid in self.pids().items()
            if name != "tailer"
        }


@contextlib.contextmanager
def whole_node(folder: Path, files_max: int, workers: int = 2) -> Iterator[WholeNode]:
    secret = folder / "secret"
    secret.write_text(SECRET)
    config = NodeConfig(
        node_id=NodeId("node-1"),
        data_dir=str(folder / "node-1"),
        bootstrap_servers="",
        public=f"127.0.0.1:{any_port()}",
        internal=f"127.0.0.1:{any_port()}",
        peer=f"127.0.0.1:{any_port()}",
        secret_file=str(secret),
        workers=workers,
        config={"standpipe.listener.head.timeout.ms": HEAD_MS},
    )
    config.paths.make()
    node_file = folder / "node-1" / "node.json"
    configuration.save(node_file, config)
    command = [sys.executable, "-m", "standpipe.node", "--node-file", str(node_file)]
    limited = ["sh", "-c", f'ulimit -n {files_max} && exec "$@"', "sh", *command]
    with (folder / "node.log").open("wb") as log:
        process = subprocess.Popen(limited, stdout=log, stderr=log)
    try:
        started = WholeNode(config, process)
        asyncio.run(until_served(started))
        yield started
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def until_served(whole: WholeNode) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        reader = Reads(whole)
        await reader.round()
        if not reader.failed:
            return
        assert whole.process.poll() is None, "the node ended"
        await asyncio.sleep(0.1)
    raise AssertionError("the node does not serve")


# ------------------------------------------------------------------------------ the others


@dataclass
class Reads:
    """What a client that means well gets from the three listeners."""

    whole: WholeNode
    good: int = 0
    failed: list[str] = field(default_factory=list[str])

    async def go_on(self, stop: asyncio.Event) -> None:
        """Rounds over new connections, beside rounds over kept ones."""
        kept = clients()
        while not stop.is_set():
            await self.round()
            await self.round(kept)
            await asyncio.sleep(0.05)
        close(kept)

    async def round(self, kept: Mapping[str, PeerClient] | None = None) -> None:
        mine = kept or clients()
        for listener, path in (("public", "/info"), ("peer", PROBE_PATH), ("internal", "/log")):
            why = await self._ask(mine[listener], self.whole.address(listener), path)
            if why:
                self.failed.append(f"{listener}: {why}")
            else:
                self.good += 1
        if kept is None:
            close(mine)

    async def _ask(self, client: PeerClient, address: str, path: str) -> str:
        """Why it failed. A connection whose request comes late, as this process is busy with the
        attack, may have given way by then: as any client does, it dials again."""
        why = ""
        for _ in range(TRIES):
            try:
                reply = await client.request(address, path, timeout_s=30.0)
            except PathFailed as error:
                why = str(error)
            else:
                return "" if reply.status == 200 else str(reply.status)
        return why


def clients() -> dict[str, PeerClient]:
    """One for each listener: a client's, a peer's, an operator's."""
    return {
        "public": PeerClient(),
        "peer": PeerClient(identity=PeerIdentity(SECRET, NodeId("node-2"), PEER)),
        "internal": PeerClient(identity=PeerIdentity(SECRET)),
    }


def close(made: Mapping[str, PeerClient]) -> None:
    for client in made.values():
        client.close()


# ---------------------------------------------------------------------------- the attacker

OPENINGS = (
    b"",
    b"G",
    b"POST /query HTTP/1.1\r\ncontent-len",
    b"POST /query HTTP/1.1\r\nhost: x\r\n",
    b"PRI * HTTP/2.0\r\n\r\n",
    MAGIC[:9],
    MAGIC,
    SEALED[:5],
    SEALED,
)
BODY = b"POST /query HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n"


class Attacker:
    """Connections to one listener that are opened and never ended from this side."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._open: set[socket.socket] = set()
        self._slow: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self.made = 0
        self.cut = 0

    def dial(self, first: bytes = b"", *, is_slow: bool = False) -> None:
        source = f"127.0.0.{2 + self.made % SOURCES}"
        made = socket.create_connection(self._target, 30, source_address=(source, 0))
        made.setblocking(False)
        self.made += 1
        self._open.add(made)
        if is_slow:
            self._slow.add(made)
        self._selector.register(made, selectors.EVENT_READ)
        try:
            made.sendall(first)
        except OSError:
            self._hung_up(made)

    def attend(self, seconds: float) -> None:
        """Send a byte of each slow body, and notice who was hung up on."""
        for made in list(self._slow):
            try:
                made.send(b"x")
            except OSError:
                self._hung_up(made)
        for key, _ in self._selector.select(seconds):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                data = made.recv(65_536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._hung_up(made)

    def end(self) -> None:
        """Hang up on the rest, which is not counted."""
        for made in self._open:
            made.close()
        self._selector.close()

    def _hung_up(self, made: socket.socket) -> None:
        if made not in self._open:
            return
        self._open.discard(made)
        self._slow.discard(made)
        self._selector.unregister(made)
        made.close()
        self.cut += 1


def hold_on_to(address: str, idle: int) -> Attacker:
    """All of it, until the last of them was cut."""
    attacker = Attacker(address)
    try:
        for _ in range(SLOW_BODIES):
            attacker.dial(BODY, is_slow=True)
        for number in range(HALF_HEADS):
            attacker.dial(OPENINGS[number % len(OPENINGS)])
        for number in range(idle):
            attacker.dial()
            if number % 500 == 0:
                attacker.attend(0)
        deadline = time.monotonic() + WAIT_S_MAX
        while attacker.cut < attacker.made and time.monotonic() < deadline:
            attacker.attend(0.1)
        return attacker
    finally:
        attacker.end()


@contextlib.contextmanager
def many_files() -> Iterator[int]:
    """As many open files as this process may have; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("files_max", "idle", "why"),
    [
        (20_000, 10_000, "a usual limit"),
        (1024, 1300, "control's last descriptor was taken by as many"),
    ],
)
def test_who_holds_on_is_cut_and_others_are_served(
    tmp_path: Path, files_max: int, idle: int, why: str
) -> None:
    with many_files() as files, whole_node(tmp_path, min(files_max, files)) as whole:
        idle = min(idle, files - 2000)
        before = whole.pids()
        reads = Reads(whole)

        async def story() -> None:
            stop = asyncio.Event()
            reading = asyncio.create_task(reads.go_on(stop))
            for listener in LISTENERS:
                attacker = await asyncio.to_thread(hold_on_to, whole.address(listener), idle)
                assert attacker.made == idle + HALF_HEADS + SLOW_BODIES
                assert attacker.cut == attacker.made, f"{listener}: all were cut"
            stop.set()
            await reading

        asyncio.run(story())
        assert reads.failed == [], why
        assert reads.good > len(LISTENERS) * 10
        assert whole.pids() == before, "nothing restarted"
        assert len(before) >= 4
        deadline = time.monotonic() + WAIT_S_MAX
        while max(whole.descriptors().values()) >= 200:
            assert time.monotonic() < deadline, "and nothing stayed open"
            time.sleep(0.1)  # a node closes what it cut in its own time
        counted = metrics_of(whole)
        for process in ("worker-0", "worker-1", "control"):
            assert counted[process] > 0, counted


def metrics_of(whole: WholeNode) -> dict[str, int]:
    """Connections that each process counted as refused or cut, once all have said so."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        reply = ask(int(whole.config.public.rpartition(":")[2]), "/metrics")
        found: dict[str, int] = {}
        pattern = r'^standpipe_connections_(?:cut|refused)_total\{.*worker="(\w+)".*\} (\S+)$'
        for worker, number in re.findall(pattern, reply.body.decode(), re.MULTILINE):
            name = worker if worker == "control" else f"worker-{worker}"
            found[name] = found.get(name, 0) + int(float(number))
        if len(found) == 3 or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


# -------------------------------------------------------------------------------- web pages

DROP = json.dumps({"ksql": "DROP TABLE USERS;"}).encode()
QUERY = json.dumps({"ksql": "SELECT * FROM USERS WHERE ID = 'k1';"}).encode()
FOREIGN = {"origin": "http://evil.example"}


@pytest.mark.parametrize("path", ["/ksql", "/query", "/query-stream", "/close-query"])
@pytest.mark.parametrize(
    ("headers", "status", "code", "why"),
    [
        ({"content-type": "text/plain", **FOREIGN}, 403, 40300, "as it was reproduced"),
        ({"content-type": "text/plain"}, 415, 41500, "a page whose browser says no origin"),
        ({"content-type": "application/json", **FOREIGN}, 403, 40300, "after it was asked for"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, 41500, "a form"),
        ({"content-type": "application/json", "host": "evil.example"}, 421, 42100, "rebinding"),
        ({"sec-fetch-site": "cross-site"}, 415, 41500, "a body of bytes, without a type"),
    ],
)
def test_web_pages_are_refused(
    node: Node, path: str, headers: dict[str, str], status: int, code: int, why: str
) -> None:
    port = node.port()
    for _ in range(2):  # the second time the fast path could have known the head
        reply = ask(port, path, DROP if path == "/ksql" else QUERY, **headers)
        assert (reply.status, reply.json["error_code"]) == (status, code), why
        assert set(reply.json) >= {"@type", "error_code", "message"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": "application/vnd.ksql.v1+json; charset=utf-8"},
        {"content-type": "application/json", "host": "localhost:8088"},
        {
            "content-type": "application/json",
            "host": "localhost:8088",
            "origin": "http://localhost:8088",
        },
    ],
)
def test_clients_of_ksqldb_are_served(node: Node, headers: dict[str, str]) -> None:
    port = node.port()
    for _ in range(2):
        assert ask(port, "/query", QUERY, **headers).status == 200
    assert ask(port, "/ksql", b'{"ksql": "SHOW TABLES;"}', **headers).status == 200


def test_a_known_head_does_not_open_the_door(node: Node) -> None:
    """Good and bad heads by turns over one connection."""
    port = node.port()
    good = request("/query", QUERY, **{"content-type": "application/json"})
    bad = request("/query", QUERY, **{"content-type": "text/plain"})
    with send(port, (good + bad) * 3) as client:
        wire = Wire(client)
        statuses = [wire.reply().status for _ in range(6)]
    assert statuses == [200, 415] * 3
