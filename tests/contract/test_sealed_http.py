"""Both HTTP clients against the real listener, over real sockets: what a sealed connection keeps.

The client that awaits and the one that blocks have the protocol in common and nothing else, so
every promise is checked with both. A *tap* between client and listener reads and changes bytes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import httpx2
import pytest

from standpipe.adapters.http import internal
from standpipe.adapters.http.internal import Call, InternalApp, Reply, json_reply
from standpipe.adapters.http.peer_client import PathFailed, PeerClient, Response, Unproved
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.sealed.handshake import MAGIC, PEER, PeerIdentity
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId

SECRET = "correct horse battery staple"
SERVER = PeerIdentity(SECRET, NodeId("node-2"))
ME = PeerIdentity(SECRET, NodeId("node-1"))


@dataclass
class Served:
    """The listener, and what its handlers saw."""

    address: str
    calls: list[Call] = field(default_factory=list[Call])

    async def echo(self, call: Call) -> Reply:
        self.calls.append(call)
        return Reply(200, {"content-type": "text/plain"}, call.body or call.peer.encode())


@pytest.fixture
def served() -> Iterator[Served]:
    """A listener between nodes, in a thread."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    made = Served(f"127.0.0.1:{any_port()}")
    bound = internal.bind_alone(made.address)

    async def none(_: Call) -> Reply:
        return json_reply({}, 404)

    async def serve() -> None:
        routes = {("POST", "/echo"): made.echo, ("GET", "/who"): made.echo}
        app = InternalApp(routes, body_bytes_max=1 << 24, otherwise=none)
        await internal.serve(bound, app, stop, 0.1, identity=SERVER)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    yield made
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


class Client(Protocol):
    """One client, as both have it."""

    def ask(self, address: str, target: str, body: bytes = b"") -> Response: ...

    def close(self) -> None: ...


class Awaiting:
    """`PeerClient`, with a loop of its own."""

    def __init__(self, me: PeerIdentity, to: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._client = PeerClient(identity=me, to=NodeId(to))

    def ask(self, address: str, target: str, body: bytes = b"") -> Response:
        asked = self._client.request(address, target, timeout_s=30, body=body, is_repeatable=False)
        return self._loop.run_until_complete(asked)

    def close(self) -> None:
        self._client.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


class Blocking:
    """`SyncClient`."""

    def __init__(self, me: PeerIdentity, to: str = "") -> None:
        self._client = SyncClient(timeout_s=30, identity=me, to=NodeId(to))

    def ask(self, address: str, target: str, body: bytes = b"") -> Response:
        return self._client.request("POST" if body else "GET", address, target, body=body)

    def close(self) -> None:
        self._client.close()


Make = Callable[..., Client]


@pytest.fixture(params=[Awaiting, Blocking], ids=["awaiting", "blocking"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes clients and closes them."""
    made: list[Client] = []

    def make_one(me: PeerIdentity = ME, to: str = "") -> Client:
        made.append(request.param(me, to))
        return made[-1]

    yield make_one
    for client in made:
        client.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 131_072, 131_073, 5_000_000])
def test_bodies_of_any_size_go_there_and_back(served: Served, make: Make, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    client = make()
    for _ in range(2):
        if size:
            answer = client.ask(served.address, "/echo", body[:size])
            assert (answer.status, answer.body == body[:size]) == (200, True)
        else:
            assert client.ask(served.address, "/who").body == b"node-1"


def test_a_handler_is_told_who_asks(served: Served, make: Make) -> None:
    for me in (ME, PeerIdentity(SECRET, NodeId("node-9")), PeerIdentity(SECRET)):
        assert make(me, "node-2").ask(served.address, "/who").body == me.node.encode()


@pytest.mark.parametrize(
    ("me", "to", "why"),
    [
        (PeerIdentity("guessed", NodeId("node-1")), "", "does not know the secret"),
        (ME, "node-3", "node-2 answers at the address of node-3"),
        (PeerIdentity(SECRET, NodeId("node-1"), PEER), "node-2", "not its peer listener"),
    ],
)
def test_who_is_not_let_in(served: Served, make: Make, me: PeerIdentity, to: str, why: str) -> None:
    with pytest.raises(Unproved, match=why):
        make(me, to).ask(served.address, "/echo", b"do it")
    assert served.calls == []


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "prove that they know its secret"),
        ({"standpipe-secret": SECRET}, "an older release sent it"),
        ({"standpipe-secret": "wrong"}, "an older release sent it"),
    ],
)
def test_plain_http_is_refused(served: Served, headers: dict[str, str], why: str) -> None:
    """The secret itself in a header, as older releases sent it, too."""
    for body in (b"", b"x" * 200_000):
        answer = httpx2.post(f"http://{served.address}/echo", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (401, 40100)
        assert why in answer.json()["message"]
    assert served.calls == []


# ----------------------------------------------------------------------- somebody in between


@dataclass
class Tap:
    """Passes bytes on, and keeps those of the client. `change` may return other bytes."""

    address: str
    change: Callable[[bytes], bytes] = bytes
    heard: bytes = b""


@contextmanager
def tapped(served: Served) -> Iterator[Tap]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tap = Tap(f"127.0.0.1:{listener.getsockname()[1]}")
        host, _, port = served.address.rpartition(":")
        lines: list[socket.socket] = []

        def back(far: socket.socket, near: socket.socket) -> None:
            with suppress(OSError):
                while data := far.recv(65536):
                    near.sendall(data)
                near.shutdown(socket.SHUT_WR)

        def pump(near: socket.socket) -> None:
            with socket.create_connection((host, int(port))) as far, suppress(OSError):
                threading.Thread(target=back, args=(far, near), daemon=True).start()
                while data := near.recv(65536):
                    tap.heard += data
                    far.sendall(tap.change(data))

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near = listener.accept()[0]
                    lines.append(near)
                    threading.Thread(target=pump, args=(near,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield tap
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for line in lines:
                line.close()


def test_the_secret_is_in_nothing_that_is_sent(served: Served, make: Make) -> None:
    with tapped(served) as tap:
        client = make()
        client.ask(tap.address, "/echo", b"do it")
        assert client.ask(tap.address, "/who").body == b"node-1"
    assert tap.heard.startswith(MAGIC)
    assert SECRET.encode() not in tap.heard


def test_a_recording_is_refused(served: Served, make: Make) -> None:
    with tapped(served) as tap:
        make().ask(tap.address, "/echo", b"do it")
    assert len(served.calls) == 1
    host, _, port = served.address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as again:
        again.sendall(tap.heard)
        heard = b""
        with suppress(ConnectionError):
            while data := again.recv(65536):
                heard += data
    assert len(served.calls) == 1, "it was not carried out again"
    assert b"HTTP" not in heard


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"do it", b"do IT", "a body"),
        (b"/echo", b"/kill", "a path"),
        (b"POST", b"PUT ", "a method"),
    ],
)
def test_a_changed_request_is_not_carried_out(
    served: Served, make: Make, old: bytes, new: bytes, why: str
) -> None:
    with tapped(served) as tap:
        client = make()
        assert client.ask(tap.address, "/who").body == b"node-1"
        tap.change = lambda data: data.replace(old, new)
        with pytest.raises(PathFailed):
            client.ask(tap.address, "/echo", b"do it")
    assert [call.path for call in served.calls] == ["/who"], why


def test_a_request_sent_twice_is_carried_out_once_at_most(served: Served, make: Make) -> None:
    with tapped(served) as tap:
        client = make()
        client.ask(tap.address, "/who")
        tap.change = lambda data: data * 2
        with suppress(PathFailed):
            client.ask(tap.address, "/echo", b"do it")
        tap.change = bytes
        assert client.ask(tap.address, "/who").body == b"node-1", "over another connection"
    assert [call.path for call in served.calls].count("/echo") <= 1


def test_a_stranger_gets_a_greeting_and_no_request(make: Make) -> None:
    """Somebody else has the node's old address now."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            for answer in (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"\0" * 99, b""):
                with listener.accept()[0] as line:
                    line.settimeout(30)
                    heard.append(line.recv(65536))
                    line.sendall(answer)
                    line.shutdown(socket.SHUT_WR)
                    with suppress(OSError):
                        while data := line.recv(65536):
                            heard[-1] += data

        thread = threading.Thread(target=listen)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for _ in range(3):
            with pytest.raises(PathFailed):
                make(ME, "node-2").ask(address, "/echo", b"do")
        thread.join()
    assert len(heard) == 3
    for one in heard:
        assert one.startswith(MAGIC)
        assert len(one) < 120
        assert b"do" not in one
        assert SECRET.encode() not in one
