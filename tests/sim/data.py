"""Run seeds of the data path: `python -m tests.sim.data --seeds N [--first K] [--planted]`.

A failing seed prints its options and its history; run it alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from . import report, runner
from .data_world import DataOptions, DataWorld

QUESTION = "does the data path keep its promises under every fault of the simulation"
#: the decisions of the data path, and what they are put through
SIMULATED = (
    *(f"src/standpipe/data/{n}.py" for n in ("apply", "digest", "expiry", "positions", "progress")),
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
    "records of expired windows deleted",
    "records taken by compaction",
    "repairs",
    "rows of expired windows dropped",
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


WINDOWED_EVERY = 4


def run_seed(seed: int) -> runner.Outcome:
    """A plain table; every fourth seed also one of windows that expire, in a world of its own, so
    that what plain worlds do has not changed with them."""
    plain = runner.outcome_of(DataWorld(seed), seed)
    if seed % WINDOWED_EVERY:
        return plain
    windowed = runner.outcome_of(windowed_world(seed), seed)
    failures = [found for found in (plain[1], windowed[1]) if found]
    counts = Counter(plain[2])
    counts.update(windowed[2])
    sums = plain[3] + windowed[3], plain[4] + windowed[4]
    return seed, "\n".join(failures) or None, counts, *sums


def windowed_world(seed: int) -> DataWorld:
    return DataWorld(seed, replace(DataOptions.of(seed), is_windowed=True))


def main() -> None:
    from .data_planted import PLANTS

    report.main(__doc__ or "", report.Simulation(QUESTION, SIMULATED, EXPECTED, run_seed, PLANTS))


if __name__ == "__main__":
    main()
