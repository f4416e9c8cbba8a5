"""The accepting end of sealed connections: HTTP inside records, after the dialler's proof.

    socket ─► SealedProtocol ─ opened ─► LookupProtocol ─► SealedTransport ─ sealed ─► socket

The layer is below HTTP, so requests, answers and interim responses of every route are sealed alike,
and a head that the fast path remembers has the same bytes each time. Rejected: a signature in a
header of each request. It changes every head, and does not protect answers and streams.

A request on a connection that is not sealed is refused before its body is read, whatever it
carries (`refuse_unsealed` in `adapters.http.internal`).

Not here: the handshake and the records (`adapters.sealed`), the diallers (`peer_client`,
`sealed_socket`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.connections import FRESH, ConnectionProgress
from standpipe.adapters.paced_log import PacedLog
from standpipe.adapters.sealed.handshake import NONCE_BYTES, Acceptor, PeerIdentity, SealedSession
from standpipe.errors import Unauthorized
from standpipe.model import NodeId

#: In a request's scope, among the extensions: the node that proved itself; empty: an operator or a
#: pipeline. Absent or None: nobody did.
PEER_NODE: Final = "standpipe.peer"

_refusals: Final = PacedLog()


@dataclass(frozen=True)
class Seal:
    """What makes a listener one between nodes. `refusal`: answers what is not sealed."""

    identity: PeerIdentity
    refusal: Callable[[Any, Any, Any], Any]


def peer_of(scope: Any) -> NodeId:
    """The node that a request comes from; empty: an operator or a pipeline.

    Raises Unauthorized if nobody proved anything on its connection.
    """
    peer = scope.get("extensions", {}).get(PEER_NODE)
    if peer is None:
        raise Unauthorized("this route is for nodes that have proved that they know the secret")
    return NodeId(peer)


class SealedProtocol(asyncio.Protocol):
    """One connection, after MAGIC. `shutdown` and `transport` are for `server.serve`."""

    def __init__(
        self,
        identity: PeerIdentity,
        http: Callable[[AcceptedConnection], asyncio.Protocol],
        connections: set[Any],
        accepted: AcceptedConnection,
    ) -> None:
        self._acceptor = Acceptor(identity, os.urandom(NONCE_BYTES))
        self._http = http
        self._connections = connections
        self._accepted = accepted
        self._session: SealedSession | None = None
        self._inner: asyncio.Protocol | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the dialler has proved itself."""
        return self._session is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop: wait for the dialler's greeting."""
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._accepted.serve(transport, _waits_for_a_proof)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            if self._session is None:
                data = self._greeted(data)
            if self._session is None or not data:
                return
            opened = self._session.opener.open(data)
        except ConnectionError as error:
            _refusals.warning("sealed connection refused", why=str(error))
            self.transport.abort()
            return
        if opened and self._inner is not None:
            self._inner.data_received(opened)

    def eof_received(self) -> bool | None:
        """Called by the event loop."""
        return self._inner.eof_received() if self._inner is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._connections.discard(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)
        else:
            self._accepted.leave()

    def pause_writing(self) -> None:
        """Called by the event loop."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        if self._inner is not None:
            self._inner.resume_writing()

    def shutdown(self) -> None:
        """No request has arrived yet, so none needs an answer."""
        self.transport.close()

    def _greeted(self, data: bytes) -> bytes:
        """The records that followed the dialler's proof. Raises HandshakeRefused."""
        session = self._acceptor.received(data)
        if self._acceptor.answer:
            self.transport.write(self._acceptor.answer)
            self._acceptor.answer = b""
        if session is None:
            return b""
        self._connections.discard(self)  # HTTP's protocol is among them from now on
        self._session, self._inner = session, self._http(self._accepted)
        self._inner.connection_made(SealedTransport(self.transport, session))
        return self._acceptor.rest


def _waits_for_a_proof() -> ConnectionProgress:
    """Held to the deadline of a head, and given up for others (`adapters.http.connections`)."""
    return FRESH


class SealedTransport(asyncio.Transport):
    """What HTTP's protocol writes to: seals, and passes the rest on."""

    def __init__(self, raw: asyncio.Transport, session: SealedSession) -> None:
        super().__init__()
        self._raw = raw
        self._seal = session.sealer.seal
        self._peer = session.peer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.WriteTransport, as for the others."""
        if data:
            self._raw.write(self._seal(bytes(data)))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """One record for all."""
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer's node id as PEER_NODE; else what the socket's transport says."""
        return self._peer if name == PEER_NODE else self._raw.get_extra_info(name, default)

    def close(self) -> None:
        """Close when all is written."""
        self._raw.close()

    def abort(self) -> None:
        """Close now."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._raw.is_closing()

    def write_eof(self) -> None:
        """End the writing half."""
        self._raw.write_eof()

    def can_write_eof(self) -> bool:
        """Whether the writing half can be ended alone."""
        return self._raw.can_write_eof()

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again."""
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        """Whether it delivers."""
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause the writer."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not yet with the kernel."""
        return self._raw.get_write_buffer_size()
