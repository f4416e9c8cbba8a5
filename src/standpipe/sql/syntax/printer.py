"""Expressions as in ksqlDB's messages: every operation in parentheses, names in upper case.

Not for Spark: `spark/expression_sql.py` prints typed expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from standpipe.sql.syntax import ast
from standpipe.sql.types.types import quoted

_PLAIN: Final = re.compile(r"[A-Z_][A-Z0-9_@]*")

#: ksqlDB's names of the comparisons, as in "Cannot compare … with EQUAL".
COMPARISON_NAMES: Final = {
    "=": "EQUAL",
    "<>": "NOT_EQUAL",
    "<": "LESS_THAN",
    "<=": "LESS_THAN_OR_EQUAL",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL",
    "IS DISTINCT FROM": "IS_DISTINCT_FROM",
    "IS NOT DISTINCT FROM": "IS_NOT_DISTINCT_FROM",
}


def name_text(name: str) -> str:
    """A name, in back-quotes if it needs them."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def expression_text(node: ast.Expression) -> str:
    """E.g. ``(F1 - F0)``, ``(ID = '10')``, ``COUNT(*)``."""
    return _PRINTERS[type(node)](node)


def _all(nodes: tuple[ast.Expression, ...]) -> str:
    return ", ".join(expression_text(node) for node in nodes)


def _literal(node: ast.LiteralValue) -> str:
    if node.kind == "STRING":
        return "'" + str(node.value).replace("'", "''") + "'"
    return node.text.lower() if node.kind in ("BOOLEAN", "NULL") else node.text


def _column(node: ast.ColumnName) -> str:
    prefix = "" if node.source is None else f"{name_text(node.source)}."
    return prefix + name_text(node.name)


def _call(node: ast.FunctionCall) -> str:
    return f"{node.name}({_all(node.arguments)})"


def _logical(node: ast.Logical) -> str:
    """Nested to the left, as a parser of binary operators would build it."""
    text = expression_text(node.operands[0])
    for operand in node.operands[1:]:
        text = f"({text} {node.operator} {expression_text(operand)})"
    return text


def _binary(node: ast.Arithmetic | ast.Comparison) -> str:
    return f"({expression_text(node.left)} {node.operator} {expression_text(node.right)})"


def _not_word(node: ast.Between | ast.InList | ast.Like | ast.IsNull) -> str:
    return "NOT " if node.negated else ""


def _between(node: ast.Between) -> str:
    bounds = f"{expression_text(node.low)} AND {expression_text(node.high)}"
    return f"({expression_text(node.value)} {_not_word(node)}BETWEEN {bounds})"


def _like(node: ast.Like) -> str:
    escape = "" if node.escape is None else f" ESCAPE '{node.escape}'"
    pattern = expression_text(node.pattern)
    return f"({expression_text(node.value)} {_not_word(node)}LIKE {pattern}{escape})"


def _case(node: ast.Case) -> str:
    operand = "" if node.operand is None else f" {expression_text(node.operand)}"
    whens = "".join(
        f" WHEN {expression_text(condition)} THEN {expression_text(result)}"
        for condition, result in node.whens
    )
    otherwise = "" if node.otherwise is None else f" ELSE {expression_text(node.otherwise)}"
    return f"(CASE{operand}{whens}{otherwise} END)"


def _lambda(node: ast.Lambda) -> str:
    head = node.parameters[0] if len(node.parameters) == 1 else f"({', '.join(node.parameters)})"
    return f"{head} => {expression_text(node.body)}"


def _map(node: ast.MakeMap) -> str:
    pairs = (f"{expression_text(key)}:={expression_text(value)}" for key, value in node.entries)
    return f"MAP({', '.join(pairs)})"


def _struct(node: ast.MakeStruct) -> str:
    pairs = (f"{name_text(name)}:={expression_text(value)}" for name, value in node.entries)
    return f"STRUCT({', '.join(pairs)})"


_PRINTERS: Final[dict[type, Callable[[Any], str]]] = {
    ast.LiteralValue: _literal,
    ast.ColumnName: _column,
    ast.Dereference: lambda node: f"{expression_text(node.base)}->{name_text(node.field)}",
    ast.Subscript: lambda node: f"{expression_text(node.base)}[{expression_text(node.index)}]",
    ast.FunctionCall: _call,
    ast.Lambda: _lambda,
    ast.Arithmetic: _binary,
    ast.Negative: lambda node: f"-{expression_text(node.operand)}",
    ast.Logical: _logical,
    ast.Not: lambda node: f"(NOT {expression_text(node.operand)})",
    ast.Comparison: _binary,
    ast.Between: _between,
    ast.InList: lambda node: (
        f"({expression_text(node.value)} {_not_word(node)}IN ({_all(node.items)}))"
    ),
    ast.Like: _like,
    ast.IsNull: lambda node: f"({expression_text(node.value)} IS {_not_word(node)}NULL)",
    ast.Case: _case,
    ast.Cast: lambda node: f"CAST({expression_text(node.operand)} AS {node.type})",
    ast.AtTimeZone: lambda node: f"{expression_text(node.operand)} AT TIME ZONE '{node.zone}'",
    ast.MakeArray: lambda node: f"ARRAY[{_all(node.items)}]",
    ast.MakeMap: _map,
    ast.MakeStruct: _struct,
}
