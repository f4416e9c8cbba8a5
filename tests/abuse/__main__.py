"""`make abuse`: 500 costly requests from four clients; do lookups notice?

    python -m tests.abuse [--per-kind 50] [--kinds lists,scans] [--seed 0] [--rows 20000]
                          [--result FILE]

Three nodes with real Kafka and a real pipeline. Lookups run at a steady pace from a process of
their own: first alone, then beside the requests of `tests.abuse.corpus`. Exit status 0: every
request was answered or refused, no read failed, no worker ended, none grew by MEMORY_BYTES_MAX, no
event loop stood still for STANDSTILL_MS_MAX, not of a heavy worker either, and lookups' p99 stayed
within P99_RATIO_MAX.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import track
from tests import report
from tests.abuse.attack import Outcome, Watch, send_all, standstills
from tests.abuse.corpus import PER_KIND, SETUP, Costly, corpus
from tests.e2e.cluster import TestCluster, start

from standpipe.local.demo.flights import Event

QUESTION = "Do lookups notice 500 costly requests, of ten kinds, from four clients?"
IDLE_S = 20.0
PORTION = 20
STANDSTILL_MS_MAX = 50.0
MEMORY_BYTES_MAX = 200_000_000
P99_RATIO_MAX = 3.0
TURNS = Path(__file__).parent / "turns"


def fill(cluster: TestCluster, rows: int) -> None:
    """The table of `corpus.SETUP`; row k of N = k."""
    cluster.topic("abuse_events")
    cluster.sql(SETUP)
    cluster.send("abuse_events", (event(number) for number in range(rows)))
    last = "SELECT COUNT(*) FROM ABUSED;"
    cluster.wait_for_rows(last, [[rows]])


def event(number: int) -> Event:
    value = {"N": number, "T": "x" * 200 + str(number), "A": list(range(8))}
    return Event(f"k{number}".encode(), json.dumps(value).encode(), time.time_ns() // 1_000_000)


@contextmanager
def lookups(nodes: Sequence[str], keys: int) -> Iterator[list[list[Any]]]:
    """Samples of `tests.abuse.lookups`; the list is filled when the block ends."""
    command = [sys.executable, "-m", "tests.abuse.lookups", *nodes, "--keys", str(keys)]
    samples: list[list[Any]] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield samples
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=60)
        samples += json.loads(out)


def figures(samples: list[list[Any]]) -> dict[str, Any]:
    latencies = [latency for _, latency, _ in samples]
    failed = [why for _, _, why in samples if why]
    return {
        "reads": len(samples),
        "failed": len(failed),
        "why": failed[:5],
        "p50_ms": round(report.quantile(latencies, 0.5), 2),
        "p99_ms": round(report.quantile(latencies, 0.99), 2),
        "max_ms": round(max(latencies), 2),
    }


def by_kind(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Per kind: how many were answered, refused, sent away, lost, and the longest one."""
    found: dict[str, dict[str, Any]] = {}
    for kind in sorted({outcome.asked.kind for outcome in outcomes}):
        mine = [outcome for outcome in outcomes if outcome.asked.kind == kind]
        counts = Counter(meaning(outcome) for outcome in mine)
        longest = max(mine, key=lambda outcome: outcome.ended_s - outcome.began_s)
        found[kind] = {
            **counts,
            "longest_s": round(longest.ended_s - longest.began_s, 2),
            "longest": longest.asked.name,
        }
    return found


def meaning(outcome: Outcome) -> str:
    """Answered, refused (the client's fault), busy (try again), failed (ours) or lost."""
    if outcome.status in (429, 503):
        return "busy"
    if outcome.status == 0:
        return "lost"
    if outcome.status >= 500:
        return "failed"
    return "answered" if outcome.status == 200 else "refused"


def abuse(cluster: TestCluster, turns: Path, requests: list[Costly], rows: int) -> dict[str, Any]:
    """Idle lookups, then lookups beside the requests; all figures."""
    nodes = [address for _, address in cluster.addresses]
    with lookups(nodes, rows) as idle:
        time.sleep(IDLE_S)
    outcomes: list[Outcome] = []
    began_s = time.monotonic()
    with Watch(cluster.local.options.directory) as watch, lookups(nodes, rows) as loaded:
        measured = {int(file.name) for file in turns.iterdir()}
        assert measured >= set(watch.before), "the loop of each worker is measured"
        for first in track(range(0, len(requests), PORTION), "costly requests"):
            outcomes += send_all(nodes, requests[first : first + PORTION])
    lookups_pids = set(watch.before) - watch.heavy

    def still(processes: set[int]) -> list[tuple[float, float, float]]:
        return [line for line in standstills(turns, processes) if line[0] >= began_s]

    def grown(processes: set[int]) -> int:
        return max(watch.growth_bytes[pid] for pid in processes)

    worst, heavy = still(lookups_pids), still(watch.heavy)
    return {
        "idle": figures(idle),
        "loaded": figures(loaded),
        "p99_ratio": round(figures(loaded)["p99_ms"] / figures(idle)["p99_ms"], 2),
        "requests": len(outcomes),
        "kinds": by_kind(outcomes),
        "unanswered": [
            f"{o.asked.kind} {o.asked.name}: {o.status} {o.why[:200]}"
            for o in outcomes
            if meaning(o) in ("lost", "failed")
        ][:20],
        "workers_ended": len(watch.ended),
        "memory_growth_bytes_max": grown(lookups_pids),
        "heavy_workers": {
            "memory_growth_bytes_max": grown(watch.heavy),
            "standstill_ms_max": heavy[0][1] if heavy else 0.0,
            "standstills_over_20_ms": len(heavy),
            "standstills": longest(heavy, outcomes),
        },
        "standstills_over_20_ms": len(worst),
        "standstill_ms_max": worst[0][1] if worst else 0.0,
        "standstills": longest(worst, outcomes),
        "seconds": round(time.monotonic() - began_s, 1),
    }


def longest(
    found: list[tuple[float, float, float]], outcomes: list[Outcome]
) -> list[dict[str, Any]]:
    """The longest standstills, and what was under way."""
    return [
        {"ms": ms, "late_ms": late_ms, "beside": beside(when_s, ms, outcomes)}
        for when_s, ms, late_ms in found[:12]
    ]


def beside(when_s: float, ms: float, outcomes: list[Outcome]) -> list[str]:
    """The requests that were under way during a standstill."""
    from_s = when_s - ms / 1000
    return [
        f"{o.asked.kind} {o.asked.name}"
        for o in outcomes
        if o.began_s <= when_s and o.ended_s >= from_s
    ]


def verdict(found: dict[str, Any]) -> list[str]:
    """What was not as promised."""
    wrong = []
    if found["loaded"]["failed"] or found["idle"]["failed"]:
        wrong.append(f"{found['loaded']['failed']} reads failed: {found['loaded']['why']}")
    if found["unanswered"]:
        wrong.append(f"requests without an answer: {found['unanswered']}")
    if found["workers_ended"]:
        wrong.append(f"{found['workers_ended']} workers ended")
    grown = max(each["memory_growth_bytes_max"] for each in (found, found["heavy_workers"]))
    if grown > MEMORY_BYTES_MAX:
        wrong.append(f"a worker grew by {grown:,} bytes")
    still_ms = max(each["standstill_ms_max"] for each in (found, found["heavy_workers"]))
    if still_ms > STANDSTILL_MS_MAX:
        wrong.append(f"a loop stood still for {still_ms} ms")
    if found["p99_ratio"] > P99_RATIO_MAX:
        wrong.append(f"lookups' p99 is {found['p99_ratio']} x idle")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--kinds", default="", help="only these, with commas between them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--directory", type=Path, help="of the cluster; kept")
    parser.add_argument("--result", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    requests = corpus(given.seed, given.per_kind)
    if kinds := set(filter(None, given.kinds.split(","))):
        requests = [asked for asked in requests if asked.kind in kinds]
    with tempfile.TemporaryDirectory() as folder:
        turns = Path(folder) / "turns"
        turns.mkdir()
        os.environ["STANDPIPE_TURNS"] = str(turns)
        paths = [str(TURNS), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        cluster = start(given.directory or Path(folder) / "cluster")
        try:
            fill(cluster, given.rows)
            found = abuse(cluster, turns, requests, given.rows)
        finally:
            cluster.close()
    wrong = verdict(found)
    result = {"question": QUESTION, **report.circumstances(), **found, "wrong": wrong}
    print(json.dumps(result, indent=1))
    if given.result:
        report.write_summary(given.result, result)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
