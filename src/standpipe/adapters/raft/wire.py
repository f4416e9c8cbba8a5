"""Messages of the quorum between nodes: one connection per direction, on the internal listener.

    dialler                                    acceptor (the node whose id was dialled)
    MAGIC, Hello(node, incarnation, to, nonce) ─►
                        ◄─ Welcome(node, incarnation, nonce), HMAC over both under the secret
    HMAC over both under the secret ─►
    frames, requests only ─►           ◄─ frames, answers only

Each side proves that it knows the cluster's secret by an HMAC over the other's fresh nonce, so no
recording can be replayed. The HMAC also covers its node id and incarnation. Each direction gets a
key from both nonces; a frame carries an HMAC over its number and its bytes, so a frame that is
lost, repeated, reordered or changed ends the connection. No clock is read, so a clock that jumps
excludes no peer. The sender that a message names must be the peer that was authenticated.

A peer is dialled at the addresses that `addresses` gives for its id, in turn: the one that the log
holds, then the one that this node was started with. The node that answers must prove its id.

A request that will certainly get no answer is reported (`failed`); any other fault is a lost
message. Not here: what messages mean (`control.raft.core`), time-outs of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast, get_args

import msgspec
import structlog

from standpipe.adapters.paced_log import PacedLog
from standpipe.adapters.sealed.records import TAG_BYTES, Tags
from standpipe.control.raft import codec
from standpipe.control.raft.codec import Unreadable
from standpipe.control.raft.majority import Incarnation, ReplicaKey
from standpipe.control.raft.messages import Message, Request
from standpipe.model import NodeId

MAGIC: Final = b"STANDPIPE QUORUM 1\n"
FRAME_BYTES_MAX: Final = 16 << 20
GREETING_BYTES_MAX: Final = 4096  # a frame before the peer has proved anything
UNSENT_BYTES_MAX: Final = 32 << 20  # for a peer that does not read
GREETING_S_MAX: Final = 1.0
DIAL_PAUSE_S: Final = 0.05  # after a dial that failed
UNACKNOWLEDGED_MS_MAX: Final = 2_000  # by the peer's kernel: the path is dead, dial again
ANSWERS: Final = 64  # requests that may be in flight on one connection

_LENGTH: Final = struct.Struct(">I")
_REQUESTS: Final = frozenset(get_args(Request))

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
_refusals: Final = PacedLog()


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """First frame of either side. `cluster` is empty while a node knows none."""

    node: NodeId
    incarnation: Incarnation
    cluster: str = ""
    to: NodeId  # the node that the sender expects to reach
    nonce: bytes

    @property
    def key(self) -> ReplicaKey:
        """The replica that the sender claims to be."""
        return ReplicaKey(self.node, self.incarnation)


class WireError(Exception):
    """The peer broke the protocol, or could not prove who it is. `str` says how."""


class Owner(Protocol):
    """Receives what the connections report: messages, and requests that failed."""

    def received(self, peer: Greeting, message: Message) -> None:
        """A peer, authenticated, sent this request or answer."""

    def failed(self, to: NodeId, request: int) -> None:
        """A request to `to` will certainly get no answer."""


# ------------------------------------------------------------------------------- one connection


class _Frames(asyncio.Protocol):
    """Frames on a stream: u32 length, then that many bytes. Both roles build on it."""

    def __init__(self, wire: QuorumWire) -> None:
        self.wire = wire
        self.peer: Greeting | None = None  # once it is authenticated
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._seal: Tags | None = None
        self._check: Tags | None = None
        self._transcript = b""
        self._deadline: asyncio.TimerHandle | None = None

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        _keep_alive(self.transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(GREETING_S_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (frame := self._next_frame()) is not None:
                self._take(frame)
        except (WireError, Unreadable, msgspec.MsgspecError, RecursionError) as error:
            _refusals.warning("quorum connection refused", peer=self._name(), why=str(error))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    # called by this module

    def abort(self) -> None:
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()

    @property
    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self.transport is None or self.transport.is_closing()

    def send(self, message: Message) -> None:
        """A message to a peer that has proved itself."""
        assert self._seal is not None
        body = codec.encode_message(message)
        self._write(self._seal.next(body) + body)

    def _write(self, frame: bytes) -> None:
        assert self.transport is not None
        if self.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            _log.warning("quorum connection dropped: its peer does not read", peer=self._name())
            self.abort()
        else:
            self.transport.write(_LENGTH.pack(len(frame)) + frame)

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > (FRAME_BYTES_MAX if self.peer else GREETING_BYTES_MAX):
            raise WireError(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return frame

    def _take(self, frame: bytes) -> None:
        if self.peer is None:
            self._greeted(frame)
            return
        assert self._check is not None
        body = frame[TAG_BYTES:]
        if not hmac.compare_digest(frame[:TAG_BYTES], self._check.next(body)):
            raise WireError("a frame fails its check")
        message = codec.decode_message(body)
        self._check_speaker(self.peer, message)
        self._received(self.peer, message)

    def _check_speaker(self, peer: Greeting, message: Message) -> None:
        said = codec.speaker(message)
        known = peer.key if isinstance(said, ReplicaKey) else peer.node
        if said is not None and said != known:
            raise WireError(f"it sent a {type(message).__name__} in the name of {said}")

    def _is_proved(self, peer: Greeting, *, is_dialler: bool) -> None:
        """The peer is authenticated: from here on, frames are sealed with keys from both nonces."""
        mine, theirs = (b"dialler", b"acceptor") if is_dialler else (b"acceptor", b"dialler")
        self._seal = Tags(self.wire.proof(b"key of " + mine, self._transcript))
        self._check = Tags(self.wire.proof(b"key of " + theirs, self._transcript))
        self.peer = peer
        if self._deadline is not None:
            self._deadline.cancel()

    def _name(self) -> str:
        return self.peer.node if self.peer else "?"

    def _greeted(self, frame: bytes) -> None:
        raise NotImplementedError

    def _received(self, peer: Greeting, message: Message) -> None:
        raise NotImplementedError


class Accepted(_Frames):
    """A connection that a peer has made: it carries the peer's requests and our answers."""

    _hello: Greeting | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the peer has proved that it knows the secret."""
        return self.peer is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a greeting; end the connection if this wire was closed meanwhile."""
        super().connection_made(transport)
        if self.wire.is_closed:  # nothing else would end it
            self.abort()

    def _greeted(self, frame: bytes) -> None:
        if self._hello is None:
            self._hello = hello = msgspec.msgpack.decode(frame, type=Greeting)
            if hello.to != self.wire.me.node:
                raise WireError(f"{hello.node} looks for {hello.to}, this is {self.wire.me.node}")
            welcome = self.wire.greeting(hello.node)
            self._transcript = frame + welcome
            self._write(welcome)
            self._write(self.wire.proof(b"acceptor", self._transcript))
        elif hmac.compare_digest(frame, self.wire.proof(b"dialler", self._transcript)):
            self._is_proved(self._hello, is_dialler=False)
            self.wire.accepted(self._hello.node, self)
        else:
            raise WireError(f"a peer named {self._hello.node} does not know the secret")

    def _received(self, peer: Greeting, message: Message) -> None:
        if type(message) not in _REQUESTS:
            raise WireError(f"it sent a {type(message).__name__} where requests belong")
        self.wire.owner.received(peer, message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop sending answers over it."""
        super().connection_lost(exc)
        self.wire.forget(self)


class _Dialled(_Frames):
    """A connection to a peer: it carries our requests and the peer's answers."""

    def __init__(self, wire: QuorumWire, to: NodeId) -> None:
        super().__init__(wire)
        self.to = to
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mine = b""
        self._welcome: Greeting | None = None
        #: numbers of requests without an answer, oldest first
        self._open: dict[int, None] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._mine = self.wire.greeting(self.to)
        assert self.transport is not None
        self.transport.write(MAGIC)
        self._write(self._mine)

    def _greeted(self, frame: bytes) -> None:
        if self._welcome is None:
            self._welcome = msgspec.msgpack.decode(frame, type=Greeting)
            self._transcript = self._mine + frame
            return
        if not hmac.compare_digest(frame, self.wire.proof(b"acceptor", self._transcript)):
            raise WireError(f"the peer that answers for {self.to} does not know the secret")
        if (self._welcome.node, self._welcome.to) != (self.to, self.wire.me.node):
            raise WireError(f"{self._welcome.node} answers for {self.to}")
        self._write(self.wire.proof(b"dialler", self._transcript))
        self._is_proved(self._welcome, is_dialler=True)
        if not self.is_open.done():
            self.is_open.set_result(None)

    def ask(self, message: Message) -> None:
        """Send a request; it is answered, or reported as failed when the connection ends."""
        self._open[message.request] = None
        if len(self._open) > ANSWERS:  # the core has given these up long ago
            del self._open[next(iter(self._open))]
        self.send(message)

    def _received(self, peer: Greeting, message: Message) -> None:
        if type(message) in _REQUESTS:
            raise WireError(f"it sent a {type(message).__name__} where answers belong")
        self._open.pop(message.request, None)
        self.wire.owner.received(peer, message)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.is_open.done():
            self.is_open.set_exception(ConnectionError("it was closed before authentication"))
            self.is_open.exception()  # a waiter may have been cancelled
        self.wire.hung_up(self, list(self._open))


# ------------------------------------------------------------------------------- all of them


@dataclass
class _PeerLink:
    """Our connection to one peer, if any."""

    link: _Dialled | None = None
    dialling: asyncio.Task[None] | None = None
    turn: int = 0  # which of its addresses is tried next


class QuorumWire:
    """All connections of one node. `send` never waits; incoming messages go to `owner`."""

    def __init__(
        self,
        me: ReplicaKey,
        secret: str,
        addresses: Callable[[NodeId], Sequence[str]],
    ) -> None:
        """`owner` is to be set before anything is sent or accepted."""
        self.me = me
        self.cluster = ""  # sent to peers once it is known
        self.owner: Owner
        self._secret = secret.encode()
        self._addresses = addresses
        self._peers: dict[NodeId, _PeerLink] = {}
        #: newest authenticated connection of each peer that dialled us
        self._accepted: dict[NodeId, Accepted] = {}
        self._incoming: set[Accepted] = set()
        #: `close` was called; only it sets this
        self.is_closed = False

    def accept(self) -> Accepted:
        """A protocol for a connection that began with MAGIC."""
        connection = Accepted(self)
        self._incoming.add(connection)
        return connection

    def send(self, to: NodeId, message: Message) -> None:
        """Send a request over our connection to a peer, or an answer over the peer's to us."""
        if type(message) not in _REQUESTS:
            if (back := self._accepted.get(to)) is not None:
                back.send(message)
            return
        peer = self._peers.setdefault(to, _PeerLink())
        if peer.link is not None:
            peer.link.ask(message)
        else:
            self._dial(to, peer, message)

    def close(self) -> None:
        """End every connection; nothing is reported from now on."""
        self.is_closed = True
        for peer in self._peers.values():
            if peer.dialling is not None:
                peer.dialling.cancel()
            if peer.link is not None:
                peer.link.abort()
        for connection in list(self._incoming):
            connection.abort()

    # -- for connections --------------------------------------------------------------------------

    def greeting(self, to: NodeId) -> bytes:
        """The first frame to `to`, with a fresh nonce."""
        return msgspec.msgpack.encode(
            Greeting(
                node=self.me.node,
                incarnation=self.me.incarnation,
                cluster=self.cluster,
                to=to,
                nonce=os.urandom(32),
            )
        )

    def proof(self, role: bytes, transcript: bytes) -> bytes:
        """HMAC of both greetings under the cluster's secret, as `role` (dialler or acceptor)."""
        return _digest(self._secret, role + b"\n", transcript)

    def accepted(self, node: NodeId, connection: Accepted) -> None:
        """Send answers over the peer's newer connection; the older one may be half dead."""
        before = self._accepted.get(node)
        self._accepted[node] = connection
        if before is not None and before is not connection:
            before.abort()

    def forget(self, connection: Accepted) -> None:
        """An accepted connection has ended."""
        self._incoming.discard(connection)
        for node, known in list(self._accepted.items()):
            if known is connection:
                del self._accepted[node]

    def hung_up(self, link: _Dialled, unanswered: Sequence[int]) -> None:
        """A dialled connection has ended: its open requests failed, the next one dials again."""
        peer = self._peers.get(link.to)
        if peer is not None and peer.link is link:
            peer.link = None
        for request in unanswered:
            self._fail(link.to, request)

    # -- dialling ---------------------------------------------------------------------------------

    def _dial(self, to: NodeId, peer: _PeerLink, message: Message) -> None:
        """Open a connection for its first request; others fail after a pause while it is opened."""
        if peer.dialling is None and not self.is_closed:
            peer.dialling = asyncio.create_task(self._connect(to, peer, message))
        else:
            asyncio.get_running_loop().call_later(DIAL_PAUSE_S, self._fail, to, message.request)

    async def _connect(self, to: NodeId, peer: _PeerLink, first: Message) -> None:
        try:
            async with asyncio.timeout(GREETING_S_MAX):
                link = await self._opened(to, peer)
            peer.link = link
            link.ask(first)
        except (OSError, TimeoutError, ValueError):
            peer.turn += 1
            self._fail(to, first.request)
            await asyncio.sleep(DIAL_PAUSE_S)
        finally:
            peer.dialling = None

    async def _opened(self, to: NodeId, peer: _PeerLink) -> _Dialled:
        addresses = self._addresses(to)
        if not addresses:
            raise ConnectionError(f"no address of {to} is known")
        host, _, port = addresses[peer.turn % len(addresses)].rpartition(":")
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(
            lambda: _Dialled(self, to), host.strip("[]"), int(port)
        )
        try:
            await link.is_open
        except BaseException:
            link.abort()
            raise
        if link.is_closing:  # reset right after the greeting: its end came before it was a link
            raise ConnectionError(f"{to} has hung up")
        return link

    def _fail(self, to: NodeId, request: int) -> None:
        if not self.is_closed:
            self.owner.failed(to, request)


def _digest(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")


def _keep_alive(raw: Any) -> None:
    """Let the kernel notice a path that died silently (a rack lost, a cable cut)."""
    if raw is None:
        return
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
