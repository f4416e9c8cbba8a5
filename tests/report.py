"""Figures that a run leaves behind: bench/results/<name>.json with date, commit and machine.

A result file is a summary: of each figure that was measured several times it has the count, the
median and the extremes. The runs themselves go to out/bench/<name>.json, which git ignores.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
RUNS = ROOT / "out" / "bench"
#: keys under which a result has its single runs: a list, or a list for each case
RUN_LISTS = frozenset({"runs", "rounds", "windows", "turns", "killed", "stopped", "pauses"})
#: names of figures that say when or where, not how much
NOT_FIGURES = frozenset({"at_s", "load_now", "load_before", "load_after", "load"})


def git(*arguments: str) -> str:
    """What git says, empty where it is not there."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def circumstances() -> dict[str, Any]:
    """When, what and where: the head of every report."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD") or "uncommitted",
        "changed_since": sorted(git("diff", "--name-only", "HEAD", "--", "src").split()),
        "machine": {
            "cpu": models[0] if models else platform.processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "niceness": os.nice(0),
            "load_now": [round(load, 2) for load in os.getloadavg()],
        },
    }


def write(path: Path, report: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def write_summary(path: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the summary of a result to `path`, and all of it to RUNS; the summary."""
    write(RUNS / path.name, result)
    short: dict[str, Any] = summary(result)
    write(path, short)
    return short


def summary(value: Any) -> Any:
    """A result with the spread of its runs where it has the runs."""
    if isinstance(value, Mapping):
        return {
            name: _runs_summary(part) if name in RUN_LISTS else _figures_summary(name, part)
            for name, part in value.items()
        }
    return [summary(part) for part in value] if isinstance(value, list) else value


def _runs_summary(runs: Any) -> Any:
    if isinstance(runs, Mapping):
        return {name: _runs_summary(part) for name, part in runs.items()}
    is_list = isinstance(runs, list) and len(runs) > 0
    return {"count": len(runs), **spread(runs)} if is_list else runs


def _figures_summary(name: str, value: Any) -> Any:
    is_figures = isinstance(value, list) and len(value) > 1 and all(map(_is_number, value))
    return spread(value) if is_figures and name not in NOT_FIGURES else summary(value)


def spread(values: list[Any]) -> Any:
    """Median, least and greatest of numbers, or of each number in a list of records.

    A figure that is the same in all of them stands alone. What is not a number is left out.
    """
    if all(map(_is_number, values)):
        if min(values) == max(values):
            return values[0]
        names = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        return {name: float(f"{x:.6g}") if x % 1 else int(x) for name, x in names.items()}
    if not all(isinstance(value, Mapping) for value in values):
        return None
    names = [name for value in values for name in value if name not in NOT_FIGURES]
    parts = {name: _parts(values, name) for name in dict.fromkeys(names)}
    found = {name: spread(part) for name, part in parts.items() if part}
    counts = {
        name: len(part) for name, part in parts.items() if isinstance(values[0].get(name), list)
    }
    return {
        name: {"count": counts[name], **part} if name in counts and isinstance(part, dict) else part
        for name, part in found.items()
        if part not in (None, {})
    }


def _parts(values: list[Any], name: str) -> list[Any]:
    """What the records have under a name; lists are put end to end."""
    parts = [value[name] for value in values if value.get(name) is not None]
    if all(isinstance(part, list) for part in parts):
        return [one for part in parts for one in part]
    return parts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not pass; nearest rank, so always a real one."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * round(share * 1000) // 1000) - 1)]
