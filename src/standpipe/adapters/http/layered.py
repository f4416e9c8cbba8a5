"""A layer between a socket and HTTP: what the accepting ends of seals and of TLS have in common.

    socket ─► LayerProtocol ─► the protocol inside ─► LayerTransport ─► socket

Until the client has done what the layer asks of it, nothing is inside, and the connection has the
deadline of a head and may be given up for others (`adapters.http.connections`).

Not here: what the layers do with bytes (`adapters.http.sealed_server`, `adapters.http.tls_server`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.connections import FRESH


class LayerProtocol(asyncio.Protocol):
    """One connection. `shutdown` and `transport` are for `server.serve`."""

    def __init__(
        self,
        make: Callable[[AcceptedConnection], asyncio.Protocol],
        connections: set[Any],
        accepted: AcceptedConnection,
    ) -> None:
        """`make`: the protocol inside. `connections`: those of the listener."""
        self._make = make
        self._connections = connections
        self._accepted = accepted
        #: None: the client has yet to do what the layer asks, or is gone
        self.inner: asyncio.Protocol | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """The client has done it: HTTP is inside from now on, and writes to that."""
        self._connections.discard(self)  # the protocol inside is among them from now on
        self.inner = self._make(self._accepted)
        self.inner.connection_made(transport)

    def shutdown(self) -> None:
        """No request has arrived yet, so none needs an answer."""
        self.transport.close()

    # -------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's greeting."""
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._accepted.serve(transport, lambda: FRESH)

    def eof_received(self) -> bool | None:
        """The client has ended the connection, or its sending half."""
        return None if self.inner is None else self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._connections.discard(self)
        if self.inner is not None:
            inner, self.inner = self.inner, None  # else each might keep the other
            inner.connection_lost(exc)
        else:
            self._accepted.leave()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        if self.inner is not None:
            self.inner.resume_writing()


class LayerTransport(asyncio.Transport):
    """What the protocol inside writes to. `write` is the layer's; the rest is the socket's."""

    def __init__(self, raw: asyncio.Transport) -> None:
        super().__init__()
        self._raw = raw

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """One record for all."""
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport, as for the others."""
        return self._raw.get_extra_info(name, default)

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
