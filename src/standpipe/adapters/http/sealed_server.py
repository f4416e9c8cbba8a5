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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.layered import LayerProtocol, LayerTransport
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


class SealedProtocol(LayerProtocol):
    """One connection, after MAGIC."""

    def __init__(
        self,
        identity: PeerIdentity,
        make: Callable[[AcceptedConnection], asyncio.Protocol],
        connections: set[Any],
        accepted: AcceptedConnection,
    ) -> None:
        super().__init__(make, connections, accepted)
        self._acceptor = Acceptor(identity, os.urandom(NONCE_BYTES))
        self._session: SealedSession | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the dialler has proved itself."""
        return self._session is not None

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
        if opened and self.inner is not None:
            self.inner.data_received(opened)

    def _greeted(self, data: bytes) -> bytes:
        """The records that followed the dialler's proof. Raises HandshakeRefused."""
        session = self._acceptor.received(data)
        if self._acceptor.answer:
            self.transport.write(self._acceptor.answer)
            self._acceptor.answer = b""
        if session is None:
            return b""
        self._session = session
        self.begin(SealedTransport(self.transport, session))
        return self._acceptor.rest


class SealedTransport(LayerTransport):
    """What HTTP's protocol writes to: seals, and passes the rest on."""

    def __init__(self, raw: asyncio.Transport, session: SealedSession) -> None:
        super().__init__(raw)
        self._seal = session.sealer.seal
        self._peer = session.peer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.WriteTransport."""
        if data:
            self._raw.write(self._seal(bytes(data)))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer's node id as PEER_NODE; else what the socket's transport says."""
        return self._peer if name == PEER_NODE else super().get_extra_info(name, default)
