"""The keys of the ports: how many connections, how long they may take, and which web pages.

Not here: what they control (`standpipe.adapters.http.connections`,
`standpipe.node.worker.request.page_guard`); all other keys (`standpipe.config.keys`).
"""

from __future__ import annotations

from standpipe.config.registry import key, relation

CONNECTIONS_MAX = key(
    "standpipe.listener.connections.max",
    int,
    10_000,
    unit="count",
    low=8,
    doc="Connections of one listener in one process; each worker counts its own. All listeners of "
    "a process together get half of its file descriptors at most (`ulimit -Hn`); half of an equal "
    "share is kept for each, the rest is for the first that comes. When a listener is full, a new "
    "connection replaces the oldest one without a request, or else the one that is idle for "
    "longest (for a second or more); if there is none, it is closed at once.",
)
CONNECTIONS_PER_ADDRESS_MAX = key(
    "standpipe.listener.connections.per.address.max",
    int,
    2_000,
    unit="count",
    low=1,
    doc="Connections of one listener in one process that come from one address (IPv6: from one "
    "/64), at most three quarters of all. Enough for a load generator or a proxy with 1,000 "
    "connections behind one address, and for all peers of a node on one host.",
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
HOSTS_ALLOWED = key(
    "standpipe.http.hosts.allowed",
    str,
    "",
    doc="Names by which clients reach this node, separated by commas, beside IP addresses, "
    "`localhost`, the host's name and the names in the node's addresses. `.example.com` allows "
    "all names below it, `*` any. A request for another host is refused with 421: a web page "
    "could reach the node under a name of its own (DNS rebinding).",
)
ORIGINS_ALLOWED = key(
    "standpipe.http.origins.allowed",
    str,
    "",
    doc="Origins of web pages that may send requests, as `https://console.example.com`, separated "
    "by commas; `*` allows any. A page that came from the node's own host and port always may. "
    "Meant for a proxy that serves the page and passes requests on under another Host; the node "
    "sends no CORS headers.",
)

relation(
    lambda config: all(
        origin == "*" or "://" in origin for origin in listed(config[ORIGINS_ALLOWED])
    ),
    why="standpipe.http.origins.allowed has origins with their scheme, or *",
)


def listed(text: str) -> list[str]:
    """The entries of a value that is separated by commas, in lower case."""
    return [entry.strip().lower() for entry in text.split(",") if entry.strip()]
