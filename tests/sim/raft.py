"""Run seeds and say what they did: `python -m tests.sim.raft --seeds N [--first K] [--planted]`.

The last line is `N passed, N failed`.  A failing seed prints its options and its history; run it
alone with `--first SEED --seeds 1`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from .world import World

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
EXPECTED_FROM_SEEDS = 50


def run_seed(seed: int) -> tuple[int, str | None, Counter[str], int, int]:
    """(seed, failure with history or None, counts, simulated ms, events)."""
    world = World(seed)
    failure = None
    try:
        world.run()
    except Exception as error:  # whatever it is, it is this seed's failure
        where = "".join(traceback.format_exception(error)[-4:])
        failure = f"{world.history()}\n{where}seed {seed} failed: {error!r}"
    return seed, failure, world.counts, world.scheduler.now_us // 1000, world.scheduler.events


def run_seeds(first: int, seeds: int, processes: int) -> int:
    """Run, print totals; the number of failures."""
    began = time.monotonic()
    total: Counter[str] = Counter()
    failed: list[int] = []
    simulated_ms = events = 0
    with ProcessPoolExecutor(processes) as pool:
        for seed, failure, counts, ms, count in pool.map(
            run_seed, range(first, first + seeds), chunksize=4
        ):
            total += counts
            simulated_ms += ms
            events += count
            if (seed - first) % 50 == 49:
                print(f"  {seed - first + 1} of {seeds}, {len(failed)} failed", file=sys.stderr)
            if failure is not None:
                failed.append(seed)
                print(failure, flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:>12,} {name}")
    print(
        f"{seeds} seeds from {first}, {simulated_ms / 3_600_000:.2f} simulated hours, "
        f"{events:,} events, {time.monotonic() - began:.0f} s"
    )
    missing = [name for name in EXPECTED if total[name] == 0]
    if missing and seeds >= EXPECTED_FROM_SEEDS:
        print(f"FAILED: never happened: {', '.join(missing)}")
        failed.append(-1)
    if not total["writes acknowledged"] or not total["reads answered"]:
        print("FAILED: nothing was done")
        failed.append(-1)
    if failed:
        print(f"failed seeds: {failed}")
    failures = len(failed)
    print(f"{max(seeds - failures, 0)} passed, {failures} failed")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="planted bugs instead of seeds")
    args = parser.parse_args()
    if args.planted:
        from .planted import run_planted

        sys.exit(run_planted(args.seeds, args.first) > 0)
    sys.exit(run_seeds(args.first, args.seeds, args.processes) > 0)


if __name__ == "__main__":
    main()
