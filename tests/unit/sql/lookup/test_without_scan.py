"""What a session without table scans may ask, clause by clause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.lookup.scan import RANGE_SCAN, TABLE_SCAN
from standpipe.sql.plans import Plan, PullPlan

NO_SCAN = {TABLE_SCAN: "false"}
ONE, TWO, DAY = "by_tail", "by_two", "by_day"
COMBINED = "cannot be combined with other comparisons such as an IN predicate"
MISSING = "WHERE clause missing key column for disjunct: "
PARTIAL = "Multi-column sources must specify every key in the WHERE clause. Specified: "


@pytest.mark.parametrize(
    ("table", "where", "is_scan", "why"),
    [
        (ONE, "tail = 'a'", False, "one key"),
        (ONE, "'a' = tail AND n > 1", False, "other columns are a filter"),
        (ONE, "tail IN ('a', 'b')", False, "keys in a list"),
        (ONE, "tail = 'a' AND n > 1 OR tail = 'b'", False, "each disjunct has its key"),
        (ONE, "tail > 'a'", True, "a range of a text key"),
        (ONE, "'a' <= tail AND n > 1", True, "a range and a filter"),
        (ONE, "NOT tail <= 'a'", True, "the opposite of a bound is a bound"),
        (TWO, "seats = 1 AND carrier = 'a'", False, "both keys"),
        (TWO, "seats IN (1, 2) AND carrier IN ('a', 'b')", False, "both, by lists"),
        (DAY, "carrier = 'a' AND windowstart > 5", False, "bounds of windows are no keys"),
    ],
)
def test_allowed(
    plan: Callable[..., Plan], table: str, where: str, is_scan: bool, why: str
) -> None:
    made = plan(f"SELECT * FROM {table} WHERE {where};", properties=NO_SCAN)
    assert isinstance(made, PullPlan)
    assert made.is_scan is is_scan, why


@pytest.mark.parametrize(
    ("table", "where", "message", "why"),
    [
        (ONE, "n = 1", MISSING + "(N = 1)", "no key"),
        (ONE, "tail = 'a' OR n = 1", MISSING + "(N = 1)", "not in the second disjunct"),
        (ONE, "tail LIKE 'a%'", MISSING + "(TAIL LIKE 'a%')", "LIKE bounds nothing"),
        (
            ONE,
            "tail = 'a' AND tail = 'b'",
            f"An equality condition on the key column {COMBINED}",
            "",
        ),
        (
            ONE,
            "tail IN ('a') AND tail = 'a'",
            f"An equality condition on the key column {COMBINED}",
            "",
        ),
        (ONE, "tail = 'a' AND tail IN ('a')", "The IN predicate cannot be combined with other", ""),
        (
            ONE,
            "tail IN ('a') AND tail > 'a'",
            f"A comparison condition on the key column {COMBINED}",
            "",
        ),
        (
            ONE,
            "tail > 'a' AND tail < 'c'",
            f"A comparison condition on the key column {COMBINED}",
            "",
        ),
        (ONE, "tail < 'a' OR tail > 'c'", "Query requires table scan", "two ranges"),
        (
            ONE,
            "tail <> 'a'",
            "Bound on key columns '[`TAIL` STRING KEY]' must currently be '='",
            "",
        ),
        (ONE, "NOT tail = 'a'", "Bound on key columns '[`TAIL` STRING KEY]' must", "the same"),
        (ONE, "tail = CAST(n AS STRING)", "between a key column and a resolvable expression", ""),
        (ONE, "UCASE(tail) = 'A'", "A comparison must directly reference a key column", ""),
        ("by_seats", "seats > 1", "Query requires table scan", "no text key"),
        (DAY, "carrier > 'a'", "Query requires table scan", "a windowed key"),
        (TWO, "seats = 1", PARTIAL + "[`SEATS`]", "one of two"),
        (TWO, "seats = 1 AND carrier > 'a'", PARTIAL + "[`CARRIER`]", "a range of one of two"),
        (TWO, "seats = 1 AND carrier = 'a' OR seats = 2", PARTIAL + "[`SEATS`]", "the second"),
    ],
)
def test_refused(plan: Callable[..., Plan], table: str, where: str, message: str, why: str) -> None:
    text = f"SELECT * FROM {table} WHERE {where};"
    with pytest.raises(StatementError) as refused:
        plan(text, properties=NO_SCAN)
    assert message in refused.value.message, why
    assert refused.value.line == 1
    plan(text)  # with scans, the clause is a filter like any other


def test_without_a_clause(plan: Callable[..., Plan]) -> None:
    with pytest.raises(StatementError, match="Missing WHERE clause"):
        plan("SELECT * FROM by_tail;", properties=NO_SCAN)


def test_ranges_can_be_switched_off_too(plan: Callable[..., Plan]) -> None:
    off = {**NO_SCAN, RANGE_SCAN: "false"}
    with pytest.raises(StatementError, match="Query requires table scan"):
        plan("SELECT * FROM by_tail WHERE tail > 'a';", properties=off)


def test_a_clause_of_very_many_disjuncts_is_judged_as_a_whole(plan: Callable[..., Plan]) -> None:
    part = " AND ".join(f"(n = {each} OR n = {each + 1})" for each in range(11))
    with pytest.raises(StatementError, match="missing key column for disjunct: "):
        plan(f"SELECT * FROM by_tail WHERE tail = 'a' OR {part};", properties=NO_SCAN)
