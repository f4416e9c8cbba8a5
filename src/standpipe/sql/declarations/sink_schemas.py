"""Under which schemas of a registry the rows of a query are written, in AVRO or JSON_SR.

CREATE … AS SELECT: the one that VALUE_SCHEMA_ID or KEY_SCHEMA_ID names, if its first columns are
those of the result; else our own, which is made from the columns. INSERT INTO … SELECT: the target
says it. The leader registers our own before it logs the statement
(`control/ddl/registered_schemas.py`); the plan keeps ids and texts, so that nothing is asked to
write a row.

Source, also of the texts: ksqlDB's DefaultSchemaInjector (forCreateAsStatement).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from standpipe.model import Column, Source, SparkPlan, WrittenSchema
from standpipe.sql.context import Context
from standpipe.sql.declarations import registered
from standpipe.sql.declarations.formats import schema_text
from standpipe.sql.declarations.properties import REGISTRY_FORMATS, Properties
from standpipe.sql.declarations.registered import (
    Part,
    asked_for,
    given_id,
    own_schema,
    required,
)
from standpipe.sql.schemas import (
    avro,
    avro_columns,
    avro_write_program,
    json_columns,
    json_schema,
    json_write_program,
)
from standpipe.sql.schemas.registry import BadSchema, RegisteredSchema
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import refusal

#: schemas of keys and of values; None: without a schema, or our own, which has no id yet
Written = tuple[WrittenSchema | None, WrittenSchema | None]

_PARTS: Final[tuple[Part, Part]] = ("KEY", "VALUE")


def declared(source: Source, properties: Properties, context: Context, at: Position) -> Source:
    """The stream or table of a result, with what WITH says of its schemas. Raises StatementError,
    SchemaRegistryMissing, SchemaRegistryUnavailable."""
    formats = (source.key_format, source.value_format)
    ids: list[int | None] = []
    for part, format_ in zip(_PARTS, formats, strict=True):
        registered.check_ids(properties, part, format_, ())
        ids.append(properties.number(f"{part}_SCHEMA_ID"))
    registered.check_configured(formats, source.topic, context, at)
    key_id, value_id = ids
    if key_id is not None or value_id is not None:
        source = replace(source, schema_ids=(key_id, value_id))
    source = registered.named(source, properties, at)
    for part in _parts(source):
        if found := _given(source, part, context, at):
            where = properties.at(f"{part}_SCHEMA_ID") or at
            _check_columns(source, part, found, where)
    return source


def planned(plan: SparkPlan, source: Source, context: Context, at: Position | None) -> SparkPlan:
    """The plan of a query with the schemas of the rows that it writes (`written`)."""
    return replace(plan, schemas=written(source, context, at))


def written(source: Source, context: Context, at: Position | None) -> Written | UnsetType:
    """The schemas of its rows whose ids are given; UNSET: neither keys nor values have one.
    Raises StatementError, SchemaRegistryMissing, SchemaRegistryUnavailable."""
    if not _parts(source):
        return UNSET
    registered.check_configured((source.key_format, source.value_format), source.topic, context, at)
    found: list[WrittenSchema | None] = []
    for part in _PARTS:
        schema = _given(source, part, context, at) if part in _parts(source) else None
        if schema is not None:
            _compiled(source, part, schema, at)
        found.append(schema and (schema.schema_id, schema.text))
    key, value = found
    return key, value


def columns_of(source: Source, part: Part) -> tuple[Column, ...]:
    """The columns that are in one part of a record."""
    if part == "KEY":
        return source.key_columns
    return tuple(column for column in source.value_columns if column.header is None)


def wraps(source: Source, part: Part) -> bool:
    """Whether one part of a record is a record, or an object, with a field for each column."""
    if len(columns_of(source, part)) != 1:
        return True
    return part == "VALUE" and source.wrap_single_value


def may_be_unwritable(source: Source, schemas: Written | UnsetType) -> bool:
    """Whether a row may have no form under the schemas that it is written under, a plan's. Our own,
    made from the columns, have every row. `source`: as other programs read it.

    The declaration does not decide: INSERT INTO goes on under the schema of its statement when the
    stream is declared again.
    """
    if not schemas:
        return bool(_parts(source))
    return any(
        written_under is not None and not _is_own(source, part, written_under[1])
        for part, written_under in zip(_PARTS, schemas, strict=True)
    )


def _is_own(source: Source, part: Part, text: str) -> bool:
    try:
        return own_schema(source, part) == text
    except BadSchema:
        return False


def format_of(source: Source, part: Part) -> str:
    """The format of one part of a record."""
    return source.key_format if part == "KEY" else source.value_format


def _parts(source: Source) -> list[Part]:
    """The parts that are written under a schema."""
    return [
        part
        for part in _PARTS
        if format_of(source, part) in REGISTRY_FORMATS and columns_of(source, part)
    ]


def _given(
    source: Source, part: Part, context: Context, at: Position | None
) -> RegisteredSchema | None:
    """The schema that the source names by its id."""
    schema_id = given_id(source, part)
    if schema_id is None:
        return None
    format_ = format_of(source, part)
    schemas = required(context, source.topic, format_, at)
    return asked_for(schemas, source.topic, part, format_, schema_id=schema_id, at=at)


def _check_columns(
    source: Source, part: Part, schema: RegisteredSchema, at: Position | None
) -> None:
    """The columns are the first of the schema's, in its order. The only column of a bare key or
    value has no name there."""
    columns = columns_of(source, part)
    try:
        inferred = _inferred(source, part, schema)
    except BadSchema as error:
        raise _unfit(source, part, error, at) from None
    if not wraps(source, part):
        inferred = [replace(inferred[0], name=columns[0].name)]
    there = [replace(column, is_key=part == "KEY") for column in inferred]
    others = [each for n, each in enumerate(columns) if there[n : n + 1] != [each]]
    if others:
        raise refusal(
            f"The following {part.lower()} columns are changed, missing or reordered:"
            f" [{_listed(others)}]. Schema from schema registry is [{_listed(there)}]",
            at,
        )


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(schema_text((column,)) for column in columns)


def _inferred(source: Source, part: Part, schema: RegisteredSchema) -> list[Column]:
    """The columns of a schema. Raises BadSchema."""
    _check_is_whole(schema)
    if format_of(source, part) == "JSON_SR":
        of = partial(json_columns.inferred, json_schema.parse(schema.text))
    else:
        of = partial(avro_columns.inferred, avro.parse(schema.text))
    return of(is_key=part == "KEY", keeps_case=True, unwraps=not wraps(source, part))


def _check_is_whole(schema: RegisteredSchema) -> None:
    if schema.has_references:
        raise BadSchema("it refers to schemas of other subjects, which is not supported")


def _compiled(source: Source, part: Part, schema: RegisteredSchema, at: Position | None) -> None:
    """Raises StatementError for a schema that cannot have rows of these columns."""
    columns, is_wrapped = columns_of(source, part), wraps(source, part)
    try:
        _check_is_whole(schema)
        if format_of(source, part) == "JSON_SR":
            json_type = json_schema.parse(schema.text)
            json_write_program.program(json_type, columns, wraps=is_wrapped)
        else:
            avro_write_program.program(avro.parse(schema.text), columns, wraps=is_wrapped)
    except BadSchema as error:
        raise _unfit(source, part, error, at) from None


def _unfit(source: Source, part: Part, error: BadSchema, at: Position | None) -> Exception:
    return refusal(
        f"Unable to verify if the {part.lower()} schema for topic {source.topic} is compatible with"
        f" ksqlDB.\nReason: {error}",
        at,
    )
