"""Seeds and planted bugs of linearizable reads that fit into a test run; the rest: `make
sim-sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.sim import runner, sessions
from tests.sim.linear_histories import bounded_violations, linear_violations
from tests.sim.linear_planted import LINEAR_PLANTS
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes


def test_seeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(8):
        _, failure, counts, _, _ = sessions.run_linear_seed(seed)
        assert failure is None, failure
        total += counts
    assert [name for name in sessions.EXPECTED_OF_LINEAR if not total[name]] == []
    assert total["barriers"] < total["reads answered"] + total["reads refused"], "they are shared"


def test_a_seed_is_the_same_each_time() -> None:
    assert sessions.run_linear_seed(3) == sessions.run_linear_seed(3)


@pytest.mark.parametrize("plant", LINEAR_PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches(plant: Callable[[], list[runner.Plant]]) -> None:
    seed, by = runner.catch(plant, sessions.run_linear_seed, range(30))
    assert seed is not None, by


WRITES = Writes({"x": [0, 4, 8], "y": [2, 6]})


def read(begin: float, end: float, **values: int) -> SessionAnswer:
    return SessionAnswer("r", begin, end, values)


@pytest.mark.parametrize(
    ("committed", "answers", "count", "why"),
    [
        ([], [read(0, 1, x=NO_VALUE)], 0, "nothing was there"),
        ([(1, 4)], [read(2, 3, x=4)], 0, "what was committed"),
        ([(1, 4)], [read(2, 3, x=8)], 0, "more than was acknowledged"),
        ([(1, 4)], [read(2, 3, x=0)], 1, "less"),
        ([(1, 4)], [read(1, 3, x=0)], 1, "acknowledged at the instant of the arrival"),
        ([(2, 4)], [read(1, 3, x=0)], 0, "acknowledged while it was read"),
        ([(1, 8)], [read(2, 3, y=2)], 1, "batch 8 covers y = 6"),
        ([(1, 4)], [read(2, 3, y=2)], 0, "batch 4 does not"),
        ([], [read(0, 1, x=8), read(2, 3, x=4)], 1, "another read has shown it"),
        ([], [read(0, 5, x=8), read(2, 3, x=4)], 0, "side by side"),
        ([], [read(0, 1, x=8), read(2, 3, y=2)], 1, "a batch covers all partitions"),
        ([(1, 4)], [read(2, 3, x=NO_VALUE)], 1, "no row"),
        ([], [read(0, 1, x=5)], 1, "a value that nobody wrote"),
        ([(1, 4), (9, 8)], [read(2, 9.5, x=4), read(9.6, 10, x=4)], 1, "only the second"),
    ],
)
def test_the_judge(
    committed: list[tuple[float, int]], answers: list[SessionAnswer], count: int, why: str
) -> None:
    assert len(linear_violations(WRITES, committed, answers)) == count, why


@pytest.mark.parametrize(
    ("committed", "answers", "count", "why"),
    [
        ([(1, 4)], [read(2.9, 3, x=0)], 0, "not yet committed for so long"),
        ([(1, 4)], [read(3, 4, x=0)], 1, "just so long"),
        ([(1, 4)], [read(3, 4, x=4)], 0, "what was committed"),
        ([(1, 4)], [read(3, 4, x=8)], 0, "more than that"),
        ([(1, 8)], [read(3, 4, y=2)], 1, "batch 8 covers y = 6"),
        ([], [read(0, 1, x=8), read(5, 6, x=4)], 0, "what others were shown counts for nothing"),
        ([(1, 4)], [read(3, 4, x=NO_VALUE)], 1, "no row"),
        ([], [read(0, 1, x=5)], 1, "a value that nobody wrote"),
        ([(1, 4), (9, 8)], [read(10, 11, x=4), read(11, 12, x=4)], 1, "only the second"),
    ],
)
def test_the_judge_of_bounds(
    committed: list[tuple[float, int]], answers: list[SessionAnswer], count: int, why: str
) -> None:
    assert len(bounded_violations(WRITES, committed, answers, bound_s=2.0)) == count, why
