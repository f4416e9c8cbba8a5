"""`walk` sees every node, types included, and needs no stack."""

from __future__ import annotations

from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse
from standpipe.sql.types.types import SqlType


def test_walk_finds_literals_wherever_they_hide() -> None:
    text = (
        "SELECT CASE WHEN a = 1 THEN ARRAY[2] ELSE MAP('k' := 3) END, s->x[4] FROM t"
        " WHERE f(5, x => x + 6) IN (7) AND a BETWEEN 8 AND 9 LIMIT 10;"
    )
    found = [node.value for node, _ in ast.walk(parse(text)) if isinstance(node, ast.LiteralValue)]
    assert sorted(value for value in found if isinstance(value, int)) == list(range(1, 11))


def test_walk_counts_levels_of_types_as_well() -> None:
    deepest = max(
        depth
        for node, depth in ast.walk(parse("SELECT CAST(a AS ARRAY<ARRAY<INT>>) FROM t;"))
        if isinstance(node, SqlType)
    )
    assert deepest == 6, "query, item, cast, three types"


def test_positions_take_no_part_in_equality() -> None:
    here, there = (ast.ColumnName(ast.Position(1, column, column), "A") for column in (1, 9))
    assert here == there
    assert hash(here) == hash(there)
