"""Finds free ports on loopback. If the wanted port is in use, it takes the next one and reports it.

Node *i* (from 0) takes public 8088+10i, internal +1, (+2 is free), peer +3
(docs/INTERFACES.md).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from standpipe.errors import PortInUse

HOST = "127.0.0.1"
BROKER_PORT = 9092
NODE_PORT = 8088
NODE_STEP = 10  # ports reserved for one node; it uses four of them
TRIES_MAX = 200
#: `any_port` chooses from these; None: the upper half of those below the kernel's outgoing range
ANY: range | None = None
_given: set[int] = set()  # by `any_port`; the caller may bind a port much later


@dataclass(frozen=True)
class NodePorts:
    """Ports of one node, all on loopback."""

    public: int

    @property
    def internal(self) -> int:
        """Port of the metadata log and the quorum."""
        return self.public + 1

    @property
    def peer(self) -> int:
        """Port for forwarded reads."""
        return self.public + 3

    @property
    def all(self) -> range:
        return range(self.public, self.public + 4)


def is_free(port: int) -> bool:
    """Whether no process listens on the port (a socket in TIME_WAIT does not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def any_port() -> int:
    """Any free port, from below the kernel's range for outgoing connections.

    Port 0 would give one from that range, and an outgoing connection of any process may take it
    between this check and our bind (seen in the tests: a node that could not listen). A process
    never returns a port twice. Raises PortInUse after TRIES_MAX ports.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = ANY or range(low // 2, low - NODE_STEP)
    for _ in range(TRIES_MAX):
        port = random.choice(ports)  # noqa: S311 -- no secret
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise PortInUse("no free port was found", next_step="end processes that listen on this machine")


def broker_port(wanted: int, say: Callable[[str], None]) -> int:
    """The wanted port, or the first free one above it."""
    return _first_free(wanted, 1, range(1), "Kafka", say)


def node_ports(
    wanted: int, count: int, say: Callable[[str], None], *, taken: frozenset[int] = frozenset()
) -> tuple[NodePorts, ...]:
    """Ports for `count` nodes from `wanted` up; `taken` are reserved for others."""
    found: list[NodePorts] = []
    port = wanted
    for index in range(count):
        name = f"node-{index + 1}"
        port = _first_free(port, NODE_STEP, range(4), name, say, taken=taken)
        found.append(NodePorts(port))
        port += NODE_STEP
    return tuple(found)


def _first_free(
    wanted: int,
    step: int,
    span: range,
    who: str,
    say: Callable[[str], None],
    *,
    taken: frozenset[int] = frozenset(),
) -> int:
    for start in range(wanted, wanted + TRIES_MAX * step, step):
        busy = [start + k for k in span if start + k in taken or not is_free(start + k)]
        if not busy:
            if start != wanted:
                say(f"port {wanted} is in use: {who} takes {start}")
            return start
    raise PortInUse(
        f"no free port for {who} from {wanted} up",
        next_step="give another one with --port or --broker-port",
    )
