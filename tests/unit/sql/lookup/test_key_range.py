"""Which bounds of the first key column a WHERE sets, and whether it says anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.sql.plans import Plan, PullPlan

#: keys of a table: TAIL; CARRIER and SEATS
ONE, TWO = "by_tail", "by_two"


@pytest.mark.parametrize(
    ("table", "where", "low", "high", "is_range"),
    [
        (ONE, "tail > 'a'", "> a", None, True),
        (ONE, "tail >= 'a' AND tail < 'c'", ">= a", "< c", True),
        (ONE, "'a' < tail AND 'c' >= tail", "> a", "<= c", True),
        (ONE, "tail BETWEEN 'a' AND 'c'", ">= a", "<= c", True),
        (ONE, "tail > 'a' AND tail >= 'a' AND tail > 'Z'", "> a", None, True),
        (ONE, "tail < 'c' AND tail <= 'c'", None, "< c", True),
        (ONE, "tail > 'a' AND n > 1", "> a", None, False),
        (ONE, "tail > 'a' AND (tail < 'b' OR tail = 'c')", "> a", None, False),
        (ONE, "tail > 'a' OR tail < 'A'", None, None, False),
        (ONE, "NOT (tail > 'a')", None, None, False),
        (ONE, "tail NOT BETWEEN 'a' AND 'c'", None, None, False),
        (ONE, "tail > 'a' AND tail <> 'b'", "> a", None, False),
        (ONE, "tail > CONCAT('a', 'b')", "> ab", None, False),
        (ONE, "tail > NULLIF('a', 'a')", None, None, False),
        (ONE, "UCASE(tail) > 'A'", None, None, False),
        (TWO, "carrier > 'a'", "> a", None, True),
        (TWO, "carrier > 'a' AND seats > 5", "> a", None, False),
        (TWO, "seats > 5", None, None, False),
    ],
)
def test_key_ranges(
    plan: Callable[..., Plan],
    table: str,
    where: str,
    low: str | None,
    high: str | None,
    is_range: bool,
) -> None:
    made = plan(f"SELECT * FROM {table} WHERE {where};")
    assert isinstance(made, PullPlan)
    assert made.is_scan
    found_low = f"{'>' if made.is_low_open else '>='} {made.key_low}"
    found_high = f"{'<' if made.is_high_open else '<='} {made.key_high}"
    assert (None if made.key_low is None else found_low) == low
    assert (None if made.key_high is None else found_high) == high
    assert made.where_is_range == is_range


@pytest.mark.parametrize(
    ("where", "low", "is_range"),
    [
        ("seats > 5", 5, True),
        ("seats > -5", -5, True),
        ("seats >= 2.5", None, False),
        ("seats > 3000000000", None, False),
        ("seats > CAST(5 AS BIGINT)", None, False),
    ],
)
def test_key_ranges_of_numbers(
    plan: Callable[..., Plan], where: str, low: int | None, is_range: bool
) -> None:
    made = plan(f"SELECT * FROM by_seats WHERE {where};")
    assert isinstance(made, PullPlan)
    assert (made.key_low, made.where_is_range) == (low, is_range)
