"""Seeds and planted bugs of sessions that fit into a test run; the rest: `make sim-sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.sim import runner, sessions
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes, violations
from tests.sim.session_planted import PLANTS
from tests.sim.session_writes_planted import WRITE_PLANTS


def test_seeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(12):
        _, failure, counts, _, _ = sessions.run_seed(seed)
        assert failure is None, failure
        total += counts
    assert [name for name in sessions.EXPECTED if not total[name]] == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches(plant: Callable[[], list[runner.Plant]]) -> None:
    seed, by = runner.catch(plant, sessions.run_seed, range(30))
    assert seed is not None, by


def test_seeds_of_sessions_that_write() -> None:
    total: Counter[str] = Counter()
    for seed in range(8):
        _, failure, counts, _, _ = sessions.run_writing_seed(seed)
        assert failure is None, failure
        total += counts
    assert total["writes of a session"]
    assert total["waits that ended well"]


@pytest.mark.parametrize("plant", WRITE_PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches_in_sessions_that_write(
    plant: Callable[[], list[runner.Plant]],
) -> None:
    seed, by = runner.catch(plant, sessions.run_writing_seed, range(30))
    assert seed is not None, by


WRITES = Writes({"x": [0, 4, 8], "y": [2, 6]})


def read(begin: float, end: float, session: str = "s", **values: int) -> SessionAnswer:
    return SessionAnswer(session, begin, end, values)


@pytest.mark.parametrize(
    ("answers", "count", "why"),
    [
        ([read(0, 1, x=4), read(2, 3, x=4)], 0, "the same again"),
        ([read(0, 1, x=4), read(2, 3, x=8)], 0, "a newer one"),
        ([read(0, 1, x=8), read(2, 3, x=4)], 1, "an older one"),
        ([read(0, 1, x=8), read(2, 3, "t", x=4)], 0, "in another session"),
        ([read(0, 9, x=8), read(2, 3, x=4)], 0, "side by side"),
        ([read(0, 1, x=8), read(1, 3, x=4)], 1, "one after the other, to the instant"),
        ([read(2, 3, x=4), read(0, 1, x=8)], 1, "in whatever order they are told"),
        ([read(0, 1, x=8), read(2, 3, y=2)], 1, "batch 8 covers y = 6"),
        ([read(0, 1, x=4), read(2, 3, y=2)], 0, "batch 4 does not"),
        ([read(0, 1, y=6), read(2, 3, x=0)], 1, "batch 6 covers x = 4"),
        ([read(0, 1, y=6), read(2, 3, x=NO_VALUE)], 1, "and not that there is no row"),
        ([read(0, 1, x=0), read(2, 3, y=NO_VALUE)], 0, "y came later"),
        ([read(0, 1, x=5)], 1, "a value that nobody wrote"),
        ([read(0, 1, x=8, y=2)], 0, "two parts of one answer may differ"),
        ([read(0, 1, x=8, y=2), read(2, 3, y=2)], 1, "but not afterwards"),
    ],
)
def test_the_judge(answers: list[SessionAnswer], count: int, why: str) -> None:
    assert len(violations(WRITES, answers)) == count, why
