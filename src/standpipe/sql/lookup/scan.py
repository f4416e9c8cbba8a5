"""Pull queries that are not plain key lookups: a filter over a scan, or over the possible keys.

Source: ksqlDB's PullPhysicalPlanBuilder. If every disjunct of WHERE binds every key column, only
those keys are read, whatever else the clause contains; otherwise the table is scanned, if the
session allows it. Not here: what a session without scans allows (`without_scan.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Final

import msgspec

from standpipe.sql.context import Context
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup import without_scan
from standpipe.sql.lookup.columns import HELP, ROWKEY, PullNames
from standpipe.sql.lookup.template import KEYS_MAX
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import values
from standpipe.sql.types.types import SqlType, parse_type

TABLE_SCAN: Final = "ksql.query.pull.table.scan.enabled"
RANGE_SCAN: Final = "ksql.query.pull.range.scan.enabled"
NO_SCAN: Final = "This query reads many keys, and scans are disabled."

#: per disjunct: key column -> the values that it may have
Disjunct = dict[str, list[object]]


class NotAKeyLookup(Exception):
    """The clause is no plain key lookup. `filtered_plan` decides whether a scan is needed."""


def filtered_plan(
    plan: PullPlan, names: PullNames, query: ast.Query, context: Context, *, takes_more: bool
) -> PullPlan:
    """The plan of a query whose WHERE is evaluated row by row. Raises StatementError if the session
    does not allow the scan that it needs. `takes_more`: ORDER BY or COUNT(*)."""
    evaluator = Evaluator(names, "WHERE")
    where = None if query.where is None else evaluator.condition(query.where)
    if names.source.kind == "STREAM":
        return msgspec.structs.replace(plan, where=where, is_scan=True)
    keys = None if query.where is None else _keys(query.where, names, evaluator)
    if takes_more and keys is None and not _may_scan(context):
        raise refusal(NO_SCAN, query.at)
    is_range = not takes_more and check_scan(query, names, context)
    if keys is not None:
        return msgspec.structs.replace(plan, keys=keys, where=where)
    if not (takes_more or is_range or _may_scan(context)):
        raise refusal(f"{without_scan.SCAN}{HELP}", query.at)  # its keys are too many to look up
    return msgspec.structs.replace(plan, keys=(), where=where, is_scan=True)


def check_scan(query: ast.Query, names: PullNames, context: Context) -> bool:
    """Whether the query reads a range of keys that the session allows while it allows no scan of
    the table. Raises StatementError for what is not allowed then."""
    if _may_scan(context):
        return False
    ranges = context.flag(RANGE_SCAN, default=True)
    return without_scan.check(query.where, names, query.at, ranges=ranges)


def _may_scan(context: Context) -> bool:
    return context.flag(TABLE_SCAN, default=True)


def _keys(
    where: ast.Expression, names: PullNames, evaluator: Evaluator
) -> tuple[tuple[object, ...], ...] | None:
    """All keys that rows which satisfy the clause can have; None: not bound, or too many. Raises
    StatementError if one is NULL."""
    disjuncts = _disjuncts(where, names, evaluator)
    columns = [column.name for column in names.source.key_columns]
    if disjuncts is None or any(set(columns) - set(each) for each in disjuncts):
        return None
    if sum(math.prod(len(each[name]) for name in columns) for each in disjuncts) > KEYS_MAX:
        return None
    found = {key: None for each in disjuncts for key in product(*(each[name] for name in columns))}
    if any(None in key for key in found):
        text = expression_text(where)
        raise refusal(f"Primary key columns can not be NULL: {text}.{HELP}", where.at)
    return tuple(found)


def _disjuncts(
    node: ast.Expression, names: PullNames, evaluator: Evaluator
) -> list[Disjunct] | None:
    """What the clause requires of key columns, as an OR of ANDs; None: too many disjuncts."""
    if isinstance(node, ast.Logical):
        parts = [_disjuncts(operand, names, evaluator) for operand in node.operands]
        if any(part is None for part in parts):
            return None
        listed = [part for part in parts if part is not None]
        if node.operator == "OR":
            return [each for part in listed for each in part]
        return _product(listed)
    bound = _bound(node, names, evaluator)
    return [{} if bound is None else {bound[0]: bound[1]}]


def _product(parts: Sequence[list[Disjunct]]) -> list[Disjunct] | None:
    made: list[Disjunct] = [{}]
    for part in parts:
        made = [_both(one, two) for one in made for two in part]
        if len(made) > KEYS_MAX:
            return None
    return made


def _both(one: Disjunct, two: Disjunct) -> Disjunct:
    merged = dict(one)
    for name, allowed in two.items():
        merged[name] = [v for v in merged[name] if v in allowed] if name in merged else allowed
    return merged


def _bound(
    node: ast.Expression, names: PullNames, evaluator: Evaluator
) -> tuple[str, list[object]] | None:
    """The key column that the condition binds, and its possible values."""
    if isinstance(node, ast.InList) and not node.negated:
        name, operands = _key_name(node.value, names), node.items
    elif isinstance(node, ast.Comparison) and node.operator == "=":
        left, right = node.left, node.right
        if _key_name(left, names) is None:
            left, right = right, left
        name, operands = _key_name(left, names), (right,)
    else:
        return None
    if name is None:
        return None
    of = next(parse_type(c.type) for c in names.source.key_columns if c.name == name)
    allowed = [constant(operand, of, evaluator) for operand in operands]
    return None if NO_CONSTANT in allowed else (name, allowed)


NO_CONSTANT: Final = object()


def constant(node: ast.Expression, of: SqlType, evaluator: Evaluator) -> object:
    """The value of an expression without columns, as the key's type; `NO_CONSTANT` otherwise."""
    if any(isinstance(each, ast.ColumnName) for each, _ in ast.walk(node)):
        return NO_CONSTANT
    try:
        return values.coerce(evaluator.compile(node)(()), evaluator.type(node), of)
    except ValueError:
        return NO_CONSTANT


def _key_name(node: ast.Expression, names: PullNames) -> str | None:
    if not isinstance(node, ast.ColumnName):
        return None
    keys = [column.name for column in names.source.key_columns]
    if node.name == ROWKEY and len(keys) == 1:
        return keys[0]
    return node.name if node.name in keys else None
