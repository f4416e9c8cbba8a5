"""Which bounds of the first key column a WHERE sets, and what it says beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.sql.plans import Plan, PullPlan

#: keys of a table: TAIL; CARRIER and SEATS
ONE, TWO = "by_tail", "by_two"


def said(made: PullPlan) -> str | None:
    """The conditions beside the bounds; None: there may be others."""
    if made.conditions is None:
        return None
    row = [*(column.name for column in made.source.columns), "ROWTIME"]
    return " AND ".join(
        f"{row[each.column]} {each.sign} {'-' * each.is_negated}{each.literal.decode()}"
        for each in made.conditions
    )


@pytest.mark.parametrize(
    ("table", "where", "low", "high", "others"),
    [
        (ONE, "tail > 'a'", "> a", None, ""),
        (ONE, "tail >= 'a' AND tail < 'c'", ">= a", "< c", ""),
        (ONE, "'a' < tail AND 'c' >= tail", "> a", "<= c", ""),
        (ONE, "tail BETWEEN 'a' AND 'c'", ">= a", "<= c", ""),
        (ONE, "tail > 'a' AND tail >= 'a' AND tail > 'Z'", "> a", None, ""),
        (ONE, "tail < 'c' AND tail <= 'c'", None, "< c", ""),
        (ONE, "tail > 'a' AND n > 1", "> a", None, "N > 1"),
        (ONE, "n > -1 AND 5 >= n", None, None, "N > -1 AND N <= 5"),
        (ONE, "n BETWEEN 1 AND 2 AND tail < 'c'", None, "< c", "N >= 1 AND N <= 2"),
        (ONE, "rowtime >= 5", None, None, "ROWTIME >= 5"),
        (ONE, "n > 1 OR n < 0", None, None, None),
        (ONE, "n IN (1, 2)", None, None, None),
        (ONE, "n IS NOT NULL", None, None, None),
        (ONE, "n + 1 > 1", None, None, None),
        (ONE, "tail > 'a' AND (tail < 'b' OR tail = 'c')", "> a", None, None),
        (ONE, "tail > 'a' OR tail < 'A'", None, None, None),
        (ONE, "NOT (tail > 'a')", None, None, None),
        (ONE, "tail NOT BETWEEN 'a' AND 'c'", None, None, None),
        (ONE, "tail > 'a' AND tail <> 'b'", "> a", None, "TAIL <> b"),
        (ONE, "tail > CONCAT('a', 'b')", ">= ab", None, None),
        (ONE, "tail > NULLIF('a', 'a')", None, None, None),
        (ONE, "UCASE(tail) > 'A'", None, None, None),
        (TWO, "carrier > 'a'", "> a", None, ""),
        (TWO, "carrier > 'a' AND seats > 5", "> a", None, "SEATS > 5"),
        (TWO, "seats > 5", None, None, "SEATS > 5"),
    ],
)
def test_key_ranges(
    plan: Callable[..., Plan],
    table: str,
    where: str,
    low: str | None,
    high: str | None,
    others: str | None,
) -> None:
    made = plan(f"SELECT * FROM {table} WHERE {where};")
    assert isinstance(made, PullPlan)
    assert made.is_scan
    found_low = f"{'>' if made.is_low_open else '>='} {made.key_low}"
    found_high = f"{'<' if made.is_high_open else '<='} {made.key_high}"
    assert (None if made.key_low is None else found_low) == low
    assert (None if made.key_high is None else found_high) == high
    assert said(made) == others


@pytest.mark.parametrize(
    ("where", "low", "others"),
    [
        ("seats > 5", 5, ""),
        ("seats > -5", -5, ""),
        ("seats >= 2.5", None, None),
        ("seats > 3000000000", None, "SEATS > 3000000000"),
        ("seats > CAST(5 AS BIGINT)", None, None),
    ],
)
def test_key_ranges_of_numbers(
    plan: Callable[..., Plan], where: str, low: int | None, others: str | None
) -> None:
    made = plan(f"SELECT * FROM by_seats WHERE {where};")
    assert isinstance(made, PullPlan)
    assert (made.key_low, said(made)) == (low, others)
