"""INSERT INTO … SELECT: which DECIMALs become those of the stream that they are inserted into.

As in ksqlDB (Column.canImplicitlyCast, ImplicitlyCastResolver): a number that is written in the
SELECT list, and a DECIMAL with no more digits on either side of its point. All other types must be
equal already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from standpipe.model import Column
from standpipe.sql.functions.cast import convert
from standpipe.sql.spark.select_items import NamedColumns
from standpipe.sql.syntax import ast
from standpipe.sql.types.types import SqlType, literal_decimal, parse_type


def with_decimals(query: ast.Query, columns: Sequence[Column]) -> ast.Query:
    """The query with a CAST around each number that stands where the stream has a DECIMAL. Places
    are those of the SELECT list, in which a star is one (SelectionUtil.resolveSingleColumn)."""
    types = [parse_type(column.type) for column in columns]
    items = list(query.items)
    for place, (item, target) in enumerate(zip(items, types, strict=False)):
        if isinstance(item, ast.SelectItem) and target.base == "DECIMAL":
            node = item.expression
            of = _written(node)
            if of is not None and _fits(of, target):
                items[place] = replace(item, expression=ast.Cast(node.at, node, target))
    return replace(query, items=tuple(items))


def widened(made: NamedColumns, columns: Sequence[Column]) -> NamedColumns:
    """The columns of a result, each DECIMAL as that of the stream if it fits there."""
    if len(made) != len(columns):
        return made
    targets = (parse_type(column.type) for column in columns)
    return tuple(
        (name, convert(typed, target) if _is_wider(target, typed.type) else typed)
        for (name, typed), target in zip(made, targets, strict=True)
    )


def _is_wider(target: SqlType, of: SqlType) -> bool:
    return of.base == target.base == "DECIMAL" and of != target and _fits(of, target)


def _written(node: ast.Expression) -> SqlType | None:
    """The DECIMAL that a number is as it is written; None for anything else."""
    if not isinstance(node, ast.LiteralValue):
        return None
    if node.kind == "DOUBLE":
        return literal_decimal(format(Decimal(repr(node.value)), "f"))
    return literal_decimal(node.text) if node.kind in ("INTEGER", "BIGINT", "DECIMAL") else None


def _fits(one: SqlType, two: SqlType) -> bool:
    return one.scale <= two.scale and one.precision - one.scale <= two.precision - two.scale
