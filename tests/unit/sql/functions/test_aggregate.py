"""Aggregates with several columns, and the types that sums go through."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.functions import registry
from standpipe.sql.functions.aggregate import OTHERS_MAX
from standpipe.sql.plans import CreateTableAsPlan, Plan
from standpipe.sql.types.types import parse_type

INT = parse_type("INTEGER")


@pytest.mark.parametrize("count", [1, 3, OTHERS_MAX])
def test_topk_shows_columns_of_any_types(count: int) -> None:
    others = [parse_type(of) for of in ("STRING", "ARRAY<INTEGER>", "DOUBLE", "STRING") * 2][:count]
    found = registry.resolve("TOPK", [parse_type("BIGINT"), *others, INT])
    assert found.parameters == (parse_type("BIGINT"), *others, INT)
    fields = ", ".join(f"`col{index}` {of}" for index, of in enumerate(others))
    assert str(found.result) == f"ARRAY<STRUCT<`sort_col` BIGINT, {fields}>>"


def test_one_column_more_is_refused() -> None:
    with pytest.raises(registry.NotAccepted):
        registry.resolve("TOPK", [INT] * (OTHERS_MAX + 3))


def test_each_column_is_in_its_place(plan: Callable[..., Plan]) -> None:
    made = plan(
        "CREATE TABLE t AS SELECT tail, TOPK(delay, carrier, tags, day, 2) AS top FROM flights"
        " GROUP BY tail;"
    )
    assert isinstance(made, CreateTableAsPlan)
    row = "'sort_col', `DELAY`, 'col0', `CARRIER`, 'col1', `TAGS`, 'col2', `DAY`"
    assert f"named_struct({row})" in made.query.plan.sql
    assert "1, (2)) AS `TOP`" in made.query.plan.sql


def test_the_number_of_rows_is_the_last_argument(plan: Callable[..., Plan]) -> None:
    with pytest.raises(StatementError, match="Parameter 4 passed to function TOPK must be a lit"):
        plan("CREATE TABLE t AS SELECT tail, TOPK(delay, carrier, tags, seats) FROM flights"
             " GROUP BY tail;")  # fmt: skip


@pytest.mark.parametrize(
    ("of", "inner"),
    [("INTEGER", "BIGINT"), ("BIGINT", "BIGINT"), ("DOUBLE", "DOUBLE")],
)
def test_whole_numbers_are_added_as_whole_numbers(of: str, inner: str) -> None:
    """Lists of BIGINT went through DOUBLE: 9007199254740993 became 9007199254740992."""
    found = registry.resolve("SUM_LIST", [parse_type(f"ARRAY<{of}>")])
    assert str(found.result) == of
    assert f"cast(0 AS {inner})" in found.function.template


def sql(plan: Callable[..., Plan], call: str) -> str:
    made = plan(f"CREATE TABLE t AS SELECT tail, {call} AS x FROM flights GROUP BY tail;")
    assert isinstance(made, CreateTableAsPlan)
    return made.query.plan.sql


def test_a_histogram_has_the_thousand_values_that_came_first(plan: Callable[..., Plan]) -> None:
    """ksqlDB's bound: later ones are counted only if they are among these."""
    made = sql(plan, "HISTOGRAM(carrier)")
    kept = made.partition("slice(")[2].partition(", 1, 1000)")[0]
    assert kept.startswith("array_distinct(filter(")
    assert "`__ORDER`" in kept


@pytest.mark.parametrize("of", ["MAP('a' := seats)", "ARRAY[MAP('a' := seats)]"])
def test_attr_does_not_order_maps(plan: Callable[..., Plan], of: str) -> None:
    """Spark has no order of maps: min() of them made a statement that could never run."""
    assert "min(" in sql(plan, "ATTR(seats)")
    made = sql(plan, f"ATTR({of})")
    assert "min(" not in made
    assert "if(size(array_distinct(" in made
