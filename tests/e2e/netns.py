"""Hosts of our own: network namespaces with a bridge between them, for what crosses a network.

The test itself moves into the bridge's namespace, so it reaches every host whatever is cut between
them, and nothing of this is seen outside. A cut is one-way and silent: what one host sends to
another goes into a cable without an end, as with a broken switch. Needs root and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Final

CLONE_NEWNET: Final = 0x40000000
NET: Final = "10.77.0"


class NotPermitted(Exception):
    """This machine makes no namespaces; `str` says why."""


@dataclass
class Hosts:
    """One namespace per name, all on one bridge."""

    names: Sequence[str]
    _cuts: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def address(self, name: str) -> str:
        return f"{NET}.{self.names.index(name) + 1}"

    def inside(self, name: str) -> list[str]:
        """What to put before a command that is to run on a host."""
        return ["nsenter", f"--net=/run/netns/{_space(name)}"]

    def cut(self, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """What any of these sends to any of those vanishes; the way back stays."""
        for pair in product(senders, receivers):
            if pair[0] != pair[1] and pair not in self._cuts:
                _ip("-n", _space(pair[0]), "route", "add", self._route(pair[1]), "dev", "sink")
                self._cuts.add(pair)

    def split(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Nothing passes between the two sides."""
        self.cut(some, others)
        self.cut(others, some)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            _ip("-n", _space(sender), "route", "del", self._route(receiver), "dev", "sink")
        self._cuts.clear()

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether the kernel would put it on the real cable."""
        told = _ip("-n", _space(sender), "route", "get", self.address(receiver))
        return "dev eth0" in told

    def _route(self, name: str) -> str:
        return f"{self.address(name)}/32"


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[Hosts]:
    """Make them, move this thread (and threads that it starts) to the bridge, undo all of it.

    Raises NotPermitted.
    """
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nsenter")):
        raise NotPermitted("network namespaces need root, ip (iproute2) and nsenter (util-linux)")
    made = Hosts(names)
    spaces = [_space("hub"), *(_space(name) for name in names)]
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        try:
            _build(made)
        except subprocess.CalledProcessError as error:
            raise NotPermitted(f"no network namespaces here: {error.stderr.strip()}") from error
        assert all(made.reaches(*pair) for pair in permutations(names, 2))
        hub = os.open(f"/run/netns/{_space('hub')}", os.O_RDONLY)
        _enter(hub)
        os.close(hub)
        yield made
    finally:
        _enter(home)
        os.close(home)
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def _build(made: Hosts) -> None:
    hub = _space("hub")
    _ip("netns", "add", hub)
    _ip("-n", hub, "link", "set", "lo", "up")
    _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
    _ip("-n", hub, "link", "set", "bridge", "up")
    _ip("-n", hub, "addr", "add", f"{NET}.254/24", "dev", "bridge")
    for name in made.names:
        space, port = _space(name), f"to-{name}"[:15]
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", hub)
        _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "addr", "add", f"{made.address(name)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "add", "sink", "type", "veth", "peer", "name", "void")
        _ip("-n", space, "link", "set", "void", "up")
        _ip("-n", space, "link", "set", "sink", "arp", "off", "up")


def _space(name: str) -> str:
    return f"standpipe-{os.getpid()}-{name}"


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
