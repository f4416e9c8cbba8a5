"""How many lookups by key does one worker answer, against Redis GET?  Budget: 0.25 x Redis.

Sketch: POST /query with SQL text, another literal each time, 1 M keys, 16 connections, no
pipelining; server on one core, load on the other (wrk; redis-benchmark for Redis). Every round
runs both, so that a ratio compares neighbours in time; a round costs about 2 x SECONDS. They are
short and many: others on a virtual machine's host slow a core by half for tenths of a second to
minutes, which no counter shows, and both sides must meet as much of it.
The floor of a round trip is the loopback, about 7 us.

    python bench/pull.py [--rounds 31] [--keys 1000000] [--seconds 1]

Needs wrk and redis-server (Debian packages of these names). Not here: forwards, failover, latency
under an open loop.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import wrk  # noqa: E402
from bench.load.cases import POINT, REQUESTS_MAX  # noqa: E402
from bench.load.machine import LOAD_QUIET_MAX, memory_kib, port_of  # noqa: E402
from bench.load.tables import make_node, worker  # noqa: E402
from bench.load.wrk import CONNECTIONS, Run  # noqa: E402
from bench.peers.redis import closed_loop, redis  # noqa: E402
from tests import report  # noqa: E402

#: what redis-benchmark is told to send in a second; it ends when it has
REDIS_REQUESTS = 70_000
RESULT = report.RESULTS / "pull.json"


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--seconds", type=int, default=1)
    given = options.parse_args()
    missing = [name for name in ("wrk", "redis-server", "taskset") if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)} (apt-get install wrk redis-server)", file=sys.stderr)
        return 1
    about = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        rounds, memory = measure(Path(name), given.rounds, given.keys, given.seconds)
    write(given, about, rounds, memory)
    return 0


def measure(
    folder: Path, rounds: int, keys: int, seconds: int
) -> tuple[list[dict[str, Run]], dict[str, int]]:
    config = make_node(folder, keys)
    script = POINT.write_script(folder / "load.lua", keys)
    done: list[dict[str, Run]] = []
    with worker(folder, config) as ours, redis(folder, keys) as theirs:
        port = port_of(config.public)
        POINT.check(port, keys)
        wrk.run(ours.pid, port, script, 2)  # warm: pages of the store, caches of the worker
        cases: list[tuple[str, Callable[[], Run]]] = [
            ("standpipe", lambda: wrk.run(ours.pid, port, script, seconds)),
            ("redis", lambda: closed_loop(theirs, keys, seconds, REDIS_REQUESTS)),
        ]
        for number in range(rounds):
            order = cases if number % 2 == 0 else cases[::-1]
            done.append({name: run() for name, run in order})
            show(number, done[-1])
        POINT.check(port, keys)
        memory = memory_kib(ours.pid)
    return done, memory


def ratio(pair: dict[str, Run]) -> float:
    return pair["standpipe"].requests_per_second / pair["redis"].requests_per_second


def show(number: int, pair: dict[str, Run]) -> None:
    ours, theirs = pair["standpipe"], pair["redis"]
    print(
        f"round {number + 1}: standpipe {ours.requests_per_second:8.0f}/s p50 {ours.p50_us:.0f} us "
        f"p99 {ours.p99_us:.0f} us, {ours.server_us_per_request:.1f} us/request, "
        f"{ours.errors} errors; redis {theirs.requests_per_second:8.0f}/s; ratio {ratio(pair):.2f}",
        flush=True,
    )


def write(
    given: argparse.Namespace,
    about: dict[str, Any],
    rounds: list[dict[str, Run]],
    memory: dict[str, int],
) -> None:
    medians = {
        name: statistics.median(pair[name].requests_per_second for pair in rounds)
        for name in ("standpipe", "redis")
    }
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        # a run beside other work measures that work: only its ratios mean anything
        "disturbed": max(about["machine"]["load_now"][0], os.getloadavg()[0]) > LOAD_QUIET_MAX,
        "settings": {**vars(given), "connections": CONNECTIONS, "bodies": REQUESTS_MAX},
        "ratio_median": round(statistics.median(map(ratio, rounds)), 3),
        "ratios": [round(ratio(pair), 3) for pair in rounds],
        "requests_per_second_median": {name: round(rate) for name, rate in medians.items()},
        "errors": sum(pair["standpipe"].errors for pair in rounds),
        "worker_memory_kib": memory,
        "runs": [{name: run.as_json() for name, run in pair.items()} for pair in rounds],
    }
    report.write_summary(RESULT, result)
    print(f"ratio to Redis GET: {result['ratio_median']} (median of {len(rounds)}), {memory}")


if __name__ == "__main__":
    sys.exit(main())
