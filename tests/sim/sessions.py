"""Seeds of sessions, push queries in them, snapshots, linearizable reads and bounded replication
lag in simulation.

`python -m tests.sim.sessions --seeds 200`, or `--planted`.
"""

from __future__ import annotations

import argparse

from .linear_planted import LINEAR_PLANTS
from .linear_world import LinearWorld
from .pressure_planted import PRESSURE_PLANTS
from .pressure_world import PressureWorld
from .push_planted import PUSH_PLANTS
from .push_world import PushWorld, StreamWorld
from .runner import Outcome, outcome_of, run_planted, run_seeds
from .session_planted import PLANTS
from .session_world import SessionWorld
from .session_writes import WritingWorld
from .session_writes_planted import WRITE_PLANTS
from .snapshot_planted import SNAPSHOT_PLANTS
from .snapshot_world import SnapshotWorld

#: what should happen in many seeds, or they show nothing
EXPECTED = (
    "reads answered",
    "reads in another generation",
    "reads refused",
    "waits that ended well",
    "waits for a switch",
    "replicas between batches",
    "stores replaced by older copies",
    "answers of an older release",
    "tables replaced",
)
EXPECTED_OF_WRITES = (*EXPECTED, "writes of a session")
EXPECTED_OF_LINEAR = (
    "reads answered",
    "reads refused",
    "reads in a later generation",
    "waits",
    "barriers",
    "replicas between batches",
    "stores replaced by older copies",
    "topics read again",
    "tables replaced",
    "pages published early",
    "progress topics created again",
    "reads refused for another topic",
)
EXPECTED_OF_SNAPSHOT = (
    "reads answered",
    "reads refused",
    "reads on the fast path",
    "reads in 1 rounds",
    "reads in 2 rounds",
    "reads in 3 rounds",
    "replicas between batches",
    "batches committed again",
    "maps of a later generation",
    "answers of an older release",
    "hedges that lost",
)
EXPECTED_OF_PRESSURE = (
    "replicas judged",
    "batches that waited",
    "waits that ended at a limit",
    "a replica or a node: slower",
    "a replica or a node: stuck",
    "a replica or a node: silent",
    "a replica or a node: dead",
    "a replica or a node: taken away",
)
EXPECTED_OF_STREAM = (
    "push queries behind what was seen",
    "push queries left between two rows",
    "push queries followed to the end",
    "rows delivered",
    "connections that broke",
    "nodes that left",
    "push queries that failed",
)
EXPECTED_OF_PUSH = (
    "reads answered",
    "reads refused",
    "reads with parts of several batches",
    "push queries behind what was seen",
    "push queries left between two rows",
    "push queries followed to the end",
    "rows delivered",
    "connections that broke",
    "nodes that left",
    "push queries that failed",
    "batches committed again",
    "rows repaired",
)


def run_seed(seed: int) -> Outcome:
    """One world to its end."""
    return outcome_of(SessionWorld(seed), seed)


def run_writing_seed(seed: int) -> Outcome:
    """One world whose sessions write, to its end."""
    return outcome_of(WritingWorld(seed), seed)


def run_linear_seed(seed: int) -> Outcome:
    """One world of linearizable reads, to its end."""
    return outcome_of(LinearWorld(seed), seed)


def run_push_seed(seed: int) -> Outcome:
    """One world of push queries in sessions, to its end."""
    return outcome_of(PushWorld(seed), seed)


def run_stream_seed(seed: int) -> Outcome:
    """One world of push queries in sessions on a stream, to its end."""
    return outcome_of(StreamWorld(seed), seed)


def run_snapshot_seed(seed: int) -> Outcome:
    """One world of snapshot reads, to its end."""
    return outcome_of(SnapshotWorld(seed), seed)


def run_pressure_seed(seed: int) -> Outcome:
    """One world of bounded replication lag, to its end."""
    return outcome_of(PressureWorld(seed), seed)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seeds", type=int, default=200)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--planted", action="store_true")
    given = options.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.planted:
        found = run_planted(PLANTS, run_seed, seeds, given.processes)
        found = [*found, *run_planted(WRITE_PLANTS, run_writing_seed, seeds, given.processes)]
        found = [*found, *run_planted(LINEAR_PLANTS, run_linear_seed, seeds, given.processes)]
        found = [*found, *run_planted(SNAPSHOT_PLANTS, run_snapshot_seed, seeds, given.processes)]
        found = [*found, *run_planted(PUSH_PLANTS, run_push_seed, seeds, given.processes)]
        found = [*found, *run_planted(PRESSURE_PLANTS, run_pressure_seed, seeds, given.processes)]
        return int(any(one.seed is None for one in found))
    failed = run_seeds(run_seed, seeds, given.processes, EXPECTED).failed
    writing = run_seeds(run_writing_seed, seeds, given.processes, EXPECTED_OF_WRITES).failed
    linear = run_seeds(run_linear_seed, seeds, given.processes, EXPECTED_OF_LINEAR).failed
    snapshot = run_seeds(run_snapshot_seed, seeds, given.processes, EXPECTED_OF_SNAPSHOT).failed
    pushed = run_seeds(run_push_seed, seeds, given.processes, EXPECTED_OF_PUSH).failed
    streams = run_seeds(run_stream_seed, seeds, given.processes, EXPECTED_OF_STREAM).failed
    pressure = run_seeds(run_pressure_seed, seeds, given.processes, EXPECTED_OF_PRESSURE).failed
    return int(bool(pressure or failed or writing or linear or snapshot or pushed or streams))


if __name__ == "__main__":
    raise SystemExit(main())
