"""Where text or a bare word stands for an instant or a length of time, as ksqlDB has it."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.time_json_url import UNITS
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types import types, values
from standpipe.sql.types.typed_expression import Column, Constant, Typed, WindowBound

_INSTANTS: Final = frozenset({"ROWTIME", "WINDOWSTART", "WINDOWEND"})


def as_instants(left: Typed, right: Typed, node: ast.Comparison) -> tuple[Typed, Typed]:
    """ROWTIME and window bounds may be compared with the text of a datetime (ksqlDB)."""
    for one, two in ((left, right), (right, left)):
        is_instant = isinstance(one, (Column, WindowBound)) and one.name in _INSTANTS
        if is_instant and isinstance(two, Constant) and isinstance(two.value, str):
            try:
                made = Constant(types.BIGINT, values.parse_timestamp(two.value))
            except ValueError:
                raise refusal(f"Failed to parse timestamp '{two.value}'", node.at) from None
            return (left, made) if two is right else (made, right)
    return left, right


def with_unit(node: ast.Call) -> ast.Call:
    """DATEADD(DAYS, …): the unit is a bare name, and becomes a text."""
    unit, *rest = node.arguments
    if isinstance(unit, ast.ColumnName) and unit.source is None and unit.name in UNITS:
        named = ast.LiteralValue(unit.at, "STRING", unit.name)
        return ast.Call(node.at, node.name, (named, *rest))
    return node
