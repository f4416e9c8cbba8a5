"""The simulation's result files. Pieces that ran the same code add up; others are dropped.

`code` names the sources that were simulated, so that pieces of one campaign can be run one after
the other (`make sim FIRST=… SEEDS=…`) and a change of the core begins a new campaign.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import report

#: the core, and what it is put through; not what prints and counts
SIMULATED = (
    "src/standpipe/control/quorum.py",
    "src/standpipe/control/raft*.py",
    *(f"tests/sim/{name}.py" for name in ("disk", "invariants", "nemesis", "network", "node")),
    *(f"tests/sim/{name}.py" for name in ("options", "planted", "scheduler", "world")),
)


def code() -> str:
    """Names the sources of the core and of its simulation."""
    digest = hashlib.sha256()
    for pattern in SIMULATED:
        for path in sorted(report.ROOT.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def head() -> dict[str, Any]:
    """To be taken when a run begins: sources may change while it runs."""
    return {"code": code(), **report.circumstances()}


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
    }
    return {**sums, "counts": dict(sorted(counts.items()))}
