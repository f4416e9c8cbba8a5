"""CREATE TABLE … AS SELECT … GROUP BY: the table, the query that fills it, and its Spark plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from standpipe.model import PersistentQuery, Source, Window
from standpipe.sql import ast, formats, to_spark
from standpipe.sql.context import Context
from standpipe.sql.ddl import check_free, check_topic, check_unique
from standpipe.sql.expressions import Typer
from standpipe.sql.plans import CreateTableAsPlan
from standpipe.sql.projection import Projection, project
from standpipe.sql.properties import Properties, default_format
from standpipe.sql.refusals import refusal, unsupported
from standpipe.sql.scope import Scope, find_source
from standpipe.sql.statements import CreateAs

DAY_MS: Final = 86_400_000


def create_table_as(
    statement: CreateAs, sources: Mapping[str, Source], context: Context
) -> CreateTableAsPlan:
    creation, query = statement.creation, statement.query
    check_free(creation, sources)
    _refuse_unsupported(statement)
    source = find_source(query.relation.name, sources, query.relation.at)
    _check_source(source, query)
    window = None if query.window is None else window_of(query.window)
    scope = Scope.of(source, query.relation.alias, has_window=window is not None)
    where = None if query.where is None else Typer(scope, "WHERE").condition(query.where)
    projection = project(query, scope, creation.name)
    table = _table(statement, sources, projection, window, context)
    aggregation = to_spark.Aggregation(
        source=source,
        view=f"{table.table_id}__IN0",
        keys=projection.keys,
        values=projection.values,
        window=window,
        where=where,
        having=projection.having,
    )
    running = PersistentQuery(
        query_id=f"CTAS_{table.table_id}",
        sink=creation.name,
        sources=(source.name,),
        statement=statement.text,
        plan=to_spark.emit(aggregation),
    )
    return CreateTableAsPlan(
        source=table,
        query=running,
        or_replace=creation.or_replace,
        if_not_exists=creation.if_not_exists,
    )


def window_of(clause: ast.WindowClause) -> Window:
    """Defaults of ksqlDB: grace = max(24 h - size, 0), retention = size + grace."""
    size_ms = clause.size_ms
    if clause.kind == "SESSION":
        raise unsupported("WINDOW SESSION", clause.at)
    if size_ms <= 0 or clause.advance_ms <= 0 or clause.advance_ms > size_ms:
        raise refusal("A window's SIZE must be above 0 and its ADVANCE in 1..SIZE.", clause.at)
    grace_ms = max(DAY_MS - size_ms, 0) if clause.grace_ms is None else clause.grace_ms
    retention_ms = clause.retention_ms
    if retention_ms is not None and retention_ms < size_ms + grace_ms:
        raise refusal(
            "The retention period of the window must be no smaller than its size plus the grace"
            f" period. Got size=[{size_ms}], grace=[{grace_ms}], retention=[{retention_ms}] (ms).",
            clause.at,
        )
    return Window(
        kind=clause.kind,
        size_ms=size_ms,
        advance_ms=clause.advance_ms,
        grace_ms=grace_ms,
        retention_ms=size_ms + grace_ms if retention_ms is None else retention_ms,
    )


def sanitised(name: str) -> str:
    """A name as file names, topics and ids may hold it: [A-Z0-9_] only."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def _refuse_unsupported(statement: CreateAs) -> None:
    creation, query = statement.creation, statement.query
    if query.limit is not None:
        raise refusal(
            f"CREATE {creation.kind} AS SELECT statements don't support LIMIT clause.", query.at
        )
    if creation.kind == "STREAM":
        raise unsupported("CREATE STREAM … AS SELECT", creation.at)
    if query.window is not None and not query.group_by:
        raise refusal("WINDOW clause requires a GROUP BY clause.", query.window.at)
    if query.emit == "FINAL":
        if query.window is None:
            raise refusal("EMIT FINAL is only supported for windowed aggregations.", query.at)
        raise unsupported("EMIT FINAL", query.at)
    if query.joins:
        raise unsupported("A join", query.joins[0].at)
    if query.partition_by:
        raise unsupported("PARTITION BY", query.at)


def _check_source(source: Source, query: ast.Query) -> None:
    if source.window is not None:
        raise refusal("KSQL does not support persistent queries on windowed tables.", query.at)
    if source.kind == "TABLE":
        raise unsupported("A table as the source of a CREATE TABLE … AS SELECT", query.relation.at)
    if source.value_format == "KAFKA" and query.group_by:
        raise refusal(
            f"Source(s) {source.name} are using the 'KAFKA' value format. This format does not yet"
            " support GROUP BY.\nUse a different value format.",
            query.relation.at,
        )


def _check_own_topic(
    topic: str, statement: CreateAs, sources: Mapping[str, Source], properties: Properties
) -> None:
    """A table's topic has one writer, and is nobody's source: its records are only then ours."""
    creation = statement.creation
    for other in sources.values():
        if other.topic == topic and other.name != creation.name:
            at = properties.at("KAFKA_TOPIC") or creation.at
            raise refusal(f"Topic '{topic}' already belongs to {other.kind} {other.name}.", at)


def _table(
    statement: CreateAs,
    sources: Mapping[str, Source],
    projection: Projection,
    window: Window | None,
    context: Context,
) -> Source:
    creation = statement.creation
    source = sources[statement.query.relation.name]
    properties = Properties(statement.properties, "AS")
    if "TIMESTAMP" in properties.values:
        raise unsupported("TIMESTAMP of a table made by a query", properties.at("TIMESTAMP"))
    keys = to_spark.columns_of(projection.keys, is_key=True)
    values = to_spark.columns_of(projection.values, is_key=False)
    check_unique((*keys, *values), creation)
    key_format = properties.format("KEY_FORMAT") or source.key_format
    if key_format == "NONE" and properties.format("KEY_FORMAT") is None:
        key_format = default_format(context.properties, "key") or "KAFKA"
    value_format = properties.format("VALUE_FORMAT") or source.value_format
    formats.check_columns(keys, key_format, "Key", creation.at)
    formats.check_columns(values, value_format, "Value", creation.at)
    wrap, wrap_at = properties.flag("WRAP_SINGLE_VALUE"), properties.at("WRAP_SINGLE_VALUE")
    topic = properties.text("KAFKA_TOPIC") or creation.name
    partitions = properties.partitions or source.partitions
    check_topic(topic, partitions, context, properties, creation.at)
    _check_own_topic(topic, statement, sources, properties)
    table_id = f"{sanitised(creation.name)}_{context.next_index}"
    return Source(
        name=creation.name,
        kind="TABLE",
        columns=(*keys, *values),
        topic=topic,
        partitions=partitions,
        key_format=key_format,
        value_format=value_format,
        statement=statement.text,
        window=window,
        wrap_single_value=formats.wraps(value_format, values, wrap, wrap_at),
        value_delimiter=properties.delimiter or source.value_delimiter,
        query_id=f"CTAS_{table_id}",
        table_id=table_id,
        is_materialized=True,
        offset_lag_max=properties.acceptable_offset_lag,
    )
