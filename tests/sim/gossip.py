"""Beats of 10 to 1,000 nodes, simulated: what they cost and when a lost node is known everywhere.

    python -m tests.sim.gossip [--nodes 3,10,20,100,1000] [--seconds 6] [--seed 1] [--output FILE]

Deterministic: one seed, one result, no clock. Every node runs `control.liveness.failure_detector`,
as real ones do; beats go out each 100 ms at an instant of the node's own, take 1 to 5 ms, and one
in a hundred is lost. Bytes are those of the encoded body and 120 for its head. Lags of 10,000 table
partitions with a standby each change once a second: up to the switch beats carry the changes (1 KB
of them at the most), above it reports alone carry them, to those who hold copies of the same
partitions and to the leader; reports are added by calculation. After three calm seconds one node
stops; `known_ms` is when the last of the others counts it as down.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from standpipe.control.liveness.failure_detector import SWITCH_NODES, Verdicts
from standpipe.control.liveness.gossip import SPREAD, Rumour
from standpipe.control.liveness.heartbeats import HeartbeatSettings, Mark, Order
from standpipe.model import Health, NodeId
from standpipe.node.liveness.wire import Beat, BeatExtra

PARTITIONS, COPIES = 10_000, 2
CHANGES_PER_S = 1.0  # of each replica's lag
LAG_BYTES, HEAD_BYTES = 45, 120
BEAT_LAGS_MAX = 1024  # a beat carries no more; the rest goes with the next ones
REPORT_S = 5.0
#: the first two seconds all peers are unknown yet
CALM_MS = 3000.0
LOSS = 0.01
RULES = HeartbeatSettings()


#: sender, whether it is a beat, digest, rumours
Message = tuple[NodeId, bool, int | None, list[Rumour]]


@dataclass
class Node:
    """One node, driven by the world's events."""

    name: NodeId
    verdicts: Verdicts
    sent: int = 0
    sent_bytes: int = 0
    #: when the last of those that were lost was down for it, in ms after the loss
    known_ms: float | None = None


class World:
    def __init__(self, count: int, seed: int) -> None:
        self.chance = random.Random(seed)
        names = [NodeId(f"node-{number}") for number in range(count)]
        self.nodes: dict[NodeId, Node] = {}
        for name in names:
            verdicts = Verdicts(name, RULES)
            verdicts.members(frozenset(names) - {name}, 0.0, may_gossip=True)
            self.nodes[name] = Node(name, verdicts)
        self.now_ms = 0.0
        self.events: list[tuple[float, int, str, NodeId, object]] = []
        self._number = 0
        self.lost: frozenset[NodeId] = frozenset()
        self.lost_ms = 0.0
        #: node -> lost ones that it still counts as alive
        self.unaware: dict[NodeId, set[NodeId]] = {}
        self.false_alarms = 0
        for node in self.nodes.values():
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
        verdicts = node.verdicts
        beats = verdicts.receivers(self.now_ms)
        draws = [self.chance.getrandbits(32) for _ in range(SPREAD)]
        gossip_targets = set(verdicts.gossip_targets(draws)).difference(beats)
        digest, rumours = verdicts.digest, verdicts.round()
        size = self._bytes_of(node, digest, rumours)
        lag_bytes = min(BEAT_LAGS_MAX, int(LAG_BYTES * self._changes())) if verdicts.is_mesh else 0
        for target in beats:
            self._post(node, target, (node.name, True, digest, rumours), size + lag_bytes)
        for target in sorted(gossip_targets):
            self._post(node, target, (node.name, False, digest, rumours), size)
        self.at(RULES.send_ms, "send", node.name)

    def _bytes_of(self, node: Node, digest: int | None, rumours: list[Rumour]) -> int:
        extra = BeatExtra(
            node_id=node.name, incarnation=8 * "i", digest=digest, rumours=tuple(rumours)
        )
        beat = Beat(hostInfo="10.0.0.1:8088", timestamp=10**12, standpipe=extra)
        return HEAD_BYTES + len(msgspec.json.encode(beat))

    def _changes(self) -> float:
        """Changes of one node's replicas in one interval."""
        mine = PARTITIONS * COPIES / len(self.nodes)
        return mine * CHANGES_PER_S * RULES.send_ms / 1000

    def _post(self, node: Node, target: NodeId, message: Message, size: int) -> None:
        node.sent += 1
        node.sent_bytes += size
        if self.chance.random() >= LOSS:
            self.at(self.chance.uniform(1, 5), "hear", target, message)

    def _hear(self, node: Node, message: Message) -> None:
        sender, is_beat, digest, rumours = message
        node.verdicts.heard(sender, self.now_ms, is_beat=is_beat)
        self._note(node, node.verdicts.hear(rumours, self.now_ms))
        if lacking := node.verdicts.lacking(digest):
            # the answer, and what the sender then returns, in the same instant
            first = self.nodes[sender]
            self._note(first, first.verdicts.hear(lacking, self.now_ms))
            back = first.verdicts.lacking(node.verdicts.digest, is_asked=True)
            self._note(node, node.verdicts.hear(back, self.now_ms))
            node.sent_bytes += self._bytes_of(node, 0, lacking)
            first.sent_bytes += self._bytes_of(first, 0, back)
            first.sent += bool(back)

    def _check(self, node: Node, _: object) -> None:
        self._note(node, node.verdicts.check(self.now_ms))
        self.at(RULES.check_ms, "check", node.name)

    def _note(self, node: Node, orders: list[Order]) -> None:
        for order in orders:
            if isinstance(order, Mark) and order.health is Health.DOWN:
                left = self.unaware.get(node.name, set())
                self.false_alarms += order.node not in self.lost
                left.discard(order.node)
                if not left and node.name in self.unaware:
                    node.known_ms = self.now_ms - self.lost_ms
                    del self.unaware[node.name]


def reports(count: int) -> tuple[float, float]:
    """Lag reports of one node: (messages, bytes) per second."""
    replicas = PARTITIONS * COPIES / count
    shared = replicas * (COPIES - 1)  # copies elsewhere of what it holds
    others = count - 1
    audience = others * (1 - (1 - 1 / others) ** shared) + 1  # and the leader
    receivers = others if count <= SWITCH_NODES else min(others, audience)
    each = HEAD_BYTES + LAG_BYTES * replicas
    return receivers / REPORT_S, receivers * each / REPORT_S


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
        "messages_per_node_and_s": round(sent / per_node_s + reports(count)[0], 1),
        "bytes_per_node_and_s": round(sent_bytes / per_node_s + reports(count)[1]),
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
