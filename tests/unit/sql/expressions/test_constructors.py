"""STRUCT(…) multiplies the type of a column by the number of its fields; keys of MAP(…)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.plans import CreateTableAsPlan
from standpipe.sql.syntax.parser import parse

FORMS: Mapping[str, Callable[[str], str]] = {
    "columns": lambda x: ", ".join(f"F{number} := {x}" for number in range(30)),
    "in a list": lambda x: ", ".join(f"F{number} := ARRAY[{x}]" for number in range(30)),
    "in a struct": lambda x: ", ".join(f"F{n} := STRUCT(A := {x}, B := {x})" for n in range(9)),
    "in a map": lambda x: ", ".join(f"F{number} := MAP('a' := {x})" for number in range(30)),
    "in a case": lambda x: ", ".join(
        f"F{n} := CASE WHEN TRUE THEN {x} ELSE {x} END" for n in range(9)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_streams_that_multiply_a_type_end_at_the_limit(
    sources: Mapping[str, Source], form: str
) -> None:
    """Ten streams, each a STRUCT of the one before: the last one's type would have 30^10 parts."""
    made = dict(sources)
    carried_out(made, "CREATE STREAM x0 AS SELECT tail, delay AS x FROM flights;")
    with pytest.raises(StatementError, match="A type is longer than 32768 characters"):
        multiply(made, f"STRUCT({FORMS[form]('x')})")


def multiply(sources: dict[str, Source], by: str) -> None:
    for n in range(10):
        sql = f"CREATE STREAM x{n + 1} AS SELECT tail, {by} AS x FROM x{n};"
        carried_out(sources, sql)


def carried_out(sources: dict[str, Source], sql: str) -> None:
    (statement,) = parse(sql)
    made = analyze(statement, sources, Context(topics={"here": 2}, next_index=7))
    assert isinstance(made, CreateTableAsPlan)
    sources[made.source.name] = made.source


@pytest.mark.parametrize(
    ("made", "guard"),
    [
        ("MAP(NULLIF(seats, 1) := 'x')[2]", "filter(array(struct("),
        ("MAP(NULLIF(tail, 'a') := 'x')", "map(coalesce(nullif("),
        ("MAP(1 := 'x')[1]", "map((1), 'x')"),
        (
            "TRANSFORM(MAP('a' := 1), (k, v) => NULLIF(k, 'a'), (k, v) => v)",
            "e -> e.k), k -> k IS NOT NULL))) < size(",
        ),
    ],
)
def test_no_null_key_reaches_a_map_of_sparks(
    sources: Mapping[str, Source], made: str, guard: str
) -> None:
    """It would end the query, again and again."""
    (statement,) = parse(f"CREATE STREAM x AS SELECT tail, {made} AS x FROM flights;")
    plan = analyze(statement, sources, Context(topics={"here": 2}, next_index=7))
    assert isinstance(plan, CreateTableAsPlan)
    assert guard in plan.query.plan.sql
