"""A row of INSERT … VALUES as the bytes of a Kafka record. Pure.

A separate module: POST /inserts-stream encodes its rows with it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from standpipe.data.encoding.store_keys import encode_columns, encode_key
from standpipe.model import Column, Source
from standpipe.sql.plans import InsertValuesPlan, Value

_value_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def record_of(plan: InsertValuesPlan) -> tuple[bytes | None, bytes | None]:
    """Key and value of an inserted row in Kafka. Raises BadRequest if a format cannot hold it."""
    source = plan.source
    keys = [v for c, v in zip(source.columns, plan.values, strict=True) if c.is_key]
    columns = [column for column in source.value_columns if column.header is None]
    row = dict(zip((column.name for column in source.columns), plan.values, strict=True))
    value = encode_value(source, [row[column.name] for column in columns], columns)
    if not keys:
        return None, value
    key = encode_key(keys, source.key_columns, source.key_format, source.key_delimiter)
    return key, value


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
