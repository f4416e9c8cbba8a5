"""The asynchronous HTTP/1.1 client: kept connections, one request at a time on each.

A general client costs about five times as much per request, and a forwarded read is one request.
It also tells a caller what it must know: did the *path* fail (refused, reset, no answer in time),
which rules the peer out for a while, or did the peer answer. A kept connection that the peer closed
in the meantime is neither. The request is sent again over a new connection, if the caller allows
it: a read may be repeated, a command may not.

Redirects are never followed: the caller knows the address from the metadata log.

Not here: which peer, what its answer means, circuit breakers (`node.worker.pull.forward`); calls of
internal routes with their error names (`internal.HttpClient`); blocking calls (`sync_client.py`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import httptools

#: Idle connections kept per peer. The newest is used first, and each is dropped before the server
#: drops its side (75 s).
IDLE_CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 60.0


#: Name of the header that carries the cluster's secret, of every internal client and listener.
SECRET_HEADER = "standpipe-secret"  # noqa: S105 the name, not the secret


class PathFailed(Exception):
    """No answer came over this path: refused, reset or out of time. `str` says which."""


class ConnectFailed(PathFailed):
    """There is no connection: nothing was sent."""


class StillWorking(Exception):
    """The time-out passed while the peer kept saying that it works on the answer."""


@dataclass(frozen=True)
class Response:
    """A complete answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection; `ask` must not be called again before it has returned."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self.used_at = 0.0
        self.has_received = False
        #: called whenever bytes arrive
        self.on_data: Callable[[], None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    async def ask(self, request: bytes) -> Response:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.has_received = False
        self.transport.write(request)
        return await self._answer

    def abort(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    # -------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        if self.on_data is not None:
            self.on_data()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not an HTTP response: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(exc or ConnectionResetError("closed by the peer"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        self._headers = {}
        self._parts = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return  # interim: the peer is still working, not silent
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(Response(status, self._headers, b"".join(self._parts)))


@dataclass
class PeerClient:
    """Connections to all peers. `headers` are sent with every request, e.g. the secret."""

    headers: Mapping[str, str]
    _idle: defaultdict[str, list[_Connection]] = field(
        default_factory=lambda: defaultdict[str, list[_Connection]](list)
    )

    async def request(
        self,
        address: str,
        target: str,
        *,
        timeout_s: float,
        method: str | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
        is_repeatable: bool = True,
    ) -> Response:
        """Send a request to `http://address/target`. Raises PathFailed.

        `method`: POST if there is a `body`, else GET. `silence_s`: the peer sends interim
        responses; PathFailed is raised when it is silent for that long, StillWorking when it was
        not and the time-out passed. `is_repeatable`: the request may be sent a second time if a
        kept connection turns out to be closed.
        """
        verb = method or ("POST" if body else "GET")
        all_headers = {**self.headers, **(headers or {})}
        message = _message(f"{verb} {target}", address, body, all_headers)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        silence = silence_s or timeout_s
        patience = min(timeout_s, silence)
        silent_at = loop.time()
        try:
            async with asyncio.timeout(patience) as timeout:

                def heard() -> None:
                    nonlocal silent_at
                    if not timeout.expired():
                        silent_at = loop.time() + silence
                        timeout.reschedule(min(until, silent_at))

                on_data = None if silence_s is None else heard
                return await self._exchange(address, message, on_data, is_repeatable=is_repeatable)
        except TimeoutError as error:
            if silent_at > loop.time():
                raise StillWorking from error
            raise PathFailed(f"no answer within {patience * 1000:.0f} ms") from error
        except OSError as error:
            raise PathFailed(_reason(error)) from error

    def close(self) -> None:
        """Close the idle connections. No request may be in flight."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    async def _exchange(
        self,
        address: str,
        message: bytes,
        on_data: Callable[[], None] | None,
        *,
        is_repeatable: bool,
    ) -> Response:
        while True:
            connection, is_kept = await self._connection(address)
            connection.on_data = on_data
            try:
                response = await connection.ask(message)
            except OSError:
                connection.abort()
                if is_repeatable and is_kept and not connection.has_received:
                    continue  # the peer had closed it before it saw the request
                raise
            except asyncio.CancelledError:
                connection.abort()
                raise
            connection.on_data = None
            self._keep(address, connection)
            return response

    async def _connection(self, address: str) -> tuple[_Connection, bool]:
        loop = asyncio.get_running_loop()
        idle = self._idle[address]
        while idle:
            kept = idle.pop()
            if kept.is_open and loop.time() - kept.used_at < IDLE_SECONDS_MAX:
                return kept, True
            kept.abort()
        host, _, port = address.rpartition(":")
        try:
            _, connection = await loop.create_connection(_Connection, host.strip("[]"), int(port))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectFailed(_reason(error)) from error
        return connection, False

    def _keep(self, address: str, connection: _Connection) -> None:
        idle = self._idle[address]
        if connection.is_open and len(idle) < IDLE_CONNECTIONS_MAX:
            connection.used_at = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.abort()


def _message(request: str, address: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """`request`: method and target."""
    lines = [f"{request} HTTP/1.1", f"host: {address}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or request.startswith("POST"):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _reason(error: OSError) -> str:
    return str(error.strerror or error) or type(error).__name__
