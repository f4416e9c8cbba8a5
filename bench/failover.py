"""How long until reads go on after the active of a table partition dies?  Budget: 1 s.

Sketch: 3 missed x 100 ms + a check <= 200 ms + one beat's way = 0.5 s until everybody knows; before
that a refused connection opens a breaker at once, and a hedge after the p95 of recent forwards
covers a node that only hangs. KLIP-12's own budget: 2 s.

Whole nodes, each in a network namespace that the benchmark makes, and a real Kafka; the one batch
of the table is written by the benchmark, by the commit protocol, so that no Spark takes part and
two cores are left to what is measured. Open-loop
reads of keys whose active is a victim, through the survivors in turn, latency from the intended
send time. Every answer is compared with its row. Every read asks for lag 0: nothing is written any
more, so a row that is behind would be a wrong one, and an unknown lag must not make a read fail.

    python bench/failover.py [--runs 20] [--rate 500] [--faults kill,stop,…] [--output FILE]

Per run: `avoided_ms` (every survivor's routing passes the victims over, by beats or by a failed
path), `down_ms` (by beats alone), `first_good_ms` (first right answer to a read that was due after
the fault), failed reads of the 5 s after without and with one retry on another survivor, the
slowest, and the p99 before, in the 2 s after, and later. Not here: wrong answers while writes go
on, lossy links, Kafka and Spark lost (tests/chaos).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.failover_parts.faults import FAULTS, Blow, Fault  # noqa: E402
from tests import report  # noqa: E402
from tests.hosts.cluster import HostCluster, HostNode, until  # noqa: E402
from tests.hosts.network import Network, enter  # noqa: E402

from standpipe.adapters.files.published import RecordReader  # noqa: E402
from standpipe.adapters.http.peer_client import PathFailed, PeerClient  # noqa: E402
from standpipe.model import Health  # noqa: E402
from standpipe.model_liveness import Liveness  # noqa: E402

BEFORE_S, AFTER_S = 2.0, 5.0
READ_S_MAX = 4.0
PROBE_S = 0.005
ROWS: dict[str, int] = {f"k{number}": 1 + number % 3 for number in range(240)}
TRACE_STEP_MS = 20


@dataclass(frozen=True)
class Read:
    """One read: when it was to be sent and answered, in s after the fault; what became of it."""

    sent_s: float
    ended_s: float
    ok: bool
    ok_retried: bool
    why: str = ""


@dataclass(frozen=True)
class Run:
    """One fault."""

    fault: str
    victims: list[str]
    reads: int
    avoided_ms: float
    down_ms: float
    first_good_ms: float
    failed: int
    failed_retried: int
    slowest_ms: float
    p99_before_ms: float
    p99_2s_ms: float
    p99_later_ms: float
    whys: list[str]
    #: slowest read of each TRACE_STEP_MS, from BEFORE_S before to AFTER_S after
    trace_ms: list[float]


class Reader:
    """Reads keys of the victims through the survivors."""

    def __init__(self, blow: Blow) -> None:
        self.client = PeerClient({})
        self.entries = [node.public for node in blow.survivors]
        self.keys = blow.keys

    async def read(self, number: int) -> tuple[bool, bool, str]:
        """Right at the first try, right after one retry on another node, and why not."""
        key = self.keys[number % len(self.keys)]
        entry = number % len(self.entries)
        ok, why = await self._once(self.entries[entry], key)
        if ok:
            return True, True, ""
        again, _ = await self._once(self.entries[(entry + 1) % len(self.entries)], key)
        return False, again, why

    async def _once(self, address: str, key: str) -> tuple[bool, str]:
        bound = {"ksql.query.pull.max.allowed.offset.lag": "0"}
        text = f"SELECT * FROM LEVELS WHERE ID = '{key}';"
        body = json.dumps({"ksql": text, "streamsProperties": bound}).encode()
        try:
            response = await self.client.request(address, "/query", body=body, timeout_s=READ_S_MAX)
        except PathFailed as failure:
            return False, f"{address}: {failure}"
        wanted = f'"columns":["{key}",{ROWS[key]},{ROWS[key]}]'.encode()
        if response.status == 200 and wanted in response.body:
            return True, ""
        return False, f"{address}: {response.status}: {response.body[:400]!r}"


async def load(
    reader: Reader, rate: float, strike: Callable[[], None]
) -> tuple[list[Read], float, float]:
    """BEFORE_S + AFTER_S of reads at a steady pace; `strike` in between, in a thread.

    Returns the reads, and the instants just before the strike and when it was done.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    struck_at = start + BEFORE_S
    raw: list[tuple[float, float, bool, bool, str]] = []

    async def one(number: int, due: float) -> None:
        ok, again, why = await reader.read(number)
        raw.append((due, loop.time(), ok, again, why))

    async def blow() -> float:
        await asyncio.to_thread(strike)
        return loop.time()

    tasks: list[asyncio.Task[None]] = []
    striking: asyncio.Task[float] | None = None
    for number in itertools.count():
        due = start + number / rate
        if due > struck_at + AFTER_S:
            break
        if striking is None and due > start + BEFORE_S:
            struck_at = loop.time()
            striking = asyncio.create_task(blow())
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    assert striking is not None
    reads = [Read(due - struck_at, end - struck_at, *rest) for due, end, *rest in sorted(raw)]
    return reads, struck_at, await striking


async def watch_avoided(survivors: list[HostNode], victims: set[str]) -> float:
    """The instant at which no survivor's worker counts on a victim any more."""
    loop, client = asyncio.get_running_loop(), PeerClient({})

    async def avoids(node: HostNode) -> bool:
        try:
            page = await client.request(node.public, "/clusterStatus", timeout_s=1)
        except PathFailed:
            return False
        hosts = json.loads(page.body)["clusterStatus"].values()
        alive = {one["standpipe"]["nodeId"]: one["hostAlive"] for one in hosts}
        return not any(alive.get(name) for name in victims)

    waiting = list(survivors)
    while waiting:
        waiting = [node for node in waiting if not await avoids(node)]
        if waiting:
            await asyncio.sleep(PROBE_S)
    client.close()
    return loop.time()


async def watch_down(survivors: list[HostNode], victims: set[str]) -> float:
    """The instant at which every survivor's control has marked the victims down, by beats."""
    loop = asyncio.get_running_loop()
    readers = [RecordReader(node.config.paths.liveness, Liveness) for node in survivors]

    def are_down(reader: RecordReader[Liveness]) -> bool:
        reader.refresh()
        peers = reader.record.peers if reader.record else ()
        return {p.node_id for p in peers if p.health is Health.DOWN} >= victims

    while not all(map(are_down, readers)):  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(PROBE_S)
    return loop.time()


def p99(reads: list[Read], low_s: float, high_s: float) -> float:
    taken = sorted(1000 * (r.ended_s - r.sent_s) for r in reads if low_s <= r.sent_s < high_s)
    return round(taken[int(len(taken) * 0.99)], 1) if taken else 0.0


def trace(reads: list[Read]) -> list[float]:
    slowest = [0.0] * int((BEFORE_S + AFTER_S) * 1000 / TRACE_STEP_MS + 1)
    for read in reads:
        place = int((read.sent_s + BEFORE_S) * 1000 / TRACE_STEP_MS)
        if 0 <= place < len(slowest):
            slowest[place] = max(slowest[place], round(1000 * (read.ended_s - read.sent_s), 1))
    return slowest


async def strike_one(fault: Fault, blow: Blow, rate: float) -> Run:
    reader, victims = Reader(blow), {node.node_id for node in blow.victims}
    watching: list[asyncio.Task[float]] = []
    loop = asyncio.get_running_loop()

    def strike() -> None:
        def watch() -> None:
            watchers = (watch_avoided, watch_down)
            watching.extend(loop.create_task(w(blow.survivors, victims)) for w in watchers)

        fault.strike(blow)
        loop.call_soon_threadsafe(watch)

    reads, struck_at, _ = await load(reader, rate, strike)
    avoided_at, down_at = await asyncio.wait_for(asyncio.gather(*watching), 60)
    reader.client.close()
    after = [read for read in reads if read.sent_s >= 0]
    good = [read.ended_s for read in after if read.ok]
    touched = [read for read in reads if read.ended_s >= 0]  # what was under way counts too
    return Run(
        fault=fault.name,
        victims=sorted(victims),
        reads=len(touched),
        avoided_ms=round(1000 * (avoided_at - struck_at), 1),
        down_ms=round(1000 * (down_at - struck_at), 1),
        first_good_ms=round(1000 * min(good, default=AFTER_S + READ_S_MAX), 1),
        failed=sum(not read.ok for read in touched),
        failed_retried=sum(not read.ok_retried for read in touched),
        slowest_ms=round(1000 * max(read.ended_s - read.sent_s for read in after), 1),
        p99_before_ms=p99(reads, -BEFORE_S, 0),
        p99_2s_ms=p99(reads, 0, 2),
        p99_later_ms=p99(reads, 2, AFTER_S),
        whys=sorted({read.why for read in reads if not read.ok})[:5],
        trace_ms=trace(reads),
    )


FIGURES = ("avoided_ms", "down_ms", "first_good_ms", "failed", "failed_retried", "slowest_ms")
MORE = ("p99_before_ms", "p99_2s_ms", "p99_later_ms")


def summary(runs: list[Run]) -> dict[str, Any]:
    """p50 and max of each figure, and whether the goals hold."""
    found: dict[str, Any] = {}
    for fault in FAULTS:
        mine = [run for run in runs if run.fault == fault.name]
        if not mine:
            continue
        values = {name: [getattr(run, name) for run in mine] for name in (*FIGURES, *MORE)}
        share = sum(values["failed"]) / sum(run.reads for run in mine)
        row: dict[str, Any] = {
            name: {"p50": statistics.median(each), "min": min(each), "max": max(each)}
            for name, each in values.items()
        }
        found[fault.name] = {
            "what": fault.title,
            "count": len(mine),
            "reads": sum(run.reads for run in mine),
            **row,
            "failed_share": round(share, 6),
            "goals": asdict(fault.goals),
            "holds": {
                "avoided": row["avoided_ms"]["max"] <= fault.goals.avoided_ms,
                "first_good": row["first_good_ms"]["max"] <= fault.goals.first_good_ms,
                "failed": share <= fault.goals.failed_share,
                "failed_retried": row["failed_retried"]["max"] == 0,
            },
        }
    return found


def save(runs: list[Run], output: Path, rate: float, head: dict[str, Any]) -> None:
    """Written after every run: a run that is broken off has shown what it has shown."""
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **head,
        "rate": rate,
        "summary": summary(runs),
    }
    report.write(report.RUNS / output.name, {**result, "runs": [asdict(run) for run in runs]})
    report.write(output, result)


def measure(network: Network, chosen: list[Fault], runs_count: int, rate: float) -> Any:
    """All runs of the faults that share a layout, as they come."""
    folder = Path(tempfile.mkdtemp(prefix="failover-"))
    try:
        with HostCluster(folder, network, chosen[0].plan) as cluster:
            cluster.commit(ROWS)
            cluster.until_everywhere(ROWS)
            for number, fault in itertools.product(range(runs_count), chosen):
                blow = fault.aim(cluster, number, list(ROWS))
                yield uvloop.run(strike_one(fault, blow, rate))
                fault.heal(blow)
                cluster.all_alive()
                until(
                    "all to have caught up", lambda: all(map(cluster.is_caught_up, cluster.nodes))
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--rate", type=float, default=500.0)
    options.add_argument("--faults", default=",".join(fault.name for fault in FAULTS))
    options.add_argument("--output", type=Path, default=ROOT / "bench/results/failover.json")
    given = options.parse_args()
    head = report.circumstances()
    enter()
    chosen = [fault for fault in FAULTS if fault.name in given.faults.split(",")]
    runs: list[Run] = []
    started = time.monotonic()
    network = Network()
    for _, alike in itertools.groupby(chosen, key=lambda fault: fault.plan):
        for run in measure(network, list(alike), given.runs, given.rate):
            runs.append(run)
            shown = {name: getattr(run, name) for name in (*FIGURES, "p99_before_ms")}
            print(f"{time.monotonic() - started:5.0f} s  {run.fault:9} {shown} {run.whys[:1]}")
            sys.stdout.flush()
            save(runs, given.output, given.rate, head)
    print(json.dumps(summary(runs), indent=1))


if __name__ == "__main__":
    main()
