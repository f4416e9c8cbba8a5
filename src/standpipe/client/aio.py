"""The asynchronous driver: asyncio's transports, and a client for one event loop.

It has the surface of `client/blocking.py`: the same names and arguments, with `await` and
`async for`. Any number of tasks may share it.

Not here: what goes over one connection (`client/aio_links.py`), which node is asked, and what an
answer means (`client/core/`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from msgspec.structs import replace

from standpipe.client.aio_links import GONE, Link, StreamLink
from standpipe.client.core.attempts import TIMEOUT_S_MIN
from standpipe.client.core.client_base import ClientBase
from standpipe.client.core.exchange import (
    HandOver,
    HttpRequest,
    NoAnswer,
    OpenStream,
    Operation,
    Outcome,
    Pause,
    ReadStream,
    SendAll,
)
from standpipe.client.core.push import push_reader
from standpipe.client.core.rows import Row, RowSet
from standpipe.client.core.settings import Settings
from standpipe.client.core.short_way import UNUSUAL
from standpipe.client.sockets import endpoint, reason_of, unread

IDLE_MAX: Final = 64
IDLE_S_MAX: Final = 60.0
Result = TypeVar("Result")
OneLink = TypeVar("OneLink", Link, StreamLink)


class AsyncDriver:
    """Carries out operations on the running event loop."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[str, list[Link]] = {}
        #: address -> the connection whose write of this turn the next lookups share
        self._shared: dict[str, Link] = {}
        self._links: WeakSet[Link] = WeakSet()
        self._streams: WeakSet[StreamLink] = WeakSet()
        self._is_closed = False

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
        """The rows that an operation hands over, until it or the client ends."""
        stream: StreamLink | None = None
        fact: Any = None
        was_closed = self._is_closed
        try:
            while was_closed or not self._is_closed:
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
                    fact = await _read_on(stream, order.within_s)
        finally:
            if stream is not None:
                stream.abort()

    async def lookup(self, request: HttpRequest) -> Outcome:
        """The outcome of a request that a member answers at once: those of one turn of the loop to
        one member are sent together. A caller that is cancelled leaves the connection as it is."""
        address, head, now_s = request.address, request.head(), time.monotonic()
        until_s = now_s + request.timeout_s
        link = self._shared.get(address)
        if link is None or not link.takes(head):
            link = self._kept(address, now_s)
            if link is None:
                return await self._exchange(request, is_fresh=True)
            self._shared[address] = link
        outcome = await link.share(request, head, until_s)
        if outcome is not GONE:
            return outcome
        return await self._exchange(_until(request, until_s), is_fresh=True)

    async def _exchange(self, request: HttpRequest, *, is_fresh: bool = False) -> Outcome:
        # a request that may not be repeated must not meet a connection's end
        is_fresh = is_fresh or not request.is_repeatable
        until_s = time.monotonic() + request.timeout_s
        link = None if is_fresh else self._kept(request.address, time.monotonic())
        is_new = link is None
        try:
            if link is None:
                async with asyncio.timeout(request.connect_s):
                    link = await self._connect(request.address)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            return NoAnswer(_reason(error, request), was_sent=False)
        try:
            outcome = await link.ask(_until(request, until_s) if is_new else request)
        except asyncio.CancelledError:
            link.abort()  # the node stops its work on it
            raise
        if outcome is not GONE:
            return outcome
        if is_new:  # a node that answers what nobody asked
            return NoAnswer("the connection ended", was_sent=True)
        return await self._exchange(_until(request, until_s), is_fresh=True)

    async def _open(self, request: HttpRequest) -> tuple[StreamLink | None, Outcome]:
        link: StreamLink | None = None
        try:
            async with asyncio.timeout(request.timeout_s):
                link = await self._connected(request.address, StreamLink)
                self._streams.add(link)
                link.send(request)
                return link, await link.head()
        except (OSError, ValueError) as error:
            if link is not None:
                link.abort()
            return None, NoAnswer(_reason(error, request), was_sent=True)
        except BaseException:  # cancelled: the node ends the query with its connection
            if link is not None:
                link.abort()
            raise

    async def _connect(self, address: str) -> Link:
        link = await self._connected(address, partial(Link, address, self._keep))
        self._links.add(link)
        return link

    async def _connected(self, address: str, make: Callable[[], OneLink]) -> OneLink:
        host, port, is_tls = endpoint(address)
        tls = self._tls or (ssl.create_default_context() if is_tls else None)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(
            make, host, port, ssl=tls, server_hostname=host if tls else None
        )
        return link

    def _kept(self, address: str, now_s: float) -> Link | None:
        idle = self._idle.get(address)
        while idle:
            link = idle.pop()
            if link.is_open and now_s - link.used_s < IDLE_S_MAX:
                return link
            link.abort()
        return None

    def _keep(self, link: Link) -> None:
        idle = self._idle.setdefault(link.address, [])
        if self._is_closed or len(idle) >= IDLE_MAX:
            link.abort()
            return
        link.used_s = time.monotonic()
        idle.append(link)

    def close(self) -> None:
        """Close the connections on which nobody waits, and those of streams; the others, when they
        are free."""
        self._is_closed = True
        for stream in list(self._streams):
            stream.abort()
        self._idle.clear()
        for link in list(self._links):
            if link.is_abandoned:
                link.abort()


def _until(request: HttpRequest, until_s: float) -> HttpRequest:
    """The request with the time that is left of it."""
    return replace(request, timeout_s=max(until_s - time.monotonic(), TIMEOUT_S_MIN))


async def _read_on(link: StreamLink, within_s: float | None) -> bytes | NoAnswer:
    try:
        async with asyncio.timeout(within_s):
            return await link.read_on()
    except (OSError, ValueError) as error:
        return unread(error)


def _reason(error: Exception, request: HttpRequest) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {request.connect_s * 1000:.0f} ms"
    return reason_of(error)


class AsyncClient(ClientBase):
    """An asynchronous client of a cluster, for one event loop: `async with` it, or `aclose` it.

    What the calls return and raise is said at the same names in `client/blocking.py`.
    """

    def __init__(
        self, nodes: tuple[str, ...], settings: Settings, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(nodes, settings, time.monotonic)
        self._driver = AsyncDriver(tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, and end the streams. No other call may be in flight."""
        self._driver.close()
        await asyncio.sleep(0)  # transports tell their end on the next turn

    async def get(
        self, table: str, /, *, timeout_s: float | None = None, **key: object
    ) -> Row | None:
        """The row of a key; None: there is none."""
        first = self._short.begin(table, key, timeout_s)
        if first is None:
            return await self._driver.run(self._operations.get(table, key, timeout_s))
        outcome = await self._driver.lookup(first.request)
        row = self._short.row_of(first, outcome)
        if row is not UNUSUAL:
            return row
        begun = (first, outcome)
        return await self._driver.run(self._operations.get(table, key, timeout_s, begun))

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
        in_session: bool = False,
    ) -> AsyncGenerator[Row]:
        """The rows of a push query, each once, also across failures of nodes."""
        reader = push_reader(
            self._operations,
            sql,
            params,
            patience_s,
            from_beginning=from_beginning,
            in_session=in_session,
        )
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
