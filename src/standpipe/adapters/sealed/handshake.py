"""How both ends of a connection prove that they know the cluster's secret, the acceptor first.

    dialler                                        acceptor
    MAGIC, Hello(node, to, listener, nonce)  ─►
                          ◄─  Welcome(node, listener, nonce), proof as "acceptor"
    proof as "dialler", records              ─►    ◄─ records (`records.py`)

A proof is an HMAC under the secret over its role and both greetings, so over both nonces, both node
ids and the listener. Therefore

- the secret is never sent, and a process that only listens on a node's old address learns nothing
  that another one would accept: it has no proof of the dialler, because its own failed;
- a recording is worthless, because each end chooses a nonce for each connection;
- our own challenge, sent back to us, proves nothing: the roles differ, and so do the keys of the
  two directions;
- a process that only passes the bytes on to the right node learns and changes nothing.

The dialler's node id holds for the connection: what arrives on it speaks for no other node. It is
empty for an operator's command and for a pipeline, since these are not nodes. `to` is empty if the
dialler knows only an address. No clock is read.

Any process that knows the secret can claim any id: ids are kept apart between honest nodes, not
against a thief of the secret. The acceptor proves itself to anyone who dials, so the secret must be
random: `standpipe up` takes 256 bits, and a password could be guessed from a proof.

The quorum's wire (`adapters.raft.wire`) has the same three steps with its own greeting, which names
the incarnation and the cluster. Bytes in, bytes out: nonces are passed in. Not here: sockets
(`adapters.http.sealed_server`, `peer_client`, `sealed_socket`).
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from standpipe.adapters.sealed.records import Opener, Sealer
from standpipe.model import NodeId

MAGIC: Final = b"STANDPIPE SEALED 1\n"
UNNAMED: Final = NodeId("")
#: Names of listeners: a connection that was opened for one is worthless at another.
INTERNAL: Final = "internal"
PEER: Final = "peer"
NONCE_BYTES: Final = 32
#: A frame before the other end has proved anything.
FRAME_BYTES_MAX: Final = 1024

_LENGTH: Final = struct.Struct(">I")
_PURPOSE: Final = b"standpipe sealed connection 1"  # keeps these proofs apart from the quorum's

Greeting = TypeVar("Greeting", "Hello", "Welcome")


class HandshakeRefused(ConnectionError):
    """The other end broke the protocol, or did not prove who it is. `str` says how."""


class SecretDiffers(HandshakeRefused):
    """The other end does not know the secret that this one knows."""


@dataclass(frozen=True)
class PeerIdentity:
    """Who this process is on a sealed connection, and at which listener. `node` is empty for an
    operator and for a pipeline."""

    secret: str = field(repr=False)
    node: NodeId = UNNAMED
    listener: str = INTERNAL

    def proof(self, role: bytes, transcript: bytes) -> bytes:
        """HMAC over both greetings, as `role`."""
        key = hmac.digest(self.secret.encode(), _PURPOSE, "sha256")
        return hmac.digest(key, role + b"\n" + transcript, "sha256")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The dialler's greeting. `to`: the node that it means to reach; empty: any of the cluster."""

    node: NodeId
    to: NodeId
    listener: str
    nonce: bytes


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The acceptor's greeting."""

    node: NodeId
    listener: str
    nonce: bytes


@dataclass(frozen=True)
class SealedSession:
    """Both directions of a connection whose ends are proved. `peer`: the other end's node id."""

    peer: NodeId
    sealer: Sealer
    opener: Opener


class Dialler:
    """The end that opens a connection: send `opening`, feed `received` until it has a session."""

    def __init__(self, me: PeerIdentity, to: NodeId, nonce: bytes) -> None:
        self._me, self._to = me, to
        self._hello = msgspec.msgpack.encode(Hello(me.node, to, me.listener, nonce))
        self._frames = _GreetingFrames()
        self._welcome = b""
        #: what to send first of all
        self.opening = MAGIC + _framed(self._hello)
        #: what to send before the first record, once there is a session
        self.proof = b""

    def received(self, data: bytes) -> SealedSession | None:
        """The session, once the acceptor has proved itself. Raises HandshakeRefused."""
        self._frames.feed(data)
        if not self._welcome:
            frame = self._frames.next()
            if frame is None:
                return None
            self._welcome = frame
        proof = self._frames.next()
        if proof is None:
            return None
        return self._judged(proof)

    def _judged(self, proof: bytes) -> SealedSession:
        welcome = _decoded(self._welcome, Welcome)
        transcript = self._hello + self._welcome
        if not hmac.compare_digest(proof, self._me.proof(b"acceptor", transcript)):
            raise SecretDiffers(
                f"the process that answers for {self._to or 'a node'} does not know the secret of "
                "this cluster, or not the same one: nothing was sent to it"
            )
        if self._to not in ("", welcome.node):
            raise HandshakeRefused(f"{welcome.node} answers at the address of {self._to}")
        if welcome.listener != self._me.listener:
            raise HandshakeRefused(
                f"the {welcome.listener} listener of {welcome.node} answers, "
                f"not its {self._me.listener} listener"
            )
        if self._frames.rest:
            raise HandshakeRefused("it sent records before it was asked")
        self.proof = _framed(self._me.proof(b"dialler", transcript))
        return SealedSession(
            welcome.node,
            Sealer(self._me.proof(b"key of dialler", transcript)),
            Opener(self._me.proof(b"key of acceptor", transcript)),
        )


class Acceptor:
    """The end that is dialled; MAGIC has been read. Send `answer` as soon as it is not empty, feed
    `received` until it has a session; `rest` then holds the first bytes of records."""

    def __init__(self, me: PeerIdentity, nonce: bytes) -> None:
        self._me = me
        self._mine = msgspec.msgpack.encode(Welcome(me.node, me.listener, nonce))
        self._frames = _GreetingFrames()
        self._hello: Hello | None = None
        self._transcript = b""
        #: what to send; the caller empties it
        self.answer = b""

    @property
    def rest(self) -> bytes:
        """What followed the dialler's proof."""
        return self._frames.rest

    def received(self, data: bytes) -> SealedSession | None:
        """The session, once the dialler has proved itself too. Raises HandshakeRefused."""
        self._frames.feed(data)
        if self._hello is None:
            frame = self._frames.next()
            if frame is None:
                return None
            self._hello = _decoded(frame, Hello)
            self._transcript = frame + self._mine
            self.answer = _framed(self._mine)
            self.answer += _framed(self._me.proof(b"acceptor", self._transcript))
        proof = self._frames.next()
        if proof is None:
            return None
        return self._judged(self._hello, proof)

    def _judged(self, hello: Hello, proof: bytes) -> SealedSession:
        if not hmac.compare_digest(proof, self._me.proof(b"dialler", self._transcript)):
            raise SecretDiffers(
                f"a process that calls itself {hello.node or 'an operator'} does not know the "
                "secret of this cluster"
            )
        if hello.to not in ("", self._me.node) or hello.listener != self._me.listener:
            raise HandshakeRefused(
                f"{hello.node or 'an operator'} looks for the {hello.listener} listener of "
                f"{hello.to}, this is the {self._me.listener} listener of {self._me.node}"
            )
        return SealedSession(
            hello.node,
            Sealer(self._me.proof(b"key of acceptor", self._transcript)),
            Opener(self._me.proof(b"key of dialler", self._transcript)),
        )


class _GreetingFrames:
    """u32 length, then that many bytes; only during the handshake."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> None:
        self.rest += data

    def next(self) -> bytes | None:
        """The next whole frame. Raises HandshakeRefused for one that cannot be a greeting."""
        if len(self.rest) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self.rest)
        if not 0 < length <= FRAME_BYTES_MAX:
            raise HandshakeRefused(
                "it does not answer as a node of this release does: it is none, or one of another "
                "release; start this release of Standpipe on it"
            )
        end = _LENGTH.size + length
        if len(self.rest) < end:
            return None
        frame, self.rest = self.rest[_LENGTH.size : end], self.rest[end:]
        return frame


def _framed(frame: bytes) -> bytes:
    return _LENGTH.pack(len(frame)) + frame


def _decoded(frame: bytes, type_: type[Greeting]) -> Greeting:
    try:
        greeting = msgspec.msgpack.decode(frame, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HandshakeRefused(f"its greeting cannot be read: {error}") from error
    if len(greeting.nonce) != NONCE_BYTES:
        raise HandshakeRefused(f"a nonce of {len(greeting.nonce)} bytes")
    return greeting
