"""The asynchronous driver: asyncio's transports, and a client for one event loop.

It has the surface of `client/blocking.py`: the same names and arguments, with `await` and
`async for`. Any number of tasks may share it.

Not here: which node is asked, and what an answer means (`client/core/`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar, cast

from standpipe.client.core.exchange import (
    AnswerParser,
    HandOver,
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    OpenStream,
    Operation,
    Outcome,
    Pause,
    ReadStream,
    SendAll,
)
from standpipe.client.core.literals import bound
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations, Settings
from standpipe.client.core.push import PushReader
from standpipe.client.core.rows import Row, RowSet
from standpipe.client.sockets import endpoint, keep_alive, reason_of

IDLE_MAX: Final = 64
IDLE_S_MAX: Final = 60.0
#: unread bytes of a stream at which the node is made to wait
UNREAD_MAX: Final = 1 << 20
Result = TypeVar("Result")


class _Link(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self.parser = AnswerParser()
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self.has_received = False
        self.used_s = 0.0
        self._loop = asyncio.get_running_loop()
        #: done when something came that `wait` waits for
        self._news: asyncio.Future[None] | None = None
        self._is_streaming = False
        self._error: Exception | None = None
        self._unread = 0

    def send(self, request: HttpRequest, *, is_stream: bool = False) -> None:
        assert self.transport is not None
        self.parser.begin()
        self.has_received, self._is_streaming = False, is_stream
        self.transport.write(request.head_and_body())

    async def answer(self) -> HttpAnswer:
        """The whole answer. Raises OSError and ValueError."""
        while self.parser.answer is None:
            await self._wait()
        return self.parser.answer

    async def head(self) -> HttpAnswer:
        """Status and headers; of an error, the whole answer."""
        while not self.parser.has_head:
            await self._wait()
        head = self.parser.head()
        return head if head.status == 200 else await self.answer()

    async def read_on(self) -> bytes:
        """The next bytes of a stream; b"": it is over. Raises OSError and ValueError."""
        while not (data := self.parser.take_body()):
            if self.parser.answer is not None:
                return b""
            await self._wait()
        self._unread = 0
        if self.transport is not None and self.is_open:
            self.transport.resume_reading()
        return data

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        await self._news

    def expire(self) -> None:
        """The answer did not come in time: its waiter gets a TimeoutError."""
        self._fail(TimeoutError())

    def abort(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    # ------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.is_open = True
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        try:
            self.parser.feed(data)
        except ValueError as error:
            self._fail(error)
            self.abort()
            return
        if self._is_streaming:
            self._unread += len(data)
            if self._unread > UNREAD_MAX and self.transport is not None:
                self.transport.pause_reading()
        if self.parser.answer is not None or (self._is_streaming and self.parser.has_head):
            self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(exc or ConnectionResetError("closed by the node"))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._news is not None and not self._news.done():
            self._news.set_exception(error)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class AsyncDriver:
    """Carries out operations on the running event loop."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[str, list[_Link]] = {}

    async def run(self, operation: Operation[Result]) -> Result:
        """An operation to its end; its result."""
        fact: Any = None
        while True:
            try:
                order = operation.send(fact)
            except StopIteration as done:
                return done.value
            if isinstance(order, SendAll):
                if len(order.requests) == 1:
                    fact = [await self._exchange(order.requests[0])]
                else:
                    fact = await asyncio.gather(*map(self._exchange, order.requests))
            else:
                assert isinstance(order, Pause)
                await asyncio.sleep(order.seconds)
                fact = None

    async def rows(self, operation: Operation[None]) -> AsyncGenerator[Row]:
        """The rows that an operation hands over."""
        stream: _Link | None = None
        fact: Any = None
        try:
            while True:
                try:
                    order = operation.send(fact)
                except StopIteration:
                    return
                fact = None
                if isinstance(order, HandOver):
                    yield order.row
                elif isinstance(order, Pause):
                    await asyncio.sleep(order.seconds)
                elif isinstance(order, OpenStream):
                    if stream is not None:
                        stream.abort()
                    stream, fact = await self._open(order.request)
                elif isinstance(order, ReadStream):
                    assert stream is not None
                    fact = await _read_on(stream)
        finally:
            if stream is not None:
                stream.abort()

    async def _exchange(self, request: HttpRequest, *, is_fresh: bool = False) -> Outcome:
        # a request that may not be repeated must not meet a connection's end
        kept = None if is_fresh or not request.is_repeatable else self._kept(request.address)
        link, is_sent = kept, False
        timer: asyncio.TimerHandle | None = None
        try:
            if link is None:
                async with asyncio.timeout(request.timeout_s):
                    link = await self._connect(request.address)
            is_sent = True
            link.send(request)
            # a timer of its own: asyncio.timeout costs a tenth of a lookup
            timer = asyncio.get_running_loop().call_later(request.timeout_s, link.expire)
            answer = await link.answer()
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            is_stale = kept is not None and not kept.has_received
            if link is not None:
                link.abort()
            if is_stale and isinstance(error, ConnectionError):
                return await self._exchange(request, is_fresh=True)
            return NoAnswer(_reason(error, request), is_sent)
        except asyncio.CancelledError:
            if link is not None:
                link.abort()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        self._keep(request.address, link)
        return answer

    async def _open(self, request: HttpRequest) -> tuple[_Link | None, Outcome]:
        link: _Link | None = None
        try:
            async with asyncio.timeout(request.timeout_s):
                link = await self._connect(request.address)
                link.send(request, is_stream=True)
                return link, await link.head()
        except (OSError, ValueError) as error:
            if link is not None:
                link.abort()
            return None, NoAnswer(_reason(error, request), was_sent=True)

    async def _connect(self, address: str) -> _Link:
        host, port, is_tls = endpoint(address)
        tls = self._tls or (ssl.create_default_context() if is_tls else None)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(
            _Link, host, port, ssl=tls, server_hostname=host if tls else None
        )
        return link

    def _kept(self, address: str) -> _Link | None:
        idle = self._idle.get(address)
        while idle:
            link = idle.pop()
            if link.is_open and time.monotonic() - link.used_s < IDLE_S_MAX:
                return link
            link.abort()
        return None

    def _keep(self, address: str, link: _Link) -> None:
        idle = self._idle.setdefault(address, [])
        if not (link.is_open and link.parser.is_kept) or len(idle) >= IDLE_MAX:
            link.abort()
            return
        link.used_s = time.monotonic()
        idle.append(link)

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().abort()


async def _read_on(link: _Link) -> bytes | NoAnswer:
    try:
        return await link.read_on()
    except (OSError, ValueError) as error:
        return NoAnswer(reason_of(error), was_sent=True)


def _reason(error: Exception, request: HttpRequest) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {request.timeout_s * 1000:.0f} ms"
    return reason_of(error)


class AsyncClient:
    """An asynchronous client of a cluster, for one event loop: `async with` it, or `aclose` it.

    What the calls return and raise is said at the same names in `client/blocking.py`.
    """

    def __init__(
        self, nodes: tuple[str, ...], settings: Settings, tls: ssl.SSLContext | None
    ) -> None:
        self._driver = AsyncDriver(tls)
        self._nodes = Nodes(nodes)
        self._operations = Operations(self._nodes, time.monotonic, settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. No call may be in flight."""
        self._driver.close()
        await asyncio.sleep(0)  # transports tell their end on the next turn

    @property
    def session_token(self) -> str | None:
        """Covers all that this client has read and inserted, for another client to go on from;
        None: it keeps no session."""
        session = self._operations.session
        return None if session is None else session.token

    def join_session(self, token: str) -> None:
        """Go on from this token, too: of another client, or of `token_of_writes`.

        Raises TokenRefused for a text that is no token, and ValueError if this client keeps no
        session.
        """
        self._operations.join(token)

    async def get(
        self, table: str, /, *, timeout_s: float | None = None, **key: object
    ) -> Row | None:
        """The row of a key; None: there is none."""
        return await self._driver.run(self._operations.get(table, key, timeout_s))

    async def get_many(
        self, table: str, keys: Iterable[object], *, timeout_s: float | None = None
    ) -> list[Row | None]:
        """The rows of many keys, in their order; None for a key without a row."""
        return await self._driver.run(self._operations.get_many(table, keys, timeout_s))

    async def query(
        self, sql: str, params: Sequence[object] = (), *, timeout_s: float | None = None
    ) -> RowSet:
        """The rows of a pull query; `params` are the values of its `?`."""
        return await self._driver.run(self._operations.query(sql, params, timeout_s))

    def stream(
        self,
        sql: str,
        params: Sequence[object] = (),
        *,
        from_beginning: bool = False,
        patience_s: float = 60.0,
    ) -> AsyncGenerator[Row]:
        """The rows of a push query, each once, also across failures of nodes."""
        reset = {"auto.offset.reset": "earliest"} if from_beginning else {}
        text = bound(sql, params)
        reader = PushReader(self._nodes, time.monotonic, text, reset, patience_s)
        return self._driver.rows(reader.run())

    async def insert(
        self,
        stream: str,
        rows: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Insert a row or several into a stream; how many."""
        return await self._driver.run(self._operations.insert(stream, rows, timeout_s))

    async def execute(
        self, sql: str, params: Sequence[object] = (), *, timeout_s: float | None = None
    ) -> list[dict[str, Any]]:
        """Run statements: one entity, in ksqlDB's shape, per statement that has an answer."""
        return await self._driver.run(self._operations.execute(sql, params, timeout_s))
