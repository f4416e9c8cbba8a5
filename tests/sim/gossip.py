"""Beats of 10 to 1,000 nodes, simulated: what they cost and when a lost node is known everywhere.

    python -m tests.sim.gossip [--nodes 3,10,20,100,1000] [--seconds 6] [--seed 1] [--output FILE]

Deterministic: one seed, one result, no clock. Every node runs `control.membership` for the peers it
hears and `control.gossip` above the switch; beats go out each 100 ms at an instant of the node's
own, take 1 to 5 ms, and one in a hundred is lost. Bytes are those of the encoded body (rumours,
digest, and the changes of lags of 10,000 table partitions at one change a second each, which only
co-holders hear above the switch; 1 KB of them at the most), and 120 for its head. After two calm
seconds one node stops; `known_ms` is when the last of the others counts it as down.

Above the switch this is a simulation of `control.gossip`: nodes do not speak it yet.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from standpipe.control.gossip import Gossip, Rumour
from standpipe.control.membership import BeatHeard, CheckDue, Mark, Membership, MembersKnown, Rules
from standpipe.model import Health, NodeId

PARTITIONS, COPIES = 10_000, 2
CHANGES_PER_S = 1.0  # of each replica's lag
LAG_BYTES, HEAD_BYTES = 45, 120
BEAT_LAGS_MAX = 1024  # a beat carries no more; the rest goes with the next ones
CALM_MS = 2000.0
LOSS = 0.01
RULES = Rules()


@dataclass
class Node:
    """One node, driven by the world's events."""

    name: NodeId
    gossip: Gossip
    membership: Membership = field(default_factory=lambda: Membership(RULES))
    watched: frozenset[NodeId] = frozenset()
    sent: int = 0
    sent_bytes: int = 0
    #: of rumours, as this node sees it, when it was told first
    known_ms: float | None = None

    def watch(self, now_ms: float) -> None:
        watched = frozenset(self.gossip.watched)
        if watched != self.watched:
            for gone in self.watched - watched:
                self.gossip.judged(gone, Health.ALIVE)
            self.watched = watched
            self.membership.handle(MembersKnown(watched, now_ms))

    def check(self, now_ms: float) -> None:
        for order in self.membership.handle(CheckDue(now_ms)):
            if isinstance(order, Mark) and not self.gossip.is_small:
                self.gossip.judged(order.node, order.health)

    def counts_down(self, peer: NodeId) -> bool:
        heard = self.membership.health.get(peer)
        if heard is Health.DOWN:
            return True
        return self.gossip.is_down(peer)


class World:
    def __init__(self, count: int, seed: int) -> None:
        self.chance = random.Random(seed)
        names = [NodeId(f"node-{number}") for number in range(count)]
        self.nodes: dict[NodeId, Node] = {}
        for name in names:
            gossip = Gossip(name)
            gossip.members(names)
            self.nodes[name] = Node(name, gossip)
        self.now_ms = 0.0
        self.events: list[tuple[float, int, str, NodeId, object]] = []
        self._number = 0
        self.lost: frozenset[NodeId] = frozenset()
        self.lost_ms = 0.0
        #: node -> lost ones that it still counts as alive
        self.unaware: dict[NodeId, set[NodeId]] = {}
        self.false_alarms = 0
        for node in self.nodes.values():
            node.watch(0.0)
            self.at(self.chance.uniform(0, RULES.send_ms), "send", node.name)
            self.at(self.chance.uniform(0, RULES.check_ms), "check", node.name)

    def at(self, after_ms: float, what: str, node: NodeId, extra: object = None) -> None:
        self._number += 1
        heapq.heappush(self.events, (self.now_ms + after_ms, self._number, what, node, extra))

    def lose(self, count: int) -> None:
        """So many nodes stop in the same instant."""
        self.lost_ms = self.now_ms
        self.lost = frozenset(self.chance.sample(sorted(self.nodes), count))
        self.unaware = {name: set(self.lost) for name in self.nodes if name not in self.lost}

    def run_until(self, end_ms: float) -> None:
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, what, name, extra = heapq.heappop(self.events)
            if name not in self.lost:
                getattr(self, f"_{what}")(self.nodes[name], extra)
        self.now_ms = end_ms

    def _send(self, node: Node, _: object) -> None:
        node.watch(self.now_ms)
        rumours = node.gossip.round()
        beats = node.gossip.beats_to
        more = node.gossip.targets([self.chance.getrandbits(32) for _ in range(3)])
        size = HEAD_BYTES + len(msgspec.msgpack.encode((node.name, rumours, node.gossip.digest)))
        lag_bytes = min(BEAT_LAGS_MAX, int(LAG_BYTES * self._lag_changes(len(beats))))
        for target in beats:
            self._post(node, target, rumours, size + lag_bytes, is_beat=True)
        for target in more:
            self._post(node, target, rumours, size, is_beat=False)
        self.at(RULES.send_ms, "send", node.name)

    def _lag_changes(self, receivers: int) -> float:
        """Changes of this node's replicas in one interval that one message carries. To everybody
        up to the switch; above it, each change goes to its co-holders alone."""
        mine = PARTITIONS * COPIES / len(self.nodes) * CHANGES_PER_S * RULES.send_ms / 1000
        is_small = len(self.nodes) <= 20
        return mine if is_small else mine * (COPIES - 1) / receivers

    def _post(
        self, node: Node, target: NodeId, rumours: list[Rumour], size: int, *, is_beat: bool
    ) -> None:
        node.sent += 1
        node.sent_bytes += size
        if self.chance.random() >= LOSS:
            delay_ms = self.chance.uniform(1, 5)
            self.at(delay_ms, "hear", target, (node.name if is_beat else None, rumours))

    def _hear(self, node: Node, extra: tuple[NodeId | None, list[Rumour]]) -> None:
        sender, rumours = extra
        if sender is not None and sender in node.watched:
            node.membership.handle(BeatHeard(sender, self.now_ms))
        if rumours:
            node.gossip.hear(rumours)
            self._note(node)

    def _check(self, node: Node, _: object) -> None:
        node.check(self.now_ms)
        self._note(node)
        down = [p for p, health in node.membership.health.items() if health is Health.DOWN]
        self.false_alarms += sum(peer not in self.lost for peer in down)
        self.at(RULES.check_ms, "check", node.name)

    def _note(self, node: Node) -> None:
        left = self.unaware.get(node.name)
        if left:
            left.difference_update([peer for peer in left if node.counts_down(peer)])
            if not left:
                node.known_ms = self.now_ms - self.lost_ms
                del self.unaware[node.name]


def simulate(count: int, seconds: float, seed: int, losses: int = 1) -> dict[str, object]:
    """One cluster: costs of the calm time, and the loss of some nodes at once."""
    began = time.process_time()
    world = World(count, seed)
    world.run_until(CALM_MS)
    sent = sum(node.sent for node in world.nodes.values())
    sent_bytes = sum(node.sent_bytes for node in world.nodes.values())
    per_node_s = count * CALM_MS / 1000
    world.lose(losses)
    world.run_until(CALM_MS + seconds * 1000)
    known = sorted(n.known_ms for n in world.nodes.values() if n.known_ms is not None)
    return {
        "nodes": count,
        "lost": losses,
        "messages_per_node_and_s": round(sent / per_node_s, 1),
        "bytes_per_node_and_s": round(sent_bytes / per_node_s),
        "first_known_ms": round(known[0]) if known else None,
        "known_to_half_ms": round(known[len(known) // 2]) if known else None,
        "known_ms": round(known[-1]) if known and not world.unaware else None,
        "false_alarms": world.false_alarms,
        "simulated_in_s": round(time.process_time() - began, 1),
    }


def results(counts: list[int], seconds: float, seed: int) -> Iterator[dict[str, object]]:
    for count in counts:
        yield simulate(count, seconds, seed)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", default="3,10,20,21,100,1000")
    options.add_argument("--seconds", type=float, default=3.0, help="after the loss")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    found: list[dict[str, object]] = []
    for result in results([int(n) for n in given.nodes.split(",")], given.seconds, given.seed):
        print(result, flush=True)
        found.append(result)
        if given.output:
            said = {"what": (__doc__ or "").splitlines()[0], "seed": given.seed, "results": found}
            given.output.write_text(json.dumps(said, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
