"""The keys of the ports: how many connections there may be, and how long they may take.

Not here: what they control (`standpipe.adapters.http.connections`); all other keys
(`standpipe.config.keys`).
"""

from __future__ import annotations

from standpipe.config.registry import key

CONNECTIONS_MAX = key(
    "standpipe.listener.connections.max",
    int,
    10_000,
    unit="count",
    low=8,
    doc="Connections of one listener in one process; each worker counts its own. All listeners of "
    "a process together get half of its file descriptors at most (`ulimit -Hn`). When a listener "
    "is full, a new connection replaces the oldest one without a request; if there is none, it is "
    "closed at once.",
)
CONNECTIONS_PER_ADDRESS_MAX = key(
    "standpipe.listener.connections.per.address.max",
    int,
    2_000,
    unit="count",
    low=1,
    doc="Connections of one listener in one process that come from one address (IPv6: from one "
    "/64), at most half of all. Enough for a load generator or a proxy with 1,000 connections "
    "behind one address, and for all peers of a node on one host.",
)
HEAD_TIMEOUT = key(
    "standpipe.listener.head.timeout.ms",
    int,
    10_000,
    unit="ms",
    low=100,
    doc="How long a connection may take for its first request's head, TLS handshake included, and "
    "for the head of each later request from its first byte on. Then it is cut.",
)
BODY_RATE_MIN = key(
    "standpipe.listener.body.bytes.per.second.min",
    int,
    4096,
    unit="bytes",
    low=1,
    doc="Slowest rate at which a request's body may arrive, on average, after the time of "
    "`standpipe.listener.head.timeout.ms`. A slower one is cut.",
)
