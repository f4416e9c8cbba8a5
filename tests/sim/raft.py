"""Run seeds and say what they did: `python -m tests.sim.raft --seeds N [--first K] [--planted]`.

The last line is `N passed, N failed`.  A failing seed prints its options and its history; run it
alone with `--first SEED --seeds 1`.  `--result FILE` keeps the totals (`tests.sim.report`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import report, runner
from .world import World

QUESTION = "does the quorum keep its promises under every fault of the simulation"

#: the core, and what it is put through; not what prints and counts
SIMULATED = (
    "src/standpipe/control/quorum.py",
    "src/standpipe/control/raft*.py",
    *(f"tests/sim/{name}.py" for name in ("disk", "invariants", "nemesis", "network", "node")),
    *(f"tests/sim/{name}.py" for name in ("options", "planted", "scheduler", "world")),
)
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
    head = report.head(SIMULATED)
    if args.planted:
        from .planted import PLANTS

        caught = runner.run_planted(PLANTS, run_seed, seeds, args.processes)
        if args.result:
            report.keep_planted(args.result, head, caught, seeds)
        sys.exit(any(one.seed is None for one in caught))
    totals = runner.run_seeds(run_seed, seeds, args.processes, EXPECTED)
    if args.result:
        report.add_piece(args.result, QUESTION, {**head, **totals.piece()})
    sys.exit(bool(totals.failed))


if __name__ == "__main__":
    main()
