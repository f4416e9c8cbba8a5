"""How many lookups does one core answer, against Redis, PostgreSQL and Kafka Streams?

Goals: 1.0 x Redis GET, 1.4 x Kafka Streams, 2.5 x PostgreSQL; the others are GOALS.

Sketch: every server stands on one core, the load on the other, 16 connections, no pipelining, the
same rows. Each round asks all of them by turns, every other round backwards, so that a ratio
compares neighbours in time: first a closed loop (wrk; redis-benchmark and pgbench for theirs), then
an open loop at 50 % and 80 % of what that reached, in which a request's time runs from when it was
due. nginx's fixed answer says what HTTP over loopback costs anybody.

    python bench/lookups.py [--rounds 5] [--keys 1000000] [--seconds 4]
    python bench/lookups.py --rounds 1 --keys 10000 --seconds 1 --warm 2 --result out/tiny.json

Cases of ours: a point lookup, two columns with two predicates, all windows of a day, a missing key,
IN of 10 and 100, /query-batch of 1,000 keys as JSON and as Arrow, one hop from a second node (both
on the one core), TLS, a node whose C was not compiled. Each case's answers are compared with what
was written, before and after; one failed request, or answers of another size under load, end the
run without a result.

Needs the Debian packages wrk, redis-server, postgresql, nginx-light, gcc, and pyarrow; Kafka, Kafka
Streams and Vert.x are fetched. Not here: pipelining, Redis MGET (bench/many_keys.py), more workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import contenders, machine  # noqa: E402
from bench.load.cases import WrongAnswer  # noqa: E402
from bench.load.contenders import PEERS, Contender  # noqa: E402
from bench.load.open_loop import OpenLoop, OpenRun  # noqa: E402
from bench.load.options import parser_of  # noqa: E402
from bench.load.wrk import CONNECTIONS, RequestsFailed, Run  # noqa: E402
from bench.peers import postgres  # noqa: E402
from tests import report  # noqa: E402

from standpipe.local.cluster import jvm  # noqa: E402

RESULT = report.RESULTS / "lookups.json"
#: shares of the closed loop's throughput at which the open loop asks
SHARES = {"half": 0.5, "most": 0.8}
#: the generator could not keep the rate below this share of it
RATE_KEPT_MIN = 0.98
IDLE_S = 5.0
#: so that a batch has different keys
KEYS_MIN = 1_000
PACKAGES = {
    "wrk": "wrk",
    "redis-server": "redis-server",
    "nginx": "nginx-light",
    "cc": "gcc",
    "taskset": "util-linux",
    "setpriv": "util-linux",
}
#: figure -> at least
GOALS = {
    "point_to_redis": 1.0,
    "point_to_streams": 1.4,
    "point_to_postgres": 2.5,
    "projection_to_redis": 0.6,
    "windowed_to_redis": 0.5,
    "in_100_rows_per_s": 500_000,
    "batch_json_rows_per_s": 500_000,
    "batch_arrow_rows_per_s": 1_000_000,
    "forwarded_to_point": 0.45,
    "without_c_to_redis": 0.65,
    "tls_to_point": 0.8,
}
#: figure -> at most
LIMITS = {"point_p99_us": 1000, "point_half_p99_us": 800, "point_half_p999_us": 3000}


@dataclass
class Round:
    """What one turn of all found, by contender."""

    closed: dict[str, Run] = field(default_factory=dict[str, Run])
    opened: dict[str, dict[str, OpenRun]] = field(default_factory=dict[str, dict[str, OpenRun]])
    others_cores: float = 0.0


def missing() -> list[str]:
    """Packages that are to be installed."""
    found = {package for name, package in PACKAGES.items() if not shutil.which(name)}
    if not postgres.programs():
        found.add("postgresql")
    if not (jvm.find_java().home / "bin" / "javac").exists():
        found.add("default-jdk-headless")
    return sorted(found)


# ---------------------------------------------------------------------------------- measuring


def measure(
    all_: Sequence[Contender], given: argparse.Namespace
) -> tuple[list[Round], dict[str, float]]:
    """All rounds, and what the servers cost while nobody asks, in % of a core."""
    for each in all_:
        each.check()
        each.closed(given.warm if each.name == "streams" else 1)
    idle = idle_percent(all_)
    print(f"idle, % of a core: {idle}", flush=True)
    rounds: list[Round] = []
    for number in range(given.rounds):
        since = machine.Spent.now()
        found = Round()
        for each in all_ if number % 2 == 0 else list(all_)[::-1]:
            ask(each, given.seconds, found)
            show(number, each, found)
        found.others_cores = machine.others_cores(since)
        print(f"round {number + 1}: others used {found.others_cores} cores", flush=True)
        rounds.append(found)
    for each in all_:
        each.check()
    return rounds, idle


def ask(one: Contender, seconds: int, into: Round) -> None:
    """Its closed loop, then its open one at what that has reached."""
    closed = into.closed[one.name] = one.closed(seconds)
    if one.open is not None:
        into.opened[one.name] = {
            name: one.open(share * closed.requests_per_second, seconds)
            for name, share in SHARES.items()
        }


def idle_percent(all_: Sequence[Contender]) -> dict[str, float]:
    """By server: they stand beside each other, and each takes this from all others."""
    servers = {each.name: each for each in all_ if each.name in PEERS}
    servers["standpipe"] = next(each for each in all_ if each.name == "forwarded")  # both nodes
    standing = {name: (*each.processes, *each.beside) for name, each in servers.items()}
    before = {name: machine.processor_seconds(*ids) for name, ids in standing.items()}
    time.sleep(IDLE_S)
    return {
        name: round(100 * (machine.processor_seconds(*ids) - before[name]) / IDLE_S, 1)
        for name, ids in standing.items()
    }


def show(number: int, one: Contender, found: Round) -> None:
    """A line for each loop."""
    run = found.closed[one.name]
    rows = f" {run.requests_per_second * one.rows_each:9.0f} rows/s" if one.rows_each > 1 else ""
    print(
        f"round {number + 1}: {one.name:12} {run.requests_per_second:8.0f}/s p50 {run.p50_us:5.0f}"
        f" p99 {run.p99_us:5.0f} us, {run.server_us_per_request:6.1f} us each{rows}",
        flush=True,
    )
    for opened in found.opened.get(one.name, {}).values():
        print(
            f"           open {opened.asked_per_second:8.0f}/s, kept"
            f" {opened.achieved_per_second:.0f}/s; p50 {opened.p50_us:.0f} p99 {opened.p99_us:.0f}"
            f" p99.9 {opened.p999_us:.0f} us",
            flush=True,
        )


# ------------------------------------------------------------------------------------ results


def figures(rounds: Sequence[Round], rows_each: dict[str, int]) -> dict[str, float]:
    """Medians over the rounds of what the goals speak of."""

    def median(of: Callable[[Round], float]) -> float:
        return round(statistics.median(map(of, rounds)), 3)

    def ratio(name: str, peer: str) -> float:
        return median(
            lambda r: r.closed[name].requests_per_second / r.closed[peer].requests_per_second
        )

    found = {f"point_to_{peer}": ratio("point", peer) for peer in PEERS}
    found |= {
        f"{name}_to_redis": ratio(name, "redis") for name in ("projection", "windowed", "without_c")
    }
    found |= {f"{name}_to_point": ratio(name, "point") for name in ("missing", "forwarded", "tls")}
    for name, rows in rows_each.items():
        if rows > 1:
            found[f"{name}_rows_per_s"] = median(
                lambda r, name=name, rows=rows: r.closed[name].requests_per_second * rows
            )
    found["point_p99_us"] = median(lambda r: r.closed["point"].p99_us)
    found["point_half_p99_us"] = median(lambda r: r.opened["point"]["half"].p99_us)
    found["point_half_p999_us"] = median(lambda r: r.opened["point"]["half"].p999_us)
    return found


def missed(found: dict[str, float]) -> list[str]:
    """Goals that are not reached."""
    return [
        *(f"{name}: {found[name]} < {goal}" for name, goal in GOALS.items() if found[name] < goal),
        *(f"{name}: {found[name]} > {most}" for name, most in LIMITS.items() if found[name] > most),
    ]


def rates_not_kept(rounds: Sequence[Round]) -> dict[str, int]:
    """Open loops in which fewer answers came than were asked for: `redis most` -> rounds."""
    names = [
        f"{name} {share}"
        for found in rounds
        for name, runs in found.opened.items()
        for share, run in runs.items()
        if run.kept < RATE_KEPT_MIN
    ]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def versions() -> dict[str, str]:
    """Of the peers."""
    folder = postgres.programs()
    return {
        "redis": machine.capture(["redis-server", "--version"]).split(" sha")[0].strip(),
        "postgres": machine.capture([f"{folder}/postgres", "--version"]).strip(),
        "nginx": machine.capture(["sh", "-c", "nginx -v 2>&1"]).strip(),
        "java": machine.capture(["sh", "-c", "java -version 2>&1"]).splitlines()[0],
        "streams": "kafka-streams 4.2.1, vertx-web 5.0.7",
    }


def closed_json(run: Run) -> dict[str, float]:
    """`cpu_us`: of the server, for each request."""
    return {
        "per_s": round(run.requests_per_second),
        "p50_us": round(run.p50_us),
        "p99_us": round(run.p99_us),
        "cpu_us": round(run.server_us_per_request, 1),
    }


def open_json(run: OpenRun) -> dict[str, float]:
    """At its share of the closed loop's rate; `rates_not_kept` names those that fell behind it."""
    return {
        "p50_us": round(run.p50_us),
        "p99_us": round(run.p99_us),
        "p999_us": round(run.p999_us),
    }


def write(
    given: argparse.Namespace,
    about: dict[str, Any],
    rounds: Sequence[Round],
    more: dict[str, Any],
    rows_each: dict[str, int],
) -> None:
    """The result, and what it says of the goals."""
    found = figures(rounds, rows_each)
    others = [each.others_cores for each in rounds]
    load = max(about["machine"]["load_now"][0], os.getloadavg()[0])
    settings = {name: getattr(given, name) for name in ("rounds", "keys", "seconds", "warm")}
    result: dict[str, Any] = {
        "question": " ".join((__doc__ or "").partition("\n\nSketch")[0].split()),
        **about,
        "load_after": [round(each, 2) for each in os.getloadavg()],
        "others_cores_max": round(max(others), 3),
        # a run beside other work measures that work: only its ratios mean anything
        "disturbed": load > machine.LOAD_QUIET_MAX or max(others) > machine.OTHERS_QUIET_MAX,
        "settings": {**settings, "connections": CONNECTIONS, "shares": SHARES},
        **more,
        "goals": {**GOALS, **LIMITS},
        "medians": found,
        "missed": missed(found),
        "rates_not_kept": rates_not_kept(rounds),
        "runs": [{name: closed_json(run) for name, run in each.closed.items()} for each in rounds],
        "open_loop": {
            "rounds": [
                {
                    name: {share: open_json(run) for share, run in runs.items()}
                    for name, runs in each.opened.items()
                }
                for each in rounds
            ]
        },
    }
    report.write_summary(given.result, result)
    print(f"medians: {found}")
    print(f"missed: {result['missed']}")
    if result["rates_not_kept"]:
        print(f"rates that were not kept, and in how many rounds: {result['rates_not_kept']}")
    if result["disturbed"]:
        print(f"DISTURBED: load {load}, others used up to {max(others)} cores; run it again")


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--seconds", type=int, default=4, help="of each loop")
    parser.add_argument("--warm", type=int, default=25, help="seconds for the JVM's compiler")
    parser.add_argument("--result", type=Path, default=RESULT, help="where the summary goes")
    given = parser.parse_args()
    if given.keys < KEYS_MIN or min(given.rounds, given.seconds, given.warm) < 1:
        parser.error(f"at least {KEYS_MIN:,} keys, and 1 of everything else")
    return given


def interrupt(_number: int, _frame: object) -> None:
    """Ends as Ctrl-C does, so that all servers are stopped."""
    raise KeyboardInterrupt


def main() -> int:
    """Exit status: 1 if something is missing or an answer was wrong; goals do not change it."""
    given = options()
    if lacking := missing():
        print(f"missing: apt-get install {' '.join(lacking)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, interrupt)
    about = report.circumstances()
    try:
        with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
            folder = Path(name)
            print(f"{given.keys:,} rows are written to each of five servers", flush=True)
            settings = contenders.Settings(folder, given.keys, OpenLoop(folder))
            with contenders.everybody(settings) as all_:
                rounds, idle = measure(all_, given)
                rows_each = {each.name: each.rows_each for each in all_}
    except (WrongAnswer, RequestsFailed) as error:
        print(f"{error}; no result is written", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: all servers are stopped, no result is written", file=sys.stderr)
        return 130
    write(given, about, rounds, {"versions": versions(), "idle_percent": idle}, rows_each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
