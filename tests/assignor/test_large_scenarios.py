"""The shared scenarios that take some seconds: too long for `make check`, not for `make test`."""

from __future__ import annotations

import pytest
from tests.assignor.scenarios import Json, load_evaluator, run
from tests.unit.control.assignment.test_plan_scenarios import FILE, FOLDER, SIZE_MAX, large

#: larger ones take minutes: `python -m tests.assignor`
LARGE_MAX = 20_000


@pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not here; set STANDPIPE_SHARED")
@pytest.mark.parametrize("scenario", large(SIZE_MAX, LARGE_MAX), ids=lambda s: s["name"])
def test_scenario(scenario: Json) -> None:
    outcome = run(scenario, load_evaluator(FOLDER))
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.failures == []
