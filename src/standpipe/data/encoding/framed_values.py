"""Values that name their schema: 0, the schema's id in four bytes, then the value.

Source: Confluent's wire format. Not here: the value itself (`avro_reading.py`, `avro_writing.py`,
`json_sr_writing.py`); values of JSON_SR, which are read without their schema (`source_values.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from standpipe.data.encoding import avro_reading, avro_writing, json_sr_writing
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.model import Column
from standpipe.sql.schemas import avro, json_schema
from standpipe.sql.schemas.registry import (
    BadSchema,
    RegisteredSchema,
    SchemaKind,
    Schemas,
    UnknownSchema,
)

_FRAME: Final = struct.Struct(">bi")
#: bytes before the value
FRAME_BYTES: Final = _FRAME.size
#: schemas of one source whose readers are kept; a producer that names more pays for each again
_KEPT_MAX: Final = 100
#: what a decoder may raise for bytes that are no value
_NO_VALUE: Final = (ValueError, OverflowError, RecursionError)
_decode_json: Final = msgspec.json.Decoder().decode

_Convert = Callable[[bytes], Any]


def unframed(data: bytes) -> tuple[int, bytes]:
    """The schema's id, and the value. Raises UnreadableValue for bytes without the frame."""
    if len(data) < _FRAME.size or data[0]:
        raise UnreadableValue(f"{data[:80]!r}: it does not begin with 0 and the id of a schema")
    _, schema_id = _FRAME.unpack_from(data)
    return schema_id, data[_FRAME.size :]


def schema_id_of(data: bytes | None) -> int | None:
    """The id that a value names; None for one without the frame."""
    if data is None or len(data) < _FRAME.size or data[0]:
        return None
    return _FRAME.unpack_from(data)[1]


def framed(schema_id: int, value: bytes) -> bytes:
    """The value behind the id of its schema."""
    return _FRAME.pack(0, schema_id) + value


class FramedReader:
    """Reads values of one kind, whichever schemas they were written under."""

    def __init__(self, schemas: Schemas, made: Callable[[RegisteredSchema], _Convert]) -> None:
        """`made`: the conversion under a schema; it may raise BadSchema."""
        self._schemas, self._made = schemas, made
        self._kept: dict[int, _Convert | BadSchema] = {}

    def read(self, data: bytes) -> Any:
        """The converted value. Raises UnreadableValue, also for one that names a schema which the
        registry does not know or which does not fit; and SchemaRegistryUnavailable."""
        schema_id, value = unframed(data)
        convert = self._kept.get(schema_id)
        if convert is None:
            convert = self._looked_up(schema_id)
        if isinstance(convert, BadSchema):
            raise UnreadableValue(f"schema {schema_id}: {convert}")
        try:
            return convert(value)
        except _NO_VALUE as error:
            raise UnreadableValue(f"{value[:80]!r} under schema {schema_id}: {error}") from error

    def _looked_up(self, schema_id: int) -> _Convert | BadSchema:
        """An id that is not known yet may become known: its absence is not kept here."""
        try:
            found: _Convert | BadSchema = self._made(self._schemas.by_id(schema_id))
        except UnknownSchema as error:
            raise UnreadableValue(str(error)) from error
        except BadSchema as error:
            found = error
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[schema_id] = found
        return found


def avro_cells(schemas: Schemas, columns: Sequence[Column], *, wraps: bool) -> FramedReader:
    """Reads values as the cells of columns (`avro_reading.to_cells`)."""
    return FramedReader(
        schemas, lambda writer: avro_reading.to_cells(parsed(writer), columns, wraps=wraps)
    )


def avro_texts(schemas: Schemas) -> FramedReader:
    """Reads values in AVRO as the texts that PRINT shows."""
    return FramedReader(schemas, lambda writer: avro_reading.to_text(parsed(writer)))


def json_texts(schemas: Schemas) -> FramedReader:
    """Reads values in JSON_SR as the texts that PRINT shows."""

    def made(schema: RegisteredSchema) -> _Convert:
        _check_kind(schema, "JSON")
        return _json_text

    return FramedReader(schemas, made)


def _json_text(value: bytes) -> str:
    _decode_json(value)
    return value.decode()


def avro_row(
    schema: RegisteredSchema, columns: Sequence[Column], *, wraps: bool
) -> Callable[[Sequence[Any]], bytes]:
    """Writes rows in AVRO under a schema, with its frame. Raises BadSchema; the conversion
    ValueError."""
    write = avro_writing.to_bytes(parsed(schema), columns, wraps=wraps)
    return lambda row: framed(schema.schema_id, write(row))


def json_row(
    schema: RegisteredSchema, columns: Sequence[Column], *, wraps: bool
) -> Callable[[Sequence[Any]], bytes]:
    """The same in JSON_SR."""
    write = json_sr_writing.to_bytes(parsed_json(schema), columns, wraps=wraps)
    return lambda row: framed(schema.schema_id, write(row))


def parsed(schema: RegisteredSchema) -> avro.AvroType:
    """The schema's type. Raises BadSchema if it is no Avro schema, or not complete by itself."""
    _check_kind(schema, "AVRO")
    return avro.parse(schema.text)


def parsed_json(schema: RegisteredSchema) -> json_schema.JsonType:
    """The same of a JSON Schema."""
    _check_kind(schema, "JSON")
    return json_schema.parse(schema.text)


def _check_kind(schema: RegisteredSchema, kind: SchemaKind) -> None:
    if schema.kind != kind:
        raise BadSchema(f"it is of kind {schema.kind}, not {kind}")
    if schema.has_references:
        raise BadSchema("it refers to schemas of other subjects, which is not supported")
