"""How many rows a second do lookups of many keys read, against Redis MGET?  Goal: 500,000 of 100.

Sketch: `IN` of 1, 10, 100 and 250 random keys of 1 M over 4 partitions, SQL text, another list each
time, one worker on one core, the load on the other (wrk; redis-benchmark for MGET of as many). Each
round has all cases in turn, so that a ratio compares neighbours in time.

    python bench/many_keys.py [--rounds 5] [--keys 1000000] [--seconds 3]

Needs wrk and redis-server, as bench/pull.py does. Not here: `get_many` of the client
(bench/client.py), forwards.
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
from bench.load.cases import DRAWN_MAX, many  # noqa: E402
from bench.load.machine import LOAD_QUIET_MAX, port_of  # noqa: E402
from bench.load.tables import make_node, worker  # noqa: E402
from bench.load.wrk import CONNECTIONS, Run  # noqa: E402
from bench.peers.redis import closed_loop, redis  # noqa: E402
from tests import report  # noqa: E402

#: keys of a request
COUNTS = (1, 10, 100, 250)
#: what redis-benchmark is told to ask for in a second; it ends when it has
REDIS_REQUESTS = {1: 50_000, 10: 30_000, 100: 6_000, 250: 2_500}
GOAL_ROWS_PER_S = 500_000
GOAL_COUNT = 100
RESULT = report.RESULTS / "many_keys.json"


def measure(folder: Path, rounds: int, keys: int, seconds: int) -> list[dict[str, Run]]:
    """Of each round the runs by case: `standpipe_100`, `redis_100`, …"""
    config = make_node(folder, keys)
    port = port_of(config.public)
    asked = {count: many(count) for count in COUNTS}
    scripts = {
        count: case.write_script(folder / f"load-{count}.lua", keys)
        for count, case in asked.items()
    }
    done: list[dict[str, Run]] = []
    with worker(folder, config) as ours, redis(folder, keys) as theirs:
        cases: list[tuple[str, Callable[[], Run]]] = []
        for count in COUNTS:
            asked[count].check(port, keys)
            wrk.run(ours.pid, port, scripts[count], 1)  # warm
            cases += [
                (
                    f"standpipe_{count}",
                    lambda count=count: wrk.run(ours.pid, port, scripts[count], seconds),
                ),
                (
                    f"redis_{count}",
                    lambda count=count: closed_loop(
                        theirs, keys, seconds, REDIS_REQUESTS[count], count
                    ),
                ),
            ]
        for number in range(rounds):
            order = cases if number % 2 == 0 else cases[::-1]
            done.append({name: run() for name, run in order})
            show(number, done[-1])
        for count in COUNTS:
            asked[count].check(port, keys)
    return done


def ratio(runs: dict[str, Run], count: int) -> float:
    ours, theirs = runs[f"standpipe_{count}"], runs[f"redis_{count}"]
    return ours.requests_per_second / theirs.requests_per_second


def rows_per_s(runs: dict[str, Run], name: str, count: int) -> float:
    return runs[f"{name}_{count}"].requests_per_second * count


def to_one(runs: dict[str, Run], count: int) -> float:
    """What a request of so many keys costs the worker's processor, in requests of one key."""
    one, many = runs["standpipe_1"], runs[f"standpipe_{count}"]
    return many.server_us_per_request / one.server_us_per_request


def show(number: int, runs: dict[str, Run]) -> None:
    for count in COUNTS:
        run = runs[f"standpipe_{count}"]
        print(
            f"round {number + 1}: {count:4} keys {rows_per_s(runs, 'standpipe', count):9.0f} rows/s"
            f" p50 {run.p50_us:.0f} us p99 {run.p99_us:.0f} us, {run.server_us_per_request:.1f}"
            f" us/request, {run.errors} errors; redis {rows_per_s(runs, 'redis', count):9.0f};"
            f" ratio {ratio(runs, count):.3f}; {to_one(runs, count):.2f} x one key",
            flush=True,
        )


def keys_of(count: int) -> str:
    """A name in the result."""
    return f"keys_{count}"


def medians(rounds: list[dict[str, Run]], of: Callable[..., float]) -> dict[str, float]:
    return {
        keys_of(count): round(statistics.median(of(runs, count) for runs in rounds), 3)
        for count in COUNTS
    }


def write(given: argparse.Namespace, about: dict[str, Any], rounds: list[dict[str, Run]]) -> None:
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "disturbed": max(about["machine"]["load_now"][0], os.getloadavg()[0]) > LOAD_QUIET_MAX,
        "settings": {**vars(given), "connections": CONNECTIONS, "body_keys": DRAWN_MAX},
        "goal_rows_per_s": GOAL_ROWS_PER_S,
        "rows_per_s_median": medians(
            rounds, lambda runs, count: rows_per_s(runs, "standpipe", count)
        ),
        "redis_rows_per_s_median": medians(
            rounds, lambda runs, count: rows_per_s(runs, "redis", count)
        ),
        "ratio_median": medians(rounds, ratio),
        "times_one_key_median": medians(rounds, to_one),
        "errors": sum(
            run.errors for runs in rounds for name, run in runs.items() if "standpipe" in name
        ),
        "runs": [{name: run.as_json() for name, run in runs.items()} for runs in rounds],
    }
    report.write_summary(RESULT, result)
    print(
        f"rows per second of {GOAL_COUNT} keys: {result['rows_per_s_median'][keys_of(GOAL_COUNT)]}"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--seconds", type=int, default=3)
    given = options.parse_args()
    missing = [name for name in ("wrk", "redis-server", "taskset") if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)} (apt-get install wrk redis-server)", file=sys.stderr)
        return 1
    about = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        rounds = measure(Path(name), given.rounds, given.keys, given.seconds)
    write(given, about, rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
