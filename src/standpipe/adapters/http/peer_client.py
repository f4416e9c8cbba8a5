"""The asynchronous HTTP/1.1 client: kept connections, one request at a time on each, or a channel.

A general client costs about five times as much per request, and a forwarded read is one request.
It also tells a caller what it must know: did the *path* fail (refused, reset, no answer in time),
which rules the peer out for a while, or did the peer answer. A kept connection that the peer closed
in the meantime is neither. The request is sent again over a new connection, if the caller allows
it: a read may be repeated, a command may not.

With an `identity` each connection is sealed (`adapters.sealed.handshake`): nothing is sent before
the other end has proved that it knows the cluster's secret, and that it is the node that was meant.

Redirects are never followed: the caller knows the address from the metadata log.

Not here: many requests at once on a kept connection (`peer_channel.py`); which peer, what its
answer means, circuit breakers (`node.worker.pull.forward`); calls of internal routes with their
error names (`internal.HttpClient`); blocking calls (`sync_client.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

import httptools

from standpipe.adapters.http.peer_channel import UNDER_WAY_MAX, PeerChannel
from standpipe.adapters.sealed.handshake import (
    NONCE_BYTES,
    UNNAMED,
    Dialler,
    HandshakeRefused,
    PeerIdentity,
    SealedSession,
)
from standpipe.model import NodeId

#: Idle connections kept per peer. The newest is used first, and each is dropped before the server
#: drops its side (75 s).
IDLE_CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 60.0
#: `struct linger`: on, 0 s
NO_LINGER: Final = struct.pack("ii", 1, 0)
#: Channels to one peer: its workers share a port, and a connection is one worker's.
CHANNELS_MAX: Final = 4
#: Requests under way on each channel, until one more is opened.
SHARED_MIN: Final = 32


class PathFailed(Exception):
    """No answer came over this path: refused, reset or out of time. `str` says which."""


class ConnectFailed(PathFailed):
    """There is no connection: nothing was sent."""


class Unproved(ConnectFailed):
    """The other end could not prove that it is the node that was meant: nothing was sent."""


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
        #: takes the pieces of a body with status 200; None: they are collected
        self.take: Callable[[bytes], None] | None = None
        #: it belongs to a channel, which reads the answers
        self.channel: PeerChannel | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    def send(self, request: bytes) -> asyncio.Future[Response]:
        """Send it. `forget` its answer, once that has come."""
        self._answer = asyncio.get_running_loop().create_future()
        self.has_received = False
        self.write(request)
        return self._answer

    def write(self, message: bytes) -> None:
        assert self.transport is not None
        self.transport.write(message)

    async def ask(self, request: bytes) -> Response:
        try:
            return await self.send(request)
        finally:
            self.forget()

    def forget(self) -> None:
        """A connection that is kept must not keep an answer of megabytes."""
        self._answer = self.on_data = self.take = None

    async def prove(self) -> None:
        """Wait until the other end has proved itself. Raises HandshakeRefused."""

    def abort(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    def withdraw(self) -> None:
        """Abort, and have the kernel discard what it has not sent: a request whose sender has given
        it up must not arrive when the network is well again."""
        if self.transport is not None and self.is_open:
            with suppress(OSError):  # the peer has reset it
                connected: socket.socket = self.transport.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.abort()

    # -------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self.channel is not None:
            self.channel.received(data)
            return
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
        if self.channel is not None:
            self.channel.lost()
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
        if self.take is None or self._parser.get_status_code() != 200:
            self._parts.append(body)
        elif self._answer is not None and not self._answer.done():
            try:
                self.take(body)
            except Exception as error:  # the parser would hide which
                self._fail(error)
                self.abort()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return  # interim: the peer is still working, not silent
        if not self._parser.should_keep_alive():
            self.is_open = False
        parts, self._parts = self._parts, []
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(Response(status, self._headers, b"".join(parts)))


class _SealedConnection(_Connection):
    """A connection on which both ends prove themselves first."""

    def __init__(self, dialler: Dialler) -> None:
        super().__init__()
        self._dialler = dialler
        self._session: SealedSession | None = None
        #: sent with the first request: one packet less
        self._proof = b""
        self._proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def prove(self) -> None:
        await self._proved

    def write(self, message: bytes) -> None:
        assert self._session is not None
        sealed, self._proof = self._proof + self._session.sealer.seal(message), b""
        super().write(sealed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).write(self._dialler.opening)

    def data_received(self, data: bytes) -> None:
        try:
            if self._session is None:
                self._greeted(self._dialler.received(data))
                return
            opened = self._session.opener.open(data)
        except ConnectionError as error:
            self._fail(error)
            self.abort()
            return
        super().data_received(opened)

    def _greeted(self, session: SealedSession | None) -> None:
        if session is not None:
            self._session, self._proof = session, self._dialler.proof
            if not self._proved.done():
                self._proved.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._proved.done():
            self._proved.set_exception(error)
            self._proved.exception()  # a waiter may have been cancelled
        super()._fail(error)


@dataclass
class PeerClient:
    """Connections to all peers. `headers` are sent with every request. `identity`: whom this
    process proves to be, on listeners between nodes; None: plain HTTP, to a public listener."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    identity: PeerIdentity | None = None
    #: the node that all requests are for, unless one names another; empty: any of the cluster
    to: NodeId = UNNAMED
    _idle: defaultdict[tuple[str, NodeId], list[_Connection]] = field(
        default_factory=lambda: defaultdict[tuple[str, NodeId], list[_Connection]](list)
    )

    _channels: defaultdict[tuple[str, NodeId], list[PeerChannel]] = field(
        default_factory=lambda: defaultdict[tuple[str, NodeId], list[PeerChannel]](list)
    )

    async def request(
        self,
        address: str,
        target: str,
        *,
        timeout_s: float,
        to: NodeId = UNNAMED,
        method: str | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
        is_repeatable: bool = True,
        take: Callable[[bytes], None] | None = None,
    ) -> Response:
        """Send a request to `http://address/target`. Raises PathFailed.

        `to`: the node that must prove to be there; empty: the client's `to`. `method`: POST if
        there is a `body`, else GET. `silence_s`: the peer sends interim responses; PathFailed is
        raised when it is silent for that long, StillWorking when it was not and the time-out
        passed. `is_repeatable`: the request may be sent a second time if a kept connection turns
        out to be closed. `take`: called with each piece of the body as it arrives, if the status is
        200; the response then has none. What it raises ends the request and its connection.
        """
        verb = method or ("POST" if body else "GET")
        all_headers = {**self.headers, **(headers or {})}
        message = message_of(head_of(f"{verb} {target}", address, all_headers), body)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        silence = silence_s or timeout_s
        patience = min(timeout_s, silence)
        silent_at = loop.time()
        was_sent = False

        def sending() -> None:
            nonlocal was_sent
            was_sent = True

        try:
            async with asyncio.timeout(patience) as timeout:

                def heard() -> None:
                    nonlocal silent_at
                    if not timeout.expired():
                        silent_at = loop.time() + silence
                        timeout.reschedule(min(until, silent_at))

                on_data = None if silence_s is None else heard
                return await self._exchange(
                    (address, to or self.to),
                    message,
                    on_data,
                    take,
                    sending=sending,
                    is_repeatable=is_repeatable,
                )
        except TimeoutError as error:
            if silent_at > loop.time():
                raise StillWorking from error
            failure = PathFailed if was_sent else ConnectFailed
            raise failure(f"no answer within {patience * 1000:.0f} ms") from error
        except OSError as error:
            raise PathFailed(_reason(error)) from error

    def channel(self, place: tuple[str, NodeId], body_bytes_max: int) -> PeerChannel | None:
        """A channel to `place`, an address and the node that is there, which takes one more
        request; None: there is none, and no kept connection to make one of. For callers that send
        thousands of whole messages (`message_of`) a second, and have another way if it fails."""
        channels = self._channels[place]
        best = min(channels, key=_under_way, default=None)
        if best is not None and best.is_free and best.under_way < SHARED_MIN:
            if best.under_way or self._is_fresh(best.used_s):
                return best
            best.end()  # the peer will soon drop it
        channels[:] = [each for each in channels if each.is_open]
        if len(channels) < CHANNELS_MAX and (kept := self._kept(place)) is not None:
            kept.channel = PeerChannel(kept.write, kept.withdraw, body_bytes_max)
            channels.append(kept.channel)
            return kept.channel
        return best if best is not None and best.is_free else None

    def close(self) -> None:
        """Close the idle connections. No request may be in flight."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        for channels in self._channels.values():
            for channel in channels:
                channel.end()
        self._idle.clear()
        self._channels.clear()

    async def _exchange(
        self,
        place: tuple[str, NodeId],
        message: bytes,
        on_data: Callable[[], None] | None,
        take: Callable[[bytes], None] | None,
        *,
        sending: Callable[[], None],
        is_repeatable: bool,
    ) -> Response:
        while True:
            connection, is_kept = await self._connection(place)
            connection.on_data, connection.take = on_data, take
            sending()
            try:
                response = await connection.ask(message)
            except OSError:
                connection.abort()
                if is_repeatable and is_kept and not connection.has_received:
                    continue  # the peer had closed it before it saw the request
                raise
            except asyncio.CancelledError:
                connection.withdraw()
                raise
            self._keep(place, connection)
            return response

    async def _connection(self, place: tuple[str, NodeId]) -> tuple[_Connection, bool]:
        kept = self._kept(place)
        return (kept, True) if kept is not None else (await self._dial(*place), False)

    def _kept(self, place: tuple[str, NodeId]) -> _Connection | None:
        idle = self._idle[place]
        while idle:
            kept = idle.pop()
            if kept.is_open and self._is_fresh(kept.used_at):
                return kept
            kept.abort()
        return None

    def _is_fresh(self, used_s: float) -> bool:
        return asyncio.get_running_loop().time() - used_s < IDLE_SECONDS_MAX

    async def _dial(self, address: str, to: NodeId) -> _Connection:
        """A new connection, proved. Raises ConnectFailed."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: self._made(to), host.strip("[]"), int(port)
            )
            try:
                await connection.prove()
            except BaseException:
                connection.abort()
                raise
        except TimeoutError:
            raise
        except HandshakeRefused as error:
            raise Unproved(str(error)) from error
        except OSError as error:
            raise ConnectFailed(_reason(error)) from error
        return connection

    def _made(self, to: NodeId) -> _Connection:
        if self.identity is None:
            return _Connection()
        return _SealedConnection(Dialler(self.identity, to, os.urandom(NONCE_BYTES)))

    def _keep(self, place: tuple[str, NodeId], connection: _Connection) -> None:
        idle = self._idle[place]
        if connection.is_open and len(idle) < IDLE_CONNECTIONS_MAX:
            connection.used_at = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.abort()


def _under_way(channel: PeerChannel) -> int:
    return channel.under_way if channel.is_open else UNDER_WAY_MAX


def head_of(request: str, address: str, headers: Mapping[str, str]) -> bytes:
    """The head of a message but for the length of its body. `request`: method and target."""
    lines = [f"{request} HTTP/1.1", f"host: {address}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, ""]).encode("latin-1")


def message_of(head: bytes, body: bytes) -> bytes:
    """A whole message. `head`: of `head_of`."""
    if body or head.startswith(b"POST"):
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
    return head + b"\r\n"


def _reason(error: OSError) -> str:
    return str(error.strerror or error) or type(error).__name__
