"""Endless answers: the loop in which all push queries and PRINTs of a worker run.

    place (board: is there room?) ─► open, in a thread ─► head ─► steps … ─► last word ─► close

What an answer needs before it opens, such as a transient query, begins once it has a place, and is
given up as soon as the answer ends (`Place.unless_ended`).

An answer ends when the query is over (LIMIT), when its client goes away, when a client closes it at
any worker of the node, or when the node leaves; whatever ends it, its consumer is closed at once. A
step never waits and handles a few records, and between two steps of any answers the loop turns: a
hundred streams hold up a lookup of the same worker no longer than one does. If a
client does not read, the steps stop, and so does the fetching: what is in between is bounded by the
kernel's socket buffer, uvicorn's 64 KiB and the Kafka client's 1 MiB (`adapters/kafka/tail.py`).

Not here: what a step does (`Live`), how a silent client is noticed
(`node.addresses.watched`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from standpipe.adapters.http.server import Headers, Receive, Send
from standpipe.adapters.metrics import Metrics
from standpipe.data.query.record_rows import TopicRecord
from standpipe.errors import NodeLeaving, StandpipeError
from standpipe.node.push_registry import PushRegistry
from standpipe.node.worker.request.row_thread import RowThread

#: records that one step handles: about 1 ms of a worker, and 2 KiB of answer
STEP_RECORDS: Final = 25
#: or fewer, with this many bytes in total: each may have a megabyte
STEP_BYTES: Final = 64 * 1024
#: pause between two steps that found nothing: the first, and the longest
IDLE_S: Final = (0.005, 0.05)
#: threads that open and close consumers
OPENERS: Final = 4
#: how long a client that is behind may take to make room for the end of its answer
FINAL_CHUNK_S: Final = 1.0

_T = TypeVar("_T")
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def is_large(record: TopicRecord) -> bool:
    """Whether a record fills a step by itself. Decoding 300 KB of AVRO takes 0.2 s."""
    return record.size > STEP_BYTES


class Ending(Enum):
    """Why an answer ended, as the metric labels it."""

    OVER = "limit"
    GONE = "client gone"
    CLOSED = "closed"
    LEAVING = "node leaves"
    FAILED = "failed"


class _Unsent(Exception):
    """The client did not make room for a chunk: nothing may follow one that may be half sent."""


class _EndedEarly(Exception):
    """The answer ended before its first byte."""


class Live(Protocol):
    """One answer. `open` and `close` may take a moment and run in a thread; `step` never waits. A
    step of a costly one runs in a thread, too: one row may take long."""

    @property
    def headers(self) -> Headers:
        """Of the answer."""
        ...

    @property
    def is_costly(self) -> bool:
        """Whether its steps belong into a thread. Once they do, they always will: one that still
        runs there must not meet another one on the loop."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it ends by itself, e.g. by a LIMIT."""
        ...

    def open(self) -> None:
        """Raises StandpipeError, which is then the whole answer."""
        ...

    def head(self) -> bytes:
        """The first bytes, before any row."""
        ...

    def step(self) -> bytes | None:
        """What comes next; empty: something was handled and is not shown; None: nothing came."""
        ...

    def last(self, ending: Ending) -> bytes:
        """How the answer says that it ends."""
        ...

    def failed(self, error: StandpipeError) -> bytes:
        """How the answer says that it failed."""
        ...

    def close(self) -> None:
        """Release what `open` acquired."""
        ...


@dataclass
class Place:
    """One answer's place on the board, and why it ended, once it has."""

    query_id: str
    ended: asyncio.Future[Ending]
    ending: Ending = Ending.FAILED
    #: what `LiveAnswers.pump` opens, and the thread that does
    live: Live | None = None
    opening: asyncio.Future[bool] | None = None

    async def unless_ended(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The outcome of work that comes before the first byte. It is cancelled if the answer ends
        meanwhile, which also leaves the context of the place."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, self.ended), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _EndedEarly
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
                _ = task.cancelled() or task.exception()  # nobody else asks for it


@dataclass
class LiveAnswers:
    """The endless answers of one worker."""

    board: PushRegistry
    metrics: Metrics
    #: turns any exception into the error to show
    as_standpipe_error: Callable[[Exception], StandpipeError]
    _running: dict[str, asyncio.Future[Ending]] = field(
        default_factory=dict[str, "asyncio.Future[Ending]"]
    )
    _is_leaving: bool = False
    #: the holder makes the next step; first come, first served
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _openers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(OPENERS, thread_name_prefix="push")
    )

    #: where the steps of costly answers are made
    beside: RowThread = field(default_factory=RowThread)

    def reload_if_changed(self) -> None:
        """End queries that clients have closed; called every few tens of milliseconds."""
        if self._running:
            for query_id in self.board.ended(self._running):
                _set(self._running[query_id], Ending.CLOSED)

    def leave(self) -> None:
        """End all, and begin no more: clients are to go to another node."""
        self._is_leaving = True
        for ended in self._running.values():
            _set(ended, Ending.LEAVING)

    async def answer(self, query_id: str, live: Live, receive: Receive, send: Send) -> None:
        """The whole exchange. Raises StandpipeError only before anything was sent."""
        async with self.place(query_id, receive) as place:
            await self.pump(place, live, send)

    @asynccontextmanager
    async def place(self, query_id: str, receive: Receive) -> AsyncGenerator[Place]:
        """A place for an answer, whose client is watched from now on. Raises TooManyPushQueries and
        NodeLeaving. If the client goes away before the first byte, it ends without an error."""
        if self._is_leaving:
            raise NodeLeaving("this node is about to stop: ask another one")
        self.board.begin(query_id)
        place = Place(query_id, asyncio.get_running_loop().create_future())
        self._running[query_id] = place.ended
        watch = asyncio.create_task(_watch(receive, place.ended))
        try:
            yield place
        except _EndedEarly:
            place.ending = place.ended.result()
            if place.ending is not Ending.GONE:
                raise NodeLeaving("the query was ended before it began") from None
        finally:
            watch.cancel()
            del self._running[query_id]
            self.metrics.count("standpipe_push_queries", place.ending.value)
            self._leave(place)

    def _leave(self, place: Place) -> None:
        """What is still opening continues in its thread and keeps its place on the board until
        then: otherwise clients that come and go would open more than there are places."""
        if place.opening is None:
            self.board.end(place.query_id)
        else:
            place.opening.add_done_callback(lambda done: self._vacate(place, done))

    def _vacate(self, place: Place, opening: asyncio.Future[bool]) -> None:
        self.board.end(place.query_id)
        if not opening.cancelled() and opening.exception() is None and opening.result():
            assert place.live is not None
            # after a step that may still run: a consumer is used by one thread at a time
            submit = self.beside.submit if place.live.is_costly else self._openers.submit
            submit(partial(_close, place.live))

    async def pump(self, place: Place, live: Live, send: Send) -> None:
        """The answer, from its opening to its last byte."""
        loop, ended = asyncio.get_running_loop(), place.ended
        opening = loop.run_in_executor(self._openers, _opened, live, ended)
        place.live, place.opening = live, opening
        await asyncio.wait((opening, ended), return_when=asyncio.FIRST_COMPLETED)
        if not (opening.done() and opening.result()):
            raise _EndedEarly
        place.ending = await self._pumped(live, ended, send)

    async def _pumped(self, live: Live, ended: asyncio.Future[Ending], send: Send) -> Ending:
        await send({"type": "http.response.start", "status": 200, "headers": live.headers})
        ending, last = Ending.FAILED, b""
        try:
            ending = await self._steps(live, ended, send)
            if ending is not Ending.GONE:
                last = live.last(ending)
        except _Unsent:
            return ended.result()  # without a token: it would point past what was not sent
        except Exception as error:
            last = live.failed(self.as_standpipe_error(error))
        if ending is not Ending.GONE:
            message = {"type": "http.response.body", "body": last, "more_body": False}
            with suppress(TimeoutError):  # a client that does not read: the server cuts it off
                await asyncio.wait_for(send(message), FINAL_CHUNK_S)
        return ending

    async def _steps(self, live: Live, ended: asyncio.Future[Ending], send: Send) -> Ending:
        idle_s = IDLE_S[0]
        chunk: bytes | None = live.head()
        while True:
            if chunk:
                await _sent(send, chunk, ended)
            elif chunk is None:
                await asyncio.wait((ended,), timeout=idle_s)
                idle_s = min(1.5 * idle_s, IDLE_S[1])
            else:
                await asyncio.sleep(0)
            if ended.done():
                return ended.result()
            if live.is_over:
                return Ending.OVER
            chunk = await self._step(live)
            if chunk is not None:
                idle_s = IDLE_S[0]

    async def _step(self, live: Live) -> bytes | None:
        """One step; the next one, of whatever answer, comes after a turn of the loop. Costly ones
        have a thread, where they take turns."""
        if live.is_costly:
            return await self.beside.run(live.step)
        async with self._turn:
            chunk = live.step()
            await asyncio.sleep(0)
        return chunk

    def close(self) -> None:
        """Does not wait for what is still opening: the process ends."""
        self._openers.shutdown(wait=False, cancel_futures=False)


async def _sent(send: Send, body: bytes, ended: asyncio.Future[Ending]) -> None:
    """Wait until the connection has taken all of `body`. Raises _Unsent if the answer ended first.

    The token of `Live.last` covers what is being sent: that has to be out, or the server cuts the
    answer off.
    """
    message = {"type": "http.response.body", "body": body, "more_body": True}
    sending = asyncio.ensure_future(send(message))
    try:
        await asyncio.wait((sending, ended), return_when=asyncio.FIRST_COMPLETED)
        if not sending.done() and ended.result() is not Ending.GONE:
            await asyncio.wait((sending,), timeout=FINAL_CHUNK_S)
        if not sending.done():
            raise _Unsent
        sending.result()
    finally:
        sending.cancel()


async def _watch(receive: Receive, ended: asyncio.Future[Ending]) -> None:
    """Wait until the client is gone: a push query has no more to receive."""
    while (await receive())["type"] != "http.disconnect":
        pass
    _set(ended, Ending.GONE)


def _set(ended: asyncio.Future[Ending], why: Ending) -> None:
    if not ended.done():
        ended.set_result(why)


def _opened(live: Live, ended: asyncio.Future[Ending]) -> bool:
    """In a thread. False: its turn came after the end, so there is nothing to open or to close."""
    if ended.done():
        return False
    live.open()
    return True


def _close(live: Live) -> None:
    try:
        live.close()
    except Exception:
        _log.exception("a consumer could not be closed")
