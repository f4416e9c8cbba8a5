"""Runs seeds of a simulation and says what they did; plants bugs and says which seed caught them.

Shared by the quorum (`tests.sim.raft`) and the data path (`tests.sim.data`). The last line is
`N passed, N failed`. A run in which what should happen never happened has failed.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from unittest.mock import patch

from .scheduler import Scheduler

#: (seed, failure with history or None, counts, simulated ms, events)
Outcome = tuple[int, str | None, Counter[str], int, int]
#: (owner, name, value): what a planted bug puts in the place of what
Plant = tuple[object, str, Any]
EXPECTED_FROM_SEEDS = 50
#: these only say that a planted bug does not fit the code any more
MISFITS = ("TypeError", "AttributeError", "NameError")


class AnyWorld(Protocol):
    counts: Counter[str]
    scheduler: Scheduler

    def run(self) -> None: ...
    def history(self) -> str: ...


def outcome_of(world: AnyWorld, seed: int) -> Outcome:
    failure = None
    try:
        world.run()
    except Exception as error:  # whatever it is, it is this seed's failure
        where = "".join(traceback.format_exception(error)[-4:])
        failure = f"{world.history()}\n{where}seed {seed} failed: {error!r}"
    return seed, failure, world.counts, world.scheduler.now_us // 1000, world.scheduler.events


@dataclass(frozen=True)
class Totals:
    """What a run of many seeds did. `failed`: seeds, and -1 for a run that tested too little."""

    seeds: range
    failed: list[int]
    counts: Counter[str]
    simulated_hours: float
    events: int
    seconds: float

    def piece(self) -> dict[str, Any]:
        """For a result file (`tests.sim.report`)."""
        return {
            "first": self.seeds.start,
            "seeds": len(self.seeds),
            "passed": max(len(self.seeds) - len(self.failed), 0),
            "failed": len(self.failed),
            "failed_seeds": self.failed,
            "simulated_hours": round(self.simulated_hours, 2),
            "events": self.events,
            "seconds": round(self.seconds, 1),
            "counts": dict(sorted(self.counts.items())),
        }


def run_seeds(
    run_seed: Callable[[int], Outcome], seeds: range, processes: int, expected: Sequence[str]
) -> Totals:
    """Run and print totals. `expected`: counts that must not be 0."""
    began = time.monotonic()
    total: Counter[str] = Counter()
    failed: list[int] = []
    simulated_ms = events = 0
    with ProcessPoolExecutor(processes) as pool:
        for seed, failure, counts, ms, count in pool.map(run_seed, seeds, chunksize=4):
            total += counts
            simulated_ms += ms
            events += count
            if (seed - seeds.start) % 50 == 49:
                done = seed - seeds.start + 1
                print(f"  {done} of {len(seeds)}, {len(failed)} failed", file=sys.stderr)
            if failure is not None:
                failed.append(seed)
                print(failure, flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:>12,} {name}")
    print(
        f"{len(seeds)} seeds from {seeds.start}, {simulated_ms / 3_600_000:.2f} simulated hours, "
        f"{events:,} events, {time.monotonic() - began:.0f} s"
    )
    missing = [name for name in expected if total[name] == 0]
    if missing and len(seeds) >= EXPECTED_FROM_SEEDS:
        print(f"FAILED: never happened: {', '.join(missing)}")
        failed.append(-1)
    if not events:
        print("FAILED: nothing was done")
        failed.append(-1)
    if failed:
        print(f"failed seeds: {failed}")
    print(f"{max(len(seeds) - len(failed), 0)} passed, {len(failed)} failed")
    took = time.monotonic() - began
    return Totals(seeds, failed, total, simulated_ms / 3_600_000, events, took)


def replacing(owner: object, name: str, make: Callable[[Any], Any]) -> Plant:
    """A plant that wraps what is there."""
    return owner, name, make(getattr(owner, name))


@contextmanager
def planted(plant: Callable[[], list[Plant]]) -> Iterator[None]:
    """Each plant replaces things for as long as it is applied; `src` knows nothing of them."""
    with ExitStack() as stack:
        for owner, name, value in plant():
            stack.enter_context(patch.object(owner, name, value))
        yield


def catch(
    plant: Callable[[], list[Plant]], run_seed: Callable[[int], Outcome], seeds: range
) -> tuple[int | None, str]:
    """The first seed that catches a bug, and by what; None when none of them does."""
    with planted(plant):
        for seed in seeds:
            failure = run_seed(seed)[1]
            if failure is not None:
                by = failure.rsplit("failed: ", 1)[1]
                return (None, f"does not run: {by}") if by.startswith(MISFITS) else (seed, by)
    return None, "not caught"


@dataclass(frozen=True)
class Catch:
    """What became of one planted bug. `seed` None: it got through."""

    bug: str
    seed: int | None
    by: str
    tried: int
    seconds: float


def _try_plant(
    run_seed: Callable[[int], Outcome], seeds: range, plant: Callable[[], list[Plant]]
) -> Catch:
    began = time.monotonic()
    seed, by = catch(plant, run_seed, seeds)
    tried = len(seeds) if seed is None else seed - seeds.start + 1
    return Catch(plant.__name__, seed, by[:160], tried, round(time.monotonic() - began, 1))


def run_planted(
    plants: Sequence[Callable[[], list[Plant]]],
    run_seed: Callable[[int], Outcome],
    seeds: range,
    processes: int = 1,
) -> list[Catch]:
    """Print the table. Each process has its own copy of the code that a bug is put into."""
    found: list[Catch] = []
    with ProcessPoolExecutor(processes) as pool:
        for one in pool.map(partial(_try_plant, run_seed, seeds), plants):
            print(
                f"{one.bug:40} {one.tried:4} seeds {one.seconds:6.1f} s  {one.by[:110]}", flush=True
            )
            found.append(one)
    escaped = sum(one.seed is None for one in found)
    print(f"{len(plants) - escaped} passed, {escaped} failed")
    return found
