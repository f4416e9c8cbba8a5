"""A row of INSERT … VALUES as the bytes of a Kafka record. Pure.

A separate module: POST /inserts-stream encodes its rows with it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from standpipe.data.encoding.framed_values import avro_row, json_row
from standpipe.data.encoding.store_keys import encode_columns, encode_key
from standpipe.errors import BadRequest
from standpipe.model import Column, Source
from standpipe.sql.declarations.properties import REGISTRY_FORMATS
from standpipe.sql.declarations.registered import Part, given_id, own_schema
from standpipe.sql.plans import InsertValuesPlan, Value
from standpipe.sql.schemas.registry import (
    KINDS,
    BadSchema,
    RegisteredSchema,
    SchemaKind,
    SchemaRefused,
    Schemas,
    UnknownSchema,
    subject_of,
)

_value_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def record_of(
    plan: InsertValuesPlan, schemas: Schemas | None = None, *, registers: bool = True
) -> tuple[bytes | None, bytes | None]:
    """Key and value of an inserted row in Kafka. Raises BadRequest if a format cannot hold it.

    `schemas`: the schema registry; None: there is none. `registers`: our own schemas become known
    to it; else the record is not to be written, and names none. Raises SchemaRegistryUnavailable.
    """
    source = plan.source
    keys = [v for c, v in zip(source.columns, plan.values, strict=True) if c.is_key]
    columns = [column for column in source.value_columns if column.header is None]
    row = dict(zip((column.name for column in source.columns), plan.values, strict=True))
    if not registers and schemas is not None:
        schemas = _Unregistered(schemas)
    cells = [row[column.name] for column in columns]
    if source.value_format in REGISTRY_FORMATS and columns:
        value: bytes | None = _registered(source, "VALUE", tuple(columns), cells, schemas)
    else:
        value = encode_value(source, cells, columns)
    if not keys:
        return None, value
    if source.key_format in REGISTRY_FORMATS:
        if all(each is None for each in keys):
            return None, value
        return _registered(source, "KEY", source.key_columns, keys, schemas), value
    key = encode_key(keys, source.key_columns, source.key_format, source.key_delimiter)
    return key, value


def _registered(
    source: Source,
    part: Part,
    columns: tuple[Column, ...],
    row: Sequence[Value],
    schemas: Schemas | None,
) -> bytes:
    """One part of a record that names its schema: the one that the source names, else our own,
    which the subject has from then on."""
    what = "key" if part == "KEY" else "value"
    try:
        if schemas is None:
            raise BadSchema("'ksql.schema.registry.url' is not configured")
        schema = _schema(source, part, schemas)
        wraps = len(columns) != 1 if part == "KEY" else source.wrap_single_value
        kind = _kind(source, part)
        return _writer(kind, schema, columns, wraps or len(columns) != 1)(row)
    except (BadSchema, UnknownSchema, SchemaRefused, ValueError) as error:
        raise BadRequest(
            f"Failed to insert values into '{source.name}'. Could not serialize {what}: {error}"
        ) from error


class ResolvedSchemas:
    """The schemas of one source's rows, asked for once: no row of /inserts-stream asks again."""

    def __init__(self, source: Source, schemas: Schemas) -> None:
        """Blocks. Raises BadRequest, SchemaRegistryUnavailable."""
        self._by_id: dict[int, RegisteredSchema] = {}
        formats: tuple[tuple[Part, str], ...] = (
            ("KEY", source.key_format),
            ("VALUE", source.value_format),
        )
        try:
            for part, format_ in formats:
                if format_ in REGISTRY_FORMATS:
                    found = _schema(source, part, schemas)
                    self._by_id[found.schema_id] = found
        except (BadSchema, UnknownSchema, SchemaRefused) as error:
            raise BadRequest(f"Failed to insert values into '{source.name}'. {error}") from error

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """One of them. Raises UnknownSchema."""
        if schema_id not in self._by_id:
            raise UnknownSchema("the source has changed: open the stream again")
        return self._by_id[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        """Not asked for by rows. Raises UnknownSchema."""
        raise UnknownSchema(subject)

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        """The id of one of them. Raises UnknownSchema, also of another `subject`'s."""
        for found in self._by_id.values():
            if (found.kind, found.text) == (kind, text):
                return found.schema_id
        raise UnknownSchema(f"{subject}: the source has changed: open the stream again")


@dataclass(frozen=True)
class _Unregistered:
    """The same schemas, but a new one stays unknown."""

    schemas: Schemas

    def by_id(self, schema_id: int) -> RegisteredSchema:
        return self.schemas.by_id(schema_id)

    def latest(self, subject: str) -> RegisteredSchema:
        return self.schemas.latest(subject)

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        del subject, kind, text, asks
        return 0


def _schema(source: Source, part: Part, schemas: Schemas) -> RegisteredSchema:
    if given := given_id(source, part):
        return schemas.by_id(given)
    text, kind = own_schema(source, part), _kind(source, part)
    subject = subject_of(source.topic, is_key=part == "KEY")
    return RegisteredSchema(schemas.register(subject, kind, text), kind, text)


def _kind(source: Source, part: Part) -> SchemaKind:
    return KINDS[source.key_format if part == "KEY" else source.value_format]


@lru_cache(maxsize=64)
def _writer(
    kind: SchemaKind, schema: RegisteredSchema, columns: tuple[Column, ...], wraps: bool
) -> Callable[[Sequence[Value]], bytes]:
    made = json_row if kind == "JSON" else avro_row
    return made(schema, columns, wraps=wraps)


def encode_value(
    source: Source, values: Sequence[Value], columns: Sequence[Column]
) -> bytes | None:
    """The value of a record, all value columns in it. Raises BadRequest."""
    if not columns or source.value_format == "NONE":
        return None
    if source.value_format == "JSON":
        if len(columns) == 1 and not source.wrap_single_value:
            return _value_encoder.encode(values[0])
        names = (column.name for column in columns)
        return _value_encoder.encode(dict(zip(names, values, strict=True)))
    if source.value_format == "DELIMITED":  # also of NULLs alone: a key without any is none
        return encode_columns(values, columns, "DELIMITED", source.value_delimiter)
    return encode_key(values, columns, source.value_format, source.value_delimiter)
