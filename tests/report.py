"""Figures that a run leaves behind: bench/results/<name>.json with date, commit and machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"


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


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not pass; nearest rank, so always a real one."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * round(share * 1000) // 1000) - 1)]
