"""What a run of seeds came to, as a file in `bench/results`. Pieces of one run add up."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast


def about(question: str) -> dict[str, Any]:
    """What every result file says first: when, of which commit, on what machine."""
    said = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "question": question,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": said or "unknown",
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }


def add_seeds(
    path: Path, question: str, seeds: range, failed: list[int], totals: Mapping[str, float]
) -> None:
    """Add a piece. One that was run again counts once: its seeds must not overlap others'."""
    pieces: list[dict[str, Any]] = []
    if path.exists():
        pieces = cast("list[dict[str, Any]]", json.loads(path.read_text())["pieces"])
    said = about(question)
    mine = {
        "first": seeds.start,
        "seeds": len(seeds),
        "failed": failed,
        "date": said["date"],
        "commit": said["commit"],
        "totals": {name: totals[name] for name in sorted(totals)},
    }
    pieces = [
        piece
        for piece in pieces
        if piece["first"] + piece["seeds"] <= seeds.start or piece["first"] >= seeds.stop
    ]
    pieces = sorted([*pieces, mine], key=lambda piece: piece["first"])
    sums: Counter[str] = Counter()
    for piece in pieces:
        sums.update(piece["totals"])
    count = sum(piece["seeds"] for piece in pieces)
    wrong = sum(len(piece["failed"]) for piece in pieces)
    result = {
        **said,
        "seeds": count,
        "passed": max(0, count - wrong),
        "failed": wrong,
        "totals": {name: round(sums[name], 2) for name in sorted(sums)},
        "pieces": pieces,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


def write_planted(path: Path, question: str, rows: list[dict[str, Any]]) -> None:
    """One row for each planted bug."""
    caught = sum(row["seed"] is not None for row in rows)
    result = {
        **about(question),
        "passed": caught,
        "failed": len(rows) - caught,
        "bugs": rows,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
