"""What INSERT INTO … VALUES refuses, in ksqlDB's order and words (InsertValuesExecutor)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import InsertValuesPlan, Plan

SETUP = (
    "CREATE STREAM EVENTS (AT BIGINT, WHO STRING KEY, N INT, D DECIMAL(5, 2), L ARRAY<INT>,"
    " B BYTES) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    "CREATE STREAM MARKED (WHO STRING KEY, H BYTES HEADER('h'), N INT)"
    " WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
)
FAILED = "Failed to insert values into 'EVENTS'. "


def row(plan: Callable[..., Plan], insert: str) -> InsertValuesPlan:
    made = plan(f"{SETUP}INSERT INTO {insert};")
    assert isinstance(made, InsertValuesPlan)
    return made


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        (
            "EVENTS VALUES ('me', 1)",
            (
                FAILED + "Expected a value for each column. Expected"
                " Columns: [`WHO`, `AT`, `N`, `D`, `L`, `B`]. Got ['me', 1]"
            ),
        ),
        (
            "EVENTS (WHO, N) VALUES ('me')",
            "Failed to prepare statement: Expected number columns and values to match: 2, 1",
        ),
        ("MARKED VALUES ('me', 1)", "Cannot insert into HEADER columns: H"),
        ("MARKED (N, H) VALUES (1, NULL)", "Cannot insert into HEADER columns: H"),
        (
            "MARKED (N, H) VALUES (1)",
            "Failed to prepare statement: Expected number columns and values to match: 2, 1",
        ),
        (
            "EVENTS (WHOM) VALUES ('me')",
            FAILED + "Column name `WHOM` does not exist.",
        ),
        (
            "EVENTS (ROWOFFSET) VALUES (1)",
            (FAILED + "Inserting into column `ROWOFFSET` is not allowed."),
        ),
        (
            "EVENTS (N) VALUES ('one')",
            (FAILED + "Expected type INTEGER for field `N` but got STRING(one)"),
        ),
        (
            "EVENTS (D) VALUES (1000 + 0.25)",
            (FAILED + "Expected type DECIMAL(5, 2) for field `D` but got DECIMAL(1000.25)"),
        ),
        ("EVENTS (N) VALUES (NOPE(1))", FAILED + "Can't find any functions with the name 'NOPE'"),
        (
            "EVENTS (L) VALUES (ARRAY['a', NULL])",
            (FAILED + "Expected type ARRAY<INTEGER> for field `L` but got ARRAY([a, null])"),
        ),
        (
            "EVENTS (ROWTIME, WHO) VALUES (-1, 'me')",
            (FAILED + "Invalid timestamp: -1. Timestamp should always be non-negative or null."),
        ),
        (
            "EVENTS (N) VALUES (CAST(true AS INT))",
            FAILED + "Cast of BOOLEAN to INTEGER is not supported",
        ),
        (
            "EVENTS (WHO) VALUES (CAST(TO_BYTES('a', 'utf8') AS STRING))",
            FAILED + "Cast of BYTES to STRING is not supported",
        ),
    ],
)
def test_refusals(plan: Callable[..., Plan], insert: str, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        row(plan, insert)
    assert refused.value.message == message


def test_a_time_before_1970_is_no_time_for_kafka(plan: Callable[..., Plan]) -> None:
    """It took -1 for the time of arrival: the row had another ROWTIME than its statement said."""
    assert row(plan, "EVENTS (ROWTIME, WHO) VALUES (0, 'me')").rowtime_ms == 0
    assert row(plan, "EVENTS (ROWTIME, WHO) VALUES (NULL, 'me')").rowtime_ms is None


def test_text_becomes_bytes_by_cast_as_well(plan: Callable[..., Plan]) -> None:
    values = row(plan, "EVENTS (B) VALUES (CAST('aGk=' AS BYTES))").values
    assert values[-1] == b"hi"
    assert row(plan, "EVENTS (B) VALUES ('aGk=')").values == values


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("ARRAY[1, '2']", "text that is a number, as in a query (CoercionUtil)"),
        ("ARRAY[1, CAST('2' AS INT)]", "of one type"),
    ],
)
def test_items_of_an_array_get_one_type(plan: Callable[..., Plan], made: str, why: str) -> None:
    assert row(plan, f"EVENTS (L) VALUES ({made})").values[-2] == [1, 2], why


@pytest.mark.parametrize(
    ("insert", "why"),
    [
        ("EVENTS (N) VALUES (N)", "Unsupported column reference in insert value: N"),
        ("EVENTS (N) VALUES (ABS(AT))", "Unsupported column reference in insert value: ABS(AT)"),
    ],
)
def test_columns_have_no_values_here(plan: Callable[..., Plan], insert: str, why: str) -> None:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}INSERT INTO {insert};")
    assert refusal.value.message == FAILED + why


def test_parameters_of_lambdas_are_no_columns(plan: Callable[..., Plan]) -> None:
    made = "REDUCE(ARRAY[1, 2], 0, (s, x) => s + x)"
    assert row(plan, f"EVENTS (N) VALUES ({made})").values[2] == 3


@pytest.mark.parametrize(
    ("base", "form"),
    [
        ("TIMESTAMP", "Timestamp format must be yyyy-mm-ddThh:mm:ss[.S]"),
        ("TIME", "Time format must be hh:mm:ss[.S]"),
        ("DATE", "Date format must be yyyy-mm-dd"),
    ],
)
def test_the_form_of_times_is_said(plan: Callable[..., Plan], base: str, form: str) -> None:
    make = f"CREATE STREAM S (T {base}) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    with pytest.raises(StatementError) as refusal:
        plan(f"{make}INSERT INTO S VALUES ('bla');")
    assert refusal.value.message.endswith(f"for field `T` but got STRING(bla). {form}")
