"""Arguments with special rules: bare names of units, text literals beside other types."""

from __future__ import annotations

from typing import Final

from standpipe.sql.expressions import coercion
from standpipe.sql.functions.times import UNITS
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.typed_expression import Typed
from standpipe.sql.types.types import NULL


def with_unit(node: ast.FunctionCall) -> ast.FunctionCall:
    """DATEADD(DAYS, …): the unit is a bare name, and becomes a text literal."""
    unit, *rest = node.arguments
    if isinstance(unit, ast.ColumnName) and unit.source is None and unit.name in UNITS:
        named = ast.LiteralValue(unit.at, "STRING", unit.name)
        return ast.FunctionCall(node.at, node.name, (named, *rest))
    return node


#: functions whose text literals are converted to the type of the other arguments
OF_ONE_TYPE: Final = frozenset({"GREATEST", "LEAST"})


def of_one_type(node: ast.FunctionCall, arguments: tuple[Typed, ...]) -> tuple[Typed, ...]:
    """The arguments as their common type, unchanged if there is none: the function then refuses
    them. Raises StatementError if all are NULL.
    """
    if arguments and all(argument.type == NULL for argument in arguments):
        nulls = ", ".join(["null"] * len(arguments))
        raise refusal(
            f"Function '{node.name.lower()}' cannot be resolved due to ambiguous method parameters"
            f" ({nulls}).",
            node.at,
        )
    try:
        of = coercion.common(arguments)
        return tuple(coercion.coerced(argument, of) for argument in arguments)
    except (coercion.Mismatch, coercion.NotOfType):
        return arguments  # resolving the function reports what it accepts
