"""Run seeds and say what they did: `python -m tests.sim.raft --seeds N [--first K] [--planted]`.

The last line is `N passed, N failed`.  A failing seed prints its options and its history; run it
alone with `--first SEED --seeds 1`.  `--result FILE` keeps the totals (`tests.sim.report`).
"""

from __future__ import annotations

from . import report, runner
from .world import World

QUESTION = "does the quorum keep its promises under every fault of the simulation"

#: the core, and what it is put through; not what prints and counts
SIMULATED = (
    "src/standpipe/control/raft/majority.py",
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
    from .planted import PLANTS

    report.main(__doc__ or "", report.Simulation(QUESTION, SIMULATED, EXPECTED, run_seed, PLANTS))


if __name__ == "__main__":
    main()
