"""HTTP/1.1 requests to the peer lane of other nodes and to the own control: kept connections,
one request at a time each.

About a fifth of what a general client costs per request, and it says what a forward must know: did
the *path* fail (refused, reset, no answer in time), which condemns the peer for a while, or did the
peer answer something. A kept connection that the peer had closed in the meantime is neither: the
request goes again over a fresh one, which is harmless because forwards only read.

Not here: which peer, what its answer means, breakers (`node.worker.pull.forward`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httptools

#: Idle connections kept per peer; shorter than the server's own patience (75 s) by being used LIFO.
IDLE_CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 60.0


#: Name of the header that carries the cluster's secret, of every internal client and listener.
SECRET_HEADER = "standpipe-secret"  # noqa: S105 the name, not the secret


class PathFailed(Exception):
    """No answer came over this path: refused, reset or out of time. `str` says which."""


class StillWorking(Exception):
    """The time was over, and the peer had said until then that it works at the answer."""


@dataclass(frozen=True)
class Response:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection; `ask` must not be called again before it has returned."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self.used_at = 0.0
        self.has_heard = False
        #: is called with every byte that comes
        self.on_heard: Callable[[], None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    async def ask(self, request: bytes) -> Response:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.has_heard = False
        self.transport.write(request)
        return await self._answer

    def abort(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    # -------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self.has_heard = True
        if self.on_heard is not None:
            self.on_heard()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP: {error}"))
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
            return  # interim: the peer works at it, and was heard
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(Response(status, self._headers, b"".join(self._parts)))


@dataclass
class PeerClient:
    """Connections to all peers. `headers` go with every request (the secret is among them)."""

    headers: dict[str, str]
    _idle: defaultdict[str, list[_Connection]] = field(
        default_factory=lambda: defaultdict[str, list[_Connection]](list)
    )

    async def request(
        self,
        address: str,
        target: str,
        *,
        timeout_seconds: float,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        silence_seconds: float | None = None,
    ) -> Response:
        """POST `body` (or GET without one) to `http://address/target`. Raises PathFailed.

        `silence_seconds`: the peer will send interim responses, so it fails when it is not heard
        for so long, and is StillWorking (raised) when it was and the time-out is over.
        """
        message = self._message(address, target, body, headers or {})
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        silence = silence_seconds or timeout_seconds
        patience = min(timeout_seconds, silence)
        silent_at = loop.time()
        try:
            async with asyncio.timeout(patience) as timeout:

                def heard() -> None:
                    nonlocal silent_at
                    if not timeout.expired():
                        silent_at = loop.time() + silence
                        timeout.reschedule(min(until, silent_at))

                on_heard = None if silence_seconds is None else heard
                return await self._exchange(address, message, on_heard)
        except TimeoutError as error:
            if silent_at > loop.time():
                raise StillWorking from error
            raise PathFailed(f"no answer within {patience * 1000:.0f} ms") from error
        except OSError as error:
            raise PathFailed(str(error.strerror or error) or type(error).__name__) from error

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    async def _exchange(
        self, address: str, message: bytes, on_heard: Callable[[], None] | None
    ) -> Response:
        while True:
            connection, is_kept = await self._connection(address)
            connection.on_heard = on_heard
            try:
                response = await connection.ask(message)
            except OSError:
                connection.abort()
                if is_kept and not connection.has_heard:
                    continue  # the peer had closed it before it saw the request
                raise
            except asyncio.CancelledError:
                connection.abort()
                raise
            connection.on_heard = None
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
        _, connection = await loop.create_connection(_Connection, host.strip("[]"), int(port))
        return connection, False

    def _keep(self, address: str, connection: _Connection) -> None:
        idle = self._idle[address]
        if connection.is_open and len(idle) < IDLE_CONNECTIONS_MAX:
            connection.used_at = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.abort()

    def _message(self, address: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
        method = "POST" if body else "GET"
        lines = [f"{method} {target} HTTP/1.1", f"host: {address}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        if body:
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
