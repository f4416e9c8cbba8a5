"""What a part that fails makes of a whole expression: in Spark SQL, and as the evaluator computes.

`make functions` compares both by real Spark, over many values (`tests/e2e/both_failing.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples import sample_table

from standpipe.model import Column
from standpipe.sql.expressions import failing
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.spark.expression_sql import condition_sql, expression_sql
from standpipe.sql.syntax import ast, parser

COLUMNS = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="N", type="INTEGER"),
    Column(name="M", type="INTEGER"),  # NULL in the row, as the next three
    Column(name="U", type="STRING"),
    Column(name="B", type="BOOLEAN"),
    Column(name="L", type="BIGINT"),
    Column(name="A", type="ARRAY<INTEGER>"),
    Column(name="S", type="STRUCT<`F` INTEGER>"),
)
NAMES = PullNames.of(sample_table(name="X", columns=COLUMNS, topic="x"), None)
ROW = ["k", 7, None, None, None, None, [1, None, 3], {"F": None}, 12_000]


def expression(text: str) -> ast.Expression:
    (query,) = parser.parse(f"SELECT {text} FROM x;")
    assert isinstance(query, ast.Query)
    item = query.items[0]
    assert isinstance(item, ast.SelectItem)
    return item.expression


def value(text: str) -> Any:
    return Evaluator(NAMES, "SELECT").compile(expression(text))(ROW)


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("COALESCE(m + 1, 5)", None, "arithmetic with NULL fails, and so does all of it"),
        ("COALESCE(m, 5)", 5, "NULL alone does not"),
        ("COALESCE(ABS(m + 1), 5)", 5, "a call as an argument of another is caught"),
        ("COALESCE(n / 0, 5)", None, "a division by zero"),
        ("COALESCE(CAST(m + 1 AS INT), 5)", 5, "CAST catches"),
        ("ARRAY[m + 1, n]", [None, 7], "so does ARRAY[…]"),
        ("STRUCT(f := m + 1)", {"F": None}, "and STRUCT(…)"),
        ("MAP('a' := m + 1)", {"a": None}, "and MAP(…)"),
        ("COALESCE(s->f, 5)", 5, "and a field as an argument"),
        ("(m + 1) IS NULL", None, ""),
        ("m + 1 > 5 OR n = 7", None, "the first operand fails"),
        ("n = 7 OR m + 1 > 5", True, "the second is not computed"),
        ("n = 8 AND m + 1 > 5", False, ""),
        ("b OR n = 7", None, "NULL is no condition"),
        ("n = 7 OR b", True, ""),
        ("NOT b", None, ""),
        ("NOT (u = 'x')", True, "a comparison is false with NULL"),
        ("u LIKE 'a%' OR n = 7", None, "LIKE of NULL fails"),
        ("CASE WHEN u LIKE 'a%' THEN 'a' ELSE 'b' END", None, ""),
        ("CASE WHEN b THEN 'a' ELSE 'b' END", None, ""),
        ("CASE WHEN m + 1 > 5 THEN 'a' ELSE 'b' END", None, "not ELSE"),
        ("CASE WHEN n = 7 THEN 'a' WHEN m + 1 > 5 THEN 'b' END", "a", "not computed"),
        ("COALESCE(CASE WHEN n = 7 THEN m + 1 ELSE 1 END, 5)", None, "CASE is no call"),
        ("n IN (7, m + 1)", None, "all of a list are computed"),
        ("m + 1 BETWEEN 1 AND 2", None, ""),
        ("COALESCE(a[m], 5)", None, "an index that is NULL"),
        ("COALESCE(a[2], 5)", 5, ""),
        ("COALESCE(ROUND(l), l)", None, "of a primitive; NULL as well"),
        ("ROUND(l) = 1 OR n = 7", None, "... which fails, where it is no argument"),
        ("STRINGTOTIMESTAMP('x', 'yyyy') > 0 OR n = 7", None, ""),
        ("PARSE_DATE(u, 'yyyy') IS NULL", True, "NULL in, NULL out"),
        ("PARSE_DATE('x', 'yyyy') IS NULL", None, "... but it fails for what is no date"),
        ("COALESCE(TRANSFORM(a, x => x + 1), ARRAY[5])", [5], "a lambda fails its call"),
        ("TRANSFORM(a, x => x + 1) IS NULL", None, ""),
        ("TRANSFORM(a, x => COALESCE(x + 1, 0))", None, ""),
        ("FILTER(a, x => x IS NULL OR x + 1 > 2)", [None, 3], ""),
        ("FILTER(a, x => CAST(x > 1 AS STRING) = 'true' AND b)", None, "no condition is NULL"),
        ("REDUCE(a, 0, (t, x) => COALESCE(t + x, 0))", None, ""),
        ("k + u", "knull", "Java's + shows a null"),
        ("k || u", "k", "|| leaves it out"),
    ],
)
def test_a_whole_expression_is_null_where_a_part_fails(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


@pytest.mark.parametrize(
    ("text", "sql", "why"),
    [
        ("m + 1", "(`M` + (1))", "NULL anyway"),
        ("ABS(m + 1)", "cast(abs((`M` + (1))) AS INT)", "NULL for NULL"),
        ("m + 1 > n * 2", None, ""),
        ("COALESCE(m, n)", "cast(coalesce(`M`, `N`) AS INT)", "nothing fails"),
        ("CASE WHEN m = 1 THEN n + 1 ELSE n END",
         "(CASE WHEN coalesce(`M` = (1), false) THEN (`N` + (1)) ELSE `N` END)",
         "what is chosen is NULL anyway"),
        ("COALESCE(m + 1, 5)",
         "if(((`M` + (1)) IS NULL), NULL, cast(coalesce((`M` + (1)), (5)) AS INT))", ""),
        ("COALESCE(ABS(m + 1), 5)",
         "cast(coalesce(cast(abs((`M` + (1))) AS INT), (5)) AS INT)", ""),
        ("b OR n = 7",
         "if((CASE WHEN (`B` IS NULL) THEN true ELSE false END), NULL,\
 (`B` OR coalesce(`N` = (7), false)))", ""),
        ("CASE WHEN n = 7 THEN 'a' WHEN b THEN 'b' END",
         "if((CASE WHEN coalesce(`N` = (7), false) THEN false WHEN (`B` IS NULL) THEN true\
 ELSE false END), NULL, (CASE WHEN coalesce(`N` = (7), false) THEN 'a' WHEN `B` THEN 'b'\
 END))", "no further than to the branch that fails"),
    ],
)  # fmt: skip
def test_a_test_is_made_where_spark_would_go_on(text: str, sql: str | None, why: str) -> None:
    made = expression_sql(Typer(NAMES, "SELECT").type(expression(text)))
    assert made.startswith("if(") if sql is None else made == sql, why


@pytest.mark.parametrize(
    ("text", "has_test", "why"),
    [
        ("m + 1 > 5", False, "it is false anyway"),
        ("m + 1 > 5 AND u LIKE 'a%' AND b", False, "so is each of these"),
        ("m + 1 BETWEEN 1 AND n + 1", False, ""),
        ("NOT m + 1 > 5", True, ""),
        ("m + 1 > 5 OR n = 7", True, ""),
        ("COALESCE(m + 1, 5) = 5", True, ""),
    ],
)
def test_a_condition_needs_a_test_only_where_it_could_hold(
    text: str, has_test: bool, why: str
) -> None:
    typed = Typer(NAMES, "WHERE").condition(expression(text))
    assert ("if(" in condition_sql(typed)) is has_test, why


def test_a_failure_is_found_once_for_each_node() -> None:
    """Each node is asked for by all above it: without memory, two to the power of the depth."""
    text = "m + 1"
    for _ in range(30):
        text = f"COALESCE({text}, 5) + 1"
    found = failing.test_of(Typer(NAMES, "SELECT").type(expression(text)))
    assert found is not None
