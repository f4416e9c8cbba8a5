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
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from . import report
from .scheduler import Scheduler

#: (seed, failure with history or None, counts, simulated ms, events)
Outcome = tuple[int, str | None, Counter[str], int, int]
#: (owner, name, value): what a planted bug puts in the place of what
Plant = tuple[object, str, Any]
EXPECTED_FROM_SEEDS = 50


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


def run_seeds(
    run_seed: Callable[[int], Outcome],
    seeds: range,
    processes: int,
    expected: Sequence[str],
    result: Path | None = None,
) -> int:
    """Run, print totals; the number of failures. `expected`: counts that must not be 0."""
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
    if result is not None:
        spent = {"simulated hours": simulated_ms / 3_600_000, "events": events}
        spent["wall seconds"] = time.monotonic() - began
        question = "does every seed of the simulation hold its invariants?"
        report.add_seeds(result, question, seeds, failed, {**total, **spent})
    print(f"{max(len(seeds) - len(failed), 0)} passed, {len(failed)} failed")
    return len(failed)


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
                return seed, failure.rsplit("failed: ", 1)[1]
    return None, "not caught"


def run_planted(
    plants: Sequence[Callable[[], list[Plant]]],
    run_seed: Callable[[int], Outcome],
    seeds: range,
    result: Path | None = None,
) -> int:
    """Print the table; the number of bugs that got through."""
    escaped = 0
    rows: list[dict[str, Any]] = []
    for plant in plants:
        began = time.monotonic()
        seed, by = catch(plant, run_seed, seeds)
        escaped += seed is None
        tried = len(seeds) if seed is None else seed - seeds.start + 1
        took = time.monotonic() - began
        print(f"{plant.__name__:40} {tried:4} seeds {took:6.1f} s  {by[:110]}", flush=True)
        rows.append({"bug": plant.__name__, "seed": seed, "tried": tried, "by": by[:200]})
    if result is not None:
        question = "does the simulation catch every bug that was planted?"
        report.write_planted(result, question, rows)
    print(f"{len(plants) - escaped} passed, {escaped} failed")
    return escaped
