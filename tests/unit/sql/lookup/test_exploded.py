"""EXPLODE in push queries, from the statement to the rows."""

from __future__ import annotations

from typing import Any

import pytest

from standpipe.errors import StatementError
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.lookup import exploded
from standpipe.sql.plans import CreateSourcePlan, PushPlan
from standpipe.sql.syntax.parser import parse

DECLARED = (
    "CREATE {} S (ID STRING {}, A ARRAY<INT>, B ARRAY<STRUCT<X STRING>>)"
    " WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
)
STREAM, TABLE = DECLARED.format("STREAM", "KEY"), DECLARED.format("TABLE", "PRIMARY KEY")


def push(items: str, declared: str = STREAM) -> PushPlan:
    context = Context(topics={"s": 1})
    made = analyze(parse(declared)[0], {}, context)
    assert isinstance(made, CreateSourcePlan)
    plan = analyze(parse(f"SELECT {items} FROM S EMIT CHANGES;")[0], {"S": made.source}, context)
    assert isinstance(plan, PushPlan)
    return plan


def shown(plan: PushPlan, a: object, b: object = None) -> list[list[Any]]:
    whole = ["k", a, b, 0, 0, 0]
    return [[cell(row) for cell in plan.cells] for row in exploded.rows(whole, plan.arrays)]


@pytest.mark.parametrize(
    ("items", "names", "rows", "why"),
    [
        ("EXPLODE(A)", ["KSQL_COL_0"], [[1], [None], [3]], "also of NULL"),
        ("ID, EXPLODE(A) + 1 AS N", ["ID", "N"], [["k", 2], ["k", None], ["k", 4]], "around it"),
        ("EXPLODE(B)->X", ["X"], [["x"]], "a field of each"),
        ("A[1], EXPLODE(B)->X, EXPLODE(A)", ["KSQL_COL_0", "X", "KSQL_COL_1"],
         [[1, "x", 1], [1, None, None], [1, None, 3]], "side by side, filled with NULL"),
        ("EXPLODE(ARRAY[1, 2])", ["KSQL_COL_0"], [[1], [2]], "of no column"),
        ("*, EXPLODE(B) AS E", ["ID", "A", "B", "E"],
         [["k", [1, None, 3], [{"X": "x"}], {"X": "x"}]], "a star has no elements"),
        ("ID", ["ID"], [["k"]], "without it"),
    ],
)  # fmt: skip
def test_rows(items: str, names: list[str], rows: list[list[object]], why: str) -> None:
    plan = push(items)
    assert list(plan.column_names) == names
    assert shown(plan, [1, None, 3], [{"X": "x"}]) == rows, why


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_makes_no_row(nothing: object) -> None:
    assert shown(push("ID, EXPLODE(A)"), nothing) == []


@pytest.mark.parametrize(
    ("items", "declared", "refusal"),
    [
        ("EXPLODE(A)", TABLE, "Table source is not supported with table functions"),
        ("EXPLODE(ARRAY[EXPLODE(A)])", STREAM, "Table functions cannot be nested"),
        ("EXPLODE(ID)", STREAM, "does not accept parameters"),
        ("EXPLODE(A), COUNT(*)", STREAM, "Table functions cannot be used with aggregations"),
    ],
)
def test_refusals(items: str, declared: str, refusal: str) -> None:
    with pytest.raises(StatementError, match=refusal):
        push(items, declared)
