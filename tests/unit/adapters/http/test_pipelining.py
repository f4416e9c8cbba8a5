"""Several requests on one connection, at real sockets: order, bounds, and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from tests.examples import examples
from tests.tls import FIRST

from standpipe.adapters.http.connections import PortLimits
from standpipe.adapters.http.pipelining import (
    DISCARDED_BYTES_MAX,
    HELD_BYTES_MAX,
    PIECE_BYTES,
    PipelinedProtocol,
)
from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import (
    ANSWERED_AT_ONCE,
    HEAD_BYTES_MAX,
    Headers,
    Listener,
    bind,
    serve,
)
from standpipe.adapters.http.tls import Certificate
from standpipe.errors import StandpipeError

Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)
#: swept ten times in each
QUICK = PortLimits(head_ms_max=300, body_bytes_per_s_min=1_000, idle_ms_max=60_000)
#: where no deadline is meant to pass: a busy machine may stand still for longer than QUICK's
PATIENT = PortLimits()


@dataclass
class Site:
    """Answers with the body. By its path, a request is quick (on the fast path), early (answered
    before its body is read), slow (until `go_on`), or endless and silent."""

    listener: Listener = field(init=False)
    #: heads that the slow path has parsed, answers of the fast path, requests begun
    heads: int = 0
    quick: int = 0
    begun: list[str] = field(default_factory=list[str])
    endless: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    clients: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    def classify(self, path: bytes, headers: Headers) -> object | None:
        self.heads += 1
        return path if path == b"/quick" else None

    def answer(self, token: Any, body: bytes) -> bytes | None:
        self.quick += 1
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def answer_message(self, message: bytes) -> bytes | None:
        return None

    def learn_message(self, token: Any, message: bytes, head_bytes: int) -> bool:
        return False

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(scope["path"])
        if scope["path"] == "/early":
            await said(send, b"early")
            return
        try:
            body = await read_body(scope["headers"], receive, 1_000_000)
        except StandpipeError:
            return
        if scope["path"] == "/endless":
            await self._stay(receive, send)
            return
        if scope["path"] == "/slow":
            await self.go_on.wait()
        await said(send, body)

    async def _stay(self, receive: Any, send: Any) -> None:
        self.endless += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.endless -= 1

    async def dialled(
        self, *, tls: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = self.listener.socket.getsockname()
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        self.clients.append(writer)
        return reader, writer


async def said(send: Any, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def at_site(
    story: Callable[[Site], Awaitable[None]],
    loop: Loop = asyncio.new_event_loop,
    limits: PortLimits = QUICK,
    **more: Any,
) -> None:
    async def run() -> None:
        site, stop = Site(), asyncio.Event()
        site.listener = Listener(
            socket=bind("127.0.0.1", 0),
            application=site.application,
            fast_path=site,
            limits=limits,
            **more,
        )
        server = asyncio.create_task(serve([site.listener], stop, 1.0))
        try:
            async with asyncio.timeout(60):
                await story(site)
        finally:
            for client in site.clients:
                client.transport.abort()
            stop.set()
            await server

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def asked(path: str, body: bytes = b"", extra: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def bodies(data: bytes) -> list[bytes]:
    """Of answers that follow each other; of an error, its status."""
    found: list[bytes] = []
    while data:
        head, data = data.split(b"\r\n\r\n", 1)
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None, "an answer within an answer"
        body, data = data[: int(length[1])], data[int(length[1]) :]
        assert len(body) == int(length[1]), "the last one is whole, too"
        found.append(body if head.startswith(b"HTTP/1.1 200 ") else head[9:12])
    return found


async def until(condition: Callable[[], bool]) -> None:
    """The loop turns; the test's time-out ends it."""
    while not condition():  # noqa: ASYNC110 plain counters
        await asyncio.sleep(0.001)


# ------------------------------------------------------------------------------ who leaves


def closed(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_closed(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


#: (what comes in the same packet, what comes later)
QUEUED = {
    "nothing": (b"", b""),
    "in the same packet": (asked("/other"), b""),
    "later": (b"", asked("/other")),
    "later, and half of one more": (b"", asked("/other") + asked("/other")[:30]),
    "half a head": (b"", asked("/other")[:30]),
    "half a body": (b"", asked("/other", b"x" * 1000)[:-500]),
    "what cannot be parsed": (b"", b"\x00\x00\r\n\r\n"),
    "more than is held": (b"", asked("/other") * (2 * HELD_BYTES_MAX // len(asked("/other")))),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("leave", [closed, reset, half_closed])
@pytest.mark.parametrize("queued", QUEUED)
def test_who_leaves_behind_queued_requests_is_noticed(
    queued: str, leave: Callable[[socket.socket], None], loop: Loop
) -> None:
    """Five such clients kept five push queries, and their consumers, until the worker ended."""

    async def story(site: Site) -> None:
        with_it, later = QUEUED[queued]
        client = socket.create_connection(site.listener.socket.getsockname())
        client.sendall(asked("/endless") + with_it)
        client.setblocking(False)
        await until(lambda: site.endless == 1)
        await asyncio.get_running_loop().sock_sendall(client, later)
        for _ in range(10):  # it is read, or reading is paused
            await asyncio.sleep(0)
        leave(client)
        await until(lambda: site.endless == 0)
        assert site.begun == ["/endless"], "nobody waits for the others"
        client.close()

    at_site(story, loop)


def test_who_leaves_over_tls_is_noticed() -> None:
    async def story(site: Site) -> None:
        _, writer = await site.dialled(tls=True)
        writer.write(asked("/endless") + asked("/other") * 2)
        await until(lambda: site.endless == 1)
        writer.write(asked("/other") * 1000)
        await writer.drain()
        for _ in range(10):
            await asyncio.sleep(0)
        writer.transport.abort()
        await until(lambda: site.endless == 0)

    certificate = Certificate(FIRST.certificate, FIRST.key, ["http/1.1"])
    for loop in LOOPS:
        at_site(story, loop, certificate=certificate)


# ------------------------------------------------------------------------------ order

#: What cannot be answered as asked, and the status that it gets.
BROKEN = {
    "no request at all": (b"\x00\x01\r\n\r\n", b"400"),
    "a header without a name": (b"GET /other HTTP/1.1\r\n: x\r\n\r\n", b"400"),
    "another version": (b"GET /other HTTP/7.1\r\n\r\n", b"400"),
    "a path that is no URL": (b"GET \xff HTTP/1.1\r\n\r\n", b"400"),
    "two lengths": (asked("/other", b"x", "content-length: 2\r\n"), b"400"),
    "a broken chunk": (
        b"POST /other HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\nZ\r\n\r\n",
        b"400",
    ),
    "another protocol": (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
    "a head that is too large": (
        b"GET /other HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n",
        b"431",
    ),
    "a head without end": (b"GET /other HTTP/1.1\r\nx: " + b"y" * 3 * HEAD_BYTES_MAX, b"431"),
}
FIRST_ONES = {
    "none": (b"", []),
    "an ordinary one": (asked("/other", b"one"), [b"one"]),
    "a known one": (asked("/quick", b"one"), [b"one"]),
    "a slow one": (asked("/slow", b"one"), [b"one"]),
    "three": (
        asked("/slow", b"one") + asked("/quick", b"two") + asked("/other", b"three"),
        [b"one", b"two", b"three"],
    ),
    "one that offers h2c": (
        asked("/slow", b"one", "connection: upgrade\r\nupgrade: h2c\r\n"),
        [b"one"],
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("before", FIRST_ONES)
def test_an_error_does_not_overtake_the_answers_to_earlier_requests(
    before: str, broken: str
) -> None:
    """In two reads, parted near each seam, and at each eighth byte, another eighth for each case
    (`make test`: at each fourth): 400 and 431 came first, and the answer never."""
    good, answers = FIRST_ONES[before]
    bad, status = BROKEN[broken]
    data = good + bad + asked("/after")
    step = examples(8, thorough=4)
    phase = list(BROKEN).index(broken) + list(FIRST_ONES).index(before)
    parts = [
        at
        for at in range(1, len(data))
        if (at < 400 or at > len(data) - 80)
        and (at % step == phase % step or abs(at - len(good)) < 6 or at > len(data) - 6)
    ]

    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/quick", b"abc"))  # the head is known from here on
        await reader.readuntil(b"abc")
        for at in parts:
            site.go_on.clear()
            site.begun.clear()
            reader, writer = await site.dialled()
            writer.write(data[:at])
            for _ in range(4):
                await asyncio.sleep(0)
            writer.write(data[at:])
            for _ in range(2):
                await asyncio.sleep(0)
            site.go_on.set()
            found = bodies(await reader.read())
            assert found == [*answers, status], at
            assert "/after" not in site.begun

    at_site(story, limits=PATIENT)


@pytest.mark.parametrize(
    ("path", "body", "found", "why"),
    [
        ("/other", b"1\r\nx\r\nZ\r\n", [b"400"], "it waits for the body"),
        ("/early", b"1\r\nx\r\nZ\r\n", [b"early"], "its answer was sent before: no second one"),
    ],
)
def test_a_request_gets_one_answer_if_its_body_is_broken(
    path: str, body: bytes, found: list[bytes], why: str
) -> None:
    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(f"POST {path} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        await until(lambda: bool(site.begun))
        for _ in range(3):
            await asyncio.sleep(0)
        writer.write(body)
        assert bodies(await reader.read()) == found, why

    at_site(story, limits=PATIENT)


def test_what_follows_connection_close_is_not_carried_out() -> None:
    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/slow", b"last", "connection: close\r\n") + asked("/other") * 5)
        await until(lambda: bool(site.begun))
        writer.write(asked("/other") * 5)
        for _ in range(5):  # they are read: unread ones would reset the connection
            await asyncio.sleep(0)
        site.go_on.set()
        assert bodies(await reader.read()) == [b"last"]
        assert site.begun == ["/slow"]

    at_site(story, limits=PATIENT)


def test_bodies_behind_a_slow_request_arrive_whole_and_in_order() -> None:
    """The parser stops within them: part is queued, part is held, part is with the kernel."""
    sizes = [1, PIECE_BYTES - 30, PIECE_BYTES, HELD_BYTES_MAX, 3 * HELD_BYTES_MAX, 0, 900_000, 5]
    sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]

    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/slow", b"first"))
        for body in sent:
            writer.write(asked("/other", body))
        await until(lambda: bool(site.begun))
        for _ in range(10):
            await asyncio.sleep(0)
        site.go_on.set()
        writer.write(asked("/other", b"last", "connection: close\r\n"))
        assert bodies(await reader.read()) == [b"first", *sent, b"last"]
        writer.close()

    for loop in LOOPS:
        at_site(story, loop, limits=PATIENT)


# ------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("loop", LOOPS)
def test_a_flood_behind_a_slow_request_is_not_parsed_ahead(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of 256 KiB became 14,000 queued requests, and 32 MB."""
    one = asked("/other", b"x")
    count = 400_000 // len(one)
    held: list[int] = []
    hold = PipelinedProtocol._hold

    def noted(self: Any, data: bytes) -> None:
        hold(self, data)
        held.append(len(self._held))

    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/slow", b"first") + one * count)
        await until(lambda: bool(site.begun))
        for _ in range(100):
            await asyncio.sleep(0)
        assert site.heads <= PIECE_BYTES // len(one) + 1, "those of one piece"
        site.go_on.set()
        await reader.readuntil(b"first")
        expected = len(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")
        answers = await reader.readexactly(expected * count)
        assert bodies(answers) == [b"x"] * count
        assert max(held) <= HELD_BYTES_MAX + 256 * 1024, "one read on top of what is held"

    monkeypatch.setattr(PipelinedProtocol, "_hold", noted)
    at_site(story, loop, limits=PATIENT)


@pytest.mark.parametrize("loop", LOOPS)
def test_lookups_in_one_packet_give_way_to_others(loop: Loop) -> None:
    """A read may bring hundreds of them, and each may name 256 keys."""

    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/quick", b"x"))
        await reader.readuntil(b"\r\n\r\nx")
        others: list[int] = []

        async def take_turns() -> None:
            while site.quick < 1000:
                others.append(site.quick)
                await asyncio.sleep(0)

        turns = asyncio.create_task(take_turns())
        writer.write(asked("/quick", b"x") * 1000)
        writer.write_eof()  # they are answered all the same
        assert bodies(await reader.read()) == [b"x"] * 1000
        await turns
        steps = [after - before for before, after in itertools.pairwise(others)]
        assert max(steps) == ANSWERED_AT_ONCE

    at_site(story, loop, limits=PATIENT)


def test_what_is_held_is_not_cut_as_late() -> None:
    """Half a head that waits for an answer is with the server; the client has nothing to send."""
    half = asked("/other", b"third")

    async def story(site: Site) -> None:
        reader, writer = await site.dialled()
        writer.write(asked("/slow", b"first") + asked("/other", b"second") + half[:30])
        await until(lambda: bool(site.begun))
        for _ in range(4):  # deadlines of a head
            await asyncio.sleep(QUICK.head_ms_max / 1000)
        site.go_on.set()
        await reader.readuntil(b"second")
        writer.write(half[30:])
        await reader.readuntil(b"third")

    at_site(story)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_goes_on_after_a_refusal_is_cut_off(loop: Loop) -> None:
    """By the bytes that are discarded, or by the time: what comes is never parsed again."""

    async def story(site: Site) -> None:
        for more in (asked("/other") * (2 * DISCARDED_BYTES_MAX // len(asked("/other"))), b""):
            reader, writer = await site.dialled()
            writer.write(b"\x00\r\n\r\n")
            assert bodies(await reader.read()) == [b"400"]
            with contextlib.suppress(ConnectionError):
                writer.write(more)
                while True:  # the test's time-out ends it
                    await writer.drain()
                    writer.write(b"x")
                    await asyncio.sleep(0.01)
        assert site.begun == []

    at_site(story, loop)
