"""Lists whose items must have one type: IN, and the arguments of GREATEST and LEAST."""

from __future__ import annotations

from typing import Final

from standpipe.sql.expressions import coercion
from standpipe.sql.expressions.constructors import Types
from standpipe.sql.functions.cast import comparable
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Operation, Typed
from standpipe.sql.types.types import BOOLEAN, NULL


def in_list(typer: Types, node: ast.InList) -> Typed:
    nodes = [node.value, *node.items]
    given = [typer.type(each) for each in nodes]
    try:
        of = coercion.common(given)
        made = [coercion.coerced(each, of) for each in given]
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
    return Operation(BOOLEAN, template, (value, *listed))


#: functions whose text literals are read as what the other arguments are
OF_ONE_TYPE: Final = frozenset({"GREATEST", "LEAST"})


def of_one_type(node: ast.Call, arguments: tuple[Typed, ...]) -> tuple[Typed, ...]:
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
        return arguments  # the function says what it takes
