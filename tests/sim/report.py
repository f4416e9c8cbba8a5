"""The simulations' result files. Pieces that ran the same code add up; others are dropped.

`code` names the sources that were simulated, so that pieces of one campaign can be run one after
the other (`make sim FIRST=… SEEDS=…`) and a change of the core begins a new campaign.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import report

from . import runner
from .runner import Catch, Outcome, Plant


@dataclass(frozen=True)
class Simulation:
    """What a simulation asks, of which sources, and with which bugs it is tried itself."""

    question: str
    simulated: Sequence[str]  # patterns of the sources that a result is about
    expected: Sequence[str]
    run_seed: Callable[[int], Outcome]
    plants: Sequence[Callable[[], list[Plant]]]


def main(description: str, simulation: Simulation) -> None:
    """The command line of a simulation. Ends the process with its verdict."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="planted bugs instead of seeds")
    parser.add_argument("--result", type=Path, help="keep the totals in this file")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    begun = head(simulation.simulated)
    if args.planted:
        run_seed = simulation.run_seed
        caught = runner.run_planted(simulation.plants, run_seed, seeds, args.processes)
        if args.result:
            keep_planted(args.result, begun, caught, seeds)
        sys.exit(any(one.seed is None for one in caught))
    totals = runner.run_seeds(simulation.run_seed, seeds, args.processes, simulation.expected)
    if args.result:
        add_piece(args.result, simulation.question, {**begun, **totals.piece()})
    sys.exit(bool(totals.failed))


def code(simulated: Sequence[str]) -> str:
    """Names the sources of the core and of its simulation, which `simulated` are patterns of."""
    digest = hashlib.sha256()
    for pattern in simulated:
        for path in sorted(report.ROOT.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def head(simulated: Sequence[str]) -> dict[str, Any]:
    """To be taken when a run begins: sources may change while it runs."""
    return {"code": code(simulated), **report.circumstances()}


def keep_planted(
    path: Path, head: Mapping[str, Any], caught: Sequence[Catch], seeds: range
) -> None:
    """One row for each planted bug."""
    escaped = sum(one.seed is None for one in caught)
    report.write(
        path,
        {
            "question": "which planted bugs does the simulation catch, and within how many seeds",
            **head,
            "seeds_max": len(seeds),
            "passed": len(caught) - escaped,
            "failed": escaped,
            "bugs": [asdict(one) for one in caught],
        },
    )


def add_piece(path: Path, question: str, piece: Mapping[str, Any]) -> dict[str, Any]:
    """Put one run, with its `head`, into the file; the report that stands there now."""
    before = json.loads(path.read_text()) if path.exists() else {}
    ours = dict(piece)
    kept = [one for one in before.get("pieces", []) if one["code"] == ours["code"]]
    pieces = sorted([*_others(kept, ours), ours], key=lambda one: one["first"])
    whole = {"question": question, **_totals(pieces), "pieces": pieces}
    report.write(path, whole)
    return whole


def _others(pieces: Iterable[Mapping[str, Any]], new: Mapping[str, Any]) -> list[Any]:
    """Pieces without a seed of the new one: no seed counts twice."""
    seeds = range(new["first"], new["first"] + new["seeds"])
    return [
        one
        for one in pieces
        if one["first"] >= seeds.stop or one["first"] + one["seeds"] <= seeds.start
    ]


def _totals(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(piece["counts"])
    sums = {
        name: round(sum(piece[name] for piece in pieces), 2)
        for name in ("seeds", "passed", "failed", "simulated_hours", "events", "seconds")
        if all(name in piece for piece in pieces)
    }
    return {**sums, "counts": dict(sorted(counts.items()))}
