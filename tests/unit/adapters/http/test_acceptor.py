"""A listener under clients that hold on to it, at real sockets: cut in time, others served."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, StreamEnded, StreamReset
from tests.tls import FIRST

from standpipe.adapters.http import acceptor
from standpipe.adapters.http.connections import CutReason, PortLimits
from standpipe.adapters.http.http2_server import ConnectionLimits, Http2Protocol, offer_http2
from standpipe.adapters.http.internal import InternalApp, bind_alone
from standpipe.adapters.http.internal import serve as serve_internal
from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import HEAD_BYTES_MAX, Listener, NoFastPath, bind, serve
from standpipe.adapters.http.tls import Certificate
from standpipe.adapters.raft.wire import MAGIC, QuorumWire
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.control.raft.majority import Incarnation, ReplicaKey
from standpipe.errors import StandpipeError
from standpipe.model import NodeId

QUICK = PortLimits(head_ms_max=300, body_bytes_per_s_min=10_000, idle_ms_max=60_000)
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    try:
        body, status = await read_body(scope["headers"], receive, 1_000_000), 200
    except StandpipeError as error:
        body, status = error.message.encode(), error.status
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Port:
    """A served listener, and what it told of connections."""

    listener: Listener
    ended: Counter[CutReason] = field(default_factory=Counter[CutReason])
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    def dial(self, first: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        """A client's socket, non-blocking."""
        made = socket.create_connection(
            self.listener.socket.getsockname(), 5, source_address=(source, 0)
        )
        self.sockets.append(made)
        made.sendall(first)
        made.setblocking(False)
        return made

    async def is_served(self, source: str = "127.0.0.1") -> bool:
        made = self.dial(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", source)
        return (await read(made)).endswith(b"\r\n\r\nabc")


async def read(client: socket.socket, bytes_max: int = 65_536) -> bytes:
    """What comes next; empty: the end."""
    try:
        return await asyncio.get_running_loop().sock_recv(client, bytes_max)
    except ConnectionResetError:
        return b""


async def read_all(client: socket.socket) -> bytes:
    data = b""
    while part := await read(client):
        data += part
    return data


def with_port(
    story: Callable[[Port], Awaitable[None]],
    limits: PortLimits = QUICK,
    loop: Loop = asyncio.new_event_loop,
    **more: Any,
) -> None:
    async def run() -> None:
        listener = Listener(
            socket=bind("127.0.0.1", 0),
            application=echo,
            fast_path=NoFastPath(),
            limits=limits,
            **more,
        )
        port = Port(listener)
        listener.ended = lambda reason: port.ended.update([reason])
        offer_http2(listener, ConnectionLimits(streams_max=8))
        stop = asyncio.Event()
        server = asyncio.create_task(serve([listener], stop, 1.0))
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await story(port)
        finally:
            for made in port.sockets:
                made.close()
            stop.set()
            await server

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


# ------------------------------------------------------------------------------- deadlines

HALF_HEADS = [
    (b"", "silence"),
    (b"P", "a byte"),
    (b"\r\n\r\n\r\n", "empty lines, which begin no request"),
    (b"POST / HTTP/1.1\r\ncontent-le", "half a line"),
    (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n", "all but the end"),
    (b"PRI * HTTP/2.0\r\n\r\n", "half of HTTP/2's preface"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x10\x04", "half the head of a frame"),
    (
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82"
        ),
        "HTTP/2: a head whose end stays away (no END_HEADERS)",
    ),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("first", "why"), HALF_HEADS)
def test_half_heads_are_cut(first: bytes, why: str, loop: Loop) -> None:
    async def story(port: Port) -> None:
        client = port.dial(first)
        assert await port.is_served(), "others, meanwhile"
        await read_all(client)
        assert port.ended == {CutReason.HEAD: 1}, why

    with_port(story, loop=loop)


@pytest.mark.parametrize("step", [1, 7])
def test_a_head_byte_by_byte_is_cut_as_well(step: int) -> None:
    async def story(port: Port) -> None:
        client = port.dial()
        head = b"POST / HTTP/1.1\r\nx-long: " + b"y" * 20_000
        with contextlib.suppress(OSError):
            for at in range(0, len(head), step):
                client.sendall(head[at : at + step])
                await asyncio.sleep(0.02)
        assert port.ended == {CutReason.HEAD: 1}

    with_port(story)


def test_half_a_head_after_requests_is_cut() -> None:
    async def story(port: Port) -> None:
        client = port.dial(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcPOST / HT")
        assert (await read_all(client)).endswith(b"abc"), "the first is answered"
        assert port.ended == {CutReason.HEAD: 1}

    with_port(story)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"content-length: 1000\r\n\r\n", "a declared length"),
        (b"transfer-encoding: chunked\r\n\r\n3e8\r\n", "a chunk"),
        (b"content-length: 1000\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", "an upgrade"),
    ],
)
def test_slow_bodies_are_cut(head: bytes, why: str, loop: Loop) -> None:
    async def story(port: Port) -> None:
        client = port.dial(b"POST / HTTP/1.1\r\n" + head)
        with contextlib.suppress(OSError):
            for _ in range(900):
                client.sendall(b"x")
                await asyncio.sleep(0.02)
        assert port.ended == {CutReason.BODY: 1}, why
        assert await port.is_served()

    with_port(story, loop=loop)


def test_a_body_that_keeps_its_pace_is_read_for_longer_than_any_deadline() -> None:
    async def story(port: Port) -> None:
        parts, part = 50, b"x" * 1000
        head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (parts * len(part))
        client = port.dial(head)
        for _ in range(parts):  # a second or more
            client.sendall(part)
            await asyncio.sleep(0.02)
        answer = b""
        while len(answer) < parts * len(part):
            answer += await read(client)
        assert answer.startswith(b"HTTP/1.1 200")
        assert not port.ended

    with_port(story, PortLimits(head_ms_max=300, body_bytes_per_s_min=1000))


def test_idle_connections_outlive_the_deadline_of_a_head() -> None:
    async def story(port: Port) -> None:
        client = port.dial(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc")
        assert (await read(client)).endswith(b"abc")
        for _ in range(10):  # three times that deadline, and bytes that begin nothing
            await asyncio.sleep(0.1)
            client.sendall(b"\r\n")
        client.sendall(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\ndef")
        assert (await read(client)).endswith(b"def")
        assert not port.ended

    with_port(story)


def test_idle_connections_are_closed_at_their_own_deadline() -> None:
    async def story(port: Port) -> None:
        client = port.dial(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc")
        assert (await read(client)).endswith(b"abc")
        client.sendall(b"\r\n")
        assert await read_all(client) == b""
        assert not port.ended, "which is the usual end, and not counted"

    with_port(story, PortLimits(idle_ms_max=500))


def test_an_answer_takes_as_long_as_it_takes() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.5)
        await echo(scope, receive, send)

    async def story(port: Port) -> None:
        assert await port.is_served()
        assert not port.ended

    limits = PortLimits(head_ms_max=200, idle_ms_max=300)

    async def run() -> None:
        listener = Listener(
            socket=bind("127.0.0.1", 0), application=slow, fast_path=NoFastPath(), limits=limits
        )
        port, stop = Port(listener), asyncio.Event()
        listener.ended = lambda reason: port.ended.update([reason])
        server = asyncio.create_task(serve([listener], stop, 1.0))
        await story(port)
        for made in port.sockets:
            made.close()
        stop.set()
        await server

    asyncio.run(run())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01", b"no TLS at all\r\n\r\n"])
def test_a_handshake_has_the_time_of_a_head(first: bytes, loop: Loop) -> None:
    async def story(port: Port) -> None:
        client = port.dial(first)
        await read_all(client)  # until it is hung up on

    certificate = Certificate(FIRST.certificate, FIRST.key, ["http/1.1"])
    with_port(story, loop=loop, certificate=certificate)


# ---------------------------------------------------------------------------- HTTP/2 streams


class Http2Client:
    """A connection at a non-blocking socket."""

    def __init__(self, port: Port) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.socket = port.dial()

    def open(self, stream: int) -> None:
        head = {":method": "POST", ":scheme": "http", ":authority": "x", ":path": "/"}
        self.h2.send_headers(stream, list(head.items()))

    def push(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    async def events(self) -> list[Any]:
        data = await read(self.socket)
        found = self.h2.receive_data(data) if data else [None]
        self.push()
        return list(found)


def test_a_slow_body_of_a_stream_ends_the_stream_alone() -> None:
    async def story(port: Port) -> None:
        client = Http2Client(port)
        client.open(1)
        client.push()
        reset: StreamReset | None = None
        reading = asyncio.create_task(client.events())
        while reset is None:
            client.h2.send_data(1, b"x")
            client.push()
            await asyncio.sleep(0.02)
            if reading.done():
                events = reading.result()
                assert None not in events, "the connection stays"
                reset = next((e for e in events if isinstance(e, StreamReset)), None)
                reading = asyncio.create_task(client.events())
        assert reset.error_code == ErrorCodes.CANCEL
        assert port.ended == {CutReason.BODY: 1}
        client.open(3)
        client.h2.send_data(3, b"abc", end_stream=True)
        client.push()
        while not any(getattr(event, "data", b"") == b"abc" for event in await reading):
            reading = asyncio.create_task(client.events())

    with_port(story)


def test_a_sweep_of_many_streams_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 reads that waited on 100 connections cost the others 10 ms of each second at once."""
    monkeypatch.setattr(acceptor, "SWEPT_AT_ONCE", 10)
    turn, looked = 0, Counter[int]()
    tend = Http2Protocol._tend

    def counted(self: Http2Protocol, now_ms: int) -> int:
        looked[turn] += (streams := tend(self, now_ms))
        return streams

    monkeypatch.setattr(Http2Protocol, "_tend", counted)

    async def story(port: Port) -> None:
        nonlocal turn
        clients = [Http2Client(port) for _ in range(6)]
        for client in clients:
            for stream in range(1, 16, 2):
                client.open(stream)  # and its body does not come
            client.push()
        while sum(looked.values()) < 6 * 8:
            turn += 1
            await asyncio.sleep(0)
        assert max(looked.values()) < 10 + 8

    with_port(story)


def test_http2_may_be_idle_between_requests() -> None:
    async def story(port: Port) -> None:
        client = Http2Client(port)
        client.push()
        await asyncio.sleep(1.0)  # three times the deadline of a head
        assert not any(isinstance(e, ConnectionTerminated) for e in await client.events())
        assert not port.ended

    with_port(story)


# --------------------------------------------------------------------------------- the head


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("pieces", [1, 2, 50])
def test_the_limit_of_a_head_holds_in_however_many_reads(over: int, pieces: int) -> None:
    async def story(port: Port) -> None:
        lines = b"POST / HTTP/1.1\r\nx: %b\r\ncontent-length: 3\r\n\r\n"
        counted = len(b"/") + len(b"x: \r\n") + len(b"content-length: 3\r\n")
        head = lines % (b"y" * (HEAD_BYTES_MAX - counted + over))
        if over == 0 and pieces > 1:
            head = lines % (b"y" * (HEAD_BYTES_MAX - 200))  # by reads, the line counts too
        client = port.dial()
        step = -(-len(head) // pieces)
        for at in range(0, len(head), step):
            await asyncio.get_running_loop().sock_sendall(client, head[at : at + step])
            await asyncio.sleep(0.001)
        client.sendall(b"abc")
        status = b"HTTP/1.1 431" if over else b"HTTP/1.1 200"
        assert (await read(client)).startswith(status)

    with_port(story, PortLimits())


def test_a_large_body_does_not_count_as_the_head_behind_it() -> None:
    async def story(port: Port) -> None:
        first = b"POST / HTTP/1.1\r\ncontent-length: 60000\r\n\r\n" + b"x" * 60_000
        client = port.dial(first + b"POST / HTTP/1.1\r\ncontent-le")
        answer = await read(client)
        client.sendall(b"ngth: 3\r\n\r\nabc")
        while not answer.endswith(b"\r\n\r\nabc"):
            part = await read(client)
            assert part, answer[-300:]
            answer += part
        assert b" 431 " not in answer

    with_port(story, PortLimits())


UPGRADE = (
    b"POST / HTTP/1.1\r\nhost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\ncontent-length: 5\r\n\r\nhello"
)


@pytest.mark.parametrize("cut_at", range(1, len(UPGRADE), 13))
def test_an_offer_of_h2c_is_passed_over_wherever_it_is_cut(cut_at: int) -> None:
    async def story(port: Port) -> None:
        client = port.dial(UPGRADE[:cut_at])
        await asyncio.sleep(0.005)
        client.sendall(UPGRADE[cut_at:])
        assert (await read(client)).endswith(b"\r\n\r\nhello")
        assert await port.is_served()

    with_port(story, PortLimits())


@pytest.mark.parametrize(
    ("data", "bodies", "why"),
    [
        (UPGRADE * 3, b"hellohellohello", "pipelined in one read"),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n" + UPGRADE,
            b"abhello",
            "behind a chunked body",
        ),
        (
            (
                b"POST / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                b"content-length: 2\r\n\r\nok"
            ),
            b"ok",
            "another protocol",
        ),
    ],
)
def test_offers_of_other_protocols_keep_the_order(data: bytes, bodies: bytes, why: str) -> None:
    async def story(port: Port) -> None:
        client, answers = port.dial(data), b""
        while (
            b"".join(answers.split(b"\r\n\r\n")[1:]).replace(
                b"HTTP/1.1 200 OK\r\ncontent-length: 5", b""
            )
            != bodies
        ):
            part = await read(client)
            assert part, (why, answers)
            answers += part

    with_port(story, PortLimits())


# -------------------------------------------------------------------------------- accepting


@pytest.mark.parametrize("loop", LOOPS)
def test_idle_connections_keep_nobody_out(loop: Loop) -> None:
    """Twenty times as many as there may be, of the same address as the client."""

    async def story(port: Port) -> None:
        for _ in range(400):
            port.dial()
            await asyncio.sleep(0)
        for _ in range(5):
            assert await port.is_served()
        assert port.ended[CutReason.ROOM] >= 400 - 10
        assert not port.ended[CutReason.ADDRESS]

    limits = PortLimits(connections_max=20, per_address_max=10)
    with_port(story, limits, loop=loop)


BEGUN = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"


async def begun(port: Port, source: str = "127.0.0.1") -> socket.socket:
    """A connection in the middle of a request: it gives way to nobody."""
    client = port.dial(BEGUN, source)
    assert (await read(client)).startswith(b"HTTP/1.1 100")
    return client


def test_an_address_that_uses_all_its_connections_keeps_others_in() -> None:
    async def story(port: Port) -> None:
        clients = [await begun(port) for _ in range(10)]
        refused = port.dial(BEGUN)
        assert await read_all(refused) == b""
        assert port.ended == {CutReason.ADDRESS: 1}
        assert await port.is_served("127.0.0.2")
        clients[0].sendall(b"abc")
        assert (await read(clients[0])).endswith(b"abc"), "those that are in are served"
        clients[1].close()
        await asyncio.sleep(0.05)
        assert await port.is_served(), "one went, one may come"

    limits = PortLimits(connections_max=20, per_address_max=10)
    with_port(story, limits)


def test_a_full_listener_refuses_whoever_comes() -> None:
    async def story(port: Port) -> None:
        for number in range(20):
            await begun(port, f"127.0.0.{2 + number}")
        refused = port.dial(BEGUN, "127.0.0.99")
        assert await read_all(refused) == b""
        assert port.ended == {CutReason.ALL: 1}

    with_port(story, PortLimits(connections_max=20, per_address_max=10))


def test_who_is_idle_for_longest_gives_way() -> None:
    """Also after a request: on a listener between nodes it may have been refused."""

    async def story(port: Port) -> None:
        for _ in range(10):
            assert await port.is_served()
        await asyncio.sleep(0.2)  # a sweep or more: all of them are idle
        for _ in range(5):
            assert await port.is_served()
        for client in port.sockets[:5]:
            assert await read_all(client) == b""
        assert port.ended == {CutReason.ROOM: 5}

    limits = PortLimits(connections_max=20, per_address_max=10, head_ms_max=500)
    with_port(story, limits)


def test_an_http2_connection_without_a_stream_gives_way() -> None:
    """One request each, then pings now and then, locked everybody else out."""

    async def story(port: Port) -> None:
        for _ in range(10):
            client = Http2Client(port)
            client.open(1)
            client.h2.end_stream(1)
            client.push()
            while not any(isinstance(event, StreamEnded) for event in await client.events()):
                pass
            client.h2.ping(b"still on")
            client.push()
        await asyncio.sleep(0.2)  # a sweep or more
        assert await port.is_served()
        assert port.ended == {CutReason.ROOM: 1}

    limits = PortLimits(connections_max=20, per_address_max=10, head_ms_max=500)
    with_port(story, limits)


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("loop", LOOPS)
def test_without_a_descriptor_it_hangs_up_and_goes_on(loop: Loop) -> None:
    """Clients are made first: they live in this process too."""

    async def story(port: Port) -> None:
        clients = [socket.socket() for _ in range(30)]
        port.sockets += clients
        with descriptors_left(0):
            for client in clients:
                client.setblocking(False)
                address = port.listener.socket.getsockname()
                await asyncio.get_running_loop().sock_connect(client, address)
            for client in clients:
                await read_all(client)
            assert port.ended[CutReason.DESCRIPTORS] >= 1
        assert await port.is_served()

    with_port(story, PortLimits(), loop=loop)


# -------------------------------------------------------------------------- the quorum's wire


@pytest.mark.parametrize(
    "first",
    [b"", MAGIC[:5], MAGIC, MAGIC + b"\x00\x00\x01\x00half a frame", b"GET / HT"],
)
def test_a_peer_that_does_not_greet_is_cut(first: bytes) -> None:
    async def run() -> None:
        wire = QuorumWire(ReplicaKey(NodeId("a"), Incarnation("1")), "secret", lambda _: [])
        app, stop = InternalApp({}, body_bytes_max=1000), asyncio.Event()
        bound = bind_alone("127.0.0.1:0")
        ended: Counter[CutReason] = Counter()
        other = (MAGIC, wire.accept)
        server = asyncio.create_task(
            serve_internal(
                bound,
                app,
                stop,
                0.1,
                identity=PeerIdentity("secret", NodeId("a")),
                other=other,
                limits=QUICK,
                ended=lambda reason: ended.update([reason]),
            )
        )
        port = Port(Listener(socket=bound, application=echo, fast_path=NoFastPath()))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await read_all(port.dial(first))
        assert ended == {CutReason.HEAD: 1}
        port.sockets[0].close()
        stop.set()
        await server
        wire.close()

    asyncio.run(run())
