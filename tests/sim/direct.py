"""Run seeds of direct tables: `python -m tests.sim.direct --seeds N [--first K] [--planted]`.

A failing seed prints its options and its history; run it alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

from . import report, runner
from .direct_planted import DIRECT_PLANTS
from .direct_world import DirectWorld

QUESTION = "do direct tables keep their promises under every fault of the simulation"
SIMULATED = (
    *(f"src/standpipe/data/replica/{name}.py" for name in ("direct", "direct_stage", "positions")),
    "src/standpipe/data/commit/topic_identity.py",
    "tests/sim/direct*.py",
    "tests/sim/scheduler.py",
)
#: over many seeds, each of these must have happened, or the run has tested less than it claims
EXPECTED = (
    "checks",
    "confirmations",
    "logs cut off",
    "markers",
    "records",
    "records compacted",
    "replicas at the end",
    "replicas killed",
    "replicas opened again after a silence",
    "replicas paused",
    "replicas that lost their topic",
    "retentions",
    "rows without a label",
    "stores copied from a peer",
    "stores rebuilt",
    "stores too old",
    "topics made again",
    "transactions",
)


def run_seed(seed: int) -> runner.Outcome:
    return runner.outcome_of(DirectWorld(seed), seed)


def main() -> None:
    simulation = report.Simulation(QUESTION, SIMULATED, EXPECTED, run_seed, DIRECT_PLANTS)
    report.main(__doc__ or "", simulation)


if __name__ == "__main__":
    main()
