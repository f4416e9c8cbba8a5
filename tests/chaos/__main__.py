"""`make chaos`: one real cluster, one fault after another, reads and writes all the time.

    python -m tests.chaos [--quick] [--rate 200] [--rounds 1] [--faults WORD,…] [--seed 1]
                          [--result bench/results/chaos.json] [--exhaustion]

Three nodes, each on a host of its own, with real Kafka and real Spark. Events come in all the
time; reads come at a steady pace, each answer is kept, and judged in the end against what the test
itself read from Kafka (`tests.chaos.truth`). Exit status 0: everything passed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from tests import report
from tests.chaos import exhaustion
from tests.chaos.all_faults import ALL
from tests.chaos.faults import Fault, small_disks
from tests.chaos.feed import Feed
from tests.chaos.judge import Judge
from tests.chaos.load import Load
from tests.chaos.report import Phase, figures, on_record, outcome, table
from tests.chaos.truth import Truth
from tests.hosts.cluster import HostCluster, HostNode, Plan, runs, until
from tests.hosts.network import Network, enter
from tests.hosts.wall_clock import why_not

KEYS = {f"k{number}": 1 for number in range(60)}
EVENTS_PER_S = 40.0
CALM_S = 3.0
NODES = 3
SETTLE_S_MAX = 400.0


@dataclass
class World:
    """A running cluster with its readers and writers."""

    cluster: HostCluster
    load: Load
    feed: Feed
    truth: Truth
    chance: random.Random

    def victim(self) -> HostNode:
        """A node that is active for something."""
        names = {holders[0].node_id for holders in self.cluster.placements().values()}
        able = [node for node in self.cluster.nodes if node.node_id in names]
        return self.chance.choice(able)

    def suffer(self, kind: type[Fault], *, is_quick: bool) -> Phase:
        """One fault, from calm to calm."""
        fault = kind(self.cluster, self.victim())
        out = {node.node_id for node in fault.outcasts()}
        self.load.entries = [n.public for n in self.cluster.nodes if n.node_id not in out]
        placed = self.cluster.placements()
        mine = frozenset(p for p, holders in placed.items() if holders[0] is fault.victim)
        print(f"  {kind.name} ({fault.victim.node_id})", flush=True)
        silent = {node.node_id for node in fault.silent()}
        unknown = frozenset(
            p for p, holders in placed.items() if silent.issuperset(n.node_id for n in holders)
        )
        phase = Phase(kind.name, time.monotonic(), known_s=kind.known_s)
        phase.partitions, phase.unknown = mine, unknown
        fault.inject()
        phase.was_there = fault.is_there()
        hold_s = kind.hold_s[is_quick]
        time.sleep(max(0.0, phase.began_s + hold_s - time.monotonic()))  # the fault lasts so long
        phase.healed_s = time.monotonic()
        fault.heal()
        phase.has_settled = self.settle()
        phase.harm = fault.harm()
        self.load.entries = [node.public for node in self.cluster.nodes]
        phase.ended_s = time.monotonic()
        time.sleep(CALM_S)  # its last reads are over before the next fault begins
        return phase

    def settle(self) -> bool:
        """Every node answers, every replica runs, and what was written by now can be read."""
        wanted = dict(self.feed.numbers)
        try:
            until("replicas", lambda: all(map(runs, self.cluster.nodes)), SETTLE_S_MAX)
            until("writes", lambda: self._has(wanted), SETTLE_S_MAX)
        except AssertionError as error:
            print(f"    {error}", flush=True)
            return False
        return True

    def _has(self, wanted: dict[str, int]) -> bool:
        newest = self.truth.newest_of_all()
        return all(newest.get(key, 0) >= number for key, number in wanted.items())


def run(cluster: HostCluster, kinds: Sequence[type[Fault]], given: argparse.Namespace) -> bool:
    circumstances = report.circumstances()
    cluster.fill(KEYS)
    cluster.until_everywhere(KEYS)
    truth = Truth(cluster.broker.bootstrap_servers, len(cluster.placements()))
    until("the truth", lambda: len(truth.newest_of_all()) == len(KEYS))
    feed = Feed(cluster, KEYS, EVENTS_PER_S)
    entries = [node.public for node in cluster.nodes]
    load = Load(list(KEYS), cluster.partition, entries, given.rate)
    world = World(cluster, load, feed, truth, random.Random(given.seed))
    time.sleep(2 * CALM_S)  # reads without a fault, to compare with
    phases = [
        world.suffer(kind, is_quick=given.quick) for _ in range(given.rounds) for kind in kinds
    ]
    numbers = feed.stop(SETTLE_S_MAX)
    samples = load.stop()
    cluster.until_everywhere(numbers)  # nothing was lost, nothing was repeated, on any replica
    judge = Judge(truth.stop())
    outcomes = [outcome(phase, samples, judge) for phase in phases]
    text = table(outcomes, given.rate)
    print(f"\n{text}", flush=True)
    if given.result:
        known = json.loads(given.result.read_text()) if given.result.exists() else {}
        ran = {**circumstances, "seed": given.seed, **figures(outcomes, given.rate)}
        report.write(given.result, on_record(known, ran))
    return text.endswith(" 0 failed")


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="fewer and shorter faults")
    options.add_argument("--rate", type=float, default=100.0, help="reads per second")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--faults", default="", help="words of their names, with commas")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--result", type=Path, help="add the run to those on record there")
    options.add_argument("--exhaustion", action="store_true", help="what a node can run out of")
    options.add_argument("--keep", action="store_true", help="leave logs and data where they are")
    given = options.parse_args()
    enter()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    words = [word for word in given.faults.split(",") if word]
    known: Sequence[type[Fault]] = exhaustion.ALL if given.exhaustion else ALL
    if words:
        kinds = [kind for kind in known if any(word in kind.name for word in words)]
    else:
        kinds = [kind for kind in known if kind.quick or not given.quick]
    if not kinds:
        options.error(f"no fault is named so; there are: {'; '.join(one.name for one in known)}")
    clocked = [kind for kind in kinds if kind.needs_clocks]
    if clocked and (why := why_not()):
        print(f"left out: {why}: {'; '.join(kind.name for kind in clocked)}", flush=True)
        kinds = [kind for kind in kinds if kind not in clocked]
        if not kinds:
            return 0
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    started = time.monotonic()
    print(f"chaos: {len(kinds)} faults, {given.rate:g} reads/s, in {folder}", flush=True)
    is_good = False
    disks = [folder / f"node-{number}" for number in range(1, NODES + 1)]
    if given.exhaustion:
        exhaustion.ext4_disks(disks)
    else:
        small_disks(disks)
    try:
        plan = Plan(nodes=NODES, clocks=any(kind.needs_clocks for kind in kinds))
        with HostCluster(folder, Network(), plan) as cluster:
            is_good = run(cluster, kinds, given)
    finally:
        for disk in disks:  # they vanish with our namespaces
            if (disk / "logs").exists():
                shutil.copytree(disk / "logs", folder / f"{disk.name}-logs", dirs_exist_ok=True)
            subprocess.run(["umount", "-l", str(disk)], check=False)
        if is_good and not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
