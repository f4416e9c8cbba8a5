"""`python -m tests.assignor --scenarios FILE [--report FILE]`: run every scenario of a file.

Prints each failing property and each skipped scenario with its reason; the last line is
`N passed, N failed, N skipped`. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tests.assignor.scenarios import Json, Outcome, load_evaluator, run


def attempt(scenario: Json, judge: ModuleType) -> Outcome:
    """A crash of the assignor is a failure of that scenario, not of the run."""
    try:
        return run(scenario, judge)
    except Exception as error:
        where = traceback.format_exc(limit=-1).strip().splitlines()[1].strip()
        return Outcome(scenario["name"], scenario["kind"], [f"crash: {error!r} at {where}"])


def lines(outcome: Outcome) -> list[str]:
    if outcome.skipped:
        return [f"SKIP {outcome.name}: {outcome.skipped}"]
    shown = [f"FAIL {outcome.name}: {failure}" for failure in outcome.failures]
    if outcome.seconds_max is not None:
        shown.append(f"TIME {outcome.name}: {outcome.seconds:.2f} s (goal {outcome.seconds_max} s)")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.assignor", description=__doc__)
    parser.add_argument("--scenarios", type=Path, required=True)
    parser.add_argument("--report", type=Path, help="write every outcome as JSON")
    options = parser.parse_args()
    judge = load_evaluator(options.scenarios.parent)
    outcomes: list[Outcome] = []
    for scenario in json.loads(options.scenarios.read_text())["scenarios"]:
        outcomes.append(attempt(scenario, judge))
        print(*lines(outcomes[-1]), sep="\n", end="\n" if lines(outcomes[-1]) else "")
    skipped = sum(bool(o.skipped) for o in outcomes)
    failed = sum(bool(o.failures) for o in outcomes)
    if options.report:
        rows = [vars(outcome) for outcome in outcomes]
        options.report.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(outcomes) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
