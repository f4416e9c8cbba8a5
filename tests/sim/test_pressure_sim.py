"""Seeds and planted bugs of bounded replication lag; the rest: `make sim-sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.sim import runner, sessions
from tests.sim.pressure_planted import PRESSURE_PLANTS


def test_seeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(12):
        _, failure, counts, _, _ = sessions.run_pressure_seed(seed)
        assert failure is None, failure
        total += counts
    assert [name for name in sessions.EXPECTED_OF_PRESSURE if not total[name]] == []


def test_a_seed_is_the_same_each_time() -> None:
    assert sessions.run_pressure_seed(3) == sessions.run_pressure_seed(3)


@pytest.mark.parametrize("plant", PRESSURE_PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches(plant: Callable[[], list[runner.Plant]]) -> None:
    seed, by = runner.catch(plant, sessions.run_pressure_seed, range(20))
    assert seed is not None, by
