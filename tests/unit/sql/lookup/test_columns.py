"""Which columns of an answer are marked as keys: by name, as in ksqlDB (QueryProjectNode)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import Plan, PullPlan


@pytest.mark.parametrize(
    ("query", "schema"),
    [
        ("tail, n FROM by_tail", "`TAIL` STRING KEY, `N` BIGINT"),
        ("tail AS plane, n FROM by_tail", "`PLANE` STRING, `N` BIGINT"),
        ("n AS tail FROM by_tail", "`TAIL` BIGINT KEY"),
        ("UCASE(tail) AS tail FROM by_tail", "`TAIL` STRING KEY"),
        ("windowstart AS s, windowend FROM by_day", "`S` BIGINT, `WINDOWEND` BIGINT KEY"),
        ("tail, seats FROM flights", "`TAIL` STRING, `SEATS` INTEGER"),
    ],
)
def test_the_mark_of_a_key(plan: Callable[..., Plan], query: str, schema: str) -> None:
    found = plan(f"SELECT {query};")
    assert isinstance(found, PullPlan)
    assert found.schema == schema


@pytest.mark.parametrize("items", ["tail, tail", "n AS tail, tail"])
def test_two_columns_with_the_name_of_a_key(plan: Callable[..., Plan], items: str) -> None:
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {items} FROM by_tail;")
    assert refused.value.message == "Duplicate key columns found in schema: `TAIL` STRING KEY"


@pytest.mark.parametrize("items", ["*, tail", "n, *", "*, *"])
def test_a_star_beside_its_own_columns(plan: Callable[..., Plan], items: str) -> None:
    """Other columns may stand beside it, which ksqlDB refuses as well."""
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {items} FROM by_tail;")
    assert refused.value.message == (
        "Pull queries only support wildcards in the projects if they are the only expression"
    )
    assert isinstance(plan("SELECT *, rowtime FROM by_tail;"), PullPlan)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("n->*", "Column `N` is not a STRUCT type."),
        ("STRUCT(a := 1)->a->*", "Field A is not a STRUCT type."),
    ],
)
def test_the_fields_of_what_has_none(plan: Callable[..., Plan], item: str, text: str) -> None:
    """It was accepted, and gave rows without columns."""
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {item} FROM by_tail;")
    assert refused.value.message == text


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        ("= NULL", "Error in WHERE expression: Comparison with NULL not supported: BIGINT = NULL"),
        ("= 'yesterday'", "Failed to parse timestamp 'yesterday'"),
        ("= 1.5", "Window bounds must resolve to an INT, BIGINT, or STRING containing a datetime."),
    ],
)
def test_bounds_of_windows_that_are_none(plan: Callable[..., Plan], bound: str, text: str) -> None:
    """ksqlDB: FilterTypeValidator judges the whole filter before the bounds in it are read."""
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT * FROM by_day WHERE carrier = 'a' AND windowstart {bound};")
    assert refused.value.message.startswith(text)


def test_two_values_of_one_name(plan: Callable[..., Plan]) -> None:
    with pytest.raises(StatementError) as refused:
        plan("SELECT tail AS n, n FROM by_tail;")
    assert refused.value.message == "Duplicate value columns found in schema: `N` BIGINT"
