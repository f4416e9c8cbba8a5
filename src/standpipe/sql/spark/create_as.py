"""CREATE STREAM or TABLE … AS SELECT: the new source, the query that fills it, its Spark plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from standpipe.errors import StatementError
from standpipe.model import Column, PersistentQuery, Source, SparkPlan, Window
from standpipe.sql.context import Context
from standpipe.sql.declarations import formats, published, sink_schemas
from standpipe.sql.declarations.checks import (
    check_free,
    check_own_topic,
    check_topic,
    check_unique,
    check_writable_topic,
    timestamp_column,
    wraps_single_value,
)
from standpipe.sql.declarations.names import check_query_id
from standpipe.sql.declarations.properties import Properties, default_format
from standpipe.sql.declarations.registered import check_names
from standpipe.sql.expressions.scope import Scope, find_source
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.plans import CreateTableAsPlan, InsertIntoPlan
from standpipe.sql.spark import stateful_sql, to_spark
from standpipe.sql.spark.checks import (
    check_intermediate,
    check_is_no_source,
    check_kind,
    check_not_repartitioned,
    check_source,
    check_undoable,
    check_windows,
    is_by_null,
    refuse_clauses,
    window_of,
    without_own_key,
)
from standpipe.sql.spark.join_analysis import check_no_windowed_tables, join_scope
from standpipe.sql.spark.join_scope import JoinScope
from standpipe.sql.spark.join_sql import join_keys, join_relation
from standpipe.sql.spark.projection import project, with_limits
from standpipe.sql.spark.rowwise import project_rows
from standpipe.sql.spark.select_items import NamedColumns, ScopeNames
from standpipe.sql.spark.statement_text import statement_text
from standpipe.sql.spark.widening import widened, with_decimals
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import CreateAs, Creation, InsertSelect
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.typed_expression import Typed

#: session property: prefix of the topic of a new stream or table
TOPIC_PREFIX: Final = "ksql.output.topic.name.prefix"


def create_as(
    statement: CreateAs, sources: Mapping[str, Source], context: Context
) -> CreateTableAsPlan:
    """CREATE STREAM or TABLE … AS SELECT. Raises StatementError; the plan is final."""
    check_is_no_source(statement.creation)
    check_free(statement.creation, sources)
    return created(statement, sources, context)[0]


def created(
    statement: CreateAs,
    sources: Mapping[str, Source],
    context: Context,
    *,
    is_transient: bool = False,
) -> tuple[CreateTableAsPlan, tuple[str, ...]]:
    """The plan, and the result's columns in the order of the SELECT list. Raises StatementError.

    `is_transient`: it is that of a push query, which may leave its key out.
    """
    statement = replace(statement, query=with_limits(statement.query, context.properties))
    creation = statement.creation
    sink = _Sink(statement, sources, context)
    result = _Result.of(statement, sources, sink.table_id, is_transient=is_transient)
    made = sink.source(result.keys, result.values, result.window)
    spark = result.plan(sink.table_id, _timestamp(made, result.values + result.keys))
    spark = sink_schemas.planned(spark, made, context, creation.at)
    running = PersistentQuery(
        query_id=str(made.query_id),
        sink=creation.name,
        sources=tuple(dict.fromkeys(each.source for each in spark.inputs)),
        statement=statement.text,
        plan=spark,
    )
    plan = CreateTableAsPlan(
        source=published.kept_form(made),
        query=running,
        or_replace=creation.or_replace,
        if_not_exists=creation.if_not_exists,
    )
    return plan, result.shown


def aggregation_of(
    statement: CreateAs, sources: Mapping[str, Source], context: Context, ids: str
) -> to_spark.Aggregation | None:
    """The aggregation of a CREATE TABLE … AS SELECT that was accepted before; None: it has none.
    `ids`: the id of its table. Raises StatementError if it is not accepted today."""
    if not statement.query.group_by:
        return None
    statement = replace(statement, query=with_limits(statement.query, context.properties))
    return _Result.of(statement, sources, ids).aggregation()


def insert_select(
    statement: InsertSelect, sources: Mapping[str, Source], context: Context
) -> InsertIntoPlan:
    """INSERT INTO … SELECT: an additional query that writes an existing stream."""
    at = statement.target_at
    target = find_source(statement.target, sources, at)
    if target.kind == "TABLE":
        raise refusal(
            f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.",
            at,
        )
    if target.is_read_only:
        raise refusal(f"Cannot insert into read-only stream: {target.name}", at)
    if any(column.header is not None for column in target.columns):
        raise refusal(f"Cannot insert into {target.name} because it has header columns", at)
    check_writable_topic(target, sources, context.rules, at)
    properties = Properties(statement.properties, "INSERT")
    query_id = properties.text("QUERY_ID")
    if query_id is None:
        query_id = f"INSERTQUERY_{context.next_index}"
    else:
        check_query_id(query_id := query_id.upper(), properties.at("QUERY_ID"))
    ids = f"INSERT_{context.next_index}"
    creation = Creation(at, "STREAM", target.name, False, False, False)
    read = CreateAs(at, creation, (), with_decimals(statement.query, target.columns))
    result = _Result.of(read, sources, ids, is_insert=True)
    result = replace(
        result,
        keys=result.keys if result.joined else widened(result.keys, target.key_columns),
        values=widened(result.values, target.value_columns),
    )
    made = (
        *to_spark.columns_of(result.keys, is_key=True),
        *to_spark.columns_of(result.values, is_key=False),
    )
    if made != target.columns:
        raise refusal(
            "Incompatible schema between results and sink.\nResult schema is"
            f" {formats.schema_text(made)}\nSink schema is {formats.schema_text(target.columns)}",
            statement.query.at,
        )
    check_windows(result.window, target, statement.query.at)
    plan = result.plan(ids, _timestamp(target, result.values + result.keys))
    plan = sink_schemas.planned(plan, target, context, at)
    if any(each.topic == target.topic for each in plan.inputs):
        raise refusal(
            f"Cannot insert into {target.name}: the query reads it, and would never end.",
            statement.query.relation.at,
        )
    query = PersistentQuery(
        query_id=query_id,
        sink=target.name,
        sources=tuple(dict.fromkeys(each.source for each in plan.inputs)),
        statement=statement.text,
        plan=plan,
    )
    return InsertIntoPlan(query=query)


@dataclass(frozen=True)
class _Result:
    """The result of a SELECT, independent of where it is written."""

    query: ast.Query
    relation: to_spark.SparkRelation
    joined: JoinScope | None
    source: Source
    keys: NamedColumns
    values: NamedColumns
    window: Window | None
    where: Typed | None
    having: Typed | None = None
    exploded: tuple[Typed, ...] = ()
    #: names of its columns in the order of the SELECT list
    shown: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        statement: CreateAs,
        sources: Mapping[str, Source],
        ids: str,
        *,
        is_transient: bool = False,
        is_insert: bool = False,
    ) -> _Result:
        """Raises StatementError. `ids`: prefix of the names of its views. `is_transient`: it is
        that of a push query. `is_insert`: it is inserted into a stream."""
        creation, query = statement.creation, statement.query
        refuse_clauses(statement)
        source = find_source(query.relation.name, sources, query.relation.at)
        check_source(source, statement)
        query = without_own_key(query, source)
        window = None if query.window is None else window_of(query.window)
        scope: ScopeNames = Scope.of(source, query.relation.alias, has_window=window is not None)
        joined = join_scope(query, sources) if query.joins else None
        if joined is not None and not is_transient:
            check_no_windowed_tables(joined, query)
        check_not_repartitioned(
            query, [each.source for each in joined.sides] if joined else [source]
        )
        scope = joined or scope
        where = None if query.where is None else Typer(scope, "WHERE").condition(query.where)
        relation = to_spark.SparkRelation.of(
            source,
            f"{ids}__IN0",
            watermark_delay_ms=None if window is None else window.grace_ms,
            keeps_nulls=not query.group_by or source.kind == "TABLE",
        )
        if joined is not None:
            relation = join_relation(joined, ids)
        parts = (query, scope, creation.name)
        checks = partial(_check_timestamp, Properties(statement.properties, "AS"))
        if query.group_by:
            projection = project(*parts, is_transient=is_transient, check_names=checks)
            check_kind(statement, source, is_insert=is_insert)
            if relation.is_table:
                check_undoable(query)
            keys, values = projection.keys, projection.values
            having = projection.having
            result = cls(query, relation, joined, source, keys, values, window, where, having)
            return replace(result, shown=projection.shown)
        rows = project_rows(*parts, is_transient=is_transient, check_names=checks)
        check_kind(statement, source, is_insert=is_insert)
        return cls(
            query,
            relation,
            joined,
            source,
            rows.keys,
            rows.values,
            source.window,
            where,
            exploded=rows.exploded,
            shown=rows.shown,
        )

    def aggregation(self) -> to_spark.Aggregation:
        """For a SELECT with GROUP BY."""
        return to_spark.Aggregation(
            relation=self.relation,
            keys=self.keys,
            values=self.values,
            window=self.window,
            where=self.where,
            having=self.having,
            is_final=self.query.emit == "FINAL",
        )

    def plan(self, ids: str, timestamp: to_spark.Timestamp | None) -> SparkPlan:
        if not self.query.group_by:
            return to_spark.emit_rows(self._rows(timestamp))
        aggregation = self.aggregation()
        if self.relation.is_table:
            return stateful_sql.emit_table_aggregation(aggregation, ids)
        if self.window is not None and self.window.kind == "SESSION":
            return stateful_sql.emit_sessions(aggregation, ids)
        return to_spark.emit(aggregation)

    def _rows(self, timestamp: to_spark.Timestamp | None) -> to_spark.Rows:
        keys, joined = self.keys, self.joined
        if joined is not None and not self.query.partition_by and not joined.keeps_left_key:
            keys = join_keys(keys)
        return to_spark.Rows(
            relation=self.relation,
            keys=keys,
            values=self.values,
            exploded=self.exploded,
            where=self.where,
            timestamp=timestamp,
            is_append=joined is not None and self.source.kind == "STREAM",
            has_own_key=bool(self.query.partition_by),
        )


def _check_timestamp(properties: Properties, typed: Sequence[tuple[str, Typed]]) -> None:
    """Refuses a TIMESTAMP that is no column of the SELECT list, or of a wrong type."""
    timestamp_column(properties, to_spark.columns_of(typed, is_key=False))


def _timestamp(made: Source, columns: NamedColumns) -> to_spark.Timestamp | None:
    """WITH (TIMESTAMP = …): one of the result's columns is its ROWTIME."""
    if made.timestamp_column is None:
        return None
    return to_spark.Timestamp(dict(columns)[made.timestamp_column], made.timestamp_format)


class _Sink:
    """The stream or table that a statement creates, and its ids."""

    def __init__(
        self, statement: CreateAs, sources: Mapping[str, Source], context: Context
    ) -> None:
        self.statement = statement
        self.sources = sources
        self.context = context
        creation = statement.creation
        self.table_id = context.table_id(creation.name)
        self.query_id = f"C{creation.kind[0]}AS_{self.table_id}"  # CTAS, CSAS

    def source(
        self, keys_made: NamedColumns, values_made: NamedColumns, window: Window | None
    ) -> Source:
        """Raises StatementError if the columns, the formats or the topic do not fit."""
        statement, creation = self.statement, self.statement.creation
        properties = Properties(statement.properties, "AS")
        keys = to_spark.columns_of(keys_made, is_key=True)
        values = to_spark.columns_of(values_made, is_key=False)
        check_unique((*keys, *values), creation)
        source = self.sources[statement.query.relation.name]
        key_format, value_format = self._formats(properties, source, keys, values)
        prefix = self.context.properties.get(TOPIC_PREFIX, "")
        replaced = self.sources.get(creation.name)
        known = replaced and (replaced.public_topic or replaced.topic)
        topic = properties.text("KAFKA_TOPIC") or known or f"{prefix}{creation.name}"
        partitions = properties.partitions or (replaced or source).partitions
        properties.check_replicas(self.context.replicas_max)
        properties.check_retention(is_kept=creation.kind == "TABLE" and window is None)
        check_topic(topic, partitions, self.context, properties, creation.at)
        if topic != known:
            check_own_topic(topic, creation, self.sources, properties)
        properties.check_time_bounds(creation.name, is_table=creation.kind == "TABLE")
        made = Source(
            name=creation.name,
            kind=creation.kind,
            columns=(*keys, *values),
            topic=topic,
            partitions=partitions,
            key_format=key_format,
            value_format=value_format,
            statement=statement.text,
            window=window,
            timestamp_column=timestamp_column(properties, (*keys, *values)),
            timestamp_format=properties.text("TIMESTAMP_FORMAT"),
            wrap_single_value=wraps_single_value(properties, self.context, value_format, values),
            value_delimiter=properties.sink_delimiter("VALUE", source, value_format),
            key_delimiter=properties.sink_delimiter("KEY", source, key_format),
            retention_ms=properties.number("RETENTION_MS"),
            query_id=self.query_id,
            table_id=self.table_id,
            is_materialized=creation.kind == "TABLE",
            offset_lag_max=properties.acceptable_offset_lag,
            time_bounds=properties.time_bounds,
        )
        return sink_schemas.declared(made, properties, self.context, creation.at)

    def _formats(
        self,
        properties: Properties,
        source: Source,
        keys: tuple[Column, ...],
        values: tuple[Column, ...],
    ) -> tuple[str, str]:
        creation = self.statement.creation
        given = properties.format("KEY_FORMAT")
        key_format = given or published.public_form(source).key_format
        if given not in (None, "NONE") and is_by_null(self.statement.query):
            raise refusal(
                "Key format specified for stream without key columns.",
                properties.at("KEY_FORMAT") or properties.at("FORMAT"),
            )
        if not keys:  # a given format is that of queries which make keys of this stream's columns
            key_format = given or "NONE"
        elif key_format == "NONE" and given is None:
            key_format = default_format(self.context.properties, "key") or "KAFKA"
        value_format = (
            properties.format("VALUE_FORMAT") or published.public_form(source).value_format
        )
        properties.check_delimiters(key_format, value_format)
        check_names(properties, key_format, value_format)
        check_intermediate(self.statement.query, source, creation.at)
        try:
            formats.check_columns(keys, key_format, "Key", creation.at)
            formats.check_columns(values, value_format, "Value", creation.at)
        except StatementError as error:
            raise self._shown(error) from None
        return key_format, value_format

    def _shown(self, error: StatementError) -> StatementError:
        """The error with the statement as ksqlDB prints it, except for joins."""
        query = self.statement.query
        if query.joins:
            return error
        source = self.sources[query.relation.name]
        scope = Scope.of(source, query.relation.alias, has_window=query.window is not None)
        error.message += f"\nStatement: {statement_text(self.statement, scope)}"
        return error
