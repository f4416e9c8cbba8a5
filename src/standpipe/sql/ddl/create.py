"""CREATE STREAM and CREATE TABLE over a topic, and DROP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from standpipe.model import Column, Source
from standpipe.sql.context import Context
from standpipe.sql.ddl import direct_table, external_table, source_table
from standpipe.sql.declarations import formats
from standpipe.sql.declarations import registered as registry_schemas
from standpipe.sql.declarations.checks import (
    check_declared,
    check_definition,
    check_free,
    check_own_topic,
    check_topic,
    check_topic_name,
    timestamp_column,
    wraps_single_value,
)
from standpipe.sql.declarations.properties import REGISTRY_FORMATS, Properties, default_format
from standpipe.sql.declarations.source_columns import check_headers, header_column, source_window
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan, DropPlan
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.ast_statements import ColumnDefinition, CreateSource, Creation, DropSource
from standpipe.sql.syntax.errors import nearest, place, refusal, unknown_name


def create_source(
    statement: CreateSource, sources: Mapping[str, Source], context: Context
) -> CreateSourcePlan | CreateTableAsPlan:
    """CREATE STREAM or TABLE (columns) WITH (…); the plan of CREATE SOURCE TABLE also has a query,
    unless its replicas follow the topic directly.

    Raises StatementError if the name is taken, or columns, formats and topic do not match.
    """
    creation = statement.creation
    check_free(creation, sources)
    properties = Properties(statement.properties, "SOURCE")
    # ksqlDB judges these first, whatever the columns are
    properties.check_delimiters(*map(properties.format, ("KEY_FORMAT", "VALUE_FORMAT")))
    registered = registry_schemas.completed(statement, properties, context)
    columns = _columns(registered.definitions, creation)
    topic = properties.text("KAFKA_TOPIC")
    if topic is None:
        raise refusal(
            'Missing required property "KAFKA_TOPIC" which has no default value.', creation.at
        )
    check_topic_name(topic, context.rules, properties.at("KAFKA_TOPIC"))
    properties.check_replicas(context.replicas_max)
    if not direct_table.is_named(properties):  # which has a text of its own
        properties.check_retention(is_kept=creation.kind == "TABLE")
    partitions, create_topic = _partitions(topic, properties, context, creation.at)
    key_format, value_format = _formats(properties, context, columns, creation)
    properties.check_delimiters(key_format, value_format)
    registry_schemas.check_configured((key_format, value_format), topic, context, creation.at)
    keys = [column for column in columns if column.is_key]
    values = [column for column in columns if not column.is_key]
    carried = [column for column in values if column.header is None]
    formats.check_columns(keys, key_format, "Key", creation.at)
    formats.check_columns(carried, value_format, "Value", creation.at)
    timestamp = timestamp_column(properties, columns)
    wraps = wraps_single_value(properties, context, value_format, carried)
    source = Source(
        name=creation.name,
        kind=creation.kind,
        columns=(*keys, *values),
        topic=topic,
        partitions=partitions,
        key_format=key_format,
        value_format=value_format,
        statement=statement.text,
        timestamp_column=timestamp,
        timestamp_format=properties.text("TIMESTAMP_FORMAT"),
        wrap_single_value=wraps,
        value_delimiter=properties.delimiter("VALUE_DELIMITER") or ",",
        key_delimiter=properties.delimiter("KEY_DELIMITER") or ",",
        retention_ms=properties.number("RETENTION_MS"),
        offset_lag_max=properties.acceptable_offset_lag,
        time_bounds=properties.time_bounds,
        window=source_window(properties, keys, creation),
        is_read_only=creation.is_source,
        schema_ids=registered.schema_ids,
    )
    source = registry_schemas.named(source, properties, creation.at)
    is_external = properties.text("WRITER") is not None
    is_table = creation.kind == "TABLE" and (is_external or creation.is_source)
    properties.check_time_bounds(creation.name, is_table=is_table, is_external=is_external)
    if direct_table.is_named(properties):
        there = not create_topic
        return direct_table.declared(source, creation, properties, context, is_there=there)
    if is_external:
        check_own_topic(topic, creation, sources, properties)
        return external_table.declared(source, creation, properties, context)
    if creation.is_source and creation.kind == "TABLE":
        return source_table.materialised(source, creation, context, create_topic=create_topic)
    return CreateSourcePlan(
        source=source,
        or_replace=creation.or_replace,
        if_not_exists=creation.if_not_exists,
        create_topic=create_topic,
    )


def drop(statement: DropSource, sources: Mapping[str, Source], context: Context) -> DropPlan:
    """DROP STREAM or TABLE. The catalog checks whether queries still read the source.

    Raises StatementError for an unknown name (without IF EXISTS) and for the wrong kind.
    """
    kind, name = statement.kind, statement.name
    source = sources.get(name)
    if source is None and not statement.if_exists:
        hint = nearest(name, (each.name for each in sources.values() if each.kind == kind))
        raise unknown_name(f"{kind.capitalize()} {name} does not exist.", statement.at, hint)
    if source is not None and source.kind != kind:
        raise refusal(
            f"Incompatible data source type is {source.kind.lower()}, but statement was DROP"
            f" {kind.lower()}",
            statement.at,
        )
    if source is not None and source.is_read_only and statement.delete_topic:
        raise refusal(f"Cannot delete topic for read-only source: {name}", statement.at)
    if source is not None and statement.delete_topic:
        check_topic_name(source.public_topic or source.topic, context.rules, statement.at)
    return DropPlan(
        name=name, kind=kind, exists=source is not None, delete_topic=statement.delete_topic
    )


def _columns(definitions: Sequence[ColumnDefinition], creation: Creation) -> list[Column]:
    if not definitions:
        raise refusal(
            "The statement does not define any columns. Only formats of a schema registry"
            f" ({', '.join(REGISTRY_FORMATS)}) can tell those of {creation.name}.",
            creation.at,
        )
    columns = [_column(definition, creation) for definition in definitions]
    check_headers(columns, creation.at)
    check_declared(columns, creation)
    if creation.kind == "TABLE" and not any(column.is_key for column in columns):
        raise refusal("Tables require a PRIMARY KEY. Please define the PRIMARY KEY.", creation.at)
    return columns


def _column(definition: ColumnDefinition, creation: Creation) -> Column:
    check_definition(definition)
    mark, at = definition.mark, definition.at
    if mark in ("HEADER", "HEADERS"):
        return header_column(definition)
    if mark == "KEY" and creation.kind == "TABLE":
        raise refusal(
            f"{place(at)}: Column `{definition.name}` is a 'KEY' column: please use"
            " 'PRIMARY KEY' for tables.",
            at,
        )
    if mark == "PRIMARY KEY" and creation.kind == "STREAM":
        raise refusal(
            f"{place(at)}: Column `{definition.name}` is a 'PRIMARY KEY' column: please use"
            " 'KEY' for streams.",
            at,
        )
    return Column(name=definition.name, type=str(definition.type), is_key=mark != "")


def _partitions(
    topic: str, properties: Properties, context: Context, at: Position
) -> tuple[int, bool]:
    """How many partitions the topic has, and whether to create it."""
    asked = properties.partitions
    if asked is not None:
        return asked, not check_topic(topic, asked, context, properties, at)
    try:
        return context.topics[topic], False
    except KeyError:
        raise refusal(
            f"Topic '{topic}' does not exist. If you want to create a new topic for the"
            " stream/table please re-run the statement providing the required 'PARTITIONS'"
            " configuration in the WITH clause (and optionally 'REPLICAS'). For example: ..."
            f" WITH (KAFKA_TOPIC='{topic}', PARTITIONS=4, ...)",
            properties.at("KAFKA_TOPIC"),
        ) from None


def _formats(
    properties: Properties, context: Context, columns: Sequence[Column], creation: Creation
) -> tuple[str, str]:
    has_key = any(column.is_key for column in columns)
    given = properties.format("KEY_FORMAT") or default_format(context.properties, "key")
    key_format = (given or "KAFKA") if has_key else (properties.format("KEY_FORMAT") or "NONE")
    value_format = properties.format("VALUE_FORMAT") or default_format(context.properties, "value")
    if value_format is None:
        raise refusal(
            "Statement is missing the 'VALUE_FORMAT' property from the WITH clause. Either provide"
            " one or set a default via the 'ksql.persistence.default.format.value' config.",
            creation.at,
        )
    return key_format, value_format
