"""Schemas of a registry in CREATE STREAM and TABLE: columns that are inferred, and what WITH says.

Columns are inferred for the part, keys or values, that declares none and whose format is AVRO or
JSON_SR: from the newest schema of its subject, or from the one that VALUE_SCHEMA_ID or
KEY_SCHEMA_ID names.
Source, also of the texts: ksqlDB's DefaultSchemaInjector, SchemaRegistryTopicSchemaSupplier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.context import Context
from standpipe.sql.declarations.properties import REGISTRY_FORMATS, Properties, default_format
from standpipe.sql.schemas import avro, avro_columns, json_columns, json_schema
from standpipe.sql.schemas.registry import (
    KINDS,
    BadSchema,
    RegisteredSchema,
    SchemaRegistryMissing,
    Schemas,
    UnknownSchema,
    subject_of,
)
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.ast_statements import ColumnDefinition, CreateSource, Creation
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.types import parse_type

Part = Literal["KEY", "VALUE"]

#: of a schema that a message shows
_SHOWN_CHARS_MAX: Final = 2000


@dataclass(frozen=True)
class Registered:
    """What a statement says once its registry is asked. `schema_ids`: as those of a source."""

    definitions: tuple[ColumnDefinition, ...]
    schema_ids: tuple[int | None, int | None] | UnsetType = UNSET


def completed(statement: CreateSource, properties: Properties, context: Context) -> Registered:
    """The columns of a statement, those included that it leaves to the registry.

    Raises StatementError with ksqlDB's text, SchemaRegistryMissing, SchemaRegistryUnavailable.
    """
    given = statement.columns
    keys = [each for each in given if each.mark in ("KEY", "PRIMARY KEY")]
    values = [each for each in given if each.mark == ""]
    headers = [each for each in given if each.mark in ("HEADER", "HEADERS")]
    default = default_format(context.properties, "value")
    key_format = properties.format("KEY_FORMAT")
    value_format = properties.format("VALUE_FORMAT") or default
    check_ids(properties, "KEY", key_format, keys)
    check_ids(properties, "VALUE", value_format, values)
    asks_key = not keys and key_format in REGISTRY_FORMATS
    asks_value = not values and value_format in REGISTRY_FORMATS
    topic = properties.text("KAFKA_TOPIC")
    if topic is None or not (asks_key or asks_value):
        return Registered(given)
    creation = statement.creation
    key_id = value_id = None
    if key_format is not None and asks_key:
        schemas = required(context, topic, key_format, creation.at)
        asking = _Asking(creation, topic, properties, schemas, key_format)
        keys, key_id = asking.inferred("KEY")
    if value_format is not None and asks_value:
        schemas = required(context, topic, value_format, creation.at)
        asking = _Asking(creation, topic, properties, schemas, value_format)
        values, value_id = asking.inferred("VALUE")
    return Registered((*keys, *values, *headers), (key_id, value_id))


def required(context: Context, topic: str, format_: str, at: Position | None) -> Schemas:
    """The registry. Raises SchemaRegistryMissing if none is configured."""
    if context.schemas is None:
        line, column = (None, None) if at is None else (at.line, at.column)
        raise SchemaRegistryMissing(
            f"Cannot create topic '{topic}' with format {format_} without configuring"
            " 'ksql.schema.registry.url'",
            line=line,
            column=column,
        )
    return context.schemas


def check_configured(
    formats: Sequence[str], topic: str, context: Context, at: Position | None
) -> None:
    """Raises SchemaRegistryMissing for a format that needs a registry where there is none."""
    for format_ in formats:
        if format_ in REGISTRY_FORMATS:
            required(context, topic, format_, at)


def named(source: Source, properties: Properties, at: Position | None) -> Source:
    """The source with the names that WITH gives its schemas. Raises StatementError for a name or
    for columns that its formats cannot have."""
    check_names(properties, source.key_format, source.value_format)
    names = (_full_name(properties, "KEY"), _full_name(properties, "VALUE"))
    found = replace(source, schema_names=names) if any(names) else source
    check_own_schemas(found, at)
    return found


def check_names(properties: Properties, key_format: str, value_format: str) -> None:
    """Raises StatementError for the full name of a schema in a format that has none."""
    for name, of in (
        ("KEY_SCHEMA_FULL_NAME", key_format),
        ("VALUE_SCHEMA_FULL_NAME", value_format),
        ("VALUE_AVRO_SCHEMA_FULL_NAME", value_format),
    ):
        if name in properties.values and of not in REGISTRY_FORMATS:
            raise refusal(
                f"{of} does not support the following configs: [fullSchemaName]",
                properties.at(name),
            )
    if properties.text("VALUE_SCHEMA_FULL_NAME") and properties.text("VALUE_AVRO_SCHEMA_FULL_NAME"):
        raise refusal(
            "Cannot supply both 'VALUE_AVRO_SCHEMA_FULL_NAME' and 'VALUE_SCHEMA_FULL_NAME'"
            " properties. Please only set 'VALUE_SCHEMA_FULL_NAME'.",
            properties.at("VALUE_AVRO_SCHEMA_FULL_NAME"),
        )


def _full_name(properties: Properties, part: Part) -> str | None:
    """The name that WITH gives the schema; None: ksqlDB's own."""
    found = properties.text(f"{part}_SCHEMA_FULL_NAME")
    if found is None and part == "VALUE":
        found = properties.text("VALUE_AVRO_SCHEMA_FULL_NAME")
    return found


def given_id(source: Source, part: Part) -> int | None:
    """The id of the schema that our rows have; None: our own (`own_schema`)."""
    return source.schema_ids[part != "KEY"] if source.schema_ids else None


def own_schema(source: Source, part: Part) -> str:
    """The text of the schema that our rows have, unless the source names another by its id.
    Raises BadSchema."""
    is_key = part == "KEY"
    name = source.schema_names[not is_key] if source.schema_names else None
    columns = [each for each in source.columns if each.is_key is is_key and each.header is None]
    wraps = len(columns) != 1 or (source.wrap_single_value and not is_key)
    if (source.key_format if is_key else source.value_format) == "JSON_SR":
        return json_columns.schema_text(columns, name, wraps=wraps)  # ksqlDB gives it no other name
    usual = avro_columns.key_name(source.name) if is_key else avro_columns.VALUE_NAME
    return avro_columns.schema_text(columns, name or usual, wraps=wraps)


def check_own_schemas(source: Source, at: Position | None) -> None:
    """Raises StatementError for columns that Avro cannot name or describe."""
    parts: tuple[tuple[Part, str, tuple[Column, ...]], ...] = (
        ("KEY", source.key_format, source.key_columns),
        ("VALUE", source.value_format, source.value_columns),
    )
    for part, format_, columns in parts:
        if format_ not in REGISTRY_FORMATS or not columns:
            continue
        try:
            own_schema(source, part)
        except BadSchema as error:
            raise refusal(
                f"{part.capitalize()} format does not support schema.\nformat: {format_}\nreason:"
                f" Schema is not compatible with Avro: {error}",
                at,
            ) from None


def check_ids(
    properties: Properties, part: Part, format_: str | None, declared: Sequence[ColumnDefinition]
) -> None:
    """Raises StatementError for the id of a schema in a format that has none, or where columns are
    `declared`."""
    name = f"{part}_SCHEMA_ID"
    if properties.number(name) is None:
        return
    if format_ not in REGISTRY_FORMATS:
        raise refusal(
            f"{part}_FORMAT should support schema inference when {name} is provided. Current format"
            f" is {format_ or 'KAFKA'}.",
            properties.at(name),
        )
    if declared:
        raise refusal(
            f"Table elements and {name} cannot both exist for create statement.",
            properties.at(name),
        )


@dataclass(frozen=True)
class _Asking:
    """One statement's question to the registry. `format`: of the part that it is about."""

    creation: Creation
    topic: str
    properties: Properties
    schemas: Schemas
    format: str

    def inferred(self, part: Part) -> tuple[list[ColumnDefinition], int]:
        """The columns of one part, and the id of their schema."""
        name, is_key = f"{part}_SCHEMA_ID", part == "KEY"
        asked, at = self.properties.number(name), self.properties.at(name) or self.creation.at
        format_ = self.format
        found = asked_for(self.schemas, self.topic, part, format_, schema_id=asked, at=at)
        try:
            columns = self._columns(found, part, keeps_case=asked is not None)
        except BadSchema as error:
            what = "key" if is_key else "value"
            raise refusal(
                f"Unable to verify if the {what} schema for topic {self.topic} is compatible with"
                f" ksqlDB.\nReason: {error}\nSchema:{found.text[:_SHOWN_CHARS_MAX]}",
                at,
            ) from None
        mark = "" if not is_key else "PRIMARY KEY" if self.creation.kind == "TABLE" else "KEY"
        definitions = [
            ColumnDefinition(self.creation.at, column.name, parse_type(column.type), mark)
            for column in columns
        ]
        return definitions, found.schema_id

    def _columns(self, found: RegisteredSchema, part: Part, *, keeps_case: bool) -> list[Column]:
        if found.has_references:
            raise BadSchema("it refers to schemas of other subjects, which is not supported")
        wanted, is_key = _full_name(self.properties, part), part == "KEY"
        unwraps = is_key or self.properties.flag("WRAP_SINGLE_VALUE") is False
        if self.format == "JSON_SR":
            json_type = json_schema.parse(found.text)
            name = json_type.title or json_type.kind
            inferred = partial(json_columns.inferred, json_type)
        else:
            of = avro.parse(found.text)
            name = of.name or of.kind
            inferred = partial(avro_columns.inferred, of)
        if wanted and name != wanted:
            raise BadSchema(f"its name is {name:.80}, not {wanted}")
        return inferred(is_key=is_key, keeps_case=keeps_case, unwraps=unwraps)


def asked_for(
    schemas: Schemas,
    topic: str,
    part: Part,
    format_: str,
    *,
    schema_id: int | None,
    at: Position | None,
) -> RegisteredSchema:
    """The schema with that id; None: the newest of the topic's subject. Raises StatementError if
    there is none, or if it is not of the format."""
    subject = subject_of(topic, is_key=part == "KEY")
    try:
        found = schemas.latest(subject) if schema_id is None else schemas.by_id(schema_id)
    except UnknownSchema:
        raise _not_found(topic, part, schema_id, at) from None
    if found.kind == KINDS[format_]:
        return found
    kind = "JSON_SR" if found.kind == "JSON" else found.kind
    raise refusal(
        f"{part.capitalize()} schema is not in the expected format. You may want to set"
        f" {part}_FORMAT to '{kind}'.\ntopic: {topic}\nexpected format: {format_}\n"
        f"actual format: {kind}",
        at,
    )


def _not_found(
    topic: str, part: Part, schema_id: int | None, at: Position | None
) -> StatementError:
    is_key = part == "KEY"
    what = "keys" if is_key else "values"
    by_id = "" if schema_id is None else f" with id {schema_id}"
    return refusal(
        f"Schema for message {what} on topic '{topic}'{by_id} does not exist in the Schema"
        f" Registry.\nSubject: {subject_of(topic, is_key=is_key)}\n"
        "Possible causes include:\n- The topic itself does not exist\n"
        "\t-> Use SHOW TOPICS; to check\n"
        "- Messages on the topic are not serialized using a format Schema Registry supports\n"
        f"\t-> Use PRINT '{topic}' FROM BEGINNING; to verify\n"
        "- The schema is registered on a different instance of the Schema Registry\n"
        "- You do not have permissions to access the Schema Registry.",
        at,
    )
