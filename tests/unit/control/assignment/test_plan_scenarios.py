"""The shared scenarios ($STANDPIPE_SHARED/assignment), as far as they run in a few seconds.

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


def is_quick(scenario: Json) -> bool:
    events = len(scenario.get("events", [])) or 1
    return len(scenario["servers"]) * len(scenario["tasks"]) * events <= SIZE_MAX and scenario[
        "kind"
    ] not in ("random", "assign_compact")


def scenarios() -> list[Json]:
    if not FILE.exists():
        return []
    return [s for s in json.loads(FILE.read_text())["scenarios"] if is_quick(s)]


@pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not here; set STANDPIPE_SHARED")
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda s: s["name"])
def test_scenario(scenario: Json) -> None:
    outcome = run(scenario, load_evaluator(FOLDER))
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.failures == []
