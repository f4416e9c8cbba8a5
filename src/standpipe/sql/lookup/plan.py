"""SELECT without EMIT CHANGES → PullPlan: which keys, which windows, which columns.

A WHERE that binds every key column with = or IN, and windows by bounds, is a plain lookup with a
template for its shape. Everything else is evaluated row by row (`scan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.evaluator_functions import has_costly_rows
from standpipe.sql.expressions.scope import find_source
from standpipe.sql.functions import registry
from standpipe.sql.lookup import exploded
from standpipe.sql.lookup.columns import HELP, PullNames, shown_columns
from standpipe.sql.lookup.key_range import ranged
from standpipe.sql.lookup.order import beyond, counted, is_beyond
from standpipe.sql.lookup.predicate import Predicate
from standpipe.sql.lookup.scan import (
    RANGE_SCAN,
    TABLE_SCAN,
    NotAKeyLookup,
    check_scan,
    filtered_plan,
)
from standpipe.sql.lookup.template import PullTemplate, Slot
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.errors import refusal

ENABLE: Final = "ksql.pull.queries.enable"
ENABLE_LIMIT: Final = "ksql.query.pull.limit.clause.enabled"
#: Session properties that this module reads: a request that sets one bypasses the plan cache.
PROPERTIES: Final = frozenset({ENABLE, ENABLE_LIMIT, TABLE_SCAN, RANGE_SCAN})


def pull(query: Query, sources: Mapping[str, Source], context: Context) -> PullPlan:
    """The plan of a pull query, with its literals."""
    return first_plan(query, compile_pull(query, sources, context))


def first_plan(query: Query, template: PullTemplate) -> PullPlan:
    """The plan of the text that a template was made of. What is evaluated row by row is there as
    the Evaluator has compiled it; later texts have it as a Filter."""
    if template.test is not None:
        return template.plan
    return template.bind(literal_values(query, template))


def compile_pull(query: Query, sources: Mapping[str, Source], context: Context) -> PullTemplate:
    """The plan without its literals. Raises StatementError with positions in the whole text."""
    _refuse_clauses(query, context)
    source = find_source(query.relation.name, sources, query.relation.at)
    names = PullNames.of(source, query.relation.alias)
    picked, arrays = names, ()
    if exploded.has_calls(query):
        query, picked, arrays = exploded.without_calls(query, names, "a pull query")
    shown = counted(query)
    if shown is None:
        _refuse_aggregates(query)
        shown = shown_columns(query, picked, Evaluator(picked, "SELECT"))
    _check_queryable(source, query)
    limit = _limit(query, context)
    plan = PullPlan(
        source=source,
        keys=(),
        schema=shown.schema,
        column_names=shown.names,
        column_types=shown.types,
        projection=shown.projection,
        cells=shown.cells,
        arrays=arrays,
        has_costly_rows=has_costly_rows((query.items, query.where)),
    )
    predicate = Predicate(names, query.where, query.at)
    takes_more = is_beyond(query)
    try:
        if takes_more or source.kind == "STREAM":
            raise NotAKeyLookup
        predicate.read()
    except NotAKeyLookup:
        scanned = filtered_plan(plan, names, query, context, takes_more=takes_more)
        if scanned.is_scan and source.kind == "TABLE":
            scanned = ranged(scanned, query.where, names)
        if takes_more:
            scanned = beyond(scanned, query, names)
        count = sum(1 for _ in ast.walk((query.items, query.where)))
        scanned = msgspec.structs.replace(scanned, limit=_count(query), expression_count=count)
        filtered = None if takes_more else predicate.filtered(scanned, limit)
        return filtered or PullTemplate(scanned, (), (), ())
    check_scan(query, names, context)
    return predicate.template(plan, limit)


def _count(query: Query) -> int | None:
    return None if query.limit is None else cast("int", query.limit.value)


def literal_values(query: Query, template: PullTemplate) -> list[object]:
    """The values of the template's slots as written in the text, without their signs."""
    found: dict[int, object] = {}
    for node, _ in ast.walk((query.where, query.limit)):
        if isinstance(node, ast.LiteralValue):
            is_negative = node.text.startswith("-")
            found[node.at.offset] = -cast("Any", node.value) if is_negative else node.value
    return [found[slot.offset] for slot in template.slots]


def _refuse_clauses(query: Query, context: Context) -> None:
    if query.emit is not None:
        raise refusal("A push query reads a topic and has no route to replicas.", query.at)
    if not context.flag(ENABLE, default=True):
        raise refusal(
            f"Pull queries are disabled. Please set {ENABLE}=true to enable this feature.{HELP}",
            query.at,
        )
    clauses = {
        "JOIN": query.joins,
        "WINDOW": query.window,
        "GROUP BY": query.group_by,
        "PARTITION BY": query.partition_by,
        "HAVING": query.having,
    }
    for clause, given in clauses.items():
        if given:
            raise refusal(f"Pull queries don't support {clause} clauses.{HELP}", query.at)


def _refuse_aggregates(query: Query) -> None:
    """In ksqlDB, an aggregate makes a GROUP BY over all rows, which pull queries do not have."""
    for node, _ in ast.walk(query.items):
        if isinstance(node, ast.FunctionCall) and registry.is_aggregate(node.name):
            hint = f"{node.name} is an aggregate function: aggregate in a CREATE TABLE … AS SELECT."
            raise refusal(f"Pull queries don't support GROUP BY clauses.{HELP}", node.at, hint)


def _check_queryable(source: Source, query: Query) -> None:
    at = query.relation.at
    if source.kind == "STREAM":
        return
    if not source.is_materialized:
        name = source.name
        raise refusal(
            f"The `{name}` table isn't queryable. To derive a queryable table, you can do"  # noqa: S608 - a message
            f" 'CREATE TABLE QUERYABLE_{name} AS SELECT * FROM {name}'.{HELP}",
            at,
        )


def _limit(query: Query, context: Context) -> Slot | None:
    limit = query.limit
    if limit is None:
        return None
    if not context.flag(ENABLE_LIMIT, default=True):
        raise refusal(
            "LIMIT clause in pull queries is currently disabled. You can enable them by setting"
            f" {ENABLE_LIMIT}=true.{HELP}",
            limit.at,
        )
    if limit.kind != "INTEGER":
        raise refusal(
            "Failed to prepare statement: Value must be integer for command: LIMIT", limit.at
        )
    if limit.text.startswith("-"):
        raise refusal(
            f"Pull queries don't support negative integers in the LIMIT clause.{HELP}", limit.at
        )
    return Slot(limit.at.offset, int)
