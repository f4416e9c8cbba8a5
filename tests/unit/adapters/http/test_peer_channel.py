"""Channels: each answer comes to who asked, once and in order, however it is cut; or none does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from standpipe.adapters.http import peer_client
from standpipe.adapters.http.peer_channel import HEAD_BYTES_MAX, UNDER_WAY_MAX, PeerChannel
from standpipe.adapters.http.peer_client import PeerClient, head_of, message_of
from standpipe.model import NodeId

LONG_S = 3600.0
BODY_BYTES_MAX = 20


@dataclass
class Caller:
    """Who waits for one answer."""

    heard: list[tuple[bytes, bytes] | None] = field(default_factory=list[Any])
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def answered(self, head: bytes, body: bytes) -> None:
        self.heard.append((head, body))
        self.came.set()

    def unanswered(self) -> None:
        self.heard.append(None)
        self.came.set()


@dataclass
class Line:
    """What a channel writes, and whether it has ended its connection."""

    written: list[bytes] = field(default_factory=list[bytes])
    ended: int = 0

    def abort(self) -> None:
        self.ended += 1

    def channel(self) -> PeerChannel:
        return PeerChannel(self.written.append, self.abort, BODY_BYTES_MAX)


def answer(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\nx: y\r\n\r\n%b" % (
        status,
        more,
        len(body),
        body,
    )


def head_in(whole: bytes) -> bytes:
    return whole[: whole.index(b"\r\n\r\n") + 2]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@given(
    st.lists(st.binary(max_size=BODY_BYTES_MAX + 10), min_size=1, max_size=6),
    st.lists(st.integers(1, 60)),
)
@example([b"\r\n\r\n", b"", b"x" * (BODY_BYTES_MAX + 1), b"y"], [1])
@example([b"x" * (BODY_BYTES_MAX + 1)] * 2, [])
def test_answers_cut_anywhere_come_to_who_asked(bodies: list[bytes], cuts: list[int]) -> None:
    async def story() -> None:
        line, callers = Line(), [Caller() for _ in bodies]
        channel = line.channel()
        for caller in callers:
            channel.send(b"q", caller)
        data = b"".join(map(answer, bodies))
        for size in (*cuts, len(data)):
            channel.received(data[:size])
            data = data[size:]
        for body, caller in zip(bodies, callers, strict=True):
            whole = (head_in(answer(body)), body) if len(body) <= BODY_BYTES_MAX else None
            assert caller.heard == [whole]
        assert channel.is_free
        assert line.ended == 0

    run(story)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "no length"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" + answer(b"a"), "no answer, but a sign of work"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "no number"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 1" + b"0" * 20 + b"\r\n\r\n",
            "too long",
        ),
        (b"x" * (HEAD_BYTES_MAX + 1), "no head"),
    ],
)
def test_what_says_no_length_ends_the_channel(data: bytes, why: str) -> None:
    async def story() -> None:
        line, callers = Line(), [Caller() for _ in range(3)]
        channel = line.channel()
        for caller in callers:
            channel.send(b"q", caller)
        channel.received(answer(b"first") + data)
        assert callers[0].heard == [(head_in(answer(b"first")), b"first")]
        assert [caller.heard for caller in callers[1:]] == [[None], [None]], why
        assert line.ended >= 1
        assert not channel.is_free
        channel.lost()
        assert [len(caller.heard) for caller in callers] == [1, 1, 1], "once"

    run(story)


def test_what_nobody_asked_for_ends_the_channel() -> None:
    async def story() -> None:
        line, caller = Line(), Caller()
        channel = line.channel()
        channel.send(b"q", caller)
        channel.received(answer(b"a") + answer(b"b"))
        assert caller.heard == [(head_in(answer(b"a")), b"a")]
        assert line.ended == 1

    run(story)


def test_a_peer_that_leaves_gets_no_more_requests() -> None:
    async def story() -> None:
        line, callers = Line(), [Caller(), Caller()]
        channel = line.channel()
        for caller in callers:
            channel.send(b"q", caller)
        channel.received(answer(b"a", more=b"connection: close\r\n"))
        assert not channel.is_free
        assert callers[1].heard == [], "it may have been answered before"
        channel.lost()
        assert callers[1].heard == [None]

    run(story)


def test_requests_of_one_turn_are_one_write() -> None:
    async def story() -> None:
        line = Line()
        channel = line.channel()
        for number in range(UNDER_WAY_MAX):
            assert channel.is_free
            channel.send(b"%d," % number, Caller())
        assert not channel.is_free
        await asyncio.sleep(0)
        assert line.written == [b"".join(b"%d," % number for number in range(UNDER_WAY_MAX))]
        channel.received(answer(b"a"))
        channel.send(b"withdrawn", Caller())
        channel.end()
        await asyncio.sleep(0)
        assert len(line.written) == 1, "nothing of what was withdrawn"

    run(story)


def test_requests_that_come_while_others_are_under_way_are_the_next_write() -> None:
    async def story() -> None:
        line, callers = Line(), [Caller() for _ in range(5)]
        channel = line.channel()
        for number, caller in enumerate(callers[:2]):
            channel.send(b"%d," % number, caller)
        await asyncio.sleep(0)
        for number in (2, 3):
            channel.send(b"%d," % number, callers[number])
            await asyncio.sleep(0)
        channel.received(answer(b"0"))
        assert line.written == [b"0,1,"], "the second is under way"
        channel.received(answer(b"1"))
        assert line.written == [b"0,1,", b"2,3,"]
        channel.received(answer(b"2") + answer(b"3"))
        channel.send(b"4,", callers[4])
        await asyncio.sleep(0)
        assert line.written[2:] == [b"4,"], "none is under way"
        channel.received(answer(b"4"))
        assert [caller.heard[0][1] for caller in callers if caller.heard[0]] == [
            b"%d" % number for number in range(5)
        ]

    run(story)


# -------------------------------------------------------------------- over sockets


class Peer:
    """Answers each request with what its body says, in order. A body of "stay" is never answered,
    and one of "close" ends the connection."""

    def __init__(self) -> None:
        self.client = PeerClient({})
        self.connections = self.ended = 0
        self.over = asyncio.Event()
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.rpartition(b"content-length: ")[2]))
                if body == b"close":
                    break
                if body != b"stay":
                    writer.write(answer(body, b"503 No" if body == b"refuse" else b"200 OK"))
        writer.close()
        self.ended += 1
        self.over.set()

    async def end(self) -> None:
        self.client.close()
        while self.ended < self.connections:
            self.over.clear()
            await self.over.wait()

    async def dial(self) -> None:
        await self.client.request(self.address, "/", timeout_s=LONG_S, body=b"first")

    def channel(self) -> PeerChannel | None:
        return self.client.channel((self.address, NodeId("")), BODY_BYTES_MAX)

    async def ask(self, *bodies: bytes) -> list[tuple[bytes, bytes] | None]:
        """Over as many channels as it takes, at once."""
        callers = list[Caller]()
        for body in bodies:
            channel, caller = self.channel(), Caller()
            assert channel is not None
            channel.send(message_of(head_of("POST /x", self.address, {}), body), caller)
            callers.append(caller)
        for caller in callers:
            await caller.came.wait()
        return [caller.heard[0] for caller in callers]


def plain() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@pytest.fixture(params=[plain, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def at_a_peer(request: pytest.FixtureRequest) -> Callable[[Callable[[Peer], Any]], None]:
    def told(story: Callable[[Peer], Any]) -> None:
        async def whole() -> None:
            peer = Peer()
            async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
                host, port = server.sockets[0].getsockname()
                peer.address = f"{host}:{port}"
                await story(peer)
                await peer.end()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(whole())

    return told


def test_a_channel_is_made_of_a_kept_connection(at_a_peer: Any) -> None:
    async def story(peer: Peer) -> None:
        assert peer.channel() is None, "nothing is kept"
        await peer.dial()
        bodies = [b"a", b"b" * BODY_BYTES_MAX, b"refuse", b"c" * (BODY_BYTES_MAX + 1), b"d"]
        found = await peer.ask(*bodies)
        assert [None if one is None else one[1] for one in found] == [*bodies[:3], None, b"d"]
        refused = found[2]
        assert refused is not None
        assert refused[0].startswith(b"HTTP/1.1 503 ")
        assert peer.connections == 1
        await peer.dial()
        assert peer.connections == 2, "the channel has the first"

    at_a_peer(story)


def test_a_busy_channel_gets_another_beside_it(at_a_peer: Any) -> None:
    async def story(peer: Peer) -> None:
        await peer.dial()
        first = peer.channel()
        assert first is not None
        waiting = list[Caller]()
        for _ in range(peer_client.SHARED_MIN):
            assert peer.channel() is first
            waiting.append(Caller())
            first.send(message_of(head_of("POST /x", peer.address, {}), b"stay"), waiting[-1])
        assert peer.channel() is first, "no connection is kept"
        await peer.dial()
        second = peer.channel()
        assert second is not first
        assert second is not None
        first.end()
        assert [caller.heard for caller in waiting] == [[None]] * len(waiting)
        assert peer.channel() is second

    at_a_peer(story)


def test_who_waits_is_told_that_the_connection_has_ended(at_a_peer: Any) -> None:
    async def story(peer: Peer) -> None:
        await peer.dial()
        assert await peer.ask(b"a", b"close", b"b") == [
            (head_in(answer(b"a")), b"a"),
            None,
            None,
        ]
        assert peer.channel() is None

    at_a_peer(story)


def test_a_channel_that_rested_too_long_is_not_used(
    at_a_peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(peer: Peer) -> None:
        await peer.dial()
        first = peer.channel()
        assert first is not None
        assert peer.channel() is first
        monkeypatch.setattr(peer_client, "IDLE_SECONDS_MAX", -1.0)
        assert peer.channel() is None, "its server may drop it now"
        assert not first.is_open

    at_a_peer(story)
