"""A connection of a worker without a socket: the test feeds it, and reads what it sent."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.server import ServerState

from standpipe.adapters.http import server
from standpipe.adapters.http.server import Application, FastPath, Listener, LookupProtocol


class Wire(asyncio.Transport):
    """A transport whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        #: bytes of each write
        self.written: list[int] = []
        #: called after each write
        self.took = lambda: None
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.written.append(len(data))
        self.took()

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Accepted:
    """As an `AcceptedConnection` that nobody watches."""

    def serve(self, *_: object) -> None:
        pass


def listener_of(fast_path: FastPath, application: Application) -> Listener:
    """A listener without a port."""
    return Listener(socket=cast("Any", None), application=application, fast_path=fast_path)


def connected(listener: Listener) -> tuple[LookupProtocol, Wire]:
    """A new connection, in the running loop."""
    connection, wire = server._http(listener, ServerState())(cast("Any", _Accepted())), Wire()
    assert isinstance(connection, LookupProtocol)
    connection.connection_made(wire)
    return connection, wire
