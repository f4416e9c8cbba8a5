"""Names of columns without AS: no name of a source, and none of the list, is taken again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.sql.expressions.result_names import ResultNames
from standpipe.sql.plans import CreateTableAsPlan, Plan, PullPlan
from standpipe.sql.syntax import ast

SETUP = (
    "CREATE STREAM ORDERS (SHOP STRING KEY, WHO STRUCT<NAME STRING, NICK STRUCT<NAME STRING>>,"
    " ITEMS ARRAY<INT>) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    "CREATE TABLE SHOPS AS SELECT SHOP, COUNT(*), LATEST_BY_OFFSET(WHO) AS WHO FROM ORDERS"
    " GROUP BY SHOP;"
)


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("UCASE(SHOP), KSQL_COL_0", ("KSQL_COL_1", "KSQL_COL_0")),
        ("WHO->NAME, WHO->NICK->NAME", ("NAME", "NAME_1")),
        ("WHO->NAME, 1 AS NAME", ("NAME_1", "NAME")),
        ("KSQL_COL_0 + 1 AS KSQL_COL_1, KSQL_COL_0 + 2", ("KSQL_COL_1", "KSQL_COL_2")),
    ],
)
def test_a_table_that_has_generated_names_itself(
    plan: Callable[..., Plan], items: str, names: tuple[str, ...]
) -> None:
    found = plan(f"{SETUP}SELECT {items} FROM SHOPS WHERE SHOP = 'a';")
    assert isinstance(found, PullPlan)
    assert found.column_names == names


def test_the_same_in_a_persistent_query_and_beside_explode(plan: Callable[..., Plan]) -> None:
    items = "WHO->NAME, EXPLODE(ITEMS), WHO->NICK->NAME, LEN(SHOP)"
    found = plan(f"{SETUP}CREATE STREAM X AS SELECT SHOP, {items} FROM ORDERS;")
    assert isinstance(found, CreateTableAsPlan)
    names = tuple(each.name for each in found.source.value_columns)
    assert names == ("NAME", "KSQL_COL_0", "NAME_1", "KSQL_COL_1")
    pulled = plan(f"{SETUP}SELECT {items} FROM ORDERS;")
    assert isinstance(pulled, PullPlan)
    assert pulled.column_names == names


def test_a_field_a_thousand_times_takes_a_name_each() -> None:
    """Not a search from the first number for each of them."""

    class Counted(set[str | None]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            self.asked += 1
            return super().__contains__(name)

    names = ResultNames((), ())
    names._taken = taken = Counted({"F_7"})
    field = ast.Dereference(base=ast.ColumnName(name="S", at=ast.START), field="F", at=ast.START)
    found = [names.of(field) for _ in range(1_000)]
    assert found[:8] == ["F", "F_1", "F_2", "F_3", "F_4", "F_5", "F_6", "F_8"]
    assert len(set(found)) == 1_000
    assert taken.asked < 3_000
