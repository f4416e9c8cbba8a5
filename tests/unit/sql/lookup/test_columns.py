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


@pytest.mark.parametrize("items", ["tail, tail", "n AS tail, tail", "*, tail"])
def test_two_columns_with_the_name_of_a_key(plan: Callable[..., Plan], items: str) -> None:
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {items} FROM by_tail;")
    assert refused.value.message == "Duplicate key columns found in schema: `TAIL` STRING KEY"


def test_two_values_of_one_name(plan: Callable[..., Plan]) -> None:
    with pytest.raises(StatementError) as refused:
        plan("SELECT tail AS n, n FROM by_tail;")
    assert refused.value.message == "Duplicate value columns found in schema: `N` BIGINT"
