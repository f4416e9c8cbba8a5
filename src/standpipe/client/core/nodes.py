"""The nodes that a client knows, and in what order it tries them. Pure: `now_s` is passed in.

A node that did not answer is tried last for a while, which doubles with each failure in a row up to
`SUSPECT_S_MAX`. When the while is over, one request tries it, and the others go on past it until
that one has an answer. A node that said when to come again (429, 503 with Retry-After) is left
alone until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SUSPECT_S_MIN: Final = 0.1
SUSPECT_S_MAX: Final = 2.0
#: how long others pass over a node that one request tries again
PROBE_S: Final = 0.5
#: how long after a statement its node is preferred; the others' maps follow within some 100 ms
STICKY_S: Final = 5.0


@dataclass
class NodeHealth:
    """What became of the last requests to a node."""

    failures: int = 0
    #: monotonic seconds; 0: it is not suspected
    suspect_until_s: float = 0.0
    #: monotonic seconds; it asked to be left alone until then
    busy_until_s: float = 0.0


@dataclass
class Nodes:
    """`seeds`: the addresses that the user gave; they are never forgotten."""

    seeds: tuple[str, ...]
    #: node id -> address, as the cluster names its members
    members: dict[str, str] = field(default_factory=dict[str, str])
    _health: dict[str, NodeHealth] = field(default_factory=dict[str, NodeHealth])
    _turn: int = 0
    #: the node that took the newest statement, and until when it is preferred
    _sticky: tuple[str, float] = ("", 0.0)

    def __post_init__(self) -> None:
        #: every address, members first; a seed that is a member's other name stays, at the end
        self.addresses = self._addresses()

    @property
    def are_well(self) -> bool:
        """None is suspected, and none asked to be left alone."""
        return not self._health

    def learn(self, members: Mapping[str, str]) -> None:
        """Take over the members that a node named."""
        self.members = dict(members)
        self.addresses = self._addresses()
        known = {*self.seeds, *members.values()}
        self._health = {each: found for each, found in self._health.items() if each in known}

    def _addresses(self) -> list[str]:
        return list(dict.fromkeys([*self.members.values(), *self.seeds]))

    def order(self, preferred: Sequence[str], now_s: float) -> list[str]:
        """All addresses, best first: `preferred` ones, then the others in turn; suspects last.

        Without a preference, the node that took a statement a moment ago comes first.
        """
        if not preferred and now_s < self._sticky[1]:
            preferred = (self._sticky[0],)
        others = self.addresses
        self._turn += 1
        turn = self._turn % len(others)
        every = list(dict.fromkeys([*preferred, *others[turn:], *others[:turn]]))
        if not self._health:
            return every
        suspects = [each for each in every if self._suspect_until(each) > now_s]
        if not suspects:
            return every
        suspects.sort(key=self._suspect_until)
        return [each for each in every if each not in suspects] + suspects

    def chosen(self, address: str, now_s: float) -> None:
        """A request goes there now: if it probes a suspect, the others go on passing it over."""
        health = self._health.get(address)
        if health is not None and health.failures:
            health.suspect_until_s = max(health.suspect_until_s, now_s + PROBE_S)

    def failed(self, address: str, now_s: float) -> None:
        """No answer came from there."""
        health = self._health.setdefault(address, NodeHealth())
        health.failures += 1
        pause = min(SUSPECT_S_MAX, SUSPECT_S_MIN * 2 ** min(health.failures - 1, 10))
        health.suspect_until_s = now_s + pause

    def answered(self, address: str, now_s: float) -> None:
        """It answered, with whatever status; maybe to a request before the one after which it asked
        to be left alone."""
        health = self._health.get(address)
        if health is None:
            return
        if health.busy_until_s > now_s:
            health.failures, health.suspect_until_s = 0, 0.0
        else:
            self._health.pop(address, None)

    def took_statement(self, address: str, now_s: float) -> None:
        """It carried out a statement, after which its map is the newest."""
        self._sticky = (address, now_s + STICKY_S)

    def hold(self, address: str, until_s: float) -> None:
        """It said that it wants no request before that."""
        health = self._health.setdefault(address, NodeHealth())
        health.busy_until_s = max(health.busy_until_s, until_s)

    def busy_until(self, address: str) -> float:
        """When it may be asked again; 0: now."""
        health = self._health.get(address)
        return health.busy_until_s if health else 0.0

    def left_alone(self, now_s: float) -> list[tuple[float, str]]:
        """For how many seconds more each node is left alone that asked for it; the shortest
        first."""
        health = dict(self._health)  # other threads add to it
        return sorted(
            (found.busy_until_s - now_s, address)
            for address, found in health.items()
            if found.busy_until_s > now_s
        )

    def address_of(self, node_id: str) -> str | None:
        """Where a member listens; None: not known yet."""
        return self.members.get(node_id)

    def _suspect_until(self, address: str) -> float:
        health = self._health.get(address)
        return health.suspect_until_s if health else 0.0


def normalised(addresses: str | Iterable[str]) -> tuple[str, ...]:
    """`"a:1, b:2"` or a list of them as a tuple without duplicates. Raises ValueError."""
    listed = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    found = tuple(dict.fromkeys(each.strip().rstrip("/") for each in listed if each.strip()))
    if not found:
        raise ValueError("name at least one node: host:port[,host:port…]")
    for each in found:
        _, _, port = each.rpartition("://")[2].rpartition(":")
        if not port.isdigit():
            raise ValueError(f"{each!r} is not host:port")
    return found
