"""Answers of the fast path that come later: in order, one for each request, whatever else comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.adapters.http.fed_connection import Wire, connected, listener_of
from tests.unit.adapters.http.test_pipelining import bodies

from standpipe.adapters.http.fast_path import Headers
from standpipe.adapters.http.pipelining import HELD_BYTES_MAX
from standpipe.adapters.http.server import LookupProtocol


@dataclass
class Later:
    """An answer that the test gives."""

    body: bytes
    take: Callable[[bytes | None], None] | None = None
    has_left: bool = False

    def then(self, take: Callable[[bytes | None], None]) -> None:
        self.take = take

    def leave(self) -> None:
        self.has_left = True

    def give(self, *, is_known: bool) -> None:
        assert self.take is not None
        self.take(whole(self.body) if is_known else None)


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@dataclass
class Site:
    """By the path of a request, its answer is quick, or comes later, or is the slow path's. What it
    has answered once it knows as a message."""

    later: deque[Later] = field(default_factory=deque[Later])
    slow: int = 0
    #: by head; and the bodies of messages that were answered so
    messages: dict[bytes, Any] = field(default_factory=dict[bytes, Any])
    known: list[bytes] = field(default_factory=list[bytes])

    def classify(self, path: bytes, headers: Headers) -> object | None:
        return path if path in (b"/quick", b"/later") else None

    def answer(self, token: Any, body: bytes) -> bytes | Later | None:
        if token == b"/quick":
            return whole(body)
        self.later.append(Later(body))
        return self.later[-1]

    def answer_message(self, message: bytes) -> bytes | Later | None:
        head, body = message[:-4], message[-4:]
        if head not in self.messages:
            return None
        self.known.append(body)
        return self.answer(self.messages[head], body)

    def learn_message(self, token: Any, message: bytes, head_bytes: int) -> bool:
        self.messages[message[:head_bytes]] = token
        return True

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        self.slow += 1
        body = (await receive())["body"]
        await asyncio.sleep(0)
        lines = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        await send({"type": "http.response.body", "body": body})


def request(path: str, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


def taught(site: Site) -> tuple[LookupProtocol, Wire]:
    """A connection whose heads are known: each was met once."""
    listener = listener_of(site, site.application)
    for path in (b"/quick", b"/later"):
        head = request(path.decode(), b"0123")[:-4]
        listener.heads[head] = (4, path)
    return connected(listener)


async def turns(count: int = 12) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


requests = st.lists(
    st.tuples(st.sampled_from(["/quick", "/later", "/late", "/slow"]), st.integers(1, 40)),
    min_size=1,
    max_size=8,
)


@example([("/later", 9), ("/quick", 40), ("/late", 40), ("/slow", 3), ("/later", 1)])
@given(requests)
def test_each_request_gets_its_answer_in_order(asked: list[tuple[str, int]]) -> None:
    """`/late`: it is left to the slow path once it was awaited. The numbers: bytes in a piece."""

    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        expected = [b"%04d" % number for number in range(len(asked))]
        given_up = {b"%04d" % n for n, (kind, _) in enumerate(asked) if kind == "/late"}
        for number, (kind, size) in enumerate(asked):
            message = request("/later" if kind == "/late" else kind, b"%04d" % number)
            for at in range(0, len(message), size):
                connection.data_received(message[at : at + size])
                if (at + number) % 3 == 0 and site.later:
                    await turns(2)
                    answer = site.later.popleft()
                    answer.give(is_known=answer.body not in given_up)
        for _ in range(2 * len(asked)):
            await turns()
            while site.later:
                answer = site.later.popleft()
                answer.give(is_known=answer.body not in given_up)
        assert bodies(wire.sent) == expected

    asyncio.run(story())


def test_messages_that_are_known_are_asked_for_whole() -> None:
    """Also behind an answer that was awaited, but not while it is, nor with something held."""

    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        for number in range(3):
            connection.data_received(request("/later", b"%04d" % number))
            assert len(site.later) == 1
            site.later.popleft().give(is_known=True)
        assert site.known == [b"0001", b"0002"]
        connection.data_received(request("/later", b"0003"))
        connection.data_received(request("/quick", b"0004"))
        assert (site.known[2:], len(site.later)) == ([b"0003"], 1)
        site.later.popleft().give(is_known=True)
        assert site.known[3:] == [], "what was held takes the other steps"
        connection.data_received(request("/later", b"0005"))
        site.later.popleft().give(is_known=False)
        await turns()
        connection.data_received(request("/later", b"0006"))
        assert site.known[3:] == [b"0005"], "behind the slow path, as at first"
        site.later.popleft().give(is_known=True)
        assert bodies(wire.sent) == [b"%04d" % number for number in range(7)]

    asyncio.run(story())


def test_what_comes_behind_a_slow_request_takes_the_fast_path() -> None:
    """Also requests with a head that is met for the first time."""

    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        known = [request("/quick", b"%04d" % number) for number in range(4)]
        new = [request("/quick", b"%03d" % number) for number in range(4)]
        connection.data_received(request("/slow", b"slow") + b"".join([*known, *new]))
        await turns(40)
        numbers = [*(b"%04d" % n for n in range(4)), *(b"%03d" % n for n in range(4))]
        assert bodies(wire.sent) == [b"slow", *numbers]
        assert site.slow == 2, "the slow one, and the first with a new head"

    asyncio.run(story())


def test_nothing_is_looked_at_while_it_is_awaited() -> None:
    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        connection.data_received(request("/later", b"0000"))
        for number in range(1, 4):
            connection.data_received(request("/quick", b"%04d" % number))
        await turns()
        assert (wire.sent, len(site.later)) == (b"", 1)
        site.later.popleft().give(is_known=True)
        assert bodies(wire.sent) == [b"0000", b"0001", b"0002", b"0003"]

        connection.data_received(request("/later", b"0004"))
        while not connection.flow.read_paused:
            connection.data_received(request("/quick", b"0005") * 100)
        assert len(connection._held) > HELD_BYTES_MAX

    asyncio.run(story())


def test_a_client_that_leaves_is_told_to_the_answer() -> None:
    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        connection._accepted.leave = lambda: None  # type: ignore[method-assign]
        connection.data_received(request("/later", b"0000"))
        wire.is_closed = True
        connection.connection_lost(None)
        (answer,) = site.later
        assert answer.has_left
        assert wire.sent == b""

    asyncio.run(story())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_that_stops_gives_the_answer_first(is_known: bool) -> None:
    async def story() -> None:
        site = Site()
        connection, wire = taught(site)
        connection.data_received(request("/later", b"0000"))
        connection.shutdown()
        assert not wire.is_closed
        site.later.popleft().give(is_known=is_known)
        await turns()
        assert bodies(wire.sent) == [b"0000"]
        assert wire.is_closed
        assert site.slow == (not is_known)

    asyncio.run(story())
