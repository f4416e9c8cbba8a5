"""Both ways through the protocol, in one process: order, pieces, and bytes that nobody meant."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.adapters.http.fed_connection import connected, listener_of

from standpipe.adapters.http.pulse import DOUBT_S, STILL_S, Pulse
from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import (
    ANSWERED_AT_ONCE,
    HEAD_BYTES_MAX,
    LARGE_BODY_BYTES,
    REMEMBERED_HEADS_MAX,
    WRITTEN_AT_ONCE_BYTES,
    Application,
    Headers,
    Listener,
    LookupProtocol,
    bind,
    serve,
)
from standpipe.errors import BodyTooLarge, PortInUse, StandpipeError


class Echo:
    """Answers with its body and the way that it took; bodies of `slow` refuse the fast path."""

    def __init__(self) -> None:
        self.classified = 0
        self.answered = 0
        #: head of a message -> bytes of the message
        self.learnt: dict[bytes, int] = {}
        self.short = 0

    def classify(self, path: bytes, headers: Headers) -> object | None:
        self.classified += 1
        return path if path.startswith(b"/quick") else None

    def answer(self, token: Any, body: bytes) -> bytes | None:
        if body.startswith(b"slow"):
            return None
        self.answered += 1
        return b"HTTP/1.1 200 OK\r\nway: quick\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def answer_message(self, message: bytes) -> bytes | None:
        head, _, body = message.partition(b"\r\n\r\n")
        if self.learnt.get(head) != len(message):
            return None
        answer = self.answer(b"", body)
        self.short += answer is not None
        return answer

    def learn_message(self, token: Any, message: bytes, head_bytes: int) -> bool:
        self.learnt[message[: head_bytes - 4]] = len(message)
        return True

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body, status = await read_body(scope["headers"], receive, 100_000), 200
        except StandpipeError as error:
            body, status = error.message.encode(), error.status
        self.answered += 1
        if body.startswith(b"slow"):
            await asyncio.sleep(0.002)
        headers = [(b"way", b"ordinary"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def message(body: bytes, path: str = "/quick", extra: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def reply(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search(r"content-length: (\d+)", head)
    assert length is not None
    way = re.search(r"way: (\w+)", head)
    return way[1] if way else head.split()[1], await reader.readexactly(int(length[1]))


Connect = Callable[[], Awaitable[Client]]


def with_server(
    story: Callable[[Connect, Listener], Awaitable[None]], application: Application | None = None
) -> None:
    async def run() -> None:
        echo, stop = Echo(), asyncio.Event()
        answers = application or echo.application
        listener = Listener(socket=bind("127.0.0.1", 0), application=answers, fast_path=echo)
        host, port = listener.socket.getsockname()
        server = asyncio.create_task(serve([listener], stop, 1.0))
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(await asyncio.open_connection(host, port))
            return clients[-1]

        try:
            async with asyncio.timeout(20):
                await story(connect, listener)
        finally:
            for _, writer in clients:
                writer.close()
            stop.set()
            await server

    asyncio.run(run())


def test_a_head_is_remembered_and_shared() -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        ways: list[str] = []
        for _ in range(2):
            reader, writer = await connect()
            for _ in range(2):
                writer.write(message(b"abc"))
                ways.append((await reply(reader))[0])
        assert ways == ["ordinary", "quick", "quick", "quick"]
        assert len(listener.heads) == 1
        echo = listener.fast_path
        assert isinstance(echo, Echo)
        assert echo.short == 1, "the last: on a connection that had no slow answer before it"

    with_server(story)


@pytest.mark.parametrize(
    ("extra", "path", "remembered", "why"),
    [
        ("", "/quick", True, "plain"),
        ("connection: keep-alive\r\n", "/quick", True, "says what holds anyway"),
        ("Connection: Keep-Alive\r\n", "/quick", True, "in any case"),
        ("connection: close\r\n", "/quick", False, "reaches beyond the message"),
        ("expect: 100-continue\r\n", "/quick", False, "wants an answer in between"),
        ("content-length: 3\r\n", "/quick", False, "two lengths"),
        ("transfer-encoding: identity\r\n", "/quick", False, "another framing"),
        ("", "/other", False, "not for the fast path"),
    ],
)
def test_which_heads_are_remembered(extra: str, path: str, remembered: bool, why: str) -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        writer.write(message(b"abc", path, extra))
        await reader.read(1)
        assert bool(listener.heads) is remembered, why

    with_server(story)


def test_who_leaves_ends_each_connection_in_order() -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        for _ in range(2):  # the second time the head is known
            writer.write(message(b"abc"))
            await reply(reader)
        listener.is_leaving = True
        writer.write(message(b"abc"))
        said = await reader.read()
        assert b"connection: close" in said.lower(), "the client is told, so it asks nothing more"
        assert said.endswith(b"abc"), "and has its answer"
        listener.is_leaving = False
        reader, writer = await connect()
        writer.write(message(b"abc"))
        assert (await reply(reader))[0] == "quick", "after an undrain all is as it was"

    with_server(story)


def test_memory_of_heads_is_bounded() -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        for number in range(REMEMBERED_HEADS_MAX + 5):
            writer.write(message(b"abc", extra=f"x: {number}\r\n"))
            await reply(reader)
        assert len(listener.heads) == 5

    with_server(story)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_order_holds_for_any_mix_in_any_pieces(seed: int) -> None:
    """Quick, slow and ordinary messages, pipelined over one connection, cut anywhere."""
    draw = random.Random(seed)
    bodies = [
        (draw.choice([b"", b"slow", b"q"]) + b"%d" % number, draw.choice(["/quick", "/other"]))
        for number in range(draw.randrange(1, 25))
    ]
    data = b"".join(message(body, path) for body, path in bodies)

    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        writer.write(message(b"0"))  # the head of one-byte bodies is known from here on
        await reply(reader)
        at = 0
        while at < len(data):
            end = at + draw.choice([1, 30, 200, 5000])
            writer.write(data[at:end])
            await asyncio.sleep(0)
            at = end
        for body, _ in bodies:
            assert (await reply(reader))[1] == body

    with_server(story)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=6))
def test_any_bytes_end_in_an_answer_or_a_closed_connection(pieces: list[bytes]) -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        _, writer = await connect()
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        other_reader, other = await connect()
        other.write(message(b"still here"))
        assert (await reply(other_reader))[1] == b"still here"

    with_server(story)


def test_endless_head() -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        writer.write(b"POST /quick HTTP/1.1\r\nx: ")
        for _ in range(HEAD_BYTES_MAX // 1000 + 2):
            writer.write(b"y" * 1000)
            await asyncio.sleep(0.001)
        assert (await reply(reader))[0] == "431"

    with_server(story)


def test_trailer_without_end() -> None:
    """Its fields were added to the headers, and 600,000 of them took 60 MB."""

    async def story(connect: Connect, listener: Listener) -> None:
        head = b"POST /quick HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        reader, writer = await connect()
        writer.write(head + b"3\r\nabc\r\n0\r\nx: y\r\n\r\n")
        assert (await reply(reader))[1] == b"abc", "a short one is read and dropped"
        writer.write(head + b"0\r\n" + b"x: y\r\n" * HEAD_BYTES_MAX)
        assert (await reply(reader))[0] == "431"

    with_server(story)


def test_fields_of_a_trailer_are_no_headers() -> None:
    seen: list[Headers] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await read_body(scope["headers"], receive, 100)
        seen.append(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
        writer.write(b"host: y\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert seen == [[(b"host", b"x"), (b"transfer-encoding", b"chunked")]]

    with_server(story, application)


def test_large_body() -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        reader, writer = await connect()
        writer.write(message(b"x" * 100_001))
        assert b"exceeds 100000 bytes" in (await reply(reader))[1]

    with_server(story)


def test_body_limit_is_exact() -> None:
    async def at(size: int) -> int:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        return len(await read_body([], receive, 10))

    assert asyncio.run(at(10)) == 10
    with pytest.raises(BodyTooLarge):
        asyncio.run(at(11))


def test_many_clients_may_connect_while_the_process_is_stopped() -> None:
    """Its loop does not run meanwhile. 300 waited in a queue of 100: TCP asks again after 1 s."""

    async def story(connect: Connect, listener: Listener) -> None:
        await connect()  # it serves
        address = listener.socket.getsockname()
        clients = [socket.create_connection(address, timeout=0.9) for _ in range(300)]
        for client in clients:
            client.close()

    with_server(story)


def test_who_comes_in_the_moment_of_the_stop_is_hung_up_on() -> None:
    """asyncio had accepted it and the server was closed before it was made: a transport that
    nobody ended (a unit test of nodes failed by it on a busy machine)."""

    async def run() -> None:
        echo, stop = Echo(), asyncio.Event()
        listener = Listener(
            socket=bind("127.0.0.1", 0), application=echo.application, fast_path=echo
        )
        address = listener.socket.getsockname()
        server = asyncio.create_task(serve([listener], stop, 1.0))
        await asyncio.sleep(0.01)
        with socket.create_connection(address, timeout=5) as client:
            await asyncio.sleep(0)  # the loop's next turn accepts it, after it has set us free
            stop.set()
            await server
            assert await asyncio.to_thread(client.recv, 1) == b"", "hung up on, in order"

    asyncio.run(run())
    gc.collect()  # a transport that is left behind says so


def test_port_in_use() -> None:
    taken = bind("127.0.0.1", 0)
    try:
        shared = bind("127.0.0.1", taken.getsockname()[1])  # workers share a port
        shared.close()
    finally:
        taken.close()
    with pytest.raises(PortInUse):
        bind("192.0.2.1", 1)  # an address that is not ours


def disturb(why: str, connection: LookupProtocol) -> tuple[bytes, list[bytes]]:
    """What is sent next on a connection whose last message took the shortest way, and the bodies of
    all answers then."""
    known = message(b"abc")
    match why:
        case "a part of it came before":
            connection.data_received(known[:9])
            return known[9:], [b"abc"]
        case "a slow answer is under way":
            connection.data_received(message(b"slow"))
            return known, [b"slow", b"abc"]
        case "another head came before":
            connection.data_received(message(b"abc", extra="x: y\r\n"))
            return known, [b"abc", b"abc"]
        case "another comes with it":
            return known + known, [b"abc", b"abc"]
        case "the client reads too slowly":
            connection.pause_writing()
        case "it has read too slowly":
            connection.pause_writing()
            connection.resume_writing()
        case "the node is leaving":
            connection._listener.is_leaving = True
        case _:
            pass
    return known, [b"abc"]


@pytest.mark.parametrize(
    ("why", "is_short"),
    [
        ("nothing else has happened", True),
        ("a part of it came before", False),
        ("a slow answer is under way", False),
        ("another head came before", False),
        ("another comes with it", False),
        ("the client reads too slowly", False),
        ("it has read too slowly", False),
        ("the node is leaving", False),
    ],
)
def test_when_a_message_takes_the_shortest_way(why: str, is_short: bool) -> None:
    async def story() -> None:
        echo = Echo()
        connection, wire = connected(listener_of(echo, echo.application))
        for expected in (0, 0, 1):  # parsed; known by its head; known whole
            connection.data_received(message(b"abc"))
            await asyncio.sleep(0.001)
            assert echo.short == expected
        assert connection._progress().steps == 3, "it is not idle: each of them was a step"
        wire.sent = b""
        data, bodies = disturb(why, connection)
        connection.data_received(data)
        assert (echo.short == 2) is is_short
        connection.resume_writing()
        async with asyncio.timeout(20):
            while wire.sent.count(b"HTTP/1.1") < len(bodies):  # noqa: ASYNC110 no event
                await asyncio.sleep(0.001)
        assert re.findall(rb"\r\n\r\n(abc|slow)", wire.sent) == bodies

    asyncio.run(story())


def bodies_in(sent: bytes) -> list[bytes]:
    """Those of whole answers, in order; raises where something else was sent."""
    found, at = list[bytes](), 0
    while at < len(sent):
        head = re.compile(rb"HTTP/1.1 200 [^\0]*?content-length: (\d+)\r\n\r\n").match(sent, at)
        assert head is not None
        at = head.end() + int(head[1])
        found.append(sent[head.end() : at])
    return found


@pytest.mark.parametrize(
    ("bodies", "writes", "why"),
    [
        ([b"1"], 1, "one"),
        ([b"1", b"2", b"3"], 1, "three"),
        ([b"%d" % (number % 10) for number in range(ANSWERED_AT_ONCE)], 1, "all of a turn"),
        ([b"%d" % (number % 10) for number in range(ANSWERED_AT_ONCE + 1)], 2, "the next turn's"),
        ([b"1", b"2", b"x" * (LARGE_BODY_BYTES + 1), b"3"], 2, "none waits for a long one"),
    ],
)
def test_known_messages_of_one_read_are_answered_together(
    bodies: list[bytes], writes: int, why: str
) -> None:
    async def story() -> None:
        echo = Echo()
        connection, wire = connected(listener_of(echo, echo.application))
        for known in sorted({len(each): each for each in bodies}.values()) * 2:
            connection.data_received(message(known))
            await asyncio.sleep(0.001)
        wire.sent, wire.written[:] = b"", []
        connection.data_received(b"".join(map(message, bodies)))
        await asyncio.sleep(0.001)
        assert bodies_in(wire.sent) == bodies
        assert len(wire.written) == writes, why

    asyncio.run(story())


def test_answers_are_written_before_a_slower_one_begins() -> None:
    """What comes first is sent first, and does not wait for what comes next."""

    async def story() -> None:
        echo = Echo()
        connection, wire = connected(listener_of(echo, echo.application))
        connection.data_received(message(b"0000"))
        await asyncio.sleep(0.001)
        wire.sent = b""
        asked = [b"1111", b"2222", b"slow", b"3333", b"4444"]
        connection.data_received(b"".join(map(message, asked)))
        assert bodies_in(wire.sent) == asked[:2]
        async with asyncio.timeout(20):
            while wire.sent.count(b"HTTP/1.1") < len(asked):  # noqa: ASYNC110 no event
                await asyncio.sleep(0.001)
        assert bodies_in(wire.sent) == asked

    asyncio.run(story())


def test_a_part_of_a_message_does_not_hold_back_the_answers_before_it() -> None:
    async def story() -> None:
        echo = Echo()
        connection, wire = connected(listener_of(echo, echo.application))
        connection.data_received(message(b"0000"))
        await asyncio.sleep(0.001)
        wire.sent, data = b"", b"".join(map(message, [b"1111", b"2222", b"3333"]))
        connection.data_received(data[:-1])
        assert bodies_in(wire.sent) == [b"1111", b"2222"]
        connection.data_received(data[-1:])
        await asyncio.sleep(0.001)
        assert bodies_in(wire.sent) == [b"1111", b"2222", b"3333"]

    asyncio.run(story())


def test_large_answers_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have a megabyte; and a client that takes none of them gets no more of them."""
    # an echo's bodies are as long as its answers
    monkeypatch.setattr("standpipe.adapters.http.server.LARGE_BODY_BYTES", 1 << 20)

    async def story() -> None:
        echo = Echo()
        connection, wire = connected(listener_of(echo, echo.application))
        size = WRITTEN_AT_ONCE_BYTES // 2
        connection.data_received(message(b"x" * size))
        await asyncio.sleep(0.001)
        wire.sent, wire.written[:] = b"", []
        wire.took = lambda: connection.pause_writing() if len(wire.written) == 3 else None
        asked = [b"%d" % number * size for number in range(9)]
        answered = echo.answered
        connection.data_received(b"".join(map(message, asked)))
        assert bodies_in(wire.sent) == asked[:6], "two in each write, until it was paused"
        assert echo.answered - answered == 6
        assert max(wire.written) < WRITTEN_AT_ONCE_BYTES + size
        connection.resume_writing()
        async with asyncio.timeout(20):
            while wire.sent.count(b"HTTP/1.1") < len(asked):  # noqa: ASYNC110 no event
                await asyncio.sleep(0.001)
        assert bodies_in(wire.sent) == asked

    asyncio.run(story())


@pytest.mark.parametrize("path", ["/quick", "/ordinary"])
@pytest.mark.parametrize(
    ("in_doubt", "closes", "answered", "why"),
    [
        (True, True, 0, "its sender went away while the process stood still"),
        (True, False, 1, "its sender still waits"),
        (False, True, 1, "nothing stood still: nobody looks"),
    ],
)
def test_what_nobody_waits_for_is_not_worked_on(
    path: str, in_doubt: bool, closes: bool, answered: int, why: str
) -> None:
    async def story(connect: Connect, listener: Listener) -> None:
        for _ in range(2):  # the head is remembered
            reader, writer = await connect()
            writer.write(message(b"abc", path))
            await reply(reader)
        echo, gone = listener.fast_path, [0]
        assert isinstance(echo, Echo)
        echo.answered = 0

        def abandoned() -> None:
            gone[0] += 1

        listener.abandoned = abandoned
        listener.pulse.at_s = math.inf  # for good
        listener.pulse.doubt_until_s = math.inf if in_doubt else -math.inf
        # in the loop's own thread: it reads only after all of this
        with socket.create_connection(listener.socket.getsockname()) as client:
            client.sendall(message(b"abc", path))
            if closes:
                client.close()
            while gone[0] + echo.answered == 0:  # noqa: ASYNC110 both are counted in passing
                await asyncio.sleep(0)
        assert (echo.answered, gone[0]) == (answered, 1 - answered), why

    with_server(story)


def test_a_pulse_tells_that_the_loop_stood_still() -> None:
    pulse = Pulse(at_s=10.0)
    assert not pulse.is_doubtful(10.0 + STILL_S)
    assert pulse.is_doubtful(10.1 + STILL_S), "read before the loop has come round"
    pulse.beat(11.0)
    assert pulse.is_doubtful(11.0 + DOUBT_S / 2), "many wait, and are read one after the other"
    for turn in range(1, 30):
        pulse.beat(11.0 + turn / 10)
    assert not pulse.is_doubtful(13.9)
