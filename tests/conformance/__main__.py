"""Conformance: any folder of cases against real Kafka, real Spark and a node's own code.

    python -m tests.conformance --cases DIR [--only GLOB] [--shard k/n] [--report FILE]

A line per file, last the sum. A case is skipped where it asks for what Standpipe refuses as not
supported; the report names the feature, and a skip counts as not passed. `--statements` stops
where Spark would begin: only what is refused can pass then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.conformance import runner
from tests.conformance.cases import Case, Outcome, load
from tests.conformance.world import World


class Stopped(BaseException):
    """SIGTERM came. No plain Exception: a case that catches all of those must not swallow it."""


def _stop(_signal: int, _frame: object) -> None:
    raise Stopped


def main() -> int:
    options = _parse()
    began, commit = time.monotonic(), _commit()  # of the code that runs, whatever comes later
    k, n = map(int, options.shard.split("/"))
    cases = list(load(options.cases, options.only, (k, n)))
    outcomes: list[tuple[Case, Outcome]] = []
    queries_kept = 0
    signal.signal(signal.SIGTERM, _stop)  # what is known by then is still reported
    if options.statements:
        outcomes = list(runner.run(cases, None))
    else:
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
            world = World(Path(directory))
            try:
                for case, outcome in runner.run(cases, world):
                    outcomes.append((case, outcome))
                    if outcome.kind != "passed" and options.verbose:
                        print(f"  {outcome.kind} {case.id}: {outcome.reason}", flush=True)
                queries_kept = world.queries_kept()
            except Stopped:
                print(f"stopped after {len(outcomes)} of {len(cases)} cases", flush=True)
            finally:
                world.close()
    per_file: dict[str, Counter[str]] = defaultdict(Counter)
    for case, outcome in outcomes:
        per_file[case.file][outcome.kind] += 1
    for file, counts in sorted(per_file.items()):
        print(f"{file}: {_sum(counts)}")
    total = Counter(outcome.kind for _, outcome in outcomes)
    if options.report is not None:
        seconds = time.monotonic() - began
        _report(options, outcomes, total, per_file, seconds, len(cases), commit, queries_kept)
    print(_sum(total))
    return 0 if total["passed"] == len(outcomes) else 1


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _sum(counts: Counter[str]) -> str:
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def _report(
    options: argparse.Namespace,
    outcomes: list[tuple[Case, Outcome]],
    total: Counter[str],
    per_file: dict[str, Counter[str]],
    seconds: float,
    cases: int,
    commit: str,
    queries_kept: int,
) -> None:
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    report = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit,
        "machine": machine,
        "only": options.only,
        "shard": options.shard,
        "seconds": round(seconds),
        "cases": cases,
        "total": dict(total),
        # of Spark, although all have ended
        "queries_kept": queries_kept,
        "files": {name: dict(counts) for name, counts in sorted(per_file.items())},
        "not_passed": [
            {"case": case.id, "kind": outcome.kind, "reason": outcome.reason}
            for case, outcome in sorted(outcomes, key=lambda each: each[0].id)
            if outcome.kind != "passed"
        ],
    }
    options.report.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--only", default="*", help="globs over case ids and files, with commas")
    parser.add_argument("--shard", default="1/1", help="k/n: each n-th case from the k-th")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--statements", action="store_true", help="no Kafka, no Spark")
    parser.add_argument("--verbose", action="store_true", help="each case that did not pass")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
