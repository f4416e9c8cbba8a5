"""Analysis takes time in proportion to a statement's length, however it is nested.

Counted in calls of functions, which are the same on each machine. A lookup is typed and compiled,
and each of the two asks at every level for what is below. Without a memory of that, a CASE of 103
levels took six seconds, and `||` of 30 texts would have taken hours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tests.samples import sample_stream, sample_table

from standpipe.errors import StandpipeError
from standpipe.sql import analyzer
from standpipe.sql.syntax import parser

Make = Callable[[int], str]
FEW = 10
#: FEW four times over. In proportion: 4 times the calls; a square of it: 16 times.
MANY = 40
RATIO_MAX = 6.0

SOURCES = {"S": sample_stream(), "T": sample_table(is_materialized=True)}
CONTEXT = analyzer.Context(properties={}, topics={"s": 1}, next_index=9)


def nested(call: str, inner: str, count: int) -> str:
    for level in range(count):
        inner = call.format(inner, level=level)  # names of lambdas must differ
    return inner


SHAPES: dict[str, Make] = {
    "function": lambda n: nested("ABS({})", "N", n),
    "function of several": lambda n: nested("COALESCE({}, N)", "N", n),
    "CASE, result": lambda n: nested("CASE WHEN N > 0 THEN {} ELSE 1 END", "2", n),
    "CASE, default": lambda n: nested("CASE WHEN N > 0 THEN 1 ELSE {} END", "2", n),
    "CASE, condition": lambda n: nested("CASE WHEN {} > 0 THEN 1 ELSE 2 END", "N", n),
    "CASE, operand": lambda n: nested("CASE {} WHEN 1 THEN 1 ELSE 2 END", "N", n),
    "ARRAY": lambda n: nested("ARRAY[{}]", "1", n),
    "STRUCT": lambda n: nested("STRUCT(X := {})", "1", n),
    "subscript": lambda n: nested("ARRAY[{}][1]", "N", n),
    "field": lambda n: nested("STRUCT(X := {})->X", "N", n),
    "CAST": lambda n: nested("CAST({} AS BIGINT)", "N", n),
    "arithmetic, left": lambda n: nested("({} + 1)", "N", n),
    "arithmetic, right": lambda n: nested("(1 * {})", "N", n),
    "text": lambda n: nested("({} || 'a')", "K", n),
    "sign": lambda n: "- " * n + "N",
    "comparison": lambda n: nested("({} = TRUE)", "(N = 1)", n),
    "BETWEEN": lambda n: nested("CASE WHEN N BETWEEN {} AND 9 THEN 1 ELSE 2 END", "1", n),
    "NOT": lambda n: "NOT " * n + "(N = 1)",
    "OR": lambda n: " OR ".join(f"N = {each}" for each in range(n)),
    "IN": lambda n: f"N IN ({', '.join(map(str, range(n)))})",
    "lambda": lambda n: nested(
        "REDUCE(ARRAY[1], 0, (S{level}, X{level}) => S{level} + {})", "X0", n // 5
    ),
    "lambda and arithmetic": lambda n: f"REDUCE(ARRAY[1], 0, (S, X) => S{' + X' * n})",
}


LOOKUP = "SELECT {} AS R FROM T WHERE K = 'a';"
PUSH = "SELECT {} AS R FROM S EMIT CHANGES;"
STREAM = "CREATE STREAM MADE AS SELECT K, {} AS R FROM S;"


def calls(form: str, expression: str) -> int:
    """Function calls of the analysis of a statement, of its parsing none."""
    statement = parser.parse(form.format(expression))[0]
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        analyzer.analyze(statement, SOURCES, CONTEXT)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("form", [LOOKUP, PUSH, STREAM], ids=["lookup", "push", "stream"])
@pytest.mark.parametrize("shape", SHAPES)
def test_analysis_is_linear(shape: str, form: str) -> None:
    calls(form, SHAPES[shape](FEW))  # what is made once
    few, many = calls(form, SHAPES[shape](FEW)), calls(form, SHAPES[shape](MANY))
    assert many <= RATIO_MAX * few


@pytest.mark.parametrize(
    "expression",
    [
        nested("ARRAY[{}]", "1", 51),
        nested("STRUCT(X := {})", "1", 51),
        "CAST(NULL AS " + nested("ARRAY<{}>", "INTEGER", 51) + ")",
        nested("MAP('a' := {})", "1", 51),
    ],
    ids=["ARRAY", "STRUCT", "CAST", "MAP"],
)
def test_a_type_that_no_column_can_have_is_refused_by_the_statement(expression: str) -> None:
    """A node could not read it from the plan, and took its replica for damaged."""
    with pytest.raises(StandpipeError, match="A type is nested deeper than 50 levels"):
        calls(LOOKUP, expression)


def test_lambdas_are_nested_to_a_bound() -> None:
    """Each level of TRANSFORM doubles the text for Spark."""
    deep = nested("TRANSFORM(ARRAY[1], X{level} => {}[1] + 1)", "ARRAY[X0]", 9)
    with pytest.raises(StandpipeError, match="Lambdas are nested deeper than 8 levels"):
        calls(LOOKUP, deep)
    calls(LOOKUP, nested("TRANSFORM(ARRAY[1], X{level} => {}[1] + 1)", "ARRAY[X0]", 8))
