"""Where aggregates, table functions, NULL and reserved names may stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        (
            "CREATE TABLE t AS SELECT tail, SUM(COUNT(*)) AS n FROM flights GROUP BY tail;",
            "Aggregate functions can not be nested: SUM(COUNT())",
            36,
        ),
        (
            "CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights WHERE COUNT(*) > 1 GROUP BY 1;",
            "WHERE does not support aggregate functions: COUNT is an aggregate function.",
            60,
        ),
        (
            "CREATE STREAM s AS SELECT tail, EXPLODE(EXPLODE(ARRAY[tags])) FROM flights;",
            "Table functions cannot be nested: `EXPLODE`(`EXPLODE`())",
            41,
        ),
        (
            "CREATE STREAM s AS SELECT tail, CASE WHEN TRUE THEN EXPLODE(tags) END FROM flights;",
            "Table functions cannot be used in CASE: (CASE WHEN true THEN EXPLODE(TAGS) END)",
            53,
        ),
        (
            "CREATE TABLE t AS SELECT tail, EXPLODE(tags), COUNT(*) FROM flights GROUP BY tail;",
            "Table functions cannot be used with aggregations.",
            32,
        ),
        (
            "CREATE TABLE t AS SELECT EXPLODE(tags), COUNT(*) FROM flights GROUP BY EXPLODE(tags);",
            "Table functions cannot be used with aggregations.",
            26,
        ),
        (
            "CREATE TABLE t AS SELECT COUNT(*) FROM flights GROUP BY EXPLODE(tags);",
            "GROUP BY does not support table functions: EXPLODE is a table function.",
            57,
        ),
        (
            "CREATE TABLE t AS SELECT tail, SUM(MAX(seats)) FROM flights GROUP BY tail;",
            "Aggregate functions can not be nested: SUM(MAX())",
            36,
        ),
        (
            "CREATE TABLE t AS SELECT ABS(SUM(seats)), COUNT(*), MAX(miles) FROM flights;",
            (
                "CREATE TABLE AS SELECT statement does not support aggregate function"
                " [SUM(SEATS), COUNT(ROWTIME), MAX(MILES)] without a GROUP BY clause."
            ),
            30,
        ),
        (
            "CREATE STREAM s AS SELECT EXPLODE(tags) g FROM flights PARTITION BY EXPLODE(tags);",
            "PARTITION BY does not support table functions: EXPLODE is a table function.",
            69,
        ),
        (
            "CREATE TABLE t AS SELECT tail, EXPLODE(ARRAY[maker]) AS m FROM planes;",
            "Table source is not supported with table functions",
            32,
        ),
        (
            "CREATE TABLE t AS SELECT p.a, EXPLODE(f.a) FROM planes p JOIN fleet f ON p.a = f.a;",
            "Table source is not supported with table functions",
            31,
        ),
        (
            "CREATE STREAM s AS SELECT tail, NULL AS x FROM flights;",
            "Can't infer a type of null.",
            33,
        ),
        ("SELECT NULL AS x FROM by_tail;", "Can't infer a type of null.", 8),
        ("SELECT n AS rowtime FROM by_tail;", "`ROWTIME` is a reserved column name.", 8),
        (
            "SELECT tail AS windowend FROM flights EMIT CHANGES;",
            "`WINDOWEND` is a reserved column name.",
            8,
        ),
    ],
)
def test_refusals(plan: Callable[..., Plan], text: str, message: str, column: int) -> None:
    with pytest.raises(StatementError) as refused:
        plan(text)
    assert message in refused.value.message
    assert (refused.value.line, refused.value.column) == (1, column)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s AS SELECT tail, EXPLODE(tags) AS a, EXPLODE(tags) AS b FROM flights;",
        "CREATE STREAM s AS SELECT tail, UCASE(EXPLODE(tags)) AS a FROM flights;",
        "CREATE STREAM s AS SELECT tail, EXPLODE(TRANSFORM(tags, t => UCASE(t))) FROM flights;",
        "CREATE STREAM s AS SELECT tail, CAST(NULL AS INT) AS x FROM flights;",
        "SELECT rowtime AS rowtime FROM by_tail;",
    ],
)
def test_what_stands_beside_the_rules(plan: Callable[..., Plan], text: str) -> None:
    plan(text)


def test_a_stream_joined_with_a_table_may_be_unnested(plan: Callable[..., Plan]) -> None:
    made = plan(
        "CREATE STREAM s AS SELECT f.tail, EXPLODE(ARRAY[p.maker]) AS m FROM flights f"
        " JOIN planes p ON f.tail = p.tail;"
    )
    assert isinstance(made, CreateTableAsPlan)
