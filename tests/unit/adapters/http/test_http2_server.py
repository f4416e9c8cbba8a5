"""HTTP/2 against a client that is h2 too, but does what it likes: limits, ends, and floods."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingAckReceived,
    PingReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes

from standpipe.adapters.http import http2_server
from standpipe.adapters.http.http2_server import (
    ALLOWED_AT_ONCE,
    ALLOWED_PER_SECOND,
    CONNECTION_WINDOW_BYTES,
    FRAMES_AT_ONCE,
    HPACK_TABLE_BYTES_MAX,
    LAST_STREAM_OF_ALL,
    SLICE_BYTES,
    Allowance,
    ConnectionLimits,
    Http2Protocol,
    offer_http2,
)
from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import HEAD_BYTES_MAX, Listener, NoFastPath, bind, serve
from standpipe.errors import StandpipeError

BODY_MAX = 200_000


class Paths:
    """One behaviour per path. `gate`: what `/wait` waits for; `seen`: what happened."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen: list[object] = []
        self.running = 0
        self.handed = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        try:
            await getattr(self, scope["path"].split("/")[1])(scope, receive, send)
        finally:
            self.running -= 1

    async def reply(self, send: Any, body: bytes, status: int = 200) -> None:
        headers = [(b"Content-Length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def echo(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append((scope["http_version"], scope["method"], dict(scope["headers"])))
        try:
            await self.reply(send, await read_body(scope["headers"], receive, BODY_MAX))
        except StandpipeError as error:
            await self.reply(send, error.message.encode(), error.status)

    async def wait(self, scope: Any, receive: Any, send: Any) -> None:
        await self.gate.wait()
        await self.reply(send, b"waited")

    async def watch(self, scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        self.seen.append(message["type"])

    async def feed(self, scope: Any, receive: Any, send: Any) -> None:
        """Without end: whoever listens decides how much is made."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while self.handed < 10_000_000:
            await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
            self.handed += 8192
        await send({"type": "http.response.body", "body": b""})

    async def push(self, scope: Any, receive: Any, send: Any) -> None:
        """As a push query: who listens is watched while rows are made."""
        watching = asyncio.create_task(self.watch(scope, receive, send))
        await self.feed(scope, receive, send)
        await watching

    async def rows(self, scope: Any, receive: Any, send: Any) -> None:
        lines = [(b"content-type", b"application/vnd.ksqlapi.delimited.v1")]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        for rows in (b"one\n", b"two\nthree\nfo"):
            await send({"type": "http.response.body", "body": rows, "more_body": True})
        await send({"type": "http.response.body", "body": b"ur\n"})

    async def fault(self, scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async def fault_late(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError


class GoesOn(H2ConnectionStateMachine):
    """Of a client that waits for its answers when it hears GOAWAY, and asks on."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)


class Client:
    """A connection; `take` reads until an event of a kind."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.h2.state_machine = GoesOn()
        self.h2.initiate_connection()
        self.seen: list[Event] = []
        self.credits = True

    def open(self, path: str, method: str = "POST", **more: str) -> int:
        """A request whose body is to come."""
        stream = self.h2.get_next_available_stream_id()
        pseudo = {":method": method, ":scheme": "http", ":authority": "localhost", ":path": path}
        self.h2.send_headers(stream, [*pseudo.items(), *more.items()])
        self.push()
        return stream

    def ask(self, path: str, body: bytes = b"", method: str = "POST", **more: str) -> int:
        stream = self.open(path, method, **more)
        for at in range(0, len(body), 16_384):
            self.h2.send_data(stream, body[at : at + 16_384])
        self.h2.end_stream(stream)
        self.push()
        return stream

    def push(self, raw: bytes = b"") -> None:
        self.writer.write(self.h2.data_to_send() + raw)

    async def read(self) -> bool:
        """False: the connection has ended."""
        try:
            data = await self.reader.read(65_536)
        except ConnectionResetError:
            return False
        for event in self.h2.receive_data(data):
            self.seen.append(event)
            if isinstance(event, DataReceived) and self.credits and not event.stream_ended:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.push()
        return bool(data)

    async def take(self, kind: type[Event], stream: int | None = None) -> Any:
        while True:
            for event in self.seen:
                if isinstance(event, kind) and stream in (None, getattr(event, "stream_id", None)):
                    self.seen.remove(event)
                    return event
            assert await self.read(), f"ended before {kind.__name__}; saw {self.seen}"

    async def reply(self, stream: int) -> tuple[int, bytes]:
        head = await self.take(ResponseReceived, stream)
        await self.take(StreamEnded, stream)
        parts = [e for e in self.seen if isinstance(e, DataReceived) and e.stream_id == stream]
        return int(dict(head.headers)[b":status"]), b"".join(part.data for part in parts)

    async def end(self) -> ConnectionTerminated | None:
        """What the server said last, once it has closed."""
        while await self.read():
            pass
        said = [event for event in self.seen if isinstance(event, ConnectionTerminated)]
        return said[-1] if said else None


class World:
    """A server with its application, and clients."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.paths, self.stop = Paths(), asyncio.Event()
        self.listener = Listener(
            socket=bind("127.0.0.1", 0), application=self.paths, fast_path=NoFastPath()
        )
        offer_http2(self.listener, limits)
        self.server = asyncio.create_task(serve([self.listener], self.stop, 5.0))
        self.clients: list[Client] = []

    async def client(self, *, pushed: bool = True) -> Client:
        host, port = self.listener.socket.getsockname()
        self.clients.append(Client(*await asyncio.open_connection(host, port)))
        if pushed:
            self.clients[-1].push()
        return self.clients[-1]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 the server is the same loop
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        for client in self.clients:
            client.writer.close()
        self.stop.set()
        self.paths.gate.set()
        await self.server


def with_world(
    story: Callable[[World], Awaitable[None]], *, streams_max: int = 8, idle_s: float = 60
) -> None:
    async def run() -> None:
        world = World(ConnectionLimits(streams_max=streams_max, idle_s=idle_s))
        try:
            async with asyncio.timeout(30):
                await story(world)
        finally:
            await world.close()

    asyncio.run(run())


# ------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("size", [0, 1, 16_384, 60_000])
def test_a_body_comes_and_goes(size: int) -> None:
    async def story(world: World) -> None:
        client = await world.client()
        body = bytes(i % 251 for i in range(size))
        assert await client.reply(client.ask("/echo", body)) == (200, body)
        version, method, headers = world.paths.seen[0]  # type: ignore[misc]
        assert (version, method, headers[b"host"]) == ("2", "POST", b"localhost")

    with_world(story)


def test_the_preface_may_come_in_pieces_and_with_a_request() -> None:
    async def story(world: World) -> None:
        client = await world.client(pushed=False)
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/echo")]
        client.h2.send_headers(1, head, end_stream=True)
        for byte in client.h2.data_to_send():
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.reply(1) == (200, b"")

    with_world(story)


def test_http1_on_the_same_port() -> None:
    async def story(world: World) -> None:
        client = await world.client(pushed=False)
        client.writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc")
        assert (await client.reader.read(65_536)).endswith(b"\r\n\r\nabc")

    with_world(story)


def test_streams_are_answered_as_they_are_ready() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        slow, quick = client.ask("/wait"), client.ask("/echo", b"now")
        assert await client.reply(quick) == (200, b"now")
        world.paths.gate.set()
        assert await client.reply(slow) == (200, b"waited")

    with_world(story)


def test_each_line_of_a_streamed_answer_is_a_frame() -> None:
    """ksqldb-client for Node.js takes a frame for a row."""

    async def story(world: World) -> None:
        client = await world.client()
        stream = client.ask("/rows")
        await client.take(StreamEnded, stream)
        frames = [event.data for event in client.seen if isinstance(event, DataReceived)]
        assert frames == [b"one\n", b"two\n", b"three\n", b"fo", b"ur\n"]

    with_world(story)


def test_head_has_no_body() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        stream = client.ask("/wait", method="HEAD")
        world.paths.gate.set()
        assert await client.reply(stream) == (200, b"")

    with_world(story)


def test_expect_is_answered_before_the_body_is_read() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.open("/echo", expect="100-continue")
        await client.take(InformationalResponseReceived)
        client.h2.send_data(1, b"abc", end_stream=True)
        client.push()
        assert await client.reply(1) == (200, b"abc")

    with_world(story)


@pytest.mark.parametrize(("path", "why"), [("/fault", "500"), ("/fault_late", "reset")])
def test_a_fault_is_never_a_whole_answer(path: str, why: str) -> None:
    async def story(world: World) -> None:
        client = await world.client()
        stream = client.ask(path)
        if why == "500":
            assert await client.reply(stream) == (500, b"")
        else:
            assert (await client.take(StreamReset, stream)).error_code == ErrorCodes.INTERNAL_ERROR
        assert await client.reply(client.ask("/echo", b"next")) == (200, b"next")

    with_world(story)


def test_connect_is_refused() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.h2.send_headers(1, [(":method", "CONNECT"), (":authority", "x")], end_stream=True)
        client.push()
        assert (await client.take(StreamReset, 1)).error_code == ErrorCodes.REFUSED_STREAM

    with_world(story)


# --------------------------------------------------------------------------------- limits


def test_a_body_over_the_limit() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        stream = client.open("/echo")
        sent = 0
        while sent <= BODY_MAX:
            room = min(client.h2.local_flow_control_window(stream), 16_384)
            if room:
                client.h2.send_data(stream, bytes(room))
                sent += room
                client.push()
            else:
                await client.read()
        head = await client.take(ResponseReceived, stream)
        assert dict(head.headers)[b":status"] == b"413"
        assert b"connection" not in dict(head.headers)
        assert (await client.take(StreamReset, stream)).error_code == ErrorCodes.NO_ERROR

    with_world(story)


@pytest.mark.parametrize("declared", [2, 4])
def test_a_body_that_is_not_as_long_as_was_said_ends_the_connection(declared: int) -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.ask("/echo", b"abc", **{"content-length": str(declared)})
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.PROTOCOL_ERROR

    with_world(story)


def test_a_head_over_the_limit_ends_the_connection() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        await client.reply(client.ask("/echo", b""))  # its settings are known by now
        client.ask("/echo", b"", a="x" * (HEAD_BYTES_MAX // 2), b="y" * (HEAD_BYTES_MAX // 2))
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.ENHANCE_YOUR_CALM

    with_world(story)


@pytest.mark.parametrize("offered", [2**32 - 1, 0])
def test_a_client_that_offers_a_table_of_headers_gets_a_small_one_at_most(offered: int) -> None:
    """Each answer brings a content-length that was not there before."""

    async def story(world: World) -> None:
        client = await world.client()
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: offered})
        for size in range(200):
            body = b"x" * size
            assert await client.reply(client.ask("/echo", body)) == (200, body)
        # the client unpacks with the table that the server packed with, and is told its size
        decoder = client.h2.decoder
        assert decoder.header_table_size == min(offered, HPACK_TABLE_BYTES_MAX)
        assert len(decoder.header_table.dynamic_entries) * 32 <= HPACK_TABLE_BYTES_MAX

    with_world(story)


def test_settings_that_http2_has_not_are_not_kept() -> None:
    """h2 keeps all that it is sent: 50 MB of a connection, for as long as it lasts."""
    connection = http2_server._Http2Connection()
    connection.initiate_connection()
    connection.receive_data(http2_server.PREFACE)
    connection.receive_data(settings_frame(dict.fromkeys(range(100, 2_100), 1)))
    connection.receive_data(settings_frame({SettingCodes.MAX_HEADER_LIST_SIZE: 4_711}))
    kept = connection.remote_settings
    assert set(kept) <= set(SettingCodes)
    assert kept.max_header_list_size == 4_711


def settings_frame(settings: dict[int, int]) -> bytes:
    body = b"".join(struct.pack(">HI", *setting) for setting in settings.items())
    return struct.pack(">I", len(body))[1:] + bytes.fromhex("040000000000") + body


def test_more_streams_than_allowed_end_the_connection() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
        client.h2.remote_settings.acknowledge()
        for _ in range(3):
            client.ask("/wait")
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.PROTOCOL_ERROR

    with_world(story, streams_max=2)


def test_a_stream_that_was_reset_counts_while_its_request_runs() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        for _ in range(2):
            client.h2.reset_stream(client.ask("/wait"), ErrorCodes.CANCEL)
        refused = client.ask("/wait")
        assert (await client.take(StreamReset, refused)).error_code == ErrorCodes.REFUSED_STREAM
        assert world.paths.running == 2
        world.paths.gate.set()
        await world.until(lambda: world.paths.running == 0)
        assert await client.reply(client.ask("/echo", b"again")) == (200, b"again")

    with_world(story, streams_max=2)


def test_rapid_reset_ends_the_connection() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        for _ in range(2 * ALLOWED_AT_ONCE):
            client.h2.reset_stream(client.ask("/watch"), ErrorCodes.CANCEL)
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.ENHANCE_YOUR_CALM
        await world.until(lambda: world.paths.running == 0)

    with_world(story)


PING = bytes.fromhex("000008060000000000") + b"8 bytes!"
SETTINGS = bytes.fromhex("000000040000000000")
PRIORITY = bytes.fromhex("0000050200000000010000000010")
EMPTY_DATA = bytes.fromhex("000000000000000001")
UNKNOWN = bytes.fromhex("000000ee0000000000")


@pytest.mark.parametrize("frame", [PING, SETTINGS, PRIORITY, EMPTY_DATA, UNKNOWN])
def test_a_flood_of_frames_ends_the_connection(frame: bytes) -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.open("/watch")
        client.push(frame * 2 * ALLOWED_AT_ONCE)
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.ENHANCE_YOUR_CALM

    with_world(story)


def test_frames_in_one_packet_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand streams, opened and reset in one packet, held up lookups for 0.4 s."""
    count = ALLOWED_AT_ONCE - 50
    taken = [0]
    take = Http2Protocol._take

    def counted(self: Http2Protocol, event: Event) -> None:
        taken[-1] += 1
        take(self, event)

    async def take_turns() -> None:
        while sum(taken) < count:
            taken.append(0)
            await asyncio.sleep(0)

    async def story(world: World) -> None:
        client = await world.client()
        assert (await client.reply(client.ask("/echo", b"served"))) == (200, b"served")
        monkeypatch.setattr(Http2Protocol, "_take", counted)
        turns = asyncio.create_task(take_turns())
        client.push(PING * count)
        for _ in range(count):
            await client.take(PingAckReceived)
        await turns
        assert max(taken) <= FRAMES_AT_ONCE + SLICE_BYTES // len(PING) + 1
        assert (await client.reply(client.ask("/echo", b"still"))) == (200, b"still")

    with_world(story)


def test_the_allowance_is_earned_by_answers_and_time() -> None:
    allowance = Allowance(0.0)
    assert all(allowance.spend(0.0) for _ in range(ALLOWED_AT_ONCE))
    assert not allowance.spend(0.0), "the burst is spent"
    allowance.earn()
    assert allowance.spend(0.0), "a frame of an answer pays for what it makes the client say"
    assert sum(allowance.spend(1.0) for _ in range(1000)) in (
        ALLOWED_PER_SECOND - 1,
        ALLOWED_PER_SECOND,
    )


def test_continuation_without_end_ends_the_connection() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        head = bytes.fromhex("000001010000000001") + b"\x88"
        client.push(head + (bytes.fromhex("000001090000000001") + b"\x88") * 1000)
        said = await client.end()
        assert said is not None
        assert said.error_code != ErrorCodes.NO_ERROR

    with_world(story)


# ---------------------------------------------------------------------------- back-pressure


def test_who_does_not_widen_the_window_gets_no_more_than_it() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.credits = False
        stream = client.ask("/feed")
        got = 0
        while got < 65_535:
            got += len((await client.take(DataReceived, stream)).data)
        await client.reply(client.ask("/echo", b"", method="HEAD"))  # others go on
        assert got == 65_535
        assert world.paths.handed <= 65_535

    with_world(story)


def test_who_does_not_read_makes_the_sender_wait() -> None:
    """The windows are open as wide as they go: only the socket holds the server back."""

    async def story(world: World) -> None:
        client = await world.client(pushed=False)
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        client.ask("/feed")
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while before != world.paths.handed or not before:
            before = world.paths.handed
            await asyncio.sleep(0.1)
        assert before < 10_000_000, "the socket's buffers are full long before"
        client.writer.transport.abort()
        await world.until(lambda: world.paths.running == 0)

    with_world(story)


def test_a_body_that_nobody_takes_shuts_its_window_and_no_other() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.open("/wait")
        await client.reply(client.ask("/echo", b""))
        while room := min(client.h2.local_flow_control_window(1), 16_384):
            client.h2.send_data(1, bytes(room))
        client.push()
        assert await client.reply(client.ask("/echo", b"other")) == (200, b"other")
        assert client.h2.local_flow_control_window(1) == 0
        world.paths.gate.set()
        await client.take(StreamReset, 1)  # answered without its body: the rest is not wanted
        # the window of the connection is whole again
        assert await client.reply(client.ask("/echo", b"x" * 65_535)) == (200, b"x" * 65_535)
        assert client.h2.outbound_flow_control_window > CONNECTION_WINDOW_BYTES // 2

    with_world(story)


# ------------------------------------------------------------------------------------- ends


def test_a_client_that_resets_or_goes_is_told_to_the_application() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.h2.reset_stream(client.ask("/watch"), ErrorCodes.CANCEL)
        client.push()
        await world.until(lambda: world.paths.seen == ["http.disconnect"])
        client.ask("/watch")
        await world.until(lambda: world.paths.running == 1)
        client.writer.transport.abort()
        await world.until(lambda: world.paths.seen == ["http.disconnect"] * 2)

    with_world(story)


def test_stop_answers_what_is_open_and_refuses_what_is_new() -> None:
    async def story(world: World) -> None:
        client, idle, silent = [await world.client(pushed=i < 2) for i in range(3)]
        await idle.reply(idle.ask("/echo", b""))
        open_ = client.ask("/wait")
        await world.until(lambda: world.paths.running == 1)
        world.stop.set()
        said = await client.take(ConnectionTerminated)
        assert (said.error_code, said.last_stream_id) == (ErrorCodes.NO_ERROR, open_)
        assert (await idle.end()).error_code == ErrorCodes.NO_ERROR  # type: ignore[union-attr]
        assert await silent.reader.read() == b"", "nothing was asked, nothing is owed"
        late = client.ask("/echo", b"late")
        assert (await client.take(StreamReset, late)).error_code == ErrorCodes.REFUSED_STREAM
        world.paths.gate.set()
        assert await client.reply(open_) == (200, b"waited")
        await client.end()
        await world.server

    with_world(story)


def test_a_node_that_leaves_says_so_with_the_next_request() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        await client.reply(client.ask("/echo", b"before"))
        world.listener.is_leaving = True
        stream = client.ask("/echo", b"after")
        said = await client.take(ConnectionTerminated)
        assert (said.error_code, said.last_stream_id) == (ErrorCodes.NO_ERROR, LAST_STREAM_OF_ALL)
        assert await client.reply(stream) == (200, b"after")
        assert await client.reply(client.ask("/echo", b"still")) == (200, b"still")

    with_world(story)


def test_a_client_that_says_goaway_gets_its_answers() -> None:
    """Node.js says it as soon as `close` is called, with requests open."""

    async def story(world: World) -> None:
        client = await world.client()
        stream = client.ask("/wait")
        goaway = bytes.fromhex("0000080700000000000000000000000000")
        client.push(goaway)
        await world.until(lambda: world.paths.running == 1)
        world.paths.gate.set()
        assert await client.reply(stream) == (200, b"waited")
        assert await client.reply(client.ask("/echo", b"on")) == (200, b"on"), "it was its own end"

    with_world(story)


def test_a_client_that_ends_with_an_error_is_not_waited_for() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.push(bytes.fromhex("0000080700000000000000000000000001"))
        assert await client.end() is None

    with_world(story)


def test_a_silent_connection_is_closed() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        said = await client.end()
        assert said is not None
        assert said.error_code == ErrorCodes.NO_ERROR

    with_world(story, idle_s=0.5)  # so long a busy machine may take to say hello


def test_a_stream_that_waits_for_its_client_is_cancelled() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.open("/watch")
        assert (await client.take(StreamReset, 1)).error_code == ErrorCodes.CANCEL
        assert world.paths.seen == ["http.disconnect"]

    with_world(story, idle_s=0.5)


@pytest.mark.parametrize(
    ("path", "is_whole"), [("/feed", True), ("/push", True), ("/watch", False)]
)
def test_frames_that_bring_nothing_do_not_keep_a_stream_that_waits(
    path: str, is_whole: bool
) -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.credits = False
        stream = client.ask(path) if is_whole else client.open(path)

        async def chatter() -> None:
            while True:
                client.push(PING if is_whole else PING + EMPTY_DATA)
                await asyncio.sleep(0.01)

        chatting = asyncio.create_task(chatter())
        assert (await client.take(StreamReset, stream)).error_code == ErrorCodes.CANCEL
        chatting.cancel()
        await world.until(lambda: world.paths.running == 0)

    with_world(story, idle_s=0.5)


def test_streams_take_turns_where_the_window_of_the_connection_is_small() -> None:
    async def story(world: World) -> None:
        client = await world.client(pushed=False)
        client.credits = False
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        first, second = client.ask("/feed"), client.ask("/feed")
        got = 0
        while got < 65_535:
            got += len((await client.take(DataReceived, first)).data)
        for stream in (first, second, first):
            client.h2.increment_flow_control_window(1000)
            client.push()
            got = 0
            while got < 1000:
                part = await client.take(DataReceived)
                assert part.stream_id == stream
                got += len(part.data)

    with_world(story)


def test_a_client_that_answers_pings_may_wait_for_long() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        stream = client.ask("/wait")
        for _ in range(3):
            await client.take(PingReceived)
        world.paths.gate.set()
        assert await client.reply(stream) == (200, b"waited")

    with_world(story, idle_s=0.5)  # so long a busy machine may take to answer one


def test_a_client_that_does_not_answer_pings_is_dead() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        client.ask("/watch")  # whole, so nothing is waited for; and nobody reads on the other side
        await world.until(lambda: world.paths.running == 1)
        await world.until(lambda: world.paths.running == 0)
        assert world.paths.seen == ["http.disconnect"]

    with_world(story, idle_s=0.5)
