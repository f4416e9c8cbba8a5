"""The addresses of a node's listeners: bound, and dialled from the same host."""

from __future__ import annotations

import socket

from standpipe.adapters.http.server import bind

#: A client that acknowledges nothing, or reads nothing of what waits for it, is cut off.
SILENT_SECONDS_MAX = 60


def bind_address(address: str) -> socket.socket:
    """A listening socket at `host:port`. Raises PortInUse."""
    return bind(*_host_port(address))


def watched(listening: socket.socket) -> socket.socket:
    """Have the kernel find clients that vanished or that never read: an endless answer would keep
    its consumer for them permanently. Connections inherit the options (Linux)."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS_MAX // 2)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS_MAX // 8)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_SECONDS_MAX)
    return listening


def dialled(address: str) -> str:
    """An address that this host binds, as it is dialled from here."""
    host, port = _host_port(address)
    return f"127.0.0.1:{port}" if host in ("", "0.0.0.0", "::") else address  # noqa: S104


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
