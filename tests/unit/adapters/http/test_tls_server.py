"""TLS between a client's socket and HTTP's protocol: nothing lost, added or kept back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import re
import ssl
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tls import FIRST

from standpipe.adapters.http import tls_server
from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.server import Listener, NoFastPath, bind, serve
from standpipe.adapters.http.tls import Certificate
from standpipe.adapters.http.tls_server import TlsProtocol, TlsTransport

CERTIFICATE = Certificate(FIRST.certificate, FIRST.key, ["h2", "http/1.1"])
TRUST = ssl.create_default_context(cafile=FIRST.certificate)
LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


class Raw(asyncio.Transport):
    """The socket's transport: what was written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.ends: list[str] = []
        self.is_held = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")

    def is_closing(self) -> bool:
        return bool(self.ends)

    def pause_reading(self) -> None:
        self.is_held = True

    def resume_reading(self) -> None:
        self.is_held = False


class Accepted:
    """Who counts connections."""

    def __init__(self) -> None:
        self.has_left = False

    def serve(self, *_: object) -> None:
        pass

    def leave(self) -> None:
        self.has_left = True


class Inside(asyncio.Protocol):
    """What HTTP's protocol would get."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.reads = 0
        self.told: list[str] = []
        self.on_data: Callable[[], None] = lambda: None

    def connection_made(self, transport: Any) -> None:
        self.transport: TlsTransport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.reads += 1
        self.on_data()

    def eof_received(self) -> None:
        self.told.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Meeting:
    """A client and a server's protocol, without sockets."""

    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.inside, self.accepted, self.raw = Inside(), Accepted(), Raw()
        self.protocol = TlsProtocol(
            CERTIFICATE.context,
            lambda _: self.inside,
            self.connections,
            cast("AcceptedConnection", self.accepted),
        )
        self.protocol.connection_made(self.raw)
        self.came, self.goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = TRUST.wrap_bio(self.came, self.goes, server_hostname="localhost")

    def exchange(self, pieces: Callable[[bytes], list[bytes]] = lambda data: [data]) -> None:
        """What both have written, in such pieces."""
        for piece in pieces(self.goes.read()):
            self.protocol.data_received(piece)
        self.came.write(bytes(self.raw.written))
        self.raw.written.clear()

    def shake_hands(self) -> None:
        for _ in range(3):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
        self.exchange()

    def read(self) -> bytes:
        """What the client reads now."""
        self.exchange()
        found = bytearray()
        while True:
            try:
                data = self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(found)
            if not data:
                return bytes(found) + b"<close_notify>"
            found += data


def story(tell: Callable[[Meeting], Any]) -> None:
    async def run() -> None:
        meeting = Meeting()
        meeting.shake_hands()
        told = tell(meeting)
        if told is not None:
            await told

    asyncio.run(run())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_what_a_client_writes_arrives_in_any_pieces(written: list[bytes], seed: int) -> None:
    def tell(meeting: Meeting) -> None:
        draw = random.Random(seed)

        def pieces(data: bytes) -> list[bytes]:
            ends = sorted({len(data), *(draw.randint(1, len(data)) for _ in range(9))})
            return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]

        for data in written:
            meeting.client.write(data)
        meeting.exchange(pieces)
        assert meeting.inside.got == b"".join(written)

    story(tell)


def test_a_request_of_one_record_is_read_once() -> None:
    """An exception that tells that nothing is left takes longer than the request."""

    def tell(meeting: Meeting) -> None:
        meeting.client.write(b"x" * 100)
        meeting.exchange()
        assert (meeting.inside.got, meeting.inside.reads) == (b"x" * 100, 1)

    story(tell)


@pytest.mark.parametrize("size", [1, 16_384, 16_385, 3_000_000])
def test_answers_of_any_size_arrive(size: int) -> None:
    def tell(meeting: Meeting) -> None:
        answer = random.Random(size).randbytes(size)
        meeting.inside.transport.write(answer)
        meeting.inside.transport.writelines([b"and", bytearray(b" more")])
        assert meeting.read() == answer + b"and more"

    story(tell)


def test_more_records_than_at_once_are_read_in_other_turns() -> None:
    async def tell(meeting: Meeting) -> None:
        for _ in range(2 * tls_server.RECORDS_AT_ONCE + 3):
            meeting.client.write(b"x")
        meeting.exchange()
        assert len(meeting.inside.got) == tls_server.RECORDS_AT_ONCE
        await asyncio.sleep(0)
        assert len(meeting.inside.got) == 2 * tls_server.RECORDS_AT_ONCE
        await asyncio.sleep(0)
        assert len(meeting.inside.got) == 2 * tls_server.RECORDS_AT_ONCE + 3

    story(tell)


@pytest.mark.parametrize("is_held", [False, True])
def test_records_that_wait_for_their_turn_are_not_added_to(is_held: bool) -> None:
    """Each read of the socket was kept and 16 of its records delivered, so that a client with many
    small ones filled the memory of a worker."""
    count = 20 * tls_server.RECORDS_AT_ONCE + 3

    async def tell(meeting: Meeting) -> None:
        transport, inside = meeting.inside.transport, meeting.inside
        if is_held:
            inside.on_data = transport.pause_reading
        for number in range(count):
            meeting.client.write(b"%04d" % number)
        last = [meeting.goes.read()]
        last = [last[0][:-7], last[0][-7:]]  # which was under way when reading was paused
        for piece in last:
            meeting.protocol.data_received(piece)
        turns = 0
        while len(inside.got) < 4 * count:
            assert meeting.raw.is_held, "nothing more is read from the socket"
            assert meeting.protocol._came.pending < 1_000, "OpenSSL has what is due next"
            transport.resume_reading()
            await asyncio.sleep(0)
            turns += 1
        assert inside.got == b"".join(b"%04d" % number for number in range(count))
        assert turns >= 19, "others had their turns"
        transport.resume_reading()
        await asyncio.sleep(0)
        assert not meeting.raw.is_held

    story(tell)


def test_a_client_that_only_changes_its_keys_is_hung_up_on() -> None:
    """OpenSSL answers each new key, and reads on without a word: 3,000 took a worker 170 ms."""
    change = key_change_of_openssl()

    async def tell(meeting: Meeting) -> None:
        for _ in range(3_000):
            change(meeting.client)
        meeting.exchange()
        assert 0 < len(meeting.protocol._rest) <= 3_000 * 27 - tls_server.RECORDS_AT_ONCE * 20
        turns = 0
        while not meeting.raw.ends:
            await asyncio.sleep(0)
            turns += 1
        assert meeting.raw.ends == ["aborted"]
        own_bytes = len(meeting.raw.written) + 27 * tls_server.RECORDS_AT_ONCE
        assert own_bytes <= tls_server.OWN_BYTES_MAX + 2 * 27 * tls_server.RECORDS_AT_ONCE
        assert turns > 50, "others had their turns"

    story(tell)


def test_a_client_may_change_its_keys_now_and_then() -> None:
    change = key_change_of_openssl()

    def tell(meeting: Meeting) -> None:
        for number in range(100):
            change(meeting.client)
            meeting.client.write(b"x")
            meeting.exchange()
            assert len(meeting.inside.got) == number + 1
            meeting.inside.transport.write(b"y")
            assert meeting.read() == b"y"

    story(tell)


def key_change_of_openssl() -> Callable[[ssl.SSLObject], None]:
    """What Python's `ssl` has no name for: TLS 1.3's KeyUpdate, which asks for one in return."""
    maps = Path("/proc/self/maps")
    loaded = re.search(r"\S*libssl\S*", maps.read_text()) if maps.exists() else None
    if loaded is None:
        pytest.skip("OpenSSL is inside of Python's own file here")
    openssl = ctypes.CDLL(loaded[0])
    openssl.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    openssl.SSL_do_handshake.argtypes = [ctypes.c_void_p]

    def change(client: ssl.SSLObject) -> None:
        inner: Any = client._sslobj  # type: ignore[attr-defined]
        # behind the object's head and the socket
        pointer = ctypes.c_void_p.from_address(id(inner) + 24)
        assert openssl.SSL_key_update(pointer, 1) == 1
        assert openssl.SSL_do_handshake(pointer) == 1

    return change


def test_what_is_held_is_delivered_when_it_is_asked_for() -> None:
    async def tell(meeting: Meeting) -> None:
        transport = meeting.inside.transport
        meeting.inside.on_data = transport.pause_reading
        for each in (b"one", b"two"):
            meeting.client.write(each)
        meeting.exchange()
        assert (bytes(meeting.inside.got), meeting.raw.is_held) == (b"one", True)
        meeting.inside.on_data = lambda: None
        transport.resume_reading()
        assert meeting.inside.got == b"one", "not inside the call"
        await asyncio.sleep(0)
        assert (meeting.inside.got, meeting.raw.is_held) == (b"onetwo", False)

    story(tell)


def test_a_protocol_may_be_replaced_by_another() -> None:
    """As `ProtocolSwitch` does, in the middle of what came."""

    def tell(meeting: Meeting) -> None:
        other = Inside()
        meeting.inside.on_data = lambda: meeting.inside.transport.set_protocol(other)
        for each in (b"one", b"two"):
            meeting.client.write(each)
        meeting.exchange()
        assert (bytes(meeting.inside.got), bytes(other.got)) == (b"one", b"two")
        assert meeting.inside.transport.get_protocol() is other
        meeting.protocol.connection_lost(None)
        assert (meeting.inside.told, other.told) == ([], ["lost"])

    story(tell)


def test_each_end_tells_the_other() -> None:
    def closes(meeting: Meeting) -> None:
        meeting.inside.transport.write(b"last")
        meeting.inside.transport.close()
        assert meeting.read() == b"last<close_notify>"
        assert meeting.raw.ends == ["closed"]

    def is_closed(meeting: Meeting) -> None:
        meeting.client.write(b"request")
        with pytest.raises(ssl.SSLWantReadError):
            meeting.client.unwrap()
        meeting.exchange()
        assert (meeting.inside.got, meeting.raw.ends) == (b"request", ["closed"])

    def ends(meeting: Meeting) -> None:
        assert meeting.protocol.eof_received() is None, "else its socket would stay open"
        meeting.protocol.pause_writing()
        meeting.protocol.resume_writing()
        meeting.protocol.connection_lost(None)
        assert meeting.inside.told == ["end", "pause", "resume", "lost"]

    for each in (closes, is_closed, ends):
        story(each)


def test_damaged_records_end_the_connection() -> None:
    def tell(meeting: Meeting) -> None:
        meeting.client.write(b"request")
        damaged = bytearray(meeting.goes.read())
        damaged[-1] ^= 1
        meeting.protocol.data_received(bytes(damaged))
        assert (meeting.inside.got, meeting.raw.ends) == (b"", ["aborted"])
        assert meeting.raw.written, "an alert says why"

    story(tell)


@pytest.mark.parametrize(
    ("first", "alert", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"", "it would not understand an alert"),
        (b"\x16\x03\x01\x00\x05hello", b"\x15", "an alert says why"),
    ],
)
def test_what_is_no_greeting_ends_the_connection(first: bytes, alert: bytes, why: str) -> None:
    async def run() -> None:
        meeting = Meeting()
        assert meeting.connections == {meeting.protocol}
        meeting.protocol.data_received(first)
        assert meeting.raw.ends == ["closed"]
        assert meeting.raw.written[:1] == alert, why
        meeting.protocol.connection_lost(None)
        assert meeting.accepted.has_left
        assert meeting.connections == set()

    asyncio.run(run())


def test_what_was_agreed_on_can_be_asked_for() -> None:
    def tell(meeting: Meeting) -> None:
        transport = meeting.inside.transport
        assert transport.get_extra_info("sslcontext") is CERTIFICATE.context
        assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert not transport.can_write_eof()

    story(tell)


def test_an_ended_connection_is_not_kept() -> None:
    async def run() -> None:
        meeting = Meeting()
        meeting.shake_hands()
        meeting.protocol.connection_lost(None)
        gone = weakref.ref(meeting.protocol)
        gc.disable()
        try:
            del meeting.protocol, meeting.inside
            assert gone() is None
        finally:
            gc.enable()

    asyncio.run(run())


# -------------------------------------------------------------------------- real sockets


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    content = scope["scheme"].encode() + b":" + body
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_are_served_one_request_after_the_other(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> None:
        listener = Listener(
            socket=bind("127.0.0.1", 0),
            application=echo,
            fast_path=NoFastPath(),
            certificate=CERTIFICATE,
        )
        port, stop = listener.socket.getsockname()[1], asyncio.Event()
        server = asyncio.create_task(serve([listener], stop, 1.0))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=TRUST, server_hostname="localhost"
        )
        for size in (0, 10, 20_000, 900_000):
            body = random.Random(size).randbytes(size)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % (size + 6) in head
            assert await reader.readexactly(size + 6) == b"https:" + body
        writer.close()
        stop.set()
        await server

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))
