"""Hosts on one machine: a network namespace each, joined by a bridge, and faults of their network.

    enter()                       # this process alone in namespaces of its own
    with_bridge = Network()       # the bridge; this process has the address HUB on it
    a, b = network.add("a"), network.add("b")
    a.command(["python", …])      # the same command, at home on that host
    network.cut([(a, b)])         # what a sends to b goes nowhere (one way); `join` heals it

`enter` starts the program again inside `unshare`, as the first process of a process namespace: so
nothing of it is left when it ends, however it ends. No processes, no names, no interfaces, no
addresses on the machine itself, and no way out of it.

A cut is a neighbour entry with an address that nobody has: frames leave and vanish, without an
error at the sender, which is what a broken switch does and what a closed port does not. (The
kernels that this runs on have no netem; delay and loss are `tests.hosts.relay`.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: RFC 2544: addresses for tests between hosts, never routed.
SUBNET = "198.18.0"
HUB = f"{SUBNET}.1"
NOBODY = "02:00:00:00:ff:ff"
_INSIDE = "STANDPIPE_TEST_HOSTS"
_NAMES = Path("/run/netns")


def enter() -> None:
    """Go on inside namespaces of our own: replaces this process, and returns in the new one."""
    if _INSIDE in os.environ and os.getpid() == 1:
        _settle()
        return
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", [*_unshare(), sys.executable, *sys.orig_argv[1:]])


def is_possible() -> bool:
    """Whether this machine lets us make namespaces."""
    tried = [*_unshare(), "ip", "link", "set", "lo", "up"]
    try:
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _unshare() -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return ["unshare", *as_root, *kinds, "--"]


def _settle() -> None:
    _NAMES.mkdir(parents=True, exist_ok=True)
    _run(["mount", "-t", "tmpfs", "tmpfs", str(_NAMES)])  # names vanish with our mount namespace
    _run(["ip", "link", "set", "lo", "up"])


def _run(command: Sequence[str], text: str = "") -> str:
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout


def _ip(lines: Iterable[str], host: str = "") -> None:
    """Several `ip` commands in one process; of a host's namespace, or of the hub's."""
    within = ["-n", host] if host else []
    _run(["ip", *within, "-batch", "-"], "\n".join(lines) + "\n")


#: A datagram to PORT, and who waits for it until `wait_s` after it was sent.
_SAY = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], 9))
"""
_HEAR = """
import select, socket, sys
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind((sys.argv[1], 9))
print("bound", flush=True)
sys.stdin.readline()
print("heard" if select.select([bound], [], [], float(sys.argv[2]))[0] else "silence", flush=True)
"""


@dataclass(frozen=True)
class Host:
    """One namespace. `number` 1 is the hub: the test itself, Kafka and Spark."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.number}"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def device(self) -> str:
        """Its network card as it calls it."""
        return "br0" if self.number == 1 else "eth0"

    @property
    def port(self) -> str:
        """The bridge's end of its cable."""
        return f"port{self.number}"

    def command(self, command: Sequence[str]) -> list[str]:
        """The same process id runs the command, on this host."""
        return list(command) if self.number == 1 else [*self._enter, *command]

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", f"--net={_NAMES / self.name}", "--"]


Link = tuple[Host, Host]  # from, to: one direction


@dataclass
class Network:
    """The bridge and what hangs on it."""

    hub: Host = field(default_factory=lambda: Host("hub", 1))
    hosts: list[Host] = field(default_factory=list[Host])

    def __post_init__(self) -> None:
        _ip(
            [
                f"link add br0 address {self.hub.mac} type bridge",
                f"addr add {HUB}/24 dev br0",
                "link set br0 up",
            ]
        )

    def add(self, name: str) -> Host:
        """A new host, plugged in."""
        host = Host(name, 2 + len(self.hosts))
        _run(["ip", "netns", "add", name])
        _ip(
            [
                f"link add {host.port} type veth peer name eth0 address {host.mac} netns {name}",
                f"link set {host.port} master br0 up",
            ]
        )
        _ip(["link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up"], name)
        self.hosts.append(host)
        return host

    def at_least(self, count: int) -> list[Host]:
        """So many hosts, host-1 and on: those that are there, and new ones."""
        while len(self.hosts) < count:
            self.add(f"host-{len(self.hosts) + 1}")
        return self.hosts[:count]

    @property
    def everybody(self) -> list[Host]:
        return [self.hub, *self.hosts]

    # --------------------------------------------------------------------------- faults

    def cut(self, links: Iterable[Link]) -> None:
        """From now on frames of these links vanish."""
        self._point(links, NOBODY)

    def join(self, links: Iterable[Link]) -> None:
        """Undo `cut`."""
        self._point(links, None)

    def between(self, some: Iterable[Host], others: Iterable[Host]) -> list[Link]:
        """Both directions between two groups."""
        pairs = [(a, b) for a in some for b in others if a != b]
        return [*pairs, *((b, a) for a, b in pairs)]

    def around(self, *hosts: Host) -> list[Link]:
        """All links of hosts to all others, as if their switch had lost power."""
        return self.between(hosts, [h for h in self.everybody if h not in hosts])

    def reaches(self, sender: Host, receiver: Host, wait_s: float = 0.5) -> bool:
        """Whether a datagram gets from one to the other. Other traffic is not looked at."""
        hear = receiver.command([sys.executable, "-c", _HEAR, receiver.address, str(wait_s)])
        say = sender.command([sys.executable, "-c", _SAY, receiver.address])
        with subprocess.Popen(hear, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            assert listener.stdout is not None
            listener.stdout.readline()  # it is bound
            subprocess.run(say, check=True)
            return listener.communicate(b"sent\n")[0] == b"heard\n"

    def _point(self, links: Iterable[Link], mac: str | None) -> None:
        by_sender: dict[Host, list[Host]] = {}
        for sender, receiver in links:
            by_sender.setdefault(sender, []).append(receiver)
        for sender, receivers in by_sender.items():
            _ip(
                [
                    f"neigh replace {receiver.address} lladdr {mac or receiver.mac} "
                    f"dev {sender.device} nud permanent"
                    for receiver in receivers
                ],
                "" if sender == self.hub else sender.name,
            )
