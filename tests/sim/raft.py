"""Run seeds and say what they did: `python -m tests.sim.raft --seeds N [--first K] [--planted]`.

The last line is `N passed, N failed`.  A failing seed prints its options and its history; run it
alone with `--first SEED --seeds 1`.  `--result FILE` keeps the totals (`tests.sim.report`).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests import report as reports

from . import report, runner
from .world import World

QUESTION = "does the quorum keep its promises under every fault of the simulation"

#: over many seeds, each of these must have happened, or the run has tested less than it claims
EXPECTED = (
    "messages lost",
    "messages repeated",
    "messages delayed",
    "messages cut off",
    "crashes",
    "pauses",
    "clock jumps",
    "partitions, whole",
    "partitions, split",
    "partitions, one-way",
    "partitions, partial",
    "slow disks",
    "unsynced writes lost",
    "writes torn",
    "connections refused",
    "zombie leaders",
    "crashes after a vote",
    "bits flipped",
    "disks wiped",
    "voters added",
    "voters removed",
    "transfers",
    "snapshots taken",
    "snapshots loaded",
    "reads answered",
    "writes acknowledged",
)


def run_seed(seed: int) -> runner.Outcome:
    return runner.outcome_of(World(seed), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="planted bugs instead of seeds")
    parser.add_argument("--result", type=Path, help="keep the totals in this file")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    head = report.head()
    if args.planted:
        from .planted import PLANTS

        caught = runner.run_planted(PLANTS, run_seed, seeds, args.processes)
        if args.result:
            keep_planted(args.result, head, caught, seeds)
        sys.exit(any(one.seed is None for one in caught))
    totals = runner.run_seeds(run_seed, seeds, args.processes, EXPECTED)
    if args.result:
        report.add_piece(args.result, QUESTION, {**head, **totals.piece()})
    sys.exit(bool(totals.failed))


def keep_planted(
    path: Path, head: dict[str, Any], caught: list[runner.Catch], seeds: range
) -> None:
    escaped = sum(one.seed is None for one in caught)
    reports.write(
        path,
        {
            "question": "which planted bugs does the simulation catch, and within how many seeds",
            **head,
            "seeds_max": len(seeds),
            "passed": len(caught) - escaped,
            "failed": escaped,
            "bugs": [asdict(one) for one in caught],
        },
    )


if __name__ == "__main__":
    main()
