"""Run seeds of the data path: `python -m tests.sim.data --seeds N [--first K] [--planted]`.

A failing seed prints its options and its history; run it alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import runner
from .data_world import DataWorld

#: over many seeds, each of these must have happened, or the run has tested less than it claims
EXPECTED = (
    "acknowledgements lost",
    "batches committed",
    "batches failed half-written",
    "batches of a derived query",
    "batches of a derived query replayed",
    "batches taken back",
    "compactions",
    "disks lost",
    "drivers crashed",
    "drivers paused and replaced",
    "drivers replaced",
    "pipelines away for long",
    "progress records taken by compaction",
    "progress records tombstoned",
    "query restarts",
    "readers crashed",
    "reads",
    "records taken by compaction",
    "repairs",
    "shadows found too late",
    "stale end offsets",
    "stores rebuilt",
    "stragglers",
    "strangers",
    "tailers away for long",
    "tailers crashed",
    "tailers killed between two steps",
    "tailers paused",
    "tailers restarted after a stall",
    "transactions",
    "void progress records",
)


def run_seed(seed: int) -> runner.Outcome:
    return runner.outcome_of(DataWorld(seed), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="planted bugs instead of seeds")
    parser.add_argument("--result", type=Path, help="a file that pieces of a run add up in")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    if args.planted:
        from .data_planted import PLANTS

        sys.exit(runner.run_planted(PLANTS, run_seed, seeds, args.result) > 0)
    sys.exit(runner.run_seeds(run_seed, seeds, args.processes, EXPECTED, args.result) > 0)


if __name__ == "__main__":
    main()
