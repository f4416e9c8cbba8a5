"""Run seeds of the data path: `python -m tests.sim.data --seeds N [--first K] [--planted]`.

A failing seed prints its options and its history; run it alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

from . import report, runner
from .data_world import DataWorld

QUESTION = "does the data path keep its promises under every fault of the simulation"
#: the decisions of the data path, and what they are put through
SIMULATED = (
    *(f"src/standpipe/data/{n}.py" for n in ("apply", "digest", "positions", "progress")),
    *(f"src/standpipe/data/{n}.py" for n in ("gaps", "repair", "shadows", "stage", "takeover")),
    "tests/sim/data_*.py",
    *(f"tests/sim/{name}.py" for name in ("options", "scheduler")),
)
#: over many seeds, each of these must have happened, or the run has tested less than it claims
EXPECTED = (
    "acknowledgements lost",
    "batches committed",
    "batches failed half-written",
    "batches of a derived query",
    "batches of a derived query replayed",
    "batches taken back",
    "clean ranges told while idle",
    "compactions",
    "disks lost",
    "drivers crashed",
    "drivers paused and replaced",
    "drivers replaced",
    "parts of a range that goes by order",
    "pipelines away for long",
    "pipelines away for longer than tombstones",
    "progress records taken by compaction",
    "progress records tombstoned",
    "query restarts",
    "readers crashed",
    "reads",
    "records taken by compaction",
    "repairs",
    "replicas opened again after their table was away",
    "shadows found too late",
    "stale end offsets",
    "stores copied from a peer",
    "stores rebuilt",
    "stragglers",
    "strangers",
    "tables away for longer than tombstones",
    "tailers away for long",
    "tailers crashed",
    "tailers cut off from Kafka",
    "tailers killed between two steps",
    "tailers paused",
    "tailers restarted after a stall",
    "transactions",
    "void progress records",
)


def run_seed(seed: int) -> runner.Outcome:
    return runner.outcome_of(DataWorld(seed), seed)


def main() -> None:
    from .data_planted import PLANTS

    report.main(__doc__ or "", report.Simulation(QUESTION, SIMULATED, EXPECTED, run_seed, PLANTS))


if __name__ == "__main__":
    main()
