"""What pull queries can do that ksqlDB's cannot: rows in key order, pages, and counts.

    SELECT * FROM T WHERE K >= 'a' AND K < 'b' ORDER BY K AFTER 'ad' LIMIT 100;
    SELECT COUNT(*) FROM T WHERE K >= 'a' AND K < 'b';

AFTER is keyset paging: it names the key of the last row that was seen and, for a windowed table,
the start of its window (for a session also the end); without them all windows of that key are
skipped. A page reads only its own rows, and rows added or deleted meanwhile do not shift others.

Not here: how rows are ordered (`data.query.order`), which part of a store WHERE leaves
(`key_range.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from standpipe.errors import SqlSyntaxError
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup.columns import PullNames, Shown
from standpipe.sql.lookup.scan import NO_CONSTANT, constant
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.types import SqlType


def counted(query: ast.Query) -> Shown | None:
    """The only column of a COUNT(*); None: the query shows rows."""
    only = query.items[0] if len(query.items) == 1 else None
    if not isinstance(only, ast.SelectItem) or not isinstance(only.expression, ast.FunctionCall):
        return None
    if only.expression.name != "COUNT" or only.expression.arguments:
        return None
    name = only.alias or "KSQL_COL_0"
    return Shown(names=(name,), types=("BIGINT",), schema=f"`{name}` BIGINT", projection=())


def is_beyond(query: ast.Query) -> bool:
    """Whether the query needs ORDER BY or COUNT(*)."""
    return query.order_by is not None or counted(query) is not None


def beyond(plan: PullPlan, query: ast.Query, names: PullNames) -> PullPlan:
    """The plan with ORDER BY or COUNT(*) applied. Raises StatementError."""
    if names.source.kind == "STREAM":
        _refuse_for_stream(query)
    if counted(query) is not None:
        if query.order_by is not None or query.limit is not None:
            raise refusal("COUNT(*) is one row: ORDER BY and LIMIT have no effect.", query.at)
        return msgspec.structs.replace(plan, is_count=True)
    order = query.order_by
    assert order is not None, "is_beyond"
    _check_order(order, names)
    return msgspec.structs.replace(plan, is_ordered=True, after=_after(order, names))


def _refuse_for_stream(query: ast.Query) -> None:
    """Refuses like ksqlDB, whose grammar reads ORDER as an alias."""
    if query.order_by is None:
        raise refusal("A stream has no keys: COUNT(*) counts the rows of a table.", query.at)
    line, column = query.order_by.at.line, query.order_by.at.column + len("ORDER ")
    raise SqlSyntaxError(
        f"line {line}:{column}: Syntax Error\n\nStatement: {query.text}", line=line, column=column
    )


def _check_order(order: ast.OrderBy, names: PullNames) -> None:
    indices = [
        names.index_of(key.name) if isinstance(key, ast.ColumnName) else None for key in order.keys
    ]
    if indices != list(range(len(indices))) or len(indices) > names.key_count:
        wanted = ", ".join(name for name, _ in names.row[: names.key_count])
        raise refusal(f"Rows can only be ordered by their keys: ORDER BY {wanted}.", order.at)
    if order.is_descending:
        raise refusal("Keys are read in ascending order only: leave out DESC.", order.at)


def _after(order: ast.OrderBy, names: PullNames) -> tuple[object, ...]:
    if not order.after:
        return ()
    key_count = len(names.source.key_columns)
    window = names.source.window
    bounds = 0 if window is None else 2 if window.kind == "SESSION" else 1
    if len(order.after) not in (key_count, key_count + bounds):
        wanted = ", ".join(name for name, _ in names.row[: key_count + bounds])
        raise refusal(f"AFTER takes the key of the last row: ({wanted}).", order.after[0].at)
    evaluator = Evaluator(names, "AFTER")
    types = [of for _, of in names.row[: len(order.after)]]
    return tuple(_value(node, of, evaluator) for node, of in zip(order.after, types, strict=True))


def _value(node: ast.Expression, of: SqlType, evaluator: Evaluator) -> object:
    found = _constant(node, of, evaluator)
    if found is None:
        raise refusal(f"AFTER takes constants; this is to be a {of}.", node.at)
    return found


def _constant(node: ast.Expression, of: SqlType, evaluator: Evaluator) -> Any:
    """The constant's value; None: not a constant, NULL, or not of that type."""
    found = constant(node, of, evaluator)
    return None if found is NO_CONSTANT else found
