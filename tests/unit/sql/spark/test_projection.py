"""Bounds of collections, from the properties of a session; items that are not grouped by."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
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


def test_a_collection_may_have_fewer_items_than_its_bound(plan: Callable[..., Plan]) -> None:
    """SLICE is NULL where its end is outside of the list."""
    assert re.search(r"least\((cast\()?array_size", sql(plan, collect_list="3"))


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("carrier, COUNT(*) FROM flights GROUP BY carrier HAVING seats > 3", "SEATS"),
        (
            (
                "carrier, COUNT(*) FROM flights f GROUP BY carrier"
                " HAVING f.seats > 3 AND SUM(seats) > 1 AND LEN(carrier) = 2 AND delay < fare"
            ),
            "SEATS, DELAY, FARE",
        ),
        (
            (
                "p.maker, COUNT(*) FROM flights JOIN planes p ON flights.tail = p.tail"
                " GROUP BY p.maker HAVING MAX(seats) > flights.seats"
            ),
            "FLIGHTS_SEATS",
        ),
    ],
)
def test_columns_of_having_that_are_not_grouped_by(
    plan: Callable[..., Plan], query: str, named: str
) -> None:
    """AggregateAnalyzer of ksqlDB names the columns, not the whole clause."""
    with pytest.raises(StatementError) as refused:
        plan(f"CREATE TABLE t AS SELECT {query};")
    assert refused.value.message == (
        f"Non-aggregate HAVING expression not part of GROUP BY: {named}"
        "\nConsider switching the HAVING clause to a WHERE clause before the GROUP BY."
    )


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (
            "delay, f.seats + COUNT(*) FROM flights f GROUP BY carrier",
            "DELAY",
        ),
        (
            (
                "LEN(p.maker), COUNT(*) FROM flights f JOIN planes p ON f.tail = p.tail"
                " GROUP BY f.carrier"
            ),
            "LEN(P_MAKER)",
        ),
        (
            "TRANSFORM(f.tags, x => LEN(x) + f.seats), COUNT(*) FROM flights f GROUP BY carrier",
            "TRANSFORM(TAGS, X => (LEN(X) + SEATS))",
        ),
    ],
)
def test_items_that_are_not_grouped_by(plan: Callable[..., Plan], query: str, named: str) -> None:
    """Columns are named as the rows that are grouped have them, without their source."""
    with pytest.raises(StatementError) as refused:
        plan(f"CREATE TABLE t AS SELECT {query};")
    assert refused.value.message == (
        f"Non-aggregate SELECT expression(s) not part of GROUP BY: {named}"
        "\nEither add the column(s) to the GROUP BY or remove them from the SELECT."
    )


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("f.seats + COUNT(*), LEN(carrier) FROM flights f GROUP BY carrier", "SEATS"),
        (
            "SUM(delay) / seats + seats, MAX(fare) - delay FROM flights GROUP BY carrier",
            "SEATS, DELAY",
        ),
        (
            (
                "COUNT(*) + LEN(p.maker) FROM flights f JOIN planes p ON f.tail = p.tail"
                " GROUP BY f.carrier"
            ),
            "P_MAKER",
        ),
    ],
)
def test_columns_beside_aggregates_that_are_not_grouped_by(
    plan: Callable[..., Plan], query: str, named: str
) -> None:
    """The item is an aggregate; ksqlDB says which of its columns is none."""
    with pytest.raises(StatementError) as refused:
        plan(f"CREATE TABLE t AS SELECT {query};")
    assert refused.value.message == (
        "Column used in aggregate SELECT expression(s) outside of aggregate functions not part of"
        f" GROUP BY: {named}"
        "\nEither add the column(s) to the GROUP BY or remove them from the SELECT."
    )
