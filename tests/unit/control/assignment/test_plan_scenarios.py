"""The shared scenarios ($STANDPIPE_SHARED/assignment), as far as they run in a second.

Larger ones: tests/assignor/test_large_scenarios.py (`make test`).
All of them: `python -m tests.assignor --scenarios FILE`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.assignor.scenarios import Json, load_evaluator, run

ROOT = Path(__file__).resolve().parents[4]
FOLDER = Path(os.environ.get("STANDPIPE_SHARED", ROOT / "../shared")) / "assignment"
FILE = FOLDER / "assignor_scenarios.json"
#: servers × tasks × events: larger scenarios are left to the command above
SIZE_MAX = 3_000


def size(scenario: Json) -> int:
    """Servers, those that join included, × tasks × events."""
    events = scenario.get("events", [])
    servers = len(scenario["servers"]) + sum(len(event.get("add", [])) for event in events)
    return servers * len(scenario["tasks"]) * (len(events) or 1)


def is_quick(scenario: Json) -> bool:
    return size(scenario) <= SIZE_MAX and scenario["kind"] not in ("random", "assign_compact")


def every() -> list[Json]:
    """Empty where the shared directory is absent: the tests are skipped then."""
    return json.loads(FILE.read_text())["scenarios"] if FILE.exists() else []


def scenarios() -> list[Json]:
    return [scenario for scenario in every() if is_quick(scenario)]


def large(low: int, high: int) -> list[Json]:
    """Scenarios of a size above `low` and up to `high`."""
    kinds = ("random", "assign_compact")
    return [s for s in every() if low < size(s) <= high and s["kind"] not in kinds]


@pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not here; set STANDPIPE_SHARED")
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda s: s["name"])
def test_scenario(scenario: Json) -> None:
    outcome = run(scenario, load_evaluator(FOLDER))
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.failures == []
