"""What share of reads succeeds while nodes die?  Budget: 99 % of a window, 99.99 % of an hour.

Sketch: a kill costs what is under way at the victim and, for 0.5 s, a refused connection more; with
reads through survivors and a breaker that opens at once next to nothing fails.

The set-up is that of bench/failover.py: whole nodes on hosts of their own, real Kafka, one batch
that the benchmark wrote, lag 0 asked for, every answer compared. Open-loop reads of all keys,
through the nodes in turn that are not dead, as a load balancer would. The active of a partition
gets SIGKILL and starts again a while later.

    python bench/availability.py windows [--count 12] [--window-s 300]   KLIP-12's own figure: in
                        each window one active dies; ≥ 99 % succeed, and the switch takes ≤ 2 s
    python bench/availability.py hour [--for-s 3600] [--every-s 60]      one node dies each minute;
                        its windows are KLIP-12's as well, only with five actives killed in each

Per kill: `first_good_ms` (first right answer to a read of the victim's keys that was due after it),
`last_failed_ms` (when the last read that failed was due; 0: none failed). Not here: writes while
nodes die (tests/chaos), other faults (bench/failover.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.failover import ROWS, Reader  # noqa: E402
from bench.failover_parts.faults import FAULTS, Blow  # noqa: E402
from tests import report  # noqa: E402
from tests.hosts.cluster import HostCluster, until  # noqa: E402
from tests.hosts.network import Network, enter  # noqa: E402

KILL = next(fault for fault in FAULTS if fault.name == "kill")
DEAD_S = 15.0
RATE = 200.0
#: A read that is sent later than this was not open-loop. A machine that stands still for a moment
#: makes some so; more than the share, and the load was none.
LATE_S_MAX, LATE_SHARE_MAX = 0.5, 0.001
WINDOW_SHARE, HOUR_SHARE, SWITCH_MS_MAX = 0.99, 0.9999, 2000.0


@dataclass(frozen=True)
class Read:
    """`due_s`: since the start. `is_hit`: its key's active was the newest victim."""

    due_s: float
    ended_s: float
    ok: bool
    ok_retried: bool
    is_hit: bool


@dataclass(frozen=True)
class Kill:
    at_s: float
    victim: str


@dataclass
class Story:
    """One stretch of reads with kills in it."""

    reads: list[Read] = field(default_factory=list[Read])
    kills: list[Kill] = field(default_factory=list[Kill])
    whys: set[str] = field(default_factory=set[str])
    late: int = 0  # reads that were sent LATE_S_MAX after they were due

    def figures(self, low_s: float, high_s: float) -> dict[str, Any]:
        """Of the reads that were due in a stretch of time, and of its kills."""
        mine = [read for read in self.reads if low_s <= read.due_s < high_s]
        failed = [read for read in mine if not read.ok]
        kills: list[dict[str, Any]] = []
        for kill in (one for one in self.kills if low_s <= one.at_s < high_s):
            after = [r for r in mine if kill.at_s <= r.due_s < kill.at_s + DEAD_S]
            good = [r.ended_s for r in after if r.ok and r.is_hit]
            bad = [r.due_s for r in after if not r.ok]
            first_good_ms = 1000 * (min(good, default=high_s) - kill.at_s)
            last_failed_ms = 1000 * (max(bad, default=kill.at_s) - kill.at_s)
            kills.append(
                {
                    **asdict(kill),
                    "first_good_ms": round(first_good_ms, 1),
                    "last_failed_ms": round(last_failed_ms, 1),
                }
            )
        return {
            "reads": len(mine),
            "failed": len(failed),
            "failed_retried": sum(not read.ok_retried for read in mine),
            "succeeded_share": round(1 - len(failed) / max(1, len(mine)), 6),
            "kills": kills,
        }


class Teller:
    """Lets a story happen on a cluster."""

    def __init__(self, cluster: HostCluster, rate: float) -> None:
        self.cluster, self.rate = cluster, rate
        self.story = Story()
        self.reader = Reader(Blow(cluster, [], cluster.nodes, list(ROWS)))
        self.hit: set[str] = set()
        self.loop = asyncio.get_running_loop()
        self.start_s = self.loop.time()

    async def tell(self, kills_at_s: list[float], for_s: float) -> Story:
        killing = asyncio.create_task(self._kill_at(kills_at_s))
        running: set[asyncio.Task[None]] = set()
        for number in range(int(for_s * self.rate)):
            due_s = number / self.rate
            wait_s = self.start_s + due_s - self.loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self.story.late += wait_s < -LATE_S_MAX
            task = asyncio.create_task(self._read(number, due_s))
            running.add(task)
            task.add_done_callback(running.discard)
            if number % int(10 * self.rate) == 0:
                bad = sum(not read.ok for read in self.story.reads)
                print(f"\r{due_s:6.0f} of {for_s:.0f} s, {bad} failed", end="", flush=True)
        await asyncio.gather(*running, killing)
        print()
        self.reader.client.close()
        return self.story

    async def _read(self, number: int, due_s: float) -> None:
        key = self.reader.keys[number % len(self.reader.keys)]
        is_hit = key in self.hit
        ok, again, why = await self.reader.read(number)
        ended_s = self.loop.time() - self.start_s
        self.story.reads.append(Read(due_s, ended_s, ok, again, is_hit))
        if why:
            self.story.whys.add(why)

    async def _kill_at(self, kills_at_s: list[float]) -> None:
        for count, at_s in enumerate(kills_at_s):
            await asyncio.sleep(self.start_s + at_s - self.loop.time())
            blow = await asyncio.to_thread(KILL.aim, self.cluster, count, list(ROWS))
            self.hit, self.reader.entries = set(blow.keys), [n.public for n in blow.survivors]
            struck_s = self.loop.time() - self.start_s
            self.story.kills.append(Kill(struck_s, blow.victims[0].node_id))
            await asyncio.to_thread(KILL.strike, blow)
            await asyncio.sleep(DEAD_S)
            await asyncio.to_thread(KILL.heal, blow)
            await asyncio.to_thread(self._until_whole)
            self.reader.entries = [node.public for node in self.cluster.nodes]

    def _until_whole(self) -> None:
        self.cluster.all_alive()
        nodes = self.cluster.nodes
        until("all to have caught up", lambda: all(map(self.cluster.is_caught_up, nodes)))


def run(kills_at_s: list[float], for_s: float, rate: float) -> Story:
    folder = Path(tempfile.mkdtemp(prefix="availability-"))
    try:
        with HostCluster(folder, Network(), KILL.plan) as cluster:
            cluster.commit(ROWS)
            cluster.until_everywhere(ROWS)

            async def tell() -> Story:
                return await Teller(cluster, rate).tell(kills_at_s, for_s)

            return uvloop.run(tell())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("story", choices=["windows", "hour"], nargs="?", default="windows")
    options.add_argument("--count", type=int, default=12, help="windows")
    options.add_argument("--window-s", type=float, default=300.0)
    options.add_argument("--for-s", type=float, default=3600.0, help="of the hour")
    options.add_argument("--every-s", type=float, default=60.0, help="from kill to kill")
    options.add_argument("--rate", type=float, default=RATE, help="reads a second")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path, help="bench/results/availability_<story>.json")
    given = options.parse_args()
    enter()
    circumstances, chance = report.circumstances(), random.Random(given.seed)
    length_s = given.window_s
    if given.story == "windows":
        # not in the last part: the window has to see what becomes of it
        for_s, goal = given.count * length_s, WINDOW_SHARE
        kills = [(n + 0.1 + 0.6 * chance.random()) * length_s for n in range(given.count)]
    else:
        for_s, goal = given.for_s, HOUR_SHARE
        kills = [n * given.every_s + 5 for n in range(int(for_s / given.every_s))]
    story = run(kills, for_s, given.rate)
    count = math.ceil(for_s / length_s)  # the last one may be short
    windows = [story.figures(n * length_s, (n + 1) * length_s) for n in range(count)]
    whole = story.figures(0.0, for_s)
    switches = [kill for window in windows for kill in window["kills"]]
    assert len(switches) == len(kills), "kills are missing"
    worst = min(window["succeeded_share"] for window in windows)
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **circumstances,
        "rate": given.rate,
        "reads": whole["reads"],
        "late": story.late,
        "failed": whole["failed"],
        "failed_retried": whole["failed_retried"],
        "succeeded_share": whole["succeeded_share"],
        "succeeded_share_of_worst_window": worst,
        "goal": goal,
        "first_good_ms_max": max(kill["first_good_ms"] for kill in switches),
        "last_failed_ms_max": max(kill["last_failed_ms"] for kill in switches),
        "whys": sorted(story.whys)[:5],
        "windows": windows,
    }
    name = f"availability_{given.story}.json"
    report.write_summary(given.output or report.RESULTS / name, result)
    print(json.dumps({k: v for k, v in result.items() if k != "windows"}, indent=1))
    late_max = LATE_SHARE_MAX * whole["reads"]
    assert story.late <= late_max, f"{story.late} reads were sent too late: too slow for this load"
    share = worst if given.story == "windows" else whole["succeeded_share"]
    sys.exit(share < goal or worst < WINDOW_SHARE or result["first_good_ms_max"] > SWITCH_MS_MAX)


if __name__ == "__main__":
    main()
