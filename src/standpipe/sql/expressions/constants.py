"""Expressions without columns: VALUES of an INSERT, keys in the WHERE of a pull query.

ARRAY, MAP and STRUCT are computed here, because their items may be text that the column's type
turns into dates, times or bytes. The Evaluator computes everything else.
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.python.collections import entries_of
from standpipe.sql.functions.cast import check_cast
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Expression
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import casts, types, values
from standpipe.sql.types.typed_expression import Typed
from standpipe.sql.types.types import SqlType, quoted

#: what ksqlDB says after a text that is no such value (GenericExpressionResolver)
_TIME_FORMS: Final = {
    "TIMESTAMP": ". Timestamp format must be yyyy-mm-ddThh:mm:ss[.S]",
    "TIME": ". Time format must be hh:mm:ss[.S]",
    "DATE": ". Date format must be yyyy-mm-dd",
}


def constant(node: Expression) -> tuple[SqlType, object]:
    """Type and value of an expression without columns, as a pull query would compute it."""
    if isinstance(node, ast.LiteralValue):
        if node.kind == "DECIMAL":
            return types.literal_decimal(node.text), node.value
        return SqlType(node.kind), node.value
    if isinstance(node, ast.Cast):
        source, value = constant(node.operand)
        check_cast(source, node.type, node.at)
        try:
            return node.type, casts.cast_value(value, source, node.type)
        except ValueError as error:
            raise refusal(str(error), node.at) from None
    if isinstance(node, ast.MakeArray) and (made := _array(node)):
        return made
    if isinstance(node, ast.MakeMap) and (made := _map(node)):
        return made
    if isinstance(node, ast.MakeStruct):
        parts = [(name, *constant(value)) for name, value in node.entries]
        of = types.struct(tuple((name, part) for name, part, _ in parts))
        return of, {name: value for name, _, value in parts}
    evaluator = Evaluator(_NoColumns(), "VALUES")
    of = evaluator.type(node)
    return of, evaluator.compile(node)(())


def unexpected(value: object, source: SqlType, target: SqlType, column: str) -> str:
    """How ksqlDB says that a value does not fit a column (GenericExpressionResolver)."""
    form = _TIME_FORMS.get(target.base, "") if source.base == "STRING" else ""
    got = f"{source.base}({casts.text_of(value, source)})"
    return f"Expected type {target} for field {quoted(column)} but got {got}{form}"


class _NoColumns:
    """`evaluator.RowNames` for an expression that must not name a column."""

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        del in_aggregate
        if node.source is not None:
            text = f"'{node.source}' is not a valid stream/table name or alias."
            raise refusal(f"Failed to prepare statement: {text}", node.at)
        raise refusal(f"A column cannot stand in {clause}: {expression_text(node)}", node.at)

    def own_columns(self) -> frozenset[str]:
        return frozenset()

    def index_of(self, name: str) -> int | None:
        del name
        return None


def _common(parts: list[tuple[SqlType, object]]) -> SqlType | None:
    """The type that holds all parts; None: the Evaluator may read texts among them as numbers."""
    common: SqlType | None = types.NULL
    for of, _ in parts:
        common = None if common is None else values.unified(common, of)
    return common


def _array(node: ast.MakeArray) -> tuple[SqlType, object] | None:
    parts = [constant(item) for item in node.items]
    of = _common(parts)
    if of is None:
        return None
    return types.array(of), [values.coerce(value, part, of) for part, value in parts]


def _map(node: ast.MakeMap) -> tuple[SqlType, object] | None:
    keys = [constant(key) for key, _ in node.entries]
    items = [constant(value) for _, value in node.entries]
    key_of, value_of = _common(keys), _common(items)
    if key_of is None or value_of is None:
        return None
    pairs = zip(keys, items, strict=True)
    made = [
        (values.coerce(key, one, key_of), values.coerce(value, two, value_of))
        for (one, key), (two, value) in pairs
    ]
    return types.map_of(key_of, value_of), entries_of(key_of, made)
