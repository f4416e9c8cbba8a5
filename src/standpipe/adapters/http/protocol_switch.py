"""Two protocols on one port: the first bytes of a connection decide which one it speaks.

Not here: the protocols (`adapters.http.server`, `adapters.http.http2_server`,
`adapters.http.sealed_server`, `adapters.raft.wire`); how long the first bytes may take
(`adapters.http.connections`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from uvicorn.server import ServerState

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.connections import FRESH, ConnectionProgress, WaitingFor


@dataclass(frozen=True)
class OtherProtocol:
    """The opening bytes of another protocol on an HTTP port, and what makes it."""

    opening: bytes
    make: Callable[[ServerState, AcceptedConnection], asyncio.Protocol]


class ProtocolSwitch(asyncio.Protocol):
    """Gives a connection to one of two protocols, by its first bytes."""

    def __init__(
        self,
        other: OtherProtocol,
        http: Callable[[AcceptedConnection], asyncio.Protocol],
        state: ServerState,
        accepted: AcceptedConnection,
    ) -> None:
        self._other = other
        self._http = http
        self._state = state
        self._connections = cast("set[Any]", state.connections)
        self._accepted = accepted
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._accepted.serve(transport, _waits_for_a_head)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: decide as soon as the bytes do."""
        self._seen += data
        opening = self._other.opening
        if self._seen.startswith(opening):
            other = self._other.make(self._state, self._accepted)
            self._give_to(other, self._seen[len(opening) :])
        elif not opening.startswith(self._seen):
            self._give_to(self._http(self._accepted), self._seen)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._accepted.leave()
        self._connections.discard(self)

    def shutdown(self) -> None:
        """No request has arrived yet, so none needs an answer."""
        self.transport.close()

    def _give_to(self, protocol: asyncio.Protocol, data: bytes) -> None:
        self._connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if data:
            protocol.data_received(data)


class Proving(Protocol):
    """A protocol of peers that prove themselves, after which they may be silent for long."""

    @property
    def is_proved(self) -> bool:
        """Whether the peer has."""
        ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol, as for the others."""

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class Watched(asyncio.Protocol):
    """A protocol that knows of no acceptor, with one: until its peer has proved itself, it is held
    to the deadline of a head, and may be given up for others."""

    def __init__(self, inner: Proving, accepted: AcceptedConnection) -> None:
        self._inner = inner
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._accepted.serve(transport, self._progress)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._accepted.leave()
        self._inner.connection_lost(exc)

    def _progress(self) -> ConnectionProgress:
        return ConnectionProgress(WaitingFor.BUSY) if self._inner.is_proved else FRESH


class RejectedPeer(asyncio.Protocol):
    """Ends a connection as soon as it is made: otherwise it would stay open unused."""

    is_proved = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Abort it; the peer dials again."""
        cast("asyncio.Transport", transport).abort()


def _waits_for_a_head() -> ConnectionProgress:
    return FRESH
