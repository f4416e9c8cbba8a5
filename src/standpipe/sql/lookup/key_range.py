"""The range of keys that a WHERE leaves, for scans of tables: `K >= 'a' AND K < 'b'`.

A store is in the order of its keys, so such a scan reads its range alone. Bounds are taken from the
comparisons of a WHERE that is an AND, with the first key column. The WHERE still decides which rows
are wanted, unless all that it says beside the bounds are comparisons of columns with literals
(`PullPlan.conditions`).

Not here: which bytes bound the store (`data.query.order`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.lookup.filter import conditions_of
from standpipe.sql.lookup.scan import NO_CONSTANT, constant
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import ast
from standpipe.sql.types.types import SqlType

#: types whose keys a store keeps in the order of their values, and the literals that are compared
#: with them as they are
_ORDERED: Final = {
    "INTEGER": frozenset({"INTEGER", "BIGINT"}),
    "BIGINT": frozenset({"INTEGER", "BIGINT"}),
    "STRING": frozenset({"STRING"}),
}
#: the operator of `value OP column` -> that of `column OP value`
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def ranged(plan: PullPlan, where: ast.Expression | None, names: PullNames) -> PullPlan:
    """The plan of a scan with the bounds that its WHERE sets to the first key column."""
    _, of = names.row[0]
    if where is None:
        return plan
    if of.base not in _ORDERED:
        return msgspec.structs.replace(plan, conditions=conditions_of([where], names))
    evaluator = Evaluator(names, "WHERE")
    # (value, how near to the range): of equal values, the one that leaves fewer keys counts
    lows: list[tuple[Any, bool]] = []
    highs: list[tuple[Any, bool]] = []
    others: list[ast.Expression] = []
    for node in _conjuncts(where):
        found = _bound(node, of, names, evaluator)
        if found is None or not found[2]:
            others.append(node)
        if found is None:
            continue
        operator, value, is_as_it_is = found
        # a constant that was converted may stand for one beside it: its bound stays closed
        if operator in (">", ">=", "="):
            lows.append((value, operator == ">" and is_as_it_is))
        if operator in ("<", "<=", "="):
            highs.append((value, operator != "<" or not is_as_it_is))
    # Python compares text by code points, which is also the order of its UTF-8 bytes
    low, is_low_open = max(lows, default=(None, False))
    high, is_high_closed = min(highs, default=(None, True))
    return msgspec.structs.replace(
        plan,
        key_low=low,
        key_high=high,
        is_low_open=is_low_open,
        is_high_open=not is_high_closed,
        conditions=conditions_of(others, names),
    )


def _conjuncts(where: ast.Expression) -> Iterator[ast.Expression]:
    if isinstance(where, ast.Logical) and where.operator == "AND":
        for operand in where.operands:
            yield from _conjuncts(operand)
    elif isinstance(where, ast.Between) and not where.negated:
        yield ast.Comparison(where.at, ">=", where.value, where.low)
        yield ast.Comparison(where.at, "<=", where.value, where.high)
    else:
        yield where


def _bound(
    node: ast.Expression, of: SqlType, names: PullNames, evaluator: Evaluator
) -> tuple[str, Any, bool] | None:
    """An operator and a constant that bound the first key column, and whether the two are compared
    as the store orders them; None: it is no such condition."""
    if not isinstance(node, ast.Comparison) or node.operator not in _MIRRORED:
        return None
    operator, operand = node.operator, node.right
    if not _is_first(node.left, names):
        operator, operand = _MIRRORED[operator], node.left
        if not _is_first(node.right, names):
            return None
    value = constant(operand, of, evaluator)
    if value is NO_CONSTANT or value is None:
        return None
    is_as_it_is = isinstance(operand, ast.LiteralValue) and operand.kind in _ORDERED[of.base]
    return operator, value, is_as_it_is


def _is_first(node: ast.Expression, names: PullNames) -> bool:
    return isinstance(node, ast.ColumnName) and names.index_of(node.name) == 0
