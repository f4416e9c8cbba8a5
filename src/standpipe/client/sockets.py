"""What both drivers need of sockets: addresses, noticing that a peer is gone, and forks.

Two processes that read from one connection get each other's answers. So the child of a fork gives
up every connection that it finds, idle or not, and opens its own. It sends nothing over them: they
are its parent's.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final, Protocol
from urllib.parse import urlsplit
from weakref import WeakSet

from standpipe.client.core.exchange import SILENT, NoAnswer

#: a silent peer is asked after so many seconds, again after each second, and given up after three
IDLE_S: Final = 5
INTERVAL_S: Final = 1
PROBES: Final = 3


class Inherited(Protocol):
    """A connection that the child of a fork finds."""

    def leave_to_parent(self) -> None:
        """Let go of the file without a word; from now on it is closed."""
        ...


#: of this process
_connections: Final[WeakSet[Inherited]] = WeakSet()


def watch_forks(connection: Inherited) -> None:
    """The child of a fork shall leave it to its parent."""
    _connections.add(connection)


def _leave_all_to_parent() -> None:
    for connection in list(_connections):
        connection.leave_to_parent()
    _connections.clear()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def endpoint(address: str) -> tuple[str, int, bool]:
    """Host, port, and whether to speak TLS. Raises ValueError."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{address!r} is not host:port")
    return parts.hostname, parts.port, parts.scheme == "https"


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel find out that the other host is gone: a push query may be silent for hours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", INTERVAL_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", (IDLE_S + INTERVAL_S * PROBES) * 1000),
    ):
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reason_of(error: Exception) -> str:
    """Why there is no answer, in a few words; the same ones in both drivers."""
    is_system = isinstance(error, OSError) and not isinstance(error, socket.gaierror | ssl.SSLError)
    if is_system and isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def unread(error: Exception) -> NoAnswer:
    """Why a stream gave no more bytes."""
    # the kernel's own, which has a number, means that the other host is gone
    is_timer = isinstance(error, TimeoutError) and not error.errno
    return SILENT if is_timer else NoAnswer(reason_of(error), was_sent=True)
