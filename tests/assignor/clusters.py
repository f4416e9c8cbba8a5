"""`python -m tests.assignor.clusters --count 20000`: random clusters through random events.

One seed is one cluster: 2–12 nodes with skewed racks, missing tags and unequal capacities, a few
tables, then joins, losses, drains, capacity changes and a rolling bounce, with copies that catch
up at once or step by step. After every step and at the end of every event invariants are checked;
`python -m tests.assignor.clusters --first SEED --count 1 --history` tells the story of one.
Totals compare the moves made with the fewest that lead to the same loads; `--result FILE` keeps
them (`tests.sim.report`: pieces that ran the same code add up).
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.sim import report

from standpipe.control.assignment.model import HeldCopies, PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.readiness import Lag
from standpipe.control.assignment.rebalance import Cluster, Step, Throttle, rebalance
from standpipe.model import NodeId

END_OFFSET = 150_000
LIMIT = 10_000
ROUNDS_MAX = 400
#: over all clusters, our goal: "moves ≤ the fewest possible + 10 %"
MOVES_SHARE_MAX = 1.10
PROGRESS_EVERY = 500
QUESTION = "does a random cluster keep every invariant of the assignor, through random events"
#: sources that a result is about
TRIED = (
    "src/standpipe/control/assignment/actives.py",
    "src/standpipe/control/assignment/plan.py",
    "src/standpipe/control/routing/hedge_budget.py",
    "src/standpipe/control/assignment/balance.py",
    "src/standpipe/control/assignment/rebalance.py",
    "src/standpipe/control/assignment/racks.py",
    "src/standpipe/control/assignment/readiness.py",
    "src/standpipe/control/assignment/fair_share.py",
    "src/standpipe/control/assignment/spread.py",
    "src/standpipe/control/assignment/standbys.py",
    "src/standpipe/control/assignment/transition.py",
    "src/standpipe/control/assignment/model.py",
    "tests/assignor/clusters.py",
)

Disks = dict[NodeId, dict[TablePartition, int]]
#: able nodes whose copy has caught up
Ready = Mapping[TablePartition, list[NodeId]]


@dataclass
class World:
    """A cluster with a memory: what every disk holds, lags included."""

    rng: random.Random
    nodes: dict[NodeId, PlanNode]
    partitions: tuple[TablePartition, ...]
    standby_count: int
    rules: PlanRules
    throttle: Throttle
    #: records that a copy reads between two steps
    per_round: int
    holdings: Mapping[TablePartition, HeldCopies] = field(default_factory=dict)
    disks: Disks = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)

    def step(self) -> Step:
        lags: dict[TablePartition, dict[NodeId, Lag]] = {}
        for node, disk in self.disks.items():
            if node in self.nodes:
                for partition, lag in disk.items():
                    lags.setdefault(partition, {})[node] = lag
        cluster = Cluster(tuple(self.nodes.values()), self.partitions, lags)
        return rebalance(cluster, self.holdings, self.standby_count, self.rules, self.throttle)

    def catch_up(self) -> None:
        """Copies read on; what is no longer assigned is deleted (cleanup), gone disks stay."""
        for node in self.nodes:
            disk = self.disks.get(node, {})
            self.disks[node] = {
                p: max(0, disk.get(p, END_OFFSET) - self.per_round)
                for p, held in self.holdings.items()
                if node in held.nodes
            }

    @property
    def able(self) -> dict[NodeId, int]:
        return {n.node_id: n.capacity for n in self.nodes.values() if n.capacity > 0}

    def is_caught_up(self, partition: TablePartition, node: NodeId) -> bool:
        return self.disks.get(node, {}).get(partition, END_OFFSET) <= LIMIT


def new_world(seed: int) -> World:
    rng = random.Random(seed)
    tags = rng.choice([(), ("zone",), ("zone",), ("zone", "cluster"), ("cluster", "zone")])
    tables = rng.randint(1, 3)
    world = World(
        rng=rng,
        nodes={},
        partitions=tuple(
            TablePartition(f"table-{t}", 1, p)
            for t in range(tables)
            for p in range(rng.randint(1, 8))
        ),
        standby_count=rng.choice([0, 1, 1, 1, 2, 2, 3]),
        rules=PlanRules(rack_aware_tags=tags, acceptable_lag_records=LIMIT),
        throttle=Throttle(warmup_count_max=rng.randint(1, 6)),
        per_round=rng.choice([END_OFFSET, END_OFFSET, 60_000]),
    )
    skew = [rng.randint(1, 5) for _ in range(3)]
    for number in range(rng.randint(2, 9)):
        add_node(world, number, skew)
    return world


def add_node(world: World, number: int, skew: list[int] | None = None) -> NodeId:
    rng = world.rng
    node_id = NodeId(f"node-{number:02d}")
    tags = {
        "zone": rng.choices("abc", skew or [1, 1, 1])[0],
        "cluster": rng.choice(["one", "two", "three"]),
    }
    kept = {tag: value for tag, value in tags.items() if rng.random() > 0.08}
    world.nodes[node_id] = PlanNode(node_id, kept, capacity=rng.choice([1, 1, 1, 1, 2, 3]))
    return node_id


# ------------------------------------------------------------------------- events


def events(world: World) -> Iterator[str]:
    """Change the world, and say how. The caller settles it after each."""
    yield "start"
    rng, number = world.rng, 20
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["join", "loss", "drain", "capacity", "bounce"])
        victim = rng.choice(sorted(world.nodes))
        if kind == "join" and len(world.nodes) < 12:
            yield f"join {add_node(world, number)}"
            number += 1
        elif kind == "capacity":
            changed = replace_capacity(world.nodes[victim], rng.randint(1, 3))
            world.nodes[victim] = changed
            yield f"capacity of {victim} is {changed.capacity}"
        elif len(world.able) > 1 and kind == "drain":
            world.nodes[victim] = replace_capacity(world.nodes[victim], 0)
            yield f"drain {victim}"
        elif len(world.able) > 1 and len(world.nodes) > 2 and kind in ("loss", "bounce"):
            gone = world.nodes.pop(victim)
            yield f"loss of {victim}"
            if kind == "bounce":
                disk = world.disks.get(victim, {})
                world.disks[victim] = {p: lag + 500 for p, lag in disk.items()}
                world.nodes[victim] = gone
                yield f"return of {victim}"


def replace_capacity(node: PlanNode, capacity: int) -> PlanNode:
    return PlanNode(node.node_id, node.tags, capacity, node.rack)


# ------------------------------------------------------------------------- settling and checks


def settle(world: World, event: str) -> None:
    before, made, moved = world.holdings, 0, 0
    ready: Ready = {
        p: [n for n in sorted(world.able) if world.is_caught_up(p, n)] for p in world.partitions
    }
    for number in range(1, ROUNDS_MAX + 1):
        step = world.step()
        check_step(world, step, f"{event}, round {number}")
        made += copies_made(world.holdings, step.holdings)
        moved += actives_moved(world, step.holdings)
        world.history.append(f"{event}, round {number}: {describe(step)}")
        world.holdings = step.holdings
        world.catch_up()
        if not step.wants_followup:
            world.totals["rounds"] += number
            break
    else:
        world.broken.append(f"{event}: no end after {ROUNDS_MAX} rounds")
    world.totals["events"] += 1
    world.totals["actives moved"] += moved
    world.totals["copies made"] += made
    count_fewest(world, before, ready)
    check_end(world, event)


def check_step(world: World, step: Step, where: str) -> None:
    warmups = 0
    for partition in world.partitions:
        held = step.holdings.get(partition, HeldCopies())
        warmups += len(held.warmups)
        wanted = min(len(world.able), 1 + world.standby_count)
        if len(held.replicas) != wanted:
            world.broken.append(f"{where}: {len(held.replicas)} copies of {wanted}: {held}")
        if len(set(held.nodes)) != len(held.nodes) or not set(held.nodes) <= set(world.nodes):
            world.broken.append(f"{where}: impossible nodes {held}")
        ready = [n for n in world.able if world.is_caught_up(partition, n)]
        if ready and held.active not in ready:
            world.broken.append(f"{where}: the active of {held} is not one of the ready {ready}")
    if warmups > world.throttle.warmup_count_max:
        world.broken.append(f"{where}: {warmups} warm-ups")


def check_end(world: World, event: str) -> None:
    draining = set(world.nodes) - set(world.able)
    actives: Counter[NodeId] = Counter()
    for partition, held in world.holdings.items():
        actives.update(held.replicas[:1])
        if draining & set(held.nodes):
            world.broken.append(f"{event}: {partition} is still on {draining}")
        if distinct(world, held.replicas) < best_distinct(world, held.replicas):
            world.broken.append(f"{event}: {held.replicas} could be further apart")
    able = world.able
    high = max(actives[n] / c for n, c in able.items())
    low = min((actives[n] + 1) / c for n, c in able.items())
    if high > low + 1e-9:
        world.broken.append(f"{event}: actives are not balanced: {actives} on {able}")
    again = world.step()
    changes = [
        (world.holdings[p], held)
        for p, held in again.holdings.items()
        if held.active != world.holdings[p].active
        or set(held.nodes) != set(world.holdings[p].nodes)
    ]
    if changes or again.wants_followup:
        world.broken.append(f"{event}: no fixpoint: {changes[:3]}")


def distinct(world: World, nodes: tuple[NodeId, ...]) -> int:
    tags = [world.nodes[n].tags for n in nodes]
    names = world.rules.rack_aware_tags
    return sum(len({t[name] for t in tags if name in t}) for name in names)


def best_distinct(world: World, nodes: tuple[NodeId, ...]) -> int:
    """Brute force: all sets of as many standbys beside this active."""
    others = [n for n in world.able if n != nodes[0]]
    sets = itertools.combinations(others, len(nodes) - 1)
    return max(distinct(world, (nodes[0], *chosen)) for chosen in sets)


# ------------------------------------------------------------------------- counting moves


def copies_made(
    before: Mapping[TablePartition, HeldCopies], after: Mapping[TablePartition, HeldCopies]
) -> int:
    none = HeldCopies()
    return sum(len(set(held.nodes) - set(before.get(p, none).nodes)) for p, held in after.items())


def actives_moved(world: World, after: Mapping[TablePartition, HeldCopies]) -> int:
    """Actives that changed hands although their owner is there."""
    return sum(
        held.active in world.nodes and after[p].active != held.active
        for p, held in world.holdings.items()
    )


def count_fewest(world: World, before: Mapping[TablePartition, HeldCopies], ready: Ready) -> None:
    """Fewest moves from `before` to any placement with the loads that were reached."""
    world.totals["actives fewest"] += fewest_active_moves(world, before, ready)
    had = Counter(n for held in before.values() for n in held.nodes)
    has = Counter(n for held in world.holdings.values() for n in held.nodes)
    by_node = sum(max(0, has[n] - had[n]) for n in world.able)
    none = HeldCopies()
    by_partition = sum(
        max(0, len(held.nodes) - len([n for n in before.get(p, none).nodes if n in world.able]))
        for p, held in world.holdings.items()
    )
    world.totals["copies fewest"] += max(by_node, by_partition)


def fewest_active_moves(
    world: World, before: Mapping[TablePartition, HeldCopies], ready: Ready
) -> int:
    """As few as any placement with these actives per table and node needs (bipartite matching).

    An active with a live owner is best left there. One without is first led by a copy that has
    caught up, if there is one, and is best left there. Others can start anywhere.
    """
    room = Counter((p.table_id, held.replicas[0]) for p, held in world.holdings.items())
    homes: dict[TablePartition, list[NodeId]] = {}
    drained = 0
    for partition, held in before.items():
        stays = held.active in world.able
        homes[partition] = [held.replicas[0]] if stays else ready[partition]
        drained += not stays and held.active in world.nodes
    started = [p for p, nodes in homes.items() if nodes]
    return drained + len(started) - matched(started, homes, room)


def matched(
    partitions: list[TablePartition],
    homes: Mapping[TablePartition, list[NodeId]],
    room: Counter[tuple[str, NodeId]],
) -> int:
    """How many partitions can sit at a home of theirs (Kuhn's augmenting paths)."""
    seated: dict[tuple[str, NodeId], list[TablePartition]] = {}

    def seat(partition: TablePartition, tried: set[NodeId]) -> bool:
        for node in homes[partition]:
            cell = (partition.table_id, node)
            if node in tried or not room[cell]:
                continue
            tried.add(node)
            sitting = seated.setdefault(cell, [])
            if len(sitting) < room[cell]:
                sitting.append(partition)
                return True
            for other in sitting:
                if seat(other, tried):
                    sitting[sitting.index(other)] = partition
                    return True
        return False

    return sum(seat(partition, set()) for partition in partitions)


def describe(step: Step) -> str:
    rows = [
        f"{p.table_id}/{p.partition}={','.join(held.replicas)}"
        + (f"+{','.join(held.warmups)}" if held.warmups else "")
        for p, held in sorted(step.holdings.items())
    ]
    return " ".join(rows)


def run(seed: int) -> World:
    world = new_world(seed)
    for node in world.nodes.values():
        world.history.append(f"{node.node_id} capacity {node.capacity} {dict(node.tags)}")
    for event in events(world):
        settle(world, event)
        if world.broken:
            break
    return world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.assignor.clusters")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--history", action="store_true", help="print every step")
    parser.add_argument("--result", type=Path, help="keep the totals in this file")
    options = parser.parse_args()
    head, began = report.head(TRIED), time.perf_counter()
    failed, totals = 0, Counter[str]()
    for seed in range(options.first, options.first + options.count):
        world = run(seed)
        totals.update(world.totals)
        failed += bool(world.broken)
        if options.history:
            print(*world.history, sep="\n")
        for reason in world.broken[:3]:
            print(f"FAIL seed {seed}: {reason}", flush=True)
        done = seed - options.first + 1
        if done % PROGRESS_EVERY == 0:
            print(f"{done} clusters, {failed} failed", file=sys.stderr, flush=True)
    failed += not verdict(totals)
    seconds = round(time.perf_counter() - began, 1)
    print(f"{totals['events']} events, {totals['rounds']} rounds, {seconds:.0f} s")
    passed = options.count - failed
    if options.result:
        ran = {"first": options.first, "seeds": options.count, "passed": passed, "failed": failed}
        sums = {"events": totals["events"], "seconds": seconds, "counts": dict(totals)}
        report.add_piece(options.result, QUESTION, {**head, **ran, **sums})
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def verdict(totals: Counter[str]) -> bool:
    """Moves made against the fewest possible; false: too many actives changed hands."""
    is_good = True
    for name in ("actives", "copies"):
        moves = totals[f"{name} moved"] + totals[f"{name} made"]
        fewest = totals[f"{name} fewest"]
        share = moves / fewest if fewest else 1.0
        print(f"{name}: {moves} moves, fewest possible {fewest} ({share:.3f})")
        if name == "actives" and share > MOVES_SHARE_MAX:
            print(f"FAIL: more than {MOVES_SHARE_MAX} times the fewest")
            is_good = False
    return is_good


if __name__ == "__main__":
    sys.exit(main())
