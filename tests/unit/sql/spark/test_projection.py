"""Bounds of collections, from the properties of a session."""

from __future__ import annotations

from collections.abc import Callable

from standpipe.sql.plans import CreateTableAsPlan, Plan

STATEMENT = (
    "CREATE TABLE t AS SELECT tail, COLLECT_LIST(seats) AS l, COLLECT_SET(seats) AS s"
    " FROM flights GROUP BY tail;"
)


def sql(plan: Callable[..., Plan], **properties: str) -> str:
    named = {f"ksql.functions.{name}.limit": value for name, value in properties.items()}
    made = plan(STATEMENT, properties=named)
    assert isinstance(made, CreateTableAsPlan)
    return made.query.plan.sql


def test_each_collection_has_its_own(plan: Callable[..., Plan]) -> None:
    assert "slice" not in sql(plan)
    assert sql(plan, collect_list="3").count("slice") == 1
    assert sql(plan, collect_list="3", collect_set="1").count("slice") == 2
    assert sql(plan, collect_set="none") == sql(plan)
