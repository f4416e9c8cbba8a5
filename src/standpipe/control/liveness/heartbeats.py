"""Which peers are alive, judged from the heartbeats that arrived. Pure: instants arrive in events.

Every node sends a heartbeat to every other once per SEND interval. Once per CHECK interval, a node
looks at the heartbeats of the last WINDOW and counts those missed, and those received, in a row up
to now:

    UNKNOWN ── enough received ──► ALIVE ── enough missed ──► DOWN ── enough received ──► ALIVE
       └────── a whole window of silence ────────────────────►┘        (at most twice a minute)

All instants are the *receiver's* (one clock, monotonic), so skew between machines cannot matter;
the instant in a ksqlDB heartbeat is ignored. A check that runs more than one SEND interval late is
discarded: this process was starved or stopped, heartbeats may lie unread, and a node that was not
listening must not judge its peers. After a discarded check, silence counts from its instant.

A peer counts as down at once, but a flapping peer returns at most twice a minute. One that sends
heartbeats meanwhile is *held down* (`held_down`): reads go to it only if no other replica answers.
The verdicts decide routing only (`control.routing.route`). The leader of the metadata quorum
decides who is promoted (`control.assignment.transition`) and when a silent node counts as gone
(`control.assignment.from_catalog`), by its own observations.

Source: KLIP-12 "Failure detection/Healthcheck". A deliberate difference: >= MISSED, not "more than"
(KLIP-12's own example says 3 missed = down). Not here: lags (`control.liveness.lag`), failed
requests (`node.worker.pull.forward`), sending (`node.liveness.loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from standpipe.config import liveness as settings
from standpipe.config.registry import Config
from standpipe.model import Health, NodeId

#: How often a peer may come back, and within what time.
RETURNS_MAX: Final = 2
RETURNS_MS: Final = 60_000


class Count(Enum):
    """What the heartbeats of a window add up to."""

    ENOUGH_MISSED = auto()  # in a row, up to now
    ENOUGH_RECEIVED = auto()  # in a row, up to now
    SILENT = auto()  # nothing for a whole window


#: The only ways a verdict can change; a missing pair changes nothing.
NEXT: Final = {
    (Health.UNKNOWN, Count.ENOUGH_RECEIVED): Health.ALIVE,
    (Health.UNKNOWN, Count.SILENT): Health.DOWN,  # it may still be starting: not after 3 heartbeats
    (Health.ALIVE, Count.ENOUGH_MISSED): Health.DOWN,
    (Health.ALIVE, Count.SILENT): Health.DOWN,
    (Health.DOWN, Count.ENOUGH_RECEIVED): Health.ALIVE,  # at most twice a minute
}


@dataclass(frozen=True, kw_only=True)
class HeartbeatSettings:
    """KLIP-12's parameters. Detects after at most send x missed + check (+ one latency)."""

    send_ms: int = 100
    check_ms: int = 200
    window_ms: int = 2000
    missed_count: int = 3  # in a row, up to now; this many are down (>=)
    received_count: int = 2  # in a row, up to now; this many are up (>=)

    @classmethod
    def of(cls, config: Config) -> HeartbeatSettings:
        """The settings that the node's configuration keys give."""
        return cls(
            send_ms=config[settings.BEAT_SEND],
            check_ms=config[settings.BEAT_CHECK],
            window_ms=config[settings.BEAT_WINDOW],
            missed_count=config[settings.BEATS_MISSED],
            received_count=config[settings.BEATS_RECEIVED],
        )


# ------------------------------------------------------------------------- events and orders


@dataclass(frozen=True)
class MembersKnown:
    """The log's members without this node. New ones are UNKNOWN; peers not listed are forgotten."""

    members: frozenset[NodeId]
    at_ms: float


@dataclass(frozen=True)
class BeatHeard:
    """A peer's heartbeat arrived."""

    node: NodeId
    at_ms: float


@dataclass(frozen=True)
class CheckDue:
    """The peers are to be judged now."""

    at_ms: float


@dataclass(frozen=True)
class Mark:
    """Order: from now on the peer counts as `health`. `silent_ms`: since its last heartbeat."""

    node: NodeId
    health: Health
    silent_ms: float | None


@dataclass(frozen=True)
class CheckVoid:
    """Order: note that a check ran `late_ms` after it was due and judged no peer."""

    late_ms: float


Event = MembersKnown | BeatHeard | CheckDue
Order = Mark | CheckVoid


# -------------------------------------------------------------------------------- counting


def missed_in_row(silent_ms: float, send_ms: int) -> int:
    """Heartbeats missed in a row up to now. A heartbeat exactly on time is not missed.

    0..100 ms of silence: none at 100 ms between heartbeats; 301 ms: three.
    """
    return max(0, -int(-silent_ms // send_ms) - 1)  # ceiling - 1


def received_in_row(beats_ms: list[float], now_ms: float, send_ms: int) -> int:
    """Heartbeats received in a row up to now. `beats_ms`: instants, ascending.

    Two heartbeats are consecutive unless a second one was due between them, so a heartbeat that is
    late by less than an interval does not break the row. (KLIP-12 counts slots, which jitter would
    empty.)
    """
    count, later = 0, now_ms
    for beat in reversed(beats_ms):
        if later - beat > 2 * send_ms:
            break
        count, later = count + 1, beat
    return count


@dataclass
class _PeerRecord:
    """What is known about one peer."""

    known_ms: float
    health: Health = Health.UNKNOWN
    #: instants of heartbeats within the window, ascending
    beats_ms: list[float] = field(default_factory=list[float])
    newest_ms: float | None = None
    #: instants at which it came back from DOWN, within RETURNS_MS
    returns_ms: list[float] = field(default_factory=list[float])
    #: its heartbeats are those of a live peer, but it came back too often
    is_held_down: bool = False


class PeerVerdicts:
    """The verdicts of one node on its peers. `handle(event) -> [orders]`."""

    def __init__(self, rules: HeartbeatSettings | None = None) -> None:
        self._rules = rules or HeartbeatSettings()
        self._peers: dict[NodeId, _PeerRecord] = {}
        self._checked_ms: float | None = None
        #: silence before this instant proves nothing: this node was not listening
        self._listening_ms = 0.0

    @property
    def health(self) -> Mapping[NodeId, Health]:
        """Verdict on every known peer."""
        return {node: peer.health for node, peer in self._peers.items()}

    @property
    def held_down(self) -> frozenset[NodeId]:
        """Peers that are DOWN only because they came back too often: their heartbeats do arrive."""
        return frozenset(node for node, peer in self._peers.items() if peer.is_held_down)

    def silent_since_ms(self, node: NodeId) -> float:
        """When a known peer sent its last heartbeat, or became known if it sent none."""
        peer = self._peers[node]
        return peer.known_ms if peer.newest_ms is None else peer.newest_ms

    def handle(self, event: Event) -> list[Order]:
        """Handle one event; the orders say which verdicts changed."""
        if isinstance(event, BeatHeard):
            return self._heard(event)
        if isinstance(event, MembersKnown):
            return self._known(event)
        return self._check(event.at_ms)

    def _known(self, event: MembersKnown) -> list[Order]:
        for node in self._peers.keys() - event.members:
            del self._peers[node]
        fresh = sorted(event.members - self._peers.keys())
        for node in fresh:
            self._peers[node] = _PeerRecord(known_ms=event.at_ms)
        return [Mark(node, Health.UNKNOWN, None) for node in fresh]

    def _heard(self, event: BeatHeard) -> list[Order]:
        if peer := self._peers.get(event.node):  # else it is not a member: the log decides
            peer.beats_ms.append(event.at_ms)
            peer.newest_ms = event.at_ms
        return []

    def _check(self, now_ms: float) -> list[Order]:
        rules, before = self._rules, self._checked_ms
        self._checked_ms = now_ms
        late_ms = 0.0 if before is None else now_ms - before - rules.check_ms
        if late_ms > rules.send_ms:
            self._listening_ms = now_ms
            return [CheckVoid(late_ms)]
        return [mark for node in sorted(self._peers) if (mark := self._judge(node, now_ms))]

    def _judge(self, node: NodeId, now_ms: float) -> Mark | None:
        peer = self._peers[node]
        peer.beats_ms = [at for at in peer.beats_ms if at >= now_ms - self._rules.window_ms]
        count = self._count(peer, now_ms)
        after = NEXT.get((peer.health, count), peer.health) if count else peer.health
        peer.is_held_down = False
        if after is peer.health:
            return None
        if peer.health is Health.DOWN:
            peer.returns_ms = [at for at in peer.returns_ms if at > now_ms - RETURNS_MS]
            if len(peer.returns_ms) >= RETURNS_MAX:
                peer.is_held_down = True
                return None
            peer.returns_ms.append(now_ms)
        peer.health = after
        return Mark(node, after, None if peer.newest_ms is None else now_ms - peer.newest_ms)

    def _count(self, peer: _PeerRecord, now_ms: float) -> Count | None:
        rules = self._rules
        newest = peer.known_ms if peer.newest_ms is None else peer.newest_ms
        silent_ms = now_ms - max(newest, self._listening_ms)
        if silent_ms > rules.window_ms:
            return Count.SILENT
        if missed_in_row(silent_ms, rules.send_ms) >= rules.missed_count:
            return Count.ENOUGH_MISSED
        if received_in_row(peer.beats_ms, now_ms, rules.send_ms) >= rules.received_count:
            return Count.ENOUGH_RECEIVED
        return None
