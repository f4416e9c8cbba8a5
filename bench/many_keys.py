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
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import pull  # noqa: E402
from tests import report  # noqa: E402

#: keys of a request
COUNTS = (1, 10, 100, 250)
#: keys that are in the bodies of a case, together
BODY_KEYS = 250_000
#: what redis-benchmark is told to ask for in a second; it ends when it has
REDIS_REQUESTS = {1: 50_000, 10: 30_000, 100: 6_000, 250: 2_500}
GOAL_ROWS_PER_S = 500_000
GOAL_COUNT = 100
RESULT = report.RESULTS / "many_keys.json"


def text_of(numbers: list[int]) -> str:
    listed = ", ".join(f"'{pull.key_of(number)}'" for number in numbers)
    where = f"= {listed}" if len(numbers) == 1 else f"IN ({listed})"
    return f"SELECT * FROM FLIGHTS_BY_PLANE WHERE TAILNUM {where};"


def write_bodies(path: Path, keys: int, count: int) -> None:
    """Request bodies, one a line, random keys."""
    draw = random.Random(count)
    with path.open("w") as lines:
        for _ in range(BODY_KEYS // count):
            text = text_of([draw.randrange(keys) for _ in range(count)])
            lines.write(json.dumps({"ksql": text, "streamsProperties": {}}) + "\n")


def check_answers(port: int, keys: int, count: int) -> None:
    """The answers under load would be right: a sample is compared with what was written."""
    for seed in range(20):
        numbers = random.Random(seed).sample(range(keys), count)
        request = Request(
            f"http://127.0.0.1:{port}/query", json.dumps({"ksql": text_of(numbers)}).encode()
        )
        request.add_header("content-type", "application/json")
        with urlopen(request, timeout=30) as answer:
            rows = [row["row"]["columns"] for row in json.loads(answer.read())[1:]]
        wanted = [[pull.key_of(n), n % 1000, 12_345_678 + n, "abcdefghij"] for n in numbers]
        assert sorted(rows) == sorted(wanted), rows[:3]


def run_redis(process: int, port: int, keys: int, seconds: int, count: int) -> pull.Run:
    """GET of one key, MGET of more; each `__rand_int__` becomes another number."""
    requests = REDIS_REQUESTS[count] * seconds
    command = ["taskset", "-c", pull.LOAD_CORE, "redis-benchmark", "-p", str(port), "--csv"]
    numbers = {"-c": pull.CONNECTIONS, "-r": keys, "-n": requests}
    command += [str(word) for pair in numbers.items() for word in pair]
    asked = ["get" if count == 1 else "mget", *(["key:__rand_int__"] * count)]
    before = pull.processor_seconds(process)
    output = pull.capture([*command, *asked])
    spent = pull.processor_seconds(process) - before
    fields = [field.strip('"') for field in output.strip().splitlines()[-1].split(",")]
    rate, p50_ms, p99_ms = float(fields[1]), float(fields[4]), float(fields[6])
    return pull.Run(rate, 0, p50_ms * 1000, p99_ms * 1000, spent / requests * 1e6)


def measure(folder: Path, rounds: int, keys: int, seconds: int) -> list[dict[str, pull.Run]]:
    """Of each round the runs by case: `standpipe_100`, `redis_100`, …"""
    config = pull.make_node(folder, keys)
    port = pull.port_of(config.public)
    scripts = {count: folder / f"load-{count}.lua" for count in COUNTS}
    for count, script in scripts.items():
        write_bodies(folder / f"bodies-{count}", keys, count)
        script.write_text(pull.LUA % (folder / f"bodies-{count}"))
    done: list[dict[str, pull.Run]] = []
    with pull.worker(folder, config) as ours, pull.redis(folder, keys) as (theirs, redis_port):
        cases: list[tuple[str, Callable[[], pull.Run]]] = []
        for count in COUNTS:
            check_answers(port, keys, count)
            pull.run_worker(ours.pid, port, scripts[count], 1)  # warm
            cases += [
                (
                    f"standpipe_{count}",
                    lambda count=count: pull.run_worker(ours.pid, port, scripts[count], seconds),
                ),
                (
                    f"redis_{count}",
                    lambda count=count: run_redis(theirs.pid, redis_port, keys, seconds, count),
                ),
            ]
        for number in range(rounds):
            order = cases if number % 2 == 0 else cases[::-1]
            done.append({name: run() for name, run in order})
            show(number, done[-1])
        for count in COUNTS:
            check_answers(port, keys, count)
    return done


def ratio(runs: dict[str, pull.Run], count: int) -> float:
    ours, theirs = runs[f"standpipe_{count}"], runs[f"redis_{count}"]
    return ours.requests_per_second / theirs.requests_per_second


def rows_per_s(runs: dict[str, pull.Run], name: str, count: int) -> float:
    return runs[f"{name}_{count}"].requests_per_second * count


def to_one(runs: dict[str, pull.Run], count: int) -> float:
    """What a request of so many keys costs the worker's processor, in requests of one key."""
    one, many = runs["standpipe_1"], runs[f"standpipe_{count}"]
    return many.server_us_per_request / one.server_us_per_request


def show(number: int, runs: dict[str, pull.Run]) -> None:
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


def medians(rounds: list[dict[str, pull.Run]], of: Callable[..., float]) -> dict[str, float]:
    return {
        keys_of(count): round(statistics.median(of(runs, count) for runs in rounds), 3)
        for count in COUNTS
    }


def write(
    given: argparse.Namespace, about: dict[str, Any], rounds: list[dict[str, pull.Run]]
) -> None:
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "disturbed": max(about["machine"]["load_now"][0], os.getloadavg()[0]) > pull.LOAD_QUIET_MAX,
        "settings": {**vars(given), "connections": pull.CONNECTIONS, "body_keys": BODY_KEYS},
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
