"""One result file out of the reports of several runs: shards, and cases that were run again.

    python -m tests.conformance.summary --cases DIR REPORT… > bench/results/conformance.json

DIR holds `pull` and `tables`. A later report stands for the cases of an earlier one. What is left
is counted by the reason behind it, from REASONS; no case is named (their licence).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance.cases import Case, load

SUITES: Final = ("pull", "tables")
#: (what the runner says, the reason behind it); the first that is found counts
REASONS: Final = (
    (r"Expected .* and .* to match", "a check of the key against a column that no statement names"),
    (r"HEADER\('", "ksqlDB's header lists columns in another order than its rows: not copied"),
    (r"DECIMAL\(\d+, \d+\): precision", "Spark's decimals have 38 digits"),
    (r"expected .*\d [A-Z]{3}\"\}$", "letters for a zone in a date's pattern: Spark writes UTC"),
    (r"\"1\.2345\".*expected.*\"1\.23450\"", "EXTRACTJSONFIELD writes numbers anew"),
    (r"REDUCE", "REDUCE over a MAP goes in the order of Java's HashMap"),
    (r"\{\\\"", "the case's file sorts the keys of an object whose text is compared"),
    (r'"ROWTIME": null', "PARTITION BY ROWTIME of a record without a value: ksqlDB has none there"),
    (r"has schema .*KEY, .*KEY", "order of key columns: another case wants ours of that statement"),
)
UNEXPLAINED: Final = "nobody has looked yet"
SENSITIVE: Final = {
    "emit_final": "EMIT FINAL: a batch closes windows at its end, not with each record",
    "grace_period": "grace period: late is what is older than the batch's watermark",
    "stream_table_join_interleaving": "stream-table join: order of records across topics",
    "stream_stream_outer_join_padding": "outer join of streams: ksqlDB pads before a partner comes",
    "reads_table_changelog_as_stream": "a table's changelog as a stream: a batch is one change",
}


@dataclass(frozen=True)
class Verdict:
    """Of one case: `kind` as in `cases.Outcome`."""

    case: Case
    kind: str
    reason: str


def verdicts(suite: Path, reports: Iterable[dict[str, Any]]) -> dict[str, Verdict]:
    """By case. Raises ValueError for a report that does not cover what it was asked to."""
    found: dict[str, Verdict] = {}
    for report in reports:
        k, n = map(int, report["shard"].split("/"))
        cases = list(load(suite, report["only"], (k, n)))
        if len(cases) != report["cases"] or sum(report["total"].values()) != len(cases):
            raise ValueError(f"a run of {report['cases']} cases was stopped: {report['total']}")
        left = {each["case"]: each for each in report["not_passed"]}
        for case in cases:
            said = left.get(case.id, {"kind": "passed", "reason": ""})
            found[case.id] = Verdict(case, said["kind"], said["reason"])
    return found


def summary(found: Iterable[Verdict], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of one suite, and why the others did not pass."""
    all_ = list(found)
    steady = [each for each in all_ if not each.case.data.get("emission_sensitive")]
    left = Counter(reason_of(each) for each in all_ if each.kind != "passed")
    return {
        "commits": sorted({report["commit"] for report in reports}),
        "seconds": sum(report["seconds"] for report in reports),
        **_counts(all_),
        "not_emission_sensitive": _counts(steady),
        "left": [{"cases": count, "reason": reason} for reason, count in left.most_common()],
    }


def _counts(found: Sequence[Verdict]) -> dict[str, int]:
    kinds = Counter(each.kind for each in found)
    return {"cases": len(found), **{k: kinds[k] for k in ("passed", "failed", "skipped")}}


def reason_of(verdict: Verdict) -> str:
    """What is behind a case that did not pass. Not the runner's words: they quote the case."""
    if verdict.case.data.get("emission_sensitive"):
        named = sorted(verdict.case.data.get("emission_reasons") or ())
        return "; ".join(SENSITIVE.get(each, each.replace("_", " ")) for each in named)
    for pattern, reason in REASONS:
        if re.search(pattern, verdict.reason):
            return reason
    return UNEXPLAINED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.summary")
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("reports", type=Path, nargs="+")
    options = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in options.reports]
    suites: dict[str, Any] = {}
    for suite in SUITES:
        names = {path.name for path in (options.cases / suite).iterdir()}
        own = [report for report in reports if report["files"].keys() <= names]
        suites[suite] = summary(verdicts(options.cases / suite, own).values(), own)
    newest = max(reports, key=lambda report: report["date"])
    machine = newest["machine"]
    result = {
        "question": "How many of ksqlDB's own test cases pass?",
        "date": newest["date"],
        "commit": newest["commit"],
        "machine": f"{machine['cpus']} cores, {machine['machine']}, {machine['system']}",
        **suites,
    }
    json.dump(result, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
