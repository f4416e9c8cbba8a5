"""Cases' keys and values as bytes of their formats, and bytes as values again."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from decimal import Decimal
from typing import Any

from tests.conformance.verdict import is_equal
from tests.conformance.world import Record

from standpipe.data.encoding.store_keys import HEADER_ROWTIME
from standpipe.model import Column, Source
from standpipe.sql.types import types

_PACK = {"INTEGER": ">i", "BIGINT": ">q", "DOUBLE": ">d"}


def encode_key(source: Source | None, key: Any) -> bytes | None:
    if key is None:
        return None
    columns = source.key_columns if source is not None else ()
    format_ = source.key_format if source is not None and columns else "KAFKA"
    return _encode(key, format_, columns)


def encode_value(source: Source | None, value: Any) -> bytes | None:
    if value is None:
        return None
    if source is None:
        return _encode(value, "JSON", ())
    return _encode(value, source.value_format, source.value_columns)


def encode_window(raw: bytes | None, window: dict[str, Any] | None) -> bytes | None:
    """Kafka Streams' windowed keys: a start, or of a session its end and its start."""
    if raw is None or window is None:
        return raw
    if str(window.get("type", "")).lower() == "session":
        return raw + struct.pack(">qq", window["end"], window["start"])
    return raw + struct.pack(">q", window["start"])


def _encode(value: Any, format_: str, columns: tuple[Column, ...]) -> bytes:
    if format_ == "KAFKA":
        base = columns[0].type if columns else "STRING"
        if base in _PACK and isinstance(value, (int, Decimal)):
            number = float(value) if base == "DOUBLE" else int(value)
            return struct.pack(_PACK[base], number)
        return value.encode() if isinstance(value, str) else json_bytes(value)
    if format_ == "DELIMITED":
        return (value if isinstance(value, str) else _plain(value)).encode()
    return json_bytes(value)


def json_bytes(value: Any) -> bytes:
    """JSON with decimals spelled as in the case."""
    return _json(value).encode()


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value)


def _plain(value: Any) -> str:
    return _json(value)


def decode(data: bytes | None, format_: str, columns: tuple[Column, ...]) -> Any:
    """What the bytes say; text where they are not of the format."""
    if data is None:
        return None
    if format_ == "KAFKA":
        base = columns[0].type if columns else "STRING"
        if base in _PACK and len(data) == struct.calcsize(_PACK[base]):
            (number,) = struct.unpack(_PACK[base], data)
            return Decimal(str(number)) if base == "DOUBLE" else number
        if base == "BYTES":
            return b64encode(data).decode()
        return data.decode(errors="replace")
    if format_ in ("DELIMITED", "NONE"):
        return data.decode(errors="replace")
    try:
        return json.loads(data, parse_float=Decimal)
    except ValueError:
        return data.decode(errors="replace")


def is_same_key(source: Source, expected: Any, actual: Any) -> bool:
    """`actual` as `decode` has it."""
    return _is_same(expected, actual, source.key_format, _types(source.key_columns), wrapped=False)


def is_same_value(source: Source, expected: Any, actual: Any) -> bool:
    columns = _types(source.value_columns)
    wrapped = source.wrap_single_value
    return _is_same(expected, actual, source.value_format, columns, wrapped=wrapped)


def _types(columns: tuple[Column, ...]) -> types.SqlType:
    return types.struct(tuple((column.name, types.parse_type(column.type)) for column in columns))


def _is_same(expected: Any, actual: Any, format_: str, of: types.SqlType, *, wrapped: bool) -> bool:
    if format_ in ("DELIMITED", "NONE"):  # a line of text
        line = expected if expected is None or isinstance(expected, str) else _json(expected)
        return is_equal(line, actual, types.STRING)
    is_bare = len(of.arguments) == 1 and (format_ == "KAFKA" or not wrapped)
    return is_equal(expected, actual, of.arguments[0] if is_bare else of)


def rowtime_ms(record: Record) -> int:
    """Of a record that a query of ours wrote, as its header has it; else the record's time."""
    found = next((value for name, value in record.headers if name == HEADER_ROWTIME), None)
    return struct.unpack(">q", found)[0] if found else record.timestamp_ms


def headers(wanted: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    """Headers of a case's record as a producer takes them."""
    if not wanted:
        return None
    return [
        (each["key"], None if each["value_base64"] is None else b64decode(each["value_base64"]))
        for each in wanted
    ]
