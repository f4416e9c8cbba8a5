"""The listeners of a worker: uvicorn's protocol, and a fast path before it for lookups.

A request takes one of two paths, and both speak the same HTTP:

- *slow path*: httptools parses, uvicorn makes a scope and a task, an ASGI application answers.
- *fast path*: a head (request line and headers) that is, byte for byte, one that has been parsed
  before needs no second parse: same bytes, same meaning. If its body came whole in the same read,
  `FastPath.answer` may return the complete response, without scope, task or second copy. Where it
  returns None, the slow path starts from the request's bytes; nothing is lost.

Measured on one core: slow path 18 k requests/s, fast path 85 k.

Order is kept with pipelining: the fast path is only taken while no request of the same connection
is unanswered on the slow path and the parser is between two messages.

A process that was stalled (SIGSTOP, a starved CPU) finds all that arrived meanwhile, and cannot
know when. On a lane whose clients close their connection when they stop waiting
(`Listener.abandoned`), it then checks for that: requests whose client has gone are dropped.

Not here: HTTP/2 (`adapters.http.http2_server`), what is asked and what is answered
(`node.worker.main`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import select
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from standpipe.adapters.http.tls import HANDSHAKE_SECONDS_MAX, Certificate
from standpipe.errors import BadRequest, BodyTooLarge, PortInUse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

#: A connection without a byte for this long, or with half a request, is closed. nginx's default.
IDLE_SECONDS_MAX = 75
#: Request line and headers; nginx: 32 KiB, Tomcat: 8 KiB.
HEAD_BYTES_MAX = 32 * 1024
#: Distinct heads that are remembered; all are dropped when it is full (a client could vary them).
REMEMBERED_HEADS_MAX = 1024
#: A refused body is read and discarded up to this size, so that the client sees the refusal.
DISCARDED_BYTES_MAX = 64 * 1024 * 1024
BACKLOG = 2048
#: Loop iterations from asyncio's accept until the protocol knows of the connection: a server that
#: is closed earlier drops it half made, and nothing would ever close it.
ACCEPT_ITERATIONS = 3

#: How often the loop beats, which gap is a stall, and how long after one connections are checked:
#: many wait then, and are read over several iterations.
PULSE_S = 0.05
STILL_S = 0.2
DOUBT_S = 1.0

#: A head with one of these is never remembered: its meaning reaches beyond one message.
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_FAR_REACHING = frozenset({b"expect", b"trailer", b"transfer-encoding", b"upgrade"})


#: the extension of a request's scope that tells its sender: the answer is being worked on
WORKING: Final = "standpipe.working"


class FastPath(Protocol):
    """The fast path of one listener. Both calls are synchronous and must not wait."""

    def classify(self, path: bytes, headers: Headers) -> object | None:
        """A token for a POST head that `answer` understands; None: such requests take the slow
        path."""
        ...

    def answer(self, token: Any, body: bytes) -> bytes | None:
        """The whole response, head included; None: take the slow path."""
        ...


@dataclass
class Pulse:
    """Whether the loop was stalled just now. Instants are on the loop's clock, in s."""

    at_s: float = 0.0
    doubt_until_s: float = 0.0

    def beat(self, now_s: float) -> None:
        """Record a beat; after a long gap, what is read is doubtful for a while."""
        if now_s - self.at_s > STILL_S:
            self.doubt_until_s = now_s + DOUBT_S
        self.at_s = now_s

    def is_doubtful(self, now_s: float) -> bool:
        """Whether what is read now may have been waiting for long."""
        return now_s < self.doubt_until_s or now_s - self.at_s > STILL_S


@dataclass(kw_only=True)
class Listener:
    """One bound socket with its application. Each listener is a lane: nothing is shared."""

    socket: socket.socket
    application: Application
    fast_path: FastPath
    #: the opening bytes of another protocol on the same port, and its factory
    other: tuple[bytes, Callable[[ServerState], asyncio.Protocol]] | None = None
    certificate: Certificate | None = None
    #: head -> (content length, token of `fast_path.classify`)
    heads: dict[bytes, tuple[int, object]] = field(default_factory=dict[bytes, tuple[int, object]])
    #: each connection is closed after its next answer: clients are to go to another node
    is_leaving: bool = False
    #: for a lane whose clients close when they stop waiting: called for each one found closed
    abandoned: Callable[[], None] | None = None
    pulse: Pulse = field(default_factory=Pulse)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that other workers of the node share by SO_REUSEPORT.

    Raises PortInUse when another process holds the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is explicit: asyncio sets TCP_NODELAY only where it sees IPPROTO_TCP
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise PortInUse(
            f"cannot listen on {host}:{port}: {error.strerror}",
            next_step="stop the other process or choose another port",
        ) from error
    return bound


class LookupProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the fast path before its parser, and one timer per connection."""

    def __init__(self, listener: Listener, config: UvicornConfig, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._listener = listener
        self._fast_path = listener.fast_path
        self._heads = listener.heads
        #: the parser is inside a message
        self._partial = False
        self._in_head = False
        self._head_bytes = 0
        #: how the fast path classified the message that is being parsed
        self._candidate: tuple[int, object] | None = None
        self._last_data_at = 0.0
        self._watch: asyncio.TimerHandle | None = None

    # -------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: bytes of requests."""
        self._last_data_at = self.loop.time()
        if self._is_abandoned():
            self.transport.abort()
            return
        if not self._partial and (not self.cycle or self.cycle.response_complete):
            if not self._listener.is_leaving:
                data = self._answer_on_fast_path(data)
            if not data:
                return
            self._learn(data)
        else:
            super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse_head()

    def _is_abandoned(self) -> bool:
        abandoned = self._listener.abandoned
        if abandoned is None or not self._listener.pulse.is_doubtful(self._last_data_at):
            return False
        ended = select.poll()
        ended.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if not ended.poll(0):
            return False
        abandoned()
        return True

    def _answer_on_fast_path(self, data: bytes) -> bytes:
        """Answer known messages at the front of `data`; the rest is for the parser."""
        while True:
            head_end = data.find(b"\r\n\r\n") + 4
            known = self._heads.get(data[:head_end])
            if known is None or self.flow.write_paused:
                return data
            end = head_end + known[0]
            if len(data) < end:
                return data
            answer = self._fast_path.answer(known[1], data[head_end:end])
            if answer is None:
                return data
            self.server_state.total_requests += 1
            self.transport.write(answer)
            if len(data) == end:
                return b""
            data = data[end:]

    def _learn(self, data: bytes) -> None:
        """Parse `data`; remember its head if it was exactly one message for the fast path."""
        self._candidate = None
        super().data_received(_without_upgrade(data))
        if self._candidate is None or self._partial:
            return
        head_end = data.find(b"\r\n\r\n") + 4
        if len(data) == head_end + self._candidate[0]:
            if len(self._heads) >= REMEMBERED_HEADS_MAX:
                self._heads.clear()
            self._heads[data[:head_end]] = self._candidate

    def _refuse_head(self) -> None:
        text = b"Request Header Fields Too Large"
        self.transport.write(
            b"HTTP/1.1 431 %b\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (text, len(text), text)
        )
        self.transport.close()

    # ---------------------------------------------------- the parser's calls

    def on_message_begin(self) -> None:
        """Called by the parser: a request begins."""
        self._partial = self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

        self.scope["extensions"] = {WORKING: self._send_processing}  # pyright: ignore[reportGeneralTypeIssues]

    def on_headers_complete(self) -> None:
        """Called by the parser: the head is complete."""
        self._in_head = False
        super().on_headers_complete()
        if self._listener.is_leaving:
            self.cycle.keep_alive = False  # and its head says so
        else:
            self._candidate = self._classified()

    def on_message_complete(self) -> None:
        """Called by the parser: the request is complete."""
        self._partial = False
        super().on_message_complete()

    def _classified(self) -> tuple[int, object] | None:
        if self.scope["method"] != "POST" or self.scope["http_version"] != "1.1":
            return None
        lengths = [value for name, value in self.headers if name == b"content-length"]
        if len(lengths) != 1 or any(map(_reaches_far, self.headers)):
            return None
        token = self._fast_path.classify(self.url, self.headers)
        return None if token is None else (int(lengths[0]), token)

    def _send_processing(self) -> None:
        """Send an interim response: before the answer, and only to a client that asked for it."""
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")

    # ---------------------------------------------------------------- timers

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by the event loop: watch for silence from now on."""
        super().connection_made(transport)
        self._last_data_at = self.loop.time()
        self._watch = self.loop.call_later(IDLE_SECONDS_MAX, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        silent = self.loop.time() - self._last_data_at
        waits_for_us = not self._partial and self.cycle and not self.cycle.response_complete
        if silent >= IDLE_SECONDS_MAX and not waits_for_us:
            self.transport.close()
            return
        wait = IDLE_SECONDS_MAX if waits_for_us else IDLE_SECONDS_MAX - silent
        self._watch = self.loop.call_later(max(wait, 1.0), self._check_idle)

    def timeout_keep_alive_handler(self) -> None:
        """uvicorn's timer per response; `_check_idle` does its work with one per connection."""


def _without_upgrade(data: bytes) -> bytes:
    """The first message of `data` without its offer to change the protocol.

    Java's HTTP client offers h2c with every request; the parser would then not read the body. A
    server may ignore such an offer (RFC 9110, 7.8).
    """
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0 or not _UPGRADE.search(data, 0, head_end):
        return data
    return _UPGRADE.sub(b"\r\nx-passed-over:", data, count=1)


def _reaches_far(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name in _FAR_REACHING or (name == b"connection" and value.lower() != b"keep-alive")


# ---------------------------------------------------------------------------------- bodies


def content_length(headers: Headers) -> int | None:
    """The declared length of a body; None: not declared (chunked, or no body)."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None


async def read_body(headers: Headers, receive: Receive, bytes_max: int) -> bytes:
    """The body of a request, never more than `bytes_max` of it in memory.

    Raises BodyTooLarge as soon as the declared or the received length passes the limit, and
    BadRequest when the client went away before the end.
    """
    declared = content_length(headers)
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise BadRequest("the body ended before its declared length")
        part: bytes = message.get("body", b"")
        size += len(part)
        is_read = not message.get("more_body", False)
        if size > bytes_max:
            raise _too_large(bytes_max, is_read=is_read)
        parts.append(part)
        if is_read:
            return b"".join(parts)


def _too_large(bytes_max: int, *, is_read: bool = False) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request body exceeds {bytes_max} bytes (standpipe.request.body.bytes.max)",
        is_read=is_read,
    )


async def discard_body(receive: Receive, bytes_max: int = DISCARDED_BYTES_MAX) -> None:
    """Read and discard the rest: closing a socket with unread bytes can lose the answer too."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while size <= bytes_max:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))


# --------------------------------------------------------------------------------- serving


async def serve(listeners: Sequence[Listener], stop: asyncio.Event, grace_s: float) -> None:
    """Serve until `stop` is set; then accept no more, finish what is in flight, close.

    Requests that are not answered `grace_s` after the stop are cut off.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # bad client input is not logged
    state = ServerState()
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Server] = []
    for listener in listeners:
        factory, bound = _factory(listener, state), listener.socket
        # asyncio calls listen() again, by default with 100: a node that was stopped for a while
        # would come back with a full queue, and new clients would wait 1 s for TCP's second SYN.
        secure = listener.certificate
        servers.append(
            await loop.create_server(
                factory,
                sock=bound,
                backlog=BACKLOG,
                ssl=secure.context if secure else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX if secure else None,
            )
        )
    pulse = asyncio.create_task(_beat([listener.pulse for listener in listeners]))
    await stop.wait()
    for listener in listeners:
        loop.remove_reader(listener.socket)
    for _ in range(ACCEPT_ITERATIONS):
        await asyncio.sleep(0)
    for server in servers:
        server.close()
    for connection in list(state.connections):
        connection.shutdown()
    deadline = loop.time() + grace_s
    while (state.connections or state.tasks) and loop.time() < deadline:  # noqa: ASYNC110 no event
        await asyncio.sleep(0.01)
    for task in list(state.tasks):
        task.cancel()
    for connection in list(state.connections):
        connection.transport.abort()
    pulse.cancel()


async def _beat(pulses: Sequence[Pulse]) -> None:
    loop = asyncio.get_running_loop()
    while True:  # ends by cancellation
        for pulse in pulses:
            pulse.beat(loop.time())
        await asyncio.sleep(PULSE_S)


def _factory(listener: Listener, state: ServerState) -> Callable[[], asyncio.Protocol]:
    config = UvicornConfig(
        listener.application,
        interface="asgi3",
        http=LookupProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_SECONDS_MAX,
    )
    config.load()

    def http() -> LookupProtocol:
        return LookupProtocol(listener, config, state)

    if listener.other is None:
        return http
    opening, other = listener.other
    return lambda: _ProtocolSwitch(opening, lambda: other(state), http, state)


class _ProtocolSwitch(asyncio.Protocol):
    """Gives a connection to one of two protocols, by its first bytes."""

    def __init__(
        self,
        opening: bytes,
        other: Callable[[], asyncio.Protocol],
        http: Callable[[], asyncio.Protocol],
        state: ServerState,
    ) -> None:
        self._opening = opening
        self._other = other
        self._http = http
        self._connections = cast("set[Any]", state.connections)
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(IDLE_SECONDS_MAX, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if self._seen.startswith(self._opening):
            self._give_to(self._other(), self._seen[len(self._opening) :])
        elif not self._opening.startswith(self._seen):
            self._give_to(self._http(), self._seen)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        self._connections.discard(self)

    def shutdown(self) -> None:
        """No request has arrived yet, so none needs an answer."""
        self.transport.close()

    def _give_to(self, protocol: asyncio.Protocol, data: bytes) -> None:
        self._patience.cancel()
        self._connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if data:
            protocol.data_received(data)
