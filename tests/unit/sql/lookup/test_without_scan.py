"""What a session without table scans may ask, clause by clause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.lookup.scan import RANGE_SCAN, TABLE_SCAN
from standpipe.sql.plans import Plan, PullPlan

NO_SCAN = {TABLE_SCAN: "false"}
BY_BYTES = """CREATE STREAM raw (b BYTES KEY, n INT)
    WITH (KAFKA_TOPIC='raw', VALUE_FORMAT='JSON', KEY_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE by_bytes AS SELECT b, COUNT(*) AS n FROM raw GROUP BY b;"""
ONE, TWO, DAY, BYTES = "by_tail", "by_two", "by_day", "by_bytes"
COMBINED = (
    "A comparison condition on the key column cannot be combined with other comparisons such as an"
    " IN predicate"
)
MISSING = "WHERE clause missing key column for disjunct: "
PARTIAL = "Multi-column sources must specify every key in the WHERE clause. Specified: "
EXPECTED = " Expected: [`CARRIER` STRING KEY, `SEATS` INTEGER KEY]."
DIRECTLY = "A comparison must directly reference a key column"
CONSTANT = "A comparison must be between a key column and a resolvable expression"
UNSUPPORTED = "Unsupported expression in WHERE clause: "
BOUND = "Bound on key columns '[`TAIL` STRING KEY]' must currently be '='"
SCAN = "Query requires table scan to be enabled."
#: more than a thousand disjuncts
MANY = " AND ".join(f"(n = {each} OR n = {each + 1})" for each in range(11))


@pytest.mark.parametrize(
    ("table", "where", "is_scan", "why"),
    [
        (ONE, "tail = 'a'", False, "one key"),
        (ONE, "'a' = tail AND n > 1", False, "other columns are a filter"),
        (ONE, "tail IN ('a', 'b')", False, "keys in a list"),
        (ONE, "tail = 'a' AND n > 1 OR tail = 'b'", False, "each disjunct has its key"),
        (ONE, "tail > 'a'", True, "a range of a text key"),
        (ONE, "'a' <= tail AND n > 1", True, "a range and a filter"),
        (ONE, "NOT (NOT tail <= 'a')", True, "NOT twice is none"),
        (ONE, "tail = 'a' AND tail LIKE 'a%'", False, "LIKE is a filter, of a key too"),
        (ONE, "tail = 'a' AND tail NOT LIKE 'b%'", False, "and NOT LIKE"),
        (ONE, "tail = 'a' AND n BETWEEN 1 AND 2", False, "BETWEEN is two bounds"),
        (ONE, "tail = 'a' AND n NOT BETWEEN 1 AND 2", False, "of a filter, negated too"),
        (ONE, "tail = 'a' AND n IS NULL", False, "a filter of any form"),
        (ONE, "tail = 'a' AND NOT n = 1 AND n = worst AND n + 1 = 2", False, "likewise"),
        (TWO, "seats = 1 AND carrier = 'a'", False, "both keys"),
        (TWO, "seats IN (1, 2) AND carrier IN ('a', 'b')", False, "both, by lists"),
        (DAY, "carrier = 'a' AND windowstart > 5", False, "bounds of windows are no keys"),
        (BYTES, "b >= TO_BYTES('6162', 'hex')", True, "a range of a BYTES key"),
        (BYTES, "b = TO_BYTES('6162', 'hex')", False, "one BYTES key"),
    ],
)
def test_allowed(
    plan: Callable[..., Plan], table: str, where: str, is_scan: bool, why: str
) -> None:
    made = plan(f"{BY_BYTES} SELECT * FROM {table} WHERE {where};", properties=NO_SCAN)
    assert isinstance(made, PullPlan)
    assert made.is_scan is is_scan, why


@pytest.mark.parametrize(
    ("table", "where", "message", "why"),
    [
        (ONE, "n = 1", MISSING + "(N = 1)", "no key"),
        (ONE, "n IN (3, 4)", MISSING + "(N = 3)", "IN is an OR of ="),
        (ONE, "n BETWEEN 3 AND 4", MISSING + "((N >= 3) AND (N <= 4))", "BETWEEN is two bounds"),
        (ONE, "tail = 'a' OR n = 1", MISSING + "(N = 1)", "not in the second disjunct"),
        (ONE, "tail LIKE 'a%'", MISSING + "(TAIL LIKE 'a%')", "LIKE bounds nothing"),
        (ONE, "tail = 'a' AND tail = 'b'", COMBINED, "= twice"),
        (ONE, "tail IN ('a') AND tail = 'a'", COMBINED, "IN is an OR of ="),
        (ONE, "tail = 'a' AND tail IN ('a')", COMBINED, "in either order"),
        (ONE, "tail IN ('a') AND tail > 'a'", COMBINED, "IN and a bound"),
        (ONE, "tail > 'a' AND tail < 'c'", COMBINED, "two bounds"),
        (ONE, "tail BETWEEN 'a' AND 'c'", COMBINED, "BETWEEN is two bounds"),
        (ONE, "tail < 'a' OR tail > 'c'", SCAN, "two ranges"),
        (ONE, "tail > 'a' AND n IN (1, 2)", SCAN, "two ranges, as IN is an OR of ="),
        (ONE, "tail = 'a' OR tail > 'c'", SCAN, "a key or a range"),
        (ONE, "tail <> 'a'", BOUND, "neither = nor a bound"),
        (ONE, "tail IS DISTINCT FROM 'a'", BOUND, "neither = nor a bound"),
        (ONE, "NOT tail = 'a'", UNSUPPORTED + "(NOT (TAIL = 'a')).", "NOT is not turned round"),
        (ONE, "NOT tail <= 'a'", UNSUPPORTED + "(NOT (TAIL <= 'a')).", "nor that of a bound"),
        (ONE, "NOT (tail = 'a' OR n = 1)", UNSUPPORTED + "(NOT (TAIL = 'a')).", "it goes inwards"),
        (ONE, "tail NOT IN ('a', 'b')", UNSUPPORTED + "(NOT (TAIL = 'a')).", "IN is an OR of ="),
        (ONE, "tail IS NOT NULL", UNSUPPORTED + "(TAIL IS NOT NULL).", "no comparison"),
        (ONE, "n IS NULL", UNSUPPORTED + "(N IS NULL).", "no key beside it"),
        (ONE, "tail = CAST(n AS STRING)", CONSTANT, "another column"),
        (ONE, "tail IN ('a', CAST(n AS STRING))", CONSTANT, "another column in a list"),
        (ONE, "n = worst", CONSTANT, "no key beside it"),
        (ONE, "UCASE(tail) = 'A'", DIRECTLY, "not the column itself"),
        (ONE, "tail = 'a' AND UCASE(tail) = 'A'", DIRECTLY, "a key column, also as a filter"),
        (ONE, "'a' LIKE 'a'", "Like condition must be between strings", "of no column"),
        (ONE, f"tail = 'a' OR {MANY}", "WHERE is an OR of more than 1000", "too many to read"),
        (ONE, f"tail = 'a' AND {MANY}", SCAN, "too many to look up"),
        ("by_seats", "seats > 1", SCAN, "neither STRING nor BYTES"),
        (DAY, "carrier > 'a'", SCAN, "a windowed key"),
        (DAY, "n = 1", "WINDOWSTART and WINDOWEND by bounds", "the help names windows"),
        (TWO, "seats = 1", PARTIAL + "[`SEATS`]" + EXPECTED, "one of two"),
        (TWO, "carrier > 'a'", PARTIAL + "[`CARRIER`]" + EXPECTED, "a range of one of two"),
        (TWO, "seats = 1 AND carrier > 'a'", SCAN, "a range of one of two, with the other"),
        (TWO, "carrier <> 'a'", f"'[{EXPECTED[12:-2]}]' must currently be '='", "all keys named"),
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
