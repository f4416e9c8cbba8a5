"""Run seeds of the data path: `python -m tests.sim.data --seeds N [--first K] [--planted]`.

A failing seed prints its options and its history; run it alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from . import report, runner
from .data_groups import GroupWorld
from .data_loads import LoadedWorld
from .data_world import DataOptions, DataWorld

QUESTION = "does the data path keep its promises under every fault of the simulation"
#: the decisions of the data path, and what they are put through
SIMULATED = (
    *(f"src/standpipe/data/{n}.py" for n in ("apply", "digest", "expiry", "positions", "progress")),
    *(f"src/standpipe/data/{n}.py" for n in ("gaps", "repair", "shadows", "stage", "takeover")),
    "src/standpipe/data/commit/*.py",
    "src/standpipe/pipeline/commit/checkpoint.py",
    "src/standpipe/pipeline/commit/query_group.py",
    "src/standpipe/pipeline/run/group/*.py",
    "src/standpipe/pipeline/run/start/checkpoints.py",
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
    "batches of groups",
    "batches taken back",
    "clean ranges told while idle",
    "commit log entries lost",
    "compactions",
    "disks lost",
    "drivers crashed",
    "drivers killed between two tables of a batch",
    "drivers killed right after they took over",
    "drivers killed while they took over",
    "drivers paused and replaced",
    "drivers replaced",
    "drivers stopped between two tables of a batch",
    "drivers stopped while they took over",
    "forged progress records tombstoned",
    "groups begun",
    "groups divided",
    "groups that took over members at two batches",
    "loads",
    "loads before any batch",
    "loads paused before they commit",
    "loads that failed",
    "loads that were fenced before they committed",
    "members begun alone",
    "members left out of a batch that they have",
    "parts of a range that goes by order",
    "pipelines away for long",
    "pipelines away for longer than tombstones",
    "pipelines cut off from the quorum",
    "pipelines joined",
    "pipelines killed",
    "pipelines left",
    "pipelines paused",
    "pipelines registered again",
    "programs killed before Spark noted a batch",
    "progress records forged",
    "progress records forged before the first true one",
    "progress records taken by compaction",
    "progress records tombstoned",
    "queries dropped",
    "queries paused",
    "queries that ended with their topic",
    "query restarts",
    "readers crashed",
    "reads",
    "records of expired windows deleted",
    "records taken by compaction",
    "repairs",
    "repairs given up after their run",
    "repairs held up after their run",
    "repairs without an answer",
    "replayed batches that leave what was loaded after them",
    "rows of expired windows dropped",
    "runs that waited for a janitor",
    "replicas opened again after their table was away",
    "replicas that lost their topic",
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
    "topics made anew",
    "transactions",
    "void progress records",
)


def run_seed(seed: int) -> runner.Outcome:
    """A plain table, and tables in groups; some seeds also a table of windows that expire, one
    whose topic is made anew, one with forged records in the progress topic, or one that
    applications load rows into. Each is a world of its own, so that what plain worlds do has not
    changed with them."""
    other_world = OTHER_WORLDS.get(seed % EVERY)
    worlds = [DataWorld(seed), *([other_world(seed)] if other_world else []), GroupWorld(seed)]
    outcomes = [runner.outcome_of(world, seed) for world in worlds]
    failures = [failure for _, failure, _, _, _ in outcomes if failure]
    counts: Counter[str] = Counter()
    for _, _, found, _, _ in outcomes:
        counts.update(found)
    simulated_ms, events = (sum(each[n] for each in outcomes) for n in (3, 4))
    return seed, "\n".join(failures) or None, counts, simulated_ms, events


def windowed_world(seed: int) -> DataWorld:
    return DataWorld(seed, replace(DataOptions.of(seed), is_windowed=True))


def recreated_world(seed: int) -> DataWorld:
    return DataWorld(seed, replace(DataOptions.of(seed), is_recreated=True))


def forged_world(seed: int) -> DataWorld:
    return DataWorld(seed, replace(DataOptions.of(seed), is_forged=True))


EVERY = 4
#: seeds modulo EVERY; those of 2 are neither cut off nor left alone
OTHER_WORLDS: dict[int, Callable[[int], DataWorld]] = {
    0: windowed_world,
    1: forged_world,
    2: recreated_world,
    3: LoadedWorld,
}


def main() -> None:
    from .data_planted import PLANTS

    report.main(__doc__ or "", report.Simulation(QUESTION, SIMULATED, EXPECTED, run_seed, PLANTS))


if __name__ == "__main__":
    main()
