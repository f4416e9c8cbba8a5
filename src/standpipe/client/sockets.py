"""What both drivers need of sockets: addresses, and noticing that a peer is gone."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

#: a silent peer is asked after so many seconds, again after each second, and given up after three
IDLE_S: Final = 5
INTERVAL_S: Final = 1
PROBES: Final = 3


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
