"""How a comparison converts its operands before their types are checked: instants, lists, LIKE."""

from __future__ import annotations

from typing import Final

from standpipe.sql.expressions import coercion
from standpipe.sql.expressions.constructors import Types
from standpipe.sql.expressions.like import ends_with_escape, like_template, spark_pattern
from standpipe.sql.functions.cast import comparable
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import place, refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import types, values
from standpipe.sql.types.typed_expression import (
    Constant,
    Failing,
    Operation,
    Typed,
    TypedColumn,
    WindowBound,
    caught,
)
from standpipe.sql.types.types import BOOLEAN, STRING

#: columns of Unix ms that a datetime text may be compared with
_INSTANTS: Final = frozenset({"ROWTIME", "WINDOWSTART", "WINDOWEND"})


def as_instants(left: Typed, right: Typed, node: ast.Comparison) -> tuple[Typed, Typed]:
    """ROWTIME and window bounds may be compared with the text of a datetime (ksqlDB)."""
    for one, two in ((left, right), (right, left)):
        is_instant = isinstance(one, (TypedColumn, WindowBound)) and one.name in _INSTANTS
        if is_instant and isinstance(two, Constant) and isinstance(two.value, str):
            try:
                made = Constant(types.BIGINT, values.parse_timestamp(two.value))
            except ValueError:
                raise refusal(f"Failed to parse timestamp '{two.value}'", node.at) from None
            return (left, made) if two is right else (made, right)
    return left, right


def in_list(typer: Types, node: ast.InList) -> Typed:
    """value [NOT] IN (…), false for NULL. Raises StatementError if there is no common type."""
    nodes = [node.value, *node.items]
    given = [typer.type(each) for each in nodes]
    try:
        of = coercion.common(given)
        made = [caught(coercion.coerced(each, of), unless=each) for each in given]
    except coercion.Mismatch as error:
        wrong = nodes[error.item]
        raise refusal(
            f"Invalid Predicate: operator does not exist: {error.found} ="
            f" {given[error.item].type} ({expression_text(wrong)})"
            "\nHint: You might need to add explicit type casts.",
            wrong.at,
        ) from None
    except coercion.NotOfType as error:
        raise refusal(f"Invalid Predicate: {error}", node.at) from None
    value, *listed = (comparable(each) for each in made)
    places = ", ".join(f"{{{index + 1}}}" for index in range(len(listed)))
    template = f"({'NOT ' if node.negated else ''}coalesce({{0}} IN ({places}), false))"
    return Operation(BOOLEAN, template, (value, *listed), failing=Failing.TESTED)


def like(typer: Types, node: ast.Like) -> Typed:
    """value [NOT] LIKE pattern [ESCAPE 'c'], of strings."""
    value, pattern = typer.type(node.value), typer.type(node.pattern)
    if value.type != STRING or pattern.type != STRING:
        raise refusal(
            f"Like condition must be between strings: {expression_text(node.value)} ({value.type})",
            node.at,
        )
    if node.escape is not None and len(node.escape) != 1:
        text = f"Expected single character escape but got: {node.escape}"
        raise refusal(f"{place(node.at)}: {text}", node.at)
    literal = pattern.value if isinstance(pattern, Constant) else None
    if isinstance(literal, str) and ends_with_escape(literal, node.escape):
        raise refusal("LIKE pattern must not end with escape character", node.at)
    template = like_template(literal if isinstance(literal, str) else None, node.escape)
    if isinstance(literal, str) and "{2}" not in template:
        pattern = Constant(STRING, spark_pattern(literal, node.escape))
    negated = "NOT " if node.negated else ""
    arguments = (value, pattern, Constant(STRING, node.escape or ""))
    return Operation(BOOLEAN, f"({negated}{template})", arguments, failing=Failing.IF_NULL)
