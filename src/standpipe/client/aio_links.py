"""Connections of the asynchronous driver: requests and answers in turn, or one endless answer.

Most of what a lookup costs is the system's work for a write and a read. So lookups that begin in
the same turn of the event loop and go to the same node share one write on one connection, and their
answers share a read (HTTP/1.1 pipelining: the node answers in order). A lookup that begins later
takes another connection, so that it waits for no answer but those of its own turn. Only lookups
that go to a member's own address do so: a proxy may know no pipelining.

| what happens | to those that wait for an answer |
|---|---|
| the answer is whole | the first has it |
| one is out of time | it has none; the connection is closed, the others are GONE |
| the connection ends | GONE; but the first has none if the connection is new, or a part had come |
| one is cancelled | its answer is dropped when it comes |

GONE: the node has not begun to answer, and the driver sends the request again over a new
connection. A request that may not be sent twice gets a new connection at once, to itself.

A node takes the fast path for a head that it has met in a read of its own
(`adapters/http/server.py`), so a connection shares writes only among heads that it has sent alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final, cast

from standpipe.client.core.exchange import AnswerParser, HttpAnswer, HttpRequest, NoAnswer, Outcome
from standpipe.client.sockets import keep_alive, reason_of, watch_forks

#: lookups of one write: a late answer holds up no more than these
SHARED_MAX: Final = 8
#: as many as a node remembers
HEADS_MAX: Final = 1024
#: a timer of a loop may be so early
EARLY_S: Final = 0.002
#: unread bytes of a stream at which the node is made to wait
UNREAD_MAX: Final = 1 << 20


class Gone(Enum):
    """The connection ended before a byte of the answer came."""

    GONE = auto()


GONE: Final = Gone.GONE
_Waiting = tuple["asyncio.Future[Outcome | Gone]", float, float]


class Link(asyncio.Protocol):
    """One connection. `free`: called whenever it has nothing more to wait for."""

    def __init__(self, address: str, free: Callable[[Link], None]) -> None:
        self.address = address
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        #: monotonic seconds
        self.used_s = 0.0
        self._free = free
        self._parser = AnswerParser()
        self._loop = asyncio.get_running_loop()
        #: of each request without an answer: whom to tell, until when, and its time in seconds
        self._waiting: deque[_Waiting] = deque()
        self._has_answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        #: what is written at the end of this turn
        self._unsent: list[bytes] = []
        self._may_share = False
        self._heads: set[bytes] = set()

    def ask(self, request: HttpRequest) -> asyncio.Future[Outcome | Gone]:
        """Send a request now, alone."""
        assert self.transport is not None
        self.transport.write(request.head_and_body())
        return self._answer_of(request, time.monotonic() + request.timeout_s)

    def takes(self, head: bytes) -> bool:
        """Whether a request with this head may share the write of this turn."""
        may_share = self._may_share and self.is_open and len(self._waiting) < SHARED_MAX
        return may_share and bool(self._unsent) and head in self._heads

    def share(
        self, request: HttpRequest, head: bytes, until_s: float
    ) -> asyncio.Future[Outcome | Gone]:
        """Send a request with the write of this turn. `until_s`: monotonic."""
        if not self._unsent:
            self._may_share = head in self._heads
            if not self._may_share:
                if len(self._heads) >= HEADS_MAX:
                    self._heads.clear()
                self._heads.add(head)
            self._loop.call_soon(self._flush)
        self._unsent += (head, request.body)
        return self._answer_of(request, until_s)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for an answer: those who did were cancelled."""
        return all(future.done() for future, _, _ in self._waiting)

    def abort(self) -> None:
        """Close it. Nobody is told."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()

    def leave_to_parent(self) -> None:
        """See `client/sockets.py`."""
        _let_go(self.transport)
        self.transport, self.is_open = None, False

    def _answer_of(self, request: HttpRequest, until_s: float) -> asyncio.Future[Outcome | Gone]:
        future: asyncio.Future[Outcome | Gone] = self._loop.create_future()
        self._waiting.append((future, until_s, request.timeout_s))
        # one timer per connection: one per request costs a tenth of a lookup
        if self._timer is None or until_s < self._timer_s - EARLY_S:
            self._arm(until_s)
        return future

    def _flush(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        if self.is_open and self.transport is not None:
            self.transport.write(data)

    def _arm(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = until_s
        self._timer = self._loop.call_later(max(until_s - time.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        """The timer fired: is one out of time?"""
        self._timer = None
        if not self._waiting:
            return
        now_s = time.monotonic() + EARLY_S
        first_s = min(until_s for _, until_s, _ in self._waiting)
        if first_s > now_s:
            self._arm(first_s)
            return
        for future, until_s, timeout_s in self._waiting:
            late = NoAnswer(f"no answer within {timeout_s * 1000:.0f} ms", was_sent=True)
            _tell(future, late if until_s <= now_s else GONE)
        self._waiting.clear()
        self.abort()

    # ------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.is_open = True
        keep_alive(transport.get_extra_info("socket"))
        watch_forks(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of answers."""
        try:
            answers = self._parser.feed(data)
        except ValueError as error:
            self._end(NoAnswer(reason_of(error), was_sent=True))
            return
        waiting = self._waiting
        if len(answers) > len(waiting) or not waiting:
            self._end(GONE)  # nobody asked for this
            return
        for answer in answers:
            self._has_answered = True
            future, _, _ = waiting.popleft()
            if not future.done():  # else its caller was cancelled
                future.set_result(answer)
        is_over = not waiting and self._parser.is_partial  # more than was asked for
        if is_over or (answers and not self._parser.is_kept):
            self._end(GONE)
        elif not waiting:
            self._free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self.is_open = False
        error = exc or ConnectionResetError("closed by the node")
        is_new = not self._has_answered or self._parser.is_partial
        if is_new or not isinstance(error, ConnectionError):
            self._end(NoAnswer(reason_of(error), was_sent=True))
        else:
            self._end(GONE)

    def _end(self, outcome: Outcome | Gone) -> None:
        """Close it, with this outcome of the first that waits."""
        for future, _, _ in self._waiting:
            _tell(future, outcome)
            outcome = GONE
        self._waiting.clear()
        self.abort()


def _tell(future: asyncio.Future[Outcome | Gone], outcome: Outcome | Gone) -> None:
    if not future.done():
        future.set_result(outcome)


def _let_go(transport: asyncio.Transport | None) -> None:
    """Let go of the file of a transport of another process.

    The transport keeps the number, and what it does, it does with its loop: the system's list of
    files to listen to is the parent's, too. So the number gets another file.
    """
    connection = None if transport is None else transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return
    with suppress(OSError):  # too many files are open: one more stays
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, connection.fileno(), inheritable=False)
        os.close(nothing)


class StreamLink(asyncio.Protocol):
    """One connection for one request, whose answer may be endless."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._parser = AnswerParser()
        self._loop = asyncio.get_running_loop()
        #: done when something came that `_wait` waits for
        self._news: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._unread = 0

    def send(self, request: HttpRequest) -> None:
        """Send the request."""
        assert self.transport is not None
        self.transport.write(request.head_and_body())

    async def head(self) -> HttpAnswer:
        """Status and headers; of an error, the whole answer. Raises OSError and ValueError."""
        while not self._parser.has_head:
            await self._wait()
        head = self._parser.head()
        if head.status == 200:
            return head
        while self._parser.answer is None:
            await self._wait()
        return self._parser.answer

    async def read_on(self) -> bytes:
        """The next bytes; b"": it is over. Raises OSError and ValueError."""
        while not (data := self._parser.take_body()):
            if self._parser.answer is not None:
                return b""
            await self._wait()
        self._unread = 0
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close it."""
        if self.transport is not None:
            self.transport.abort()

    def leave_to_parent(self) -> None:
        """See `client/sockets.py`."""
        _let_go(self.transport)
        self.transport, self._error = None, ConnectionResetError("of the parent process")

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        await self._news

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        keep_alive(transport.get_extra_info("socket"))
        watch_forks(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        try:
            self._parser.feed(data)
        except ValueError as error:
            self._fail(error)
            self.abort()
            return
        self._unread += len(data)
        if self._unread > UNREAD_MAX and self.transport is not None:
            self.transport.pause_reading()
        if self._news is not None and not self._news.done() and self._parser.has_head:
            self._news.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._fail(exc or ConnectionResetError("closed by the node"))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._news is not None and not self._news.done():
            self._news.set_exception(error)
