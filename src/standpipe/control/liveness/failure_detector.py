"""Which members are alive: by heartbeats, and in a large cluster by gossip too. Pure.

`control.liveness.heartbeats` decides when a silent peer becomes DOWN. This module decides which
nodes judge it.

    up to SWITCH_NODES nodes   every node sends heartbeats to every other and judges each
                               (`control.liveness.heartbeats`)
    above, from feature level  each node sends heartbeats to a few and judges a few; verdicts on the
    GOSSIP on                  others arrive as rumours from watchers (`control.liveness.gossip`)

A node switches when the log's member count says so, so nodes switch at slightly different times.
For one window after it, a node also sends heartbeats to its previous receivers, so that no node is
found down because another one switched first. The same applies when the ring changes.

For a peer that it watches, a node trusts its own count of heartbeats; for any other, it trusts
VOICES watchers. A peer that no watcher doubts counts as ALIVE once rumours have had time to arrive;
until then it is UNKNOWN.

Simulated (tests/sim/gossip.py): at 20 nodes, heartbeats to all others are 190 messages/s from each
node. Gossip takes 66 at 21 nodes and 86 at 100, reports included, and every node knows of a lost
node within 0.5 s.

Source: KLIP-12. Not here: how verdicts affect reads (`control.routing.route`), sending
(`node.liveness.loop`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from standpipe.control.liveness.gossip import Gossip, Note, Rumour
from standpipe.control.liveness.heartbeats import (
    BeatHeard,
    CheckDue,
    CheckVoid,
    HeartbeatSettings,
    Mark,
    MembersKnown,
    Order,
    PeerVerdicts,
)
from standpipe.model import Health, NodeId

#: Up to this many nodes, every node sends heartbeats to every other.
SWITCH_NODES: Final = 20


class Verdicts:
    """One node's view of all members. Instants are this node's, in ms, and never go back."""

    def __init__(self, me: NodeId, rules: HeartbeatSettings) -> None:
        self._rules = rules
        self._verdicts = PeerVerdicts(rules)
        self._gossip = Gossip(me)
        #: every other member -> when it became known
        self._known_ms: dict[NodeId, float] = {}
        self._watched: frozenset[NodeId] = frozenset()
        self.is_mesh = True
        #: silence from watchers before this instant proves nothing
        self._listening_ms = 0.0
        #: the verdicts in this node's last orders
        self._shown: dict[NodeId, Health] = {}
        #: of those, the nodes that are not alive: the passing of time may change that
        self._waiting: set[NodeId] = set()
        #: node that is down -> since when
        self._down_ms: dict[NodeId, float] = {}
        #: when this node stopped watching a peer
        self._unwatched_ms: dict[NodeId, float] = {}
        #: last message from each node itself
        self._heard_ms: dict[NodeId, float] = {}
        #: receiver -> when heartbeats were due to it last
        self._due_ms: dict[NodeId, float] = {}

    # ------------------------------------------------------------------------- events

    def members(self, peers: frozenset[NodeId], at_ms: float, *, may_gossip: bool) -> list[Order]:
        """The log's members without this node, and whether all of them can gossip."""
        self._known_ms = {node: self._known_ms.get(node, at_ms) for node in peers}
        instants = (self._down_ms, self._unwatched_ms, self._heard_ms, self._due_ms)
        for by_node in (self._shown, *instants):
            for gone in by_node.keys() - peers:
                del by_node[gone]
        self._waiting &= peers
        was_mesh = self.is_mesh
        self.is_mesh = not may_gossip or len(peers) < SWITCH_NODES
        self._gossip.members(() if self.is_mesh else (*peers, self._gossip.me))
        if was_mesh and not self.is_mesh:
            self._listening_ms = at_ms
        orders = self._watch(at_ms)
        return orders if self.is_mesh else [*orders, *self._changes(self._known_ms, at_ms)]

    def heard(self, node: NodeId, at_ms: float, *, is_beat: bool) -> None:
        """A message arrived from a member. Only heartbeats (`is_beat`) count as received in a row.

        Other messages arrive at random: two of them would make a peer count as alive although it
        sends heartbeats only once the log has reached it.
        """
        if node in self._known_ms:
            self._heard_ms[node] = at_ms
            if is_beat:
                self._verdicts.handle(BeatHeard(node, at_ms))

    def check(self, at_ms: float) -> list[Order]:
        """Judge all peers again; a `Mark` for each one whose verdict changed."""
        orders = self._verdicts.handle(CheckDue(at_ms))
        void = [order for order in orders if isinstance(order, CheckVoid)]
        if void:
            self._listening_ms = at_ms
        if self.is_mesh:
            return self._show(orders, at_ms)
        own = self._verdicts.health
        for node in self._watched:
            self._gossip.judged(node, own[node])
        moved = self._watch(at_ms)
        nodes = self._watched | self._waiting | self._gossip.moved()
        return [*void, *moved, *self._changes(nodes, at_ms)]

    def hear(self, rumours: Iterable[Rumour], at_ms: float) -> list[Order]:
        """Take in the rumours that a peer sent."""
        if self.is_mesh:
            return []
        self._gossip.hear(rumours)
        return self._changes(self._gossip.moved(), at_ms)

    def noted(self, note: Note) -> None:
        """What this node reports about itself, in rumours."""
        if not self.is_mesh:
            self._gossip.noted(note)

    # ---------------------------------------------------------------------- questions

    @property
    def health(self) -> Mapping[NodeId, Health]:
        """Verdict on every known peer."""
        return self._shown

    def is_held_down(self, node: NodeId) -> bool:
        """Whether a peer that is DOWN sends heartbeats again, if it sends them to this node."""
        return node in self._verdicts.held_down

    def last_message_ms(self, node: NodeId) -> float | None:
        """Instant of the last message sent by the peer itself; None: none yet."""
        return self._heard_ms.get(node)

    def silent_since_ms(self, node: NodeId) -> float:
        """When a peer that is down sent its last message, or got its verdict if that is later.
        Kept when the peer's watchers change and when the cluster grows or shrinks."""
        since_ms = self._down_ms.get(node, self._known_ms[node])
        return max(since_ms, self._heard_ms.get(node, since_ms))

    def note_of(self, node: NodeId) -> Note | None:
        """What a peer reported about itself, by gossip; None: only its heartbeats carry that."""
        return None if self.is_mesh else self._gossip.note_of(node)

    def receivers(self, at_ms: float) -> list[NodeId]:
        """Nodes that get a heartbeat now."""
        now = [*self._known_ms] if self.is_mesh else self._gossip.beats_to
        self._due_ms |= dict.fromkeys(now, at_ms)
        since_ms = at_ms - self._rules.window_ms
        return [node for node, due_ms in self._due_ms.items() if due_ms >= since_ms]

    def gossip_targets(self, draws: Sequence[int]) -> list[NodeId]:
        """Random further nodes that get the rumours. `draws`: random numbers (`Gossip.targets`)."""
        return [] if self.is_mesh else self._gossip.targets(draws)

    def round(self) -> list[Rumour]:
        """Rumours that go with each message of this interval."""
        return [] if self.is_mesh else self._gossip.round()

    @property
    def digest(self) -> int | None:
        """Digest of all rumours; None: no gossip in this cluster."""
        return None if self.is_mesh else self._gossip.digest

    def lacking(self, digest: int | None, *, is_asked: bool = False) -> list[Rumour]:
        """All that this node knows, for a peer whose digest differs; else nothing.

        `is_asked`: the peer sent everything. Otherwise, only if no rumour is still being spread.
        """
        if self.is_mesh or digest in (None, self._gossip.digest):
            return []
        return self._gossip.everything() if is_asked or self._gossip.may_compare else []

    # ------------------------------------------------------------------------- inside

    def _watch(self, at_ms: float) -> list[Order]:
        """Judge the peers whose heartbeats should arrive here, and stop judging any others."""
        peers = frozenset(self._known_ms)
        watched = peers if self.is_mesh else frozenset(self._gossip.watched)
        if watched == self._watched and not watched ^ self._verdicts.health.keys():
            return []
        for gone in self._watched - watched:
            self._gossip.judged(gone, Health.UNKNOWN)
            self._unwatched_ms[gone] = at_ms
        self._watched = watched
        orders = self._verdicts.handle(MembersKnown(watched, at_ms))
        return self._show(orders, at_ms) if self.is_mesh else self._changes(self._known_ms, at_ms)

    def _show(self, orders: list[Order], now_ms: float) -> list[Order]:
        """Orders that change a verdict: a verdict holds until its peer is judged again."""
        return [
            order for order in orders if not isinstance(order, Mark) or self._is_new(order, now_ms)
        ]

    def _is_new(self, mark: Mark, now_ms: float) -> bool:
        node, before = mark.node, self._shown.get(mark.node)
        if before is mark.health or (before is not None and mark.health is Health.UNKNOWN):
            return False
        self._shown[node] = mark.health
        (self._waiting.discard if mark.health is Health.ALIVE else self._waiting.add)(node)
        if mark.health is Health.DOWN:
            is_own = self._verdicts.health.get(node) is Health.DOWN
            self._down_ms[node] = self._verdicts.silent_since_ms(node) if is_own else now_ms
        else:
            self._down_ms.pop(node, None)
        return True

    def _changes(self, nodes: Iterable[NodeId], now_ms: float) -> list[Order]:
        """`nodes`: those whose verdict may have changed; nodes that are no members are ignored."""
        return self._show(
            [
                Mark(node, health, self._silent_ms(node, now_ms))
                for node in sorted(nodes)
                if node in self._known_ms
                and (health := self._verdict(node, now_ms)) is not self._shown.get(node)
            ],
            now_ms,
        )

    def _silent_ms(self, node: NodeId, now_ms: float) -> float | None:
        heard_ms = self._heard_ms.get(node)
        return None if heard_ms is None else now_ms - heard_ms

    def _verdict(self, node: NodeId, now_ms: float) -> Health:
        own = self._verdicts.health.get(node, Health.UNKNOWN)
        if own is not Health.UNKNOWN:
            return own
        if self._gossip.is_down(node):
            return Health.DOWN
        before = self._shown.get(node, Health.UNKNOWN)
        if before is Health.ALIVE or node in self._watched:
            return before  # no node doubts it; or this node will know soon
        # a peer that only this node found down needs longer: others may just be starting to watch
        windows = 2 if before is Health.DOWN else 1
        since_ms = max(
            self._known_ms[node], self._listening_ms, self._unwatched_ms.get(node, -math.inf)
        )
        return Health.ALIVE if now_ms - since_ms > windows * self._rules.window_ms else before
