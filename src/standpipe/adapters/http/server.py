"""The listeners of a worker: uvicorn's protocol, and a fast path before it for lookups.

A request takes one of two paths, and both speak the same HTTP:

- *slow path*: httptools parses, uvicorn makes a scope and a task, an ASGI application answers.
- *fast path*: a head (request line and headers) that is, byte for byte, one that has been parsed
  before needs no second parse: same bytes, same meaning. If its body came whole in the same read,
  `FastPath.answer` may return the complete response, without scope, task or second copy, or one
  that comes later. Where there is none, the slow path starts from the request's bytes; nothing is
  lost.

  A message of a kind that was just answered so on its connection is asked for whole, before its
  head is looked for (`FastPath.answer_message`).

Measured on one core: slow path 18 k requests/s, fast path 85 k.

Order is kept with pipelining: the fast path is only taken while no request of the same connection
is unanswered on the slow path and the parser is between two messages.

A process that was stalled (SIGSTOP, a starved CPU) finds all that arrived meanwhile, and cannot
know when. On a lane whose clients close their connection when they stop waiting
(`Listener.abandoned`), it then checks for that: requests whose client has gone are dropped.

Not here: who may connect, and deadlines (`adapters.http.acceptor`, `adapters.http.connections`);
HTTP/2 (`adapters.http.http2_server`), what is asked and what is answered
(`node.worker.main`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

from uvicorn.config import Config as UvicornConfig
from uvicorn.server import ServerState

from standpipe.adapters.http.acceptor import AcceptedConnection, SocketAcceptor, room_for
from standpipe.adapters.http.connections import (
    IDLE_MS_MAX,
    ConnectionProgress,
    CutReason,
    PortLimits,
    Room,
    WaitingFor,
)
from standpipe.adapters.http.fast_path import Awaited, FastPath, Headers, NoFastPath
from standpipe.adapters.http.pipelining import PipelinedProtocol, has_left, message_end
from standpipe.adapters.http.protocol_switch import OtherProtocol, ProtocolSwitch
from standpipe.adapters.http.pulse import Pulse, beat
from standpipe.adapters.http.sealed_server import PEER_NODE, Seal, SealedProtocol
from standpipe.adapters.http.tls import Certificate
from standpipe.adapters.http.tls_server import TlsProtocol
from standpipe.adapters.sealed.handshake import MAGIC
from standpipe.errors import BadRequest, PortInUse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

#: A connection without a request for this long is closed.
IDLE_SECONDS_MAX = IDLE_MS_MAX // 1000
#: Request line and headers; nginx: 32 KiB, Tomcat: 8 KiB.
HEAD_BYTES_MAX = 32 * 1024
#: Distinct heads that are remembered; all are dropped when it is full (a client could vary them).
REMEMBERED_HEADS_MAX = 1024
#: Lookups of one connection, until others of the loop have a turn: each may name 256 keys.
ANSWERED_AT_ONCE = 32
#: of their answers: when there are so many, they are written before the next lookup
WRITTEN_AT_ONCE_BYTES = 16 * 1024
#: a body beyond that has many keys and takes longer: the answers before it are written first
LARGE_BODY_BYTES = 1024
BACKLOG = 2048
_HEAD_TOO_LARGE: Final = "Request Header Fields Too Large"

#: A head with one of these is never remembered: its meaning reaches beyond one message.
_FAR_REACHING = frozenset({b"expect", b"trailer", b"transfer-encoding", b"upgrade"})


#: `LookupProtocol._head_bytes`: the head began in the read that is being parsed
_BEGUN: Final = -1

#: the extension of a request's scope that tells its sender: the answer is being worked on
WORKING: Final = "standpipe.working"


@dataclass(kw_only=True)
class Listener:
    """One bound socket with its application. Each listener is a lane: nothing is shared."""

    socket: socket.socket
    application: Application
    fast_path: FastPath
    other: OtherProtocol | None = None
    #: of connections; lowered to what the process has file descriptors for
    limits: PortLimits = field(default_factory=PortLimits)
    #: called for each connection that was refused or cut
    ended: Callable[[CutReason], None] | None = None
    certificate: Certificate | None = None
    #: of a listener between nodes: both ends of a connection prove that they know the secret
    seal: Seal | None = None
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


class LookupProtocol(PipelinedProtocol):
    """HTTP/1.1 with the fast path before the parser, and no timer of its own."""

    def __init__(
        self,
        listener: Listener,
        config: UvicornConfig,
        state: ServerState,
        accepted: AcceptedConnection,
    ) -> None:
        super().__init__(config, state, accepted)
        self._listener = listener
        self._fast_path = listener.fast_path
        self._heads = listener.heads
        #: whole heads of this connection
        self._requests = 0
        self._in_head = False
        #: of a head that came in several reads; _BEGUN: in the read that is being parsed
        self._head_bytes = 0
        self._body_bytes = 0
        #: of what follows a body in chunks
        self._trailer_bytes = 0
        #: how the fast path classified the message that is being parsed
        self._candidate: tuple[int, object] | None = None
        #: a message that may be known has just been answered on the fast path, and nothing is
        #: under way: no other message, no part of one, no answer that waits for the client
        self._is_quiet = False
        #: it will be, once the answer that is awaited has come
        self._is_quiet_after = False

    # -------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: bytes of requests."""
        if self._is_quiet and not self._listener.is_leaving:
            answer = self._fast_path.answer_message(data)
            if answer is not None:
                if type(answer) is bytes:
                    self._requests += 1
                    self.transport.write(answer)
                else:
                    self._is_quiet = False
                    self._is_quiet_after = True
                    self._await(cast("Awaited", answer), data, b"")
                return
        self._is_quiet = False
        if self._is_abandoned():
            self.transport.abort()
            return
        if self._must_wait:
            self._hold(data)
            return
        if not self._partial:
            if not self._listener.is_leaving:
                data = self._answer_on_fast_path(data)
            if not data:
                return
            self._learn(data)
        else:
            self._parse(data)
        if self._in_head:
            self._head_bytes = 0 if self._head_bytes == _BEGUN else self._head_bytes + len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(431, _HEAD_TOO_LARGE)

    def _is_abandoned(self) -> bool:
        abandoned = self._listener.abandoned
        if abandoned is None or not self._listener.pulse.is_doubtful(self.loop.time()):
            return False
        if not has_left(self.transport):
            return False
        abandoned()
        return True

    def _answer_on_fast_path(self, data: bytes) -> bytes:
        """Answer known messages at the front of `data`; the rest is for the parser.

        Their answers are written together, so what waits for that is bounded: the transport tells
        only then that the client takes too little.
        """
        answers, unsent_bytes, at = list[bytes](), 0, 0
        try:
            for _ in range(ANSWERED_AT_ONCE):
                head_end = data.find(b"\r\n\r\n", at) + 4
                known = self._heads.get(data[at:head_end])
                if known is None or self.flow.write_paused:
                    return data[at:]
                end = head_end + known[0]
                if len(data) < end:
                    return data[at:]
                if known[0] > LARGE_BODY_BYTES:
                    self._send(answers)
                    unsent_bytes = 0
                answer = self._fast_path.answer(known[1], data[head_end:end])
                if answer is None:
                    return data[at:]
                if type(answer) is not bytes:
                    self._is_quiet_after = len(data) == end and self._may_be_known(
                        known[1], data[at:], head_end - at
                    )
                    self._await(cast("Awaited", answer), data[at:end], data[end:])
                    return b""
                self._requests += 1
                answers.append(answer)
                unsent_bytes += len(answer)
                if len(data) == end:
                    self._is_quiet = self._may_be_known(known[1], data[at:], head_end - at)
                    return b""
                if unsent_bytes >= WRITTEN_AT_ONCE_BYTES:
                    self._send(answers)
                    unsent_bytes = 0
                at = end
            self._give_way(data[at:])
            return b""
        finally:
            self._send(answers)

    def _arrived(self, answer: bytes | None) -> None:
        self._requests += answer is not None  # the parser counts the others
        # what came meanwhile is answered by `super`
        is_alone = answer is not None and not self._held and not self.flow.write_paused
        self._is_quiet = self._is_quiet_after and is_alone
        super()._arrived(answer)

    def _send(self, answers: list[bytes]) -> None:
        """Write answers, in order, and empty the list. uvloop makes a system call of each write."""
        if answers:
            self.transport.write(b"".join(answers))
            answers.clear()

    def _may_be_known(self, token: object, message: bytes, head_bytes: int) -> bool:
        """Whether the next message may take the shortest way: not where it is to be checked that
        its client still waits, nor while the client reads too slowly."""
        if self._listener.abandoned is not None or self.flow.write_paused:
            return False
        return self._fast_path.learn_message(token, message, head_bytes)

    def pause_writing(self) -> None:
        """Called by the event loop: the client reads too slowly."""
        self._is_quiet = False
        super().pause_writing()

    def _learn(self, data: bytes) -> None:
        """Parse a message; remember its head if it is one for the fast path. What comes behind it
        waits, as it may be for the fast path, too."""
        end = message_end(data)
        self._candidate = None
        self._parse(data[:end])
        if self._candidate is not None and not self._partial:
            head_end = data.find(b"\r\n\r\n") + 4
            if end == head_end + self._candidate[0]:
                if len(self._heads) >= REMEMBERED_HEADS_MAX:
                    self._heads.clear()
                self._heads[data[:head_end]] = self._candidate
        if end < len(data):
            self._hold(data[end:])
            self._go_on()  # unless it is unanswered

    # ---------------------------------------------------- the parser's calls

    def on_message_begin(self) -> None:
        """Called by the parser: a request begins."""
        self._in_head = True
        self._head_bytes = _BEGUN
        self._trailer_bytes = 0
        super().on_message_begin()

        self.scope["extensions"] = {WORKING: self._send_processing, PEER_NODE: self._peer_node}  # pyright: ignore[reportGeneralTypeIssues]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser: a header, or a field of the trailer, which nobody here reads."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailer_bytes += head_bytes(b"", ((name, value),))
        if self._trailer_bytes > HEAD_BYTES_MAX:
            self._refuse(431, _HEAD_TOO_LARGE)
            raise BadRequest(_HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Called by the parser: the head is complete."""
        self._in_head = False
        if head_bytes(self.url, self.headers) > HEAD_BYTES_MAX:
            self._refuse(431, _HEAD_TOO_LARGE)
            raise BadRequest(_HEAD_TOO_LARGE)
        if self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers):
            self._again = self._without_upgrade()
            return
        self._requests += 1
        super().on_headers_complete()
        if self._listener.is_leaving:
            self.cycle.keep_alive = False  # and its head says so
        else:
            self._candidate = self._classified()

    def on_body(self, body: bytes) -> None:
        """Called by the parser: a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def _without_upgrade(self) -> bytes:
        """The head that was parsed, without its offer to change the protocol.

        Java's HTTP client offers h2c with every request. A server may ignore such an offer (RFC
        9110, 7.8).
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        first = b"%b %b HTTP/%b" % (method, self.url, version)
        return b"\r\n".join([first, *lines, b"", b""])

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
        if not self.transport.is_closing() and self._refusal is None:
            self.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")

    # -------------------------------------------------------------- deadlines

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by the event loop: from now on the acceptor watches how far it comes."""
        super().connection_made(transport)
        self._peer_node = transport.get_extra_info(PEER_NODE)
        self._accepted.serve(transport, self._progress, self._leave_if_abandoned)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._accepted.leave()
        super().connection_lost(exc)

    def _progress(self) -> ConnectionProgress:
        requests = self._requests
        if self.transport.is_closing():  # its last bytes wait for the client
            return ConnectionProgress(WaitingFor.IDLE, requests)
        if self._discarded is not None:  # its end is waited for
            return ConnectionProgress(WaitingFor.HEAD, requests)
        if self._must_wait:
            return ConnectionProgress(WaitingFor.BUSY, requests)
        if self._in_head or (not requests and not self._partial):
            return ConnectionProgress(WaitingFor.HEAD, requests, is_fresh=not requests)
        if self._partial and not self.flow.read_paused:
            return ConnectionProgress(WaitingFor.BODY, requests, self._body_bytes)
        return ConnectionProgress(WaitingFor.BUSY if self._partial else WaitingFor.IDLE, requests)

    def timeout_keep_alive_handler(self) -> None:
        """uvicorn's timer per response; the acceptor's sweep does its work."""


def head_bytes(target: bytes, headers: Headers) -> int:
    """Size of a head, whatever pieces it came in; near the bytes on the wire, which may have more
    spaces."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def _reaches_far(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name in _FAR_REACHING or (name == b"connection" and value.lower() != b"keep-alive")


# --------------------------------------------------------------------------------- serving


async def serve(listeners: Sequence[Listener], stop: asyncio.Event, grace_s: float) -> None:
    """Serve until `stop` is set; then accept no more, finish what is in flight, close.

    Requests that are not answered `grace_s` after the stop are cut off.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # bad client input is not logged
    state = ServerState()
    room = room_for(len(listeners))
    acceptors = [_acceptor(listener, state, room) for listener in listeners]
    for acceptor in acceptors:
        acceptor.open()
    pulse = asyncio.create_task(beat([listener.pulse for listener in listeners]))
    await _until(stop, [pulse, *(acceptor.sweeping for acceptor in acceptors if acceptor.sweeping)])
    for acceptor in acceptors:
        await acceptor.close()
    for connection in list(state.connections):
        connection.shutdown()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    while (state.connections or state.tasks) and loop.time() < deadline:  # noqa: ASYNC110 no event
        await asyncio.sleep(0.01)
    for task in list(state.tasks):
        task.cancel()
    for connection in list(state.connections):
        connection.transport.abort()
    pulse.cancel()


async def _until(stop: asyncio.Event, chores: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the stop. Raises what ends one of the chores, which otherwise never end."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        ended, _ = await asyncio.wait([stopping, *chores], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for chore in ended - {stopping}:
        chore.result()


def _acceptor(listener: Listener, state: ServerState, room: Room) -> SocketAcceptor:
    """Accepts the connections of a listener, and gives each the protocol that it speaks."""
    listener.limits = listener.limits.within(room.most)
    made, connections = _http(listener, state), cast("set[Any]", state.connections)
    others: list[OtherProtocol] = []
    if (seal := listener.seal) is not None:
        sealed = made
        made = _http(_unsealed(listener, seal), state)
        others.append(
            OtherProtocol(
                MAGIC,
                lambda _, accepted: SealedProtocol(seal.identity, sealed, connections, accepted),
            )
        )
    if listener.other is not None:
        others.append(listener.other)
    for each in others:
        made = partial(ProtocolSwitch, each, made, state)
    if (secure := listener.certificate) is not None:
        made = partial(TlsProtocol, secure.context, made, connections)
    return SocketAcceptor(listener.socket, made, listener.limits, room=room, told=listener.ended)


def _unsealed(listener: Listener, seal: Seal) -> Listener:
    """What answers a connection that is not sealed, at a listener where it must be: it shares
    nothing with the sealed ones, no remembered head either."""
    return replace(listener, application=seal.refusal, fast_path=NoFastPath(), heads={})


def _http(
    listener: Listener, state: ServerState
) -> Callable[[AcceptedConnection], asyncio.Protocol]:
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
    return lambda accepted: LookupProtocol(listener, config, state, accepted)
