"""Budgets of hedges and retries, and when a forward is slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.routing.hedge_budget import WINDOW_S, Budget, ForwardLatency


def taken(budget: Budget, now_s: float, wanted: int = 10_000) -> int:
    return sum(budget.take(now_s) for _ in range(wanted))


@pytest.mark.parametrize(
    ("share", "reads", "burst", "expected", "why"),
    [
        (0.05, 0, 100, 100, "a burst without any history"),
        (0.05, 1000, 100, 150, "and the share"),
        (0.1, 1000, 0, 100, "the share alone"),
        (0.0, 1000, 100, 0, "off means off"),
    ],
)
def test_how_much(share: float, reads: int, burst: int, expected: int, why: str) -> None:
    budget = Budget(share, burst)
    for _ in range(reads):
        budget.read(5.0)
    assert taken(budget, 5.9) == expected, why


def test_it_comes_back_with_the_window() -> None:
    budget = Budget(0.05, burst=10)
    assert taken(budget, 0) == 10
    assert taken(budget, WINDOW_S - 0.1) == 0
    assert taken(budget, WINDOW_S) == 10


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=300), st.integers(0, 20))
def test_never_more_than_allowed_in_any_window(steps: list[tuple[bool, float]], burst: int) -> None:
    budget, now = Budget(0.1, burst), 0.0
    reads: list[float] = []
    spent: list[float] = []
    for is_read, gap in steps:
        now += gap
        if is_read:
            budget.read(now)
            reads.append(now)
        elif budget.take(now):
            spent.append(now)
            since = int(now) - WINDOW_S + 1
            asked = sum(at >= since for at in reads)
            assert sum(at >= since for at in spent) <= burst + 0.1 * asked + 1


def test_pace_is_the_p95_of_recent_forwards() -> None:
    pace = ForwardLatency()
    for _ in range(ForwardLatency.ENOUGH - 1):
        pace.took(1.0)
    assert pace.slow_ms == ForwardLatency.FIRST_MS, "too few to tell"
    for number in range(ForwardLatency.KEPT * 2):
        pace.took(2.0 if number % 25 else 400.0)
    assert pace.slow_ms == 2.0, "4 % are slower"
    for number in range(ForwardLatency.KEPT * 2):
        pace.took(2.0 if number % 10 else 400.0)
    assert pace.slow_ms == 400.0, "10 % are slower"
    for _ in range(ForwardLatency.KEPT * 2):
        pace.took(0.01)
    assert pace.slow_ms == ForwardLatency.LOW_MS
