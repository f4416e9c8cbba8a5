"""SELECT … EMIT CHANGES that needs Spark: the transient query that runs for one push query.

It is analyzed as the CREATE … AS SELECT that a user would write, with three differences of ksqlDB:
the SELECT list may leave the key out, have it several times, and name WINDOWSTART, WINDOWEND and
ROWTIME without AS. Its sink is JSON in one partition, whatever the formats of its sources: only the
node that serves the client reads it, and one partition keeps the changes in the order in which they
were written.

Not here: push queries without state (`sql.lookup.push`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.expressions.scope import RESERVED, find_source
from standpipe.sql.plans import CreateTableAsPlan, TransientPlan
from standpipe.sql.spark import create_as
from standpipe.sql.spark.checks import is_by_null
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import CreateAs, Creation, Kind, Property
from standpipe.topics import TopicRules

Item = ast.Star | ast.StructStar | ast.SelectItem

#: before a reserved name, under which the sink keeps that column
_KEPT: Final = "KSQL_SHOWN_"
#: the sink's topic has the id of its query and this, so that no statement may name it
_TOPIC_END: Final = "-changelog"


def transient(
    query: ast.Query, sources: Mapping[str, Source], context: Context, query_id: str
) -> TransientPlan:
    """The transient query of a push query. Raises StatementError with positions in its text."""
    source = find_source(query.relation.name, sources, query.relation.at)
    kind: Kind = "TABLE" if query.group_by or source.kind == "TABLE" else "STREAM"
    creation = Creation(query.at, kind, query_id, False, False, False)
    items = tuple(_kept(item, has_joins=bool(query.joins)) for item in query.items)
    inner = replace(query, items=items, limit=None)
    statement = CreateAs(query.at, creation, _formats(query), inner, text=query.text)
    # no statement chooses its topic, so no rule for topics applies
    context = replace(context, rules=TopicRules(internal=()))
    plan, columns = create_as.created(statement, sources, context, is_transient=True)
    return TransientPlan(
        source=_sink(plan, query_id),
        query=structs.replace(plan.query, query_id=query_id),
        shown=tuple((name.removeprefix(_KEPT), name) for name in columns),
    )


def _sink(plan: CreateTableAsPlan, query_id: str) -> Source:
    return structs.replace(
        plan.source, query_id=query_id, topic=f"{query_id}{_TOPIC_END}", is_materialized=False
    )


def _kept(item: Item, *, has_joins: bool) -> Item:
    """The item; one with a reserved name gets another, which a sink may have. Of joined sources,
    `a.ROWTIME` has one already."""
    if not isinstance(item, ast.SelectItem) or not isinstance(item.expression, ast.ColumnName):
        return item
    node = item.expression
    is_shown_so = item.alias in (None, node.name) and not (has_joins and node.source)
    if node.name in RESERVED and is_shown_so:
        return replace(item, alias=f"{_KEPT}{node.name}")
    return item


def _formats(query: ast.Query) -> tuple[Property, ...]:
    json = ast.LiteralValue(query.at, "STRING", "JSON", "JSON")
    one = ast.LiteralValue(query.at, "INTEGER", 1, "1")
    keyed = () if is_by_null(query) else (Property(query.at, "KEY_FORMAT", json),)
    return (
        *keyed,
        Property(query.at, "VALUE_FORMAT", json),
        Property(query.at, "PARTITIONS", one),
    )
