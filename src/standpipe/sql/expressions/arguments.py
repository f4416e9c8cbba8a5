"""Arguments with special rules: bare names of units, text literals beside other types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from standpipe.sql.functions.cast import convert
from standpipe.sql.functions.pattern_parts import UnsupportedPattern
from standpipe.sql.functions.registry import Resolved
from standpipe.sql.functions.regular_expressions import linear
from standpipe.sql.functions.times import UNITS
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Operation, Typed
from standpipe.sql.types.types import SqlType


@dataclass(frozen=True, slots=True)
class Called:
    """A call and the variant chosen for it. `arguments`: not yet as the variant's parameters."""

    node: ast.FunctionCall
    found: Resolved
    arguments: tuple[Typed, ...]


def with_unit(node: ast.FunctionCall) -> ast.FunctionCall:
    """DATEADD(DAYS, …): the unit is a bare name, and becomes a text literal.

    Of the words in the singular, only MILLISECOND is one: DAY and others are names of columns in
    ksqlDB's grammar (nonReserved, windowUnit)."""
    if not node.arguments:  # for the registry to refuse
        return node
    unit, *rest = node.arguments
    if isinstance(unit, ast.ColumnName) and unit.source is None:
        name = "MILLISECONDS" if unit.name == "MILLISECOND" else unit.name
        if name in UNITS:
            named = ast.LiteralValue(unit.at, "STRING", name)
            return ast.FunctionCall(node.at, node.name, (named, *rest))
    return node


#: functions with a scale, and the most digits that they round to on either side of the point
_SCALED: Final = frozenset({"ROUND", "TRUNC"})
#: functions one of whose literals may be a count, and ksqlDB's name of that
_COUNTED: Final = {
    "LATEST_BY_OFFSET": "latestN",
    "EARLIEST_BY_OFFSET": "earliestN",
    "TOPK": "k",
    "TOPKDISTINCT": "k",
}
_SCALE_MAX: Final = types.PRECISION_MAX
#: functions whose literals each stand for characters that they mask
_MASKS: Final = frozenset({"MASK", "MASK_LEFT", "MASK_RIGHT", "MASK_KEEP_LEFT", "MASK_KEEP_RIGHT"})


def check_literals(
    node: ast.FunctionCall, arguments: Sequence[Typed], places: Sequence[int]
) -> None:
    """Raises StatementError for an argument that must be a literal, and for a scale that Spark
    cannot round to."""
    for place in places:
        argument = arguments[place]
        if not isinstance(argument, Constant):
            raise refusal(
                f"Parameter {place + 1} passed to function {node.name} must be a literal"
                f" constant, but was expression: '{expression_text(node.arguments[place])}'",
                node.at,
            )
        if node.name in _MASKS:
            _check_mask(argument, node.arguments[place].at)
        count = _COUNTED.get(node.name)
        is_number = isinstance(argument.value, int) and not isinstance(argument.value, bool)
        if count and is_number and cast("int", argument.value) < 1:
            raise refusal(f"{count} must be 1 or greater", node.arguments[place].at)
        if node.name in _SCALED and not (
            isinstance(argument.value, int) and abs(argument.value) <= _SCALE_MAX
        ):
            raise refusal(
                f"Parameter {place + 1} passed to function {node.name} must be between"
                f" -{_SCALE_MAX} and {_SCALE_MAX}.",
                node.at,
            )


def _check_mask(argument: Constant, at: ast.Position) -> None:
    text = argument.value
    if text is not None and (len(str(text)) != 1 or str(text) > "\uffff"):
        raise refusal(
            f"Invalid mask character. Must be only single character, but was '{text}'. NULL keeps"
            " the characters that it would stand for.",
            at,
        )


def check_expression(node: ast.FunctionCall, arguments: Sequence[Typed], at: int | None) -> None:
    """Raises StatementError for a literal that is no regular expression, or none that takes linear
    time. One out of a column is judged row by row: it gives NULL."""
    if at is None:
        return
    argument = arguments[at]
    if isinstance(argument, Constant) and isinstance(argument.value, str):
        try:
            linear(argument.value)
        except UnsupportedPattern as error:
            raise refusal(
                f"{node.name} cannot use the regular expression '{argument.value}': {error}."
                " Write it without that: expressions are matched in one pass over a text.",
                node.arguments[at].at,
            ) from None


def decimal_operands(sign: str, *operands: Typed) -> tuple[Typed, ...]:
    """The operands of DECIMAL arithmetic as Spark needs them. It takes a literal for as short a
    type as it is written in, so a quotient would get fewer digits, and a BIGINT for one of 20, so a
    result that needs more than 38 would lose one behind the point."""
    return tuple(
        _as_typed(each)
        if sign == "/" or (each.type == types.BIGINT and not isinstance(each, Constant))
        else each
        for each in operands
    )


def as_written(name: str, arguments: tuple[Typed, ...]) -> tuple[Typed, ...]:
    """ARRAY_JOIN's elements as texts, fields of what becomes JSON in the order of their names; all
    other arguments as they are."""
    if name == "ARRAY_JOIN":
        return (convert(arguments[0], types.array(types.STRING)), *arguments[1:])
    if name == "TO_JSON_STRING":
        return (convert(arguments[0], _with_sorted_fields(arguments[0].type)),)
    return arguments


def _with_sorted_fields(of: SqlType) -> SqlType:
    parts = tuple(map(_with_sorted_fields, of.arguments))
    if of.base == "STRUCT":
        return types.struct(tuple(sorted(zip(of.field_names, parts, strict=True))))
    return replace(of, arguments=parts)


def _as_typed(operand: Typed) -> Typed:
    """An operand as the DECIMAL that it is."""
    of = types.as_decimal(operand.type)
    if of == operand.type and not isinstance(operand, Constant):
        return operand
    return Operation(of, f"cast({{0}} AS {of})", (operand,))
