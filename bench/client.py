"""How many lookups does one Python process make through the client?  Budget: 10 k/s, 3 k/s.

Sketch: one worker on one core, the client on the other, 40 keys in turn. Asynchronous: 32 tasks of
one event loop (uvloop, and asyncio's own). Synchronous: one thread. `get_many` of 100 keys against
`get` of one, in turn. Then three nodes of one worker each, killed and started in turn, under 200
reads a second: failures, and the latency of reads within 1 s of a kill.

    python bench/client.py [--rounds 5] [--lookups 20000] [--kills 10]

Not here: what a worker can do (bench/pull.py), a whole node's death (bench/failover.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402
from tests.e2e.test_serve import ROWS, Cluster, Node  # noqa: E402

import standpipe  # noqa: E402

TASKS = 32
MANY = 100
READS_PER_S = 200
AFTER_KILL_S = 1.0
KEYS = [f"k{number}" for number in range(MANY)]
TABLE: dict[str, list[object]] = {key: [number, "x" * 20] for number, key in enumerate(KEYS)}
GOALS = {"async": 10_000, "sync": 3_000, "p99_during_kills_ms": 300}
RESULT = report.RESULTS / "client.json"


def pinned(node: Node, core: int) -> None:
    for worker in node.workers:
        os.sched_setaffinity(worker.pid, {core})


def cluster_of(folder: Path, nodes: int, replicas: int) -> Cluster:
    made = Cluster.make(folder, nodes, replicas=replicas)
    made.fill({**ROWS, **TABLE})
    made.publish()
    made.start()
    return made


def rate(count: int, started: tuple[float, float]) -> dict[str, float]:
    """Lookups by the clock, and by this process's processor time, which neighbours change less."""
    wall_s, own_s = time.perf_counter() - started[0], time.process_time() - started[1]
    return {"per_s": count / wall_s, "per_cpu_s": count / own_s}


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def sync_rate(address: str, count: int) -> dict[str, float]:
    with standpipe.connect(address) as client:
        client.get("USERS", id="k1")
        started = now()
        for number in range(count):
            assert client.get("USERS", id=KEYS[number % 40]) is not None
        return rate(count, started)


async def async_rate(address: str, count: int) -> dict[str, float]:
    async with standpipe.connect_async(address) as client:
        await client.get("USERS", id="k1")

        async def work(first: int) -> None:
            for number in range(count // TASKS):
                assert await client.get("USERS", id=KEYS[(first + number) % 40]) is not None

        started = now()
        await asyncio.gather(*map(work, range(TASKS)))
        return rate(count, started)


def many_against_one(address: str) -> dict[str, float]:
    """Median ms of each, and their ratio."""
    one: list[float] = []
    many: list[float] = []
    with standpipe.connect(address) as client:
        assert all(client.get_many("USERS", KEYS))
        for number in range(100):
            started = time.perf_counter()
            client.get("USERS", id=KEYS[number % MANY])
            middle = time.perf_counter()
            client.get_many("USERS", KEYS)
            one.append((middle - started) * 1000)
            many.append((time.perf_counter() - middle) * 1000)
    one_ms, many_ms = statistics.median(one), statistics.median(many)
    return {"one_ms": one_ms, "many_ms": many_ms, "many_to_one": many_ms / one_ms}


async def under_kills(cluster: Cluster, kills: int) -> dict[str, Any]:
    """Each node killed and started in turn, `kills` rounds, with reads at a steady rate."""
    reads: list[tuple[float, float]] = []
    failed: list[str] = []
    killed_s: list[float] = []
    is_over = False
    addresses = [node.config.public for node in cluster.nodes]
    async with standpipe.connect_async(addresses) as client:

        async def read(key: str) -> None:
            started = time.monotonic()
            try:
                assert await client.get("USERS", id=key) is not None
                reads.append((started, (time.monotonic() - started) * 1000))
            except Exception as error:
                failed.append(repr(error))

        async def readers() -> None:
            tasks: set[asyncio.Task[None]] = set()
            started, number = time.monotonic(), 0
            while not is_over:
                number += 1
                await asyncio.sleep(max(0.0, started + number / READS_PER_S - time.monotonic()))
                tasks.add(task := asyncio.create_task(read(KEYS[number % MANY])))
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)

        steady = asyncio.create_task(readers())
        await asyncio.sleep(1)
        for _ in range(kills):
            for node in cluster.nodes:
                killed_s.append(time.monotonic())
                node.workers[0].kill()
                await asyncio.to_thread(node.workers[0].wait)
                await asyncio.sleep(AFTER_KILL_S)
                node.workers.clear()
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(node.wait_ready)
                await asyncio.sleep(0.5)
        is_over = True
        await steady
    near = [ms for at, ms in reads if any(0 <= at - kill < AFTER_KILL_S for kill in killed_s)]
    every = [ms for _, ms in reads]
    return {
        "kills": len(killed_s),
        "reads": len(reads),
        "failed": len(failed),
        "errors": sorted(set(failed))[:3],
        "p50_ms": report.quantile(every, 0.5),
        "p99_ms": report.quantile(every, 0.99),
        "p99_during_kills_ms": report.quantile(near, 0.99),
        "max_ms": max(every),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rates: dict[str, list[dict[str, float]]] = {"sync": [], "asyncio": [], "uvloop": []}
    many: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        cluster = cluster_of(Path(folder), 1, 1)
        try:
            pinned(cluster.nodes[0], 0)
            os.sched_setaffinity(0, {1})
            address = cluster.nodes[0].config.public
            for _ in range(arguments.rounds):
                rates["sync"].append(sync_rate(address, arguments.lookups // 4))
                rates["asyncio"].append(asyncio.run(async_rate(address, arguments.lookups)))
                rates["uvloop"].append(uvloop.run(async_rate(address, arguments.lookups)))
                many.append(many_against_one(address))
        finally:
            cluster.stop()
            os.sched_setaffinity(0, set(range(os.cpu_count() or 1)))
    with tempfile.TemporaryDirectory() as folder:
        cluster = cluster_of(Path(folder), 3, 2)
        try:
            kills = asyncio.run(under_kills(cluster, arguments.kills))
        finally:
            cluster.stop()
    medians = {
        figure: {
            name: round(statistics.median(each[figure] for each in runs))
            for name, runs in rates.items()
        }
        for figure in ("per_s", "per_cpu_s")
    }
    return {
        "question": __doc__.splitlines()[0],
        **report.circumstances(),
        "goals": GOALS,
        "lookups_per_second_median": medians["per_s"],
        "lookups_per_cpu_second_median": medians["per_cpu_s"],
        "runs": rates,
        "many_to_one_median": round(statistics.median(each["many_to_one"] for each in many), 2),
        "rounds": many,
        "under_kills": kills,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lookups", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=10, help="rounds; each kills all three nodes")
    result = report.write_summary(RESULT, measure(parser.parse_args()))
    for figure in ("lookups_per_second_median", "lookups_per_cpu_second_median", "under_kills"):
        print(figure, result[figure])
    print("get_many of 100 keys, × get of one:", result["many_to_one_median"])


if __name__ == "__main__":
    main()
