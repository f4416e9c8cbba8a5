"""Keys as they are in Kafka: ksqlDB's KAFKA, JSON and DELIMITED key formats, and windowed keys.

The bytes decide the partition, so they must be those that Spark (Jackson, Double.toString) writes.
Source: ksqlDB's serialization formats; Kafka Streams' WindowKeySchema. Use them through
`data/encoding/store_keys.py`. Not here: the keys of a store, which are ordered and differ.
"""

from __future__ import annotations

import csv
import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from standpipe.errors import BadRequest
from standpipe.model import Column, Window
from standpipe.sql.plans import Value
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.sql.types.values import plain_text, whole_number

WINDOW_BYTES: Final = 8
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_DOUBLE: Final = struct.Struct(">d")


class UnfitKey(BadRequest):
    """A key that its format cannot hold, or bytes that are no key of that format."""


#: ksqlDB's type -> how its keys are treated; DECIMAL(p, s) is cut at the parenthesis
_KINDS: Final = {
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "STRING": "STRING",
    "VARCHAR": "STRING",
    "BYTES": "BYTES",
    "DECIMAL": "DECIMAL",
    "TIMESTAMP": "BIGINT",  # ms since 1970
    "DATE": "INT",  # days since 1970
    "TIME": "INT",  # ms since midnight
}
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_nested_decoder: Final = msgspec.json.Decoder(float_hook=Decimal)
_SHORT_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def key_kind(type_: str) -> str:
    """One of INT, BIGINT, DOUBLE, BOOLEAN, STRING, BYTES, DECIMAL, or NESTED: an ARRAY or a STRUCT,
    which is JSON in every format. Raises UnfitKey."""
    kind = _KINDS.get(type_) or _KINDS.get(type_.partition("(")[0].strip().upper())
    if kind is None and type_.startswith(("ARRAY<", "STRUCT<")):
        return "NESTED"
    if kind is None:
        raise UnfitKey(f"a key column cannot be of type {type_}")
    return kind


def decimal_scale(type_: str) -> int:
    """Digits after the decimal point of DECIMAL(p, s)."""
    return int(type_.partition(",")[2].strip(" )") or 0)


def encode_key(
    values: Sequence[Value], columns: Sequence[Column], key_format: str, delimiter: str = ","
) -> bytes | None:
    """The key's bytes in Kafka, without a window; None for a null key and for format NONE.

    `values` in the order of `columns`. Raises UnfitKey. Source: ksqlDB's serialization formats.
    """
    if key_format == "NONE" or all(value is None for value in values):
        return None
    return encode_columns(values, columns, key_format, delimiter)


def encode_columns(
    values: Sequence[Value], columns: Sequence[Column], key_format: str, delimiter: str = ","
) -> bytes:
    """The bytes of columns, also if all are null, which CSV can say of a value. Raises UnfitKey."""
    try:
        if key_format == "KAFKA":
            return _encode_kafka(values, columns)
        if key_format == "JSON":
            return _encode_json(values, columns)
        if key_format == "DELIMITED":
            return _encode_delimited(values, columns, delimiter)
    except (struct.error, TypeError, ValueError, AttributeError) as error:
        raise UnfitKey(f"{values!r} is not a valid {key_format} key: {error}") from error
    raise UnfitKey(f"keys of format {key_format} are not supported")


def decode_key(
    data: bytes, columns: Sequence[Column], key_format: str, delimiter: str = ","
) -> tuple[Value, ...]:
    """Values of the key columns from a key's bytes, without a window. Raises UnfitKey."""
    try:
        if key_format == "KAFKA":
            _only_column(columns)
            return (_decode_kafka(data, key_kind(columns[0].type)),)
        if key_format == "JSON":
            return _decode_json(data, columns)
        if key_format == "DELIMITED":
            return _decode_delimited(data, columns, delimiter)
    except (
        struct.error,
        TypeError,
        ValueError,
        LookupError,
        csv.Error,
        InvalidOperation,
        RecursionError,  # a producer decides how deep a key is nested
    ) as error:
        raise UnfitKey(f"{data[:80]!r} is not a valid {key_format} key: {error}") from error
    raise UnfitKey(f"keys of format {key_format} are not supported")


def windowed_key(raw: bytes, start_ms: int) -> bytes:
    """A time-windowed key as Kafka Streams writes it: key, then the window's start."""
    return raw + _LONG.pack(start_ms)


def session_key(raw: bytes, start_ms: int, end_ms: int) -> bytes:
    """The key of a session: key, then its end, then its start. Source: SessionKeySchema."""
    return raw + _LONG.pack(end_ms) + _LONG.pack(start_ms)


def bounds_of(window: Window | None) -> int:
    """How many longs a window adds to a key: 0, 1 (its start), or 2 for a session."""
    if window is None:
        return 0
    return 2 if window.kind == "SESSION" else 1


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """(key, start, end in ms). Raises UnfitKey if the key is too short for a session."""
    rest, start_ms = split_windowed_key(data)
    raw, end_ms = split_windowed_key(rest)
    return raw, start_ms, end_ms


def split_windowed_key(data: bytes) -> tuple[bytes, int]:
    """(key, window start in ms). Raises UnfitKey if the key is too short for a window."""
    if len(data) < WINDOW_BYTES:
        raise UnfitKey(f"a windowed key has at least {WINDOW_BYTES} bytes, not {len(data)}")
    return data[:-WINDOW_BYTES], int.from_bytes(data[-WINDOW_BYTES:], "big", signed=True)


def _only_column(columns: Sequence[Column]) -> None:
    if len(columns) != 1:
        raise ValueError("the KAFKA format holds one column")


def _encode_kafka(values: Sequence[Value], columns: Sequence[Column]) -> bytes:
    _only_column(columns)
    (value,) = values
    kind = key_kind(columns[0].type)
    if kind == "STRING" and isinstance(value, str):
        return value.encode()
    if kind == "BYTES" and isinstance(value, bytes):
        return value
    packer = {"INT": _INT, "BIGINT": _LONG, "DOUBLE": _DOUBLE}.get(kind)
    if packer is None or isinstance(value, (bool, str, bytes)):
        raise ValueError(f"{columns[0].type} does not fit")
    # + 0.0 turns the double -0.0 into 0.0: they are equal in SQL, so they must share a partition
    return packer.pack(value + 0.0 if isinstance(value, float) else value)


def _decode_kafka(data: bytes, kind: str) -> Value:
    if kind == "STRING":
        return data.decode()
    if kind == "BYTES":
        return data
    return {"INT": _INT, "BIGINT": _LONG, "DOUBLE": _DOUBLE}[kind].unpack(data)[0]


def _encode_json(values: Sequence[Value], columns: Sequence[Column]) -> bytes:
    texts = [json_text(value, column.type) for value, column in zip(values, columns, strict=True)]
    if len(texts) == 1:  # a single key column is not wrapped (ksqlDB)
        return texts[0].encode()
    names = (json_string(column.name) for column in columns)
    fields = (f"{name}:{text}" for name, text in zip(names, texts, strict=True))
    return f"{{{','.join(fields)}}}".encode()


def _decode_json(data: bytes, columns: Sequence[Column]) -> tuple[Value, ...]:
    if len(columns) == 1:
        parts = [msgspec.Raw(data)]
    else:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        folded = {name.upper(): raw for name, raw in found.items()}
        parts = [found.get(c.name) or folded[c.name.upper()] for c in columns]
    return tuple(
        value_of_json(raw, column.type) for raw, column in zip(parts, columns, strict=True)
    )


def value_of_json(raw: msgspec.Raw | bytes, type_: str) -> Value:
    """Inverse of `json_text`; inside a NESTED key, DECIMAL is Decimal and BYTES stay base64."""
    kind = key_kind(type_)
    if kind == "NESTED":
        return _nested_decoder.decode(raw)
    if kind == "BYTES":
        return b64decode(msgspec.json.decode(raw, type=str), validate=True)
    kinds = {"STRING": str, "BOOLEAN": bool, "DOUBLE": float, "DECIMAL": Decimal}
    return msgspec.json.decode(raw, type=kinds.get(kind, int))


def _encode_delimited(values: Sequence[Value], columns: Sequence[Column], delimiter: str) -> bytes:
    fields = [
        _delimited(value, key_kind(column.type), delimiter, is_first=not index)
        for index, (value, column) in enumerate(zip(values, columns, strict=True))
    ]
    return delimiter.join(fields).encode()


def _decode_delimited(data: bytes, columns: Sequence[Column], delimiter: str) -> tuple[Value, ...]:
    (fields,) = csv.reader([data.decode()], strict=True, delimiter=delimiter)
    return tuple(
        _from_text(text, key_kind(column.type))
        for text, column in zip(fields, columns, strict=True)
    )


def _from_text(text: str, kind: str) -> Value:
    if kind in {"INT", "BIGINT"}:
        return int(text)
    if kind == "DOUBLE":
        return float(text)
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[text.lower()]
    if kind == "BYTES":
        return b64decode(text, validate=True)
    return Decimal(text) if kind == "DECIMAL" else text


def java_double(value: float) -> str:
    """A double as Java's Double.toString writes it, which is what Spark and ksqlDB put in keys.

    Java before 19 writes some doubles with more digits than necessary (1E23 as
    9.999999999999999E22, JDK-4511638); then such keys are looked up in the wrong partition.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    # at least two digits, the nearest ones: Double.MIN_VALUE is 4.9E-324, though 5E-324 would do
    short = f"{value:.1e}"
    text = short if float(short) == value else repr(value + 0.0)
    _, digits_tuple, exponent = Decimal(text).normalize().as_tuple()
    sign = "-" if value < 0 else ""
    digits = "".join(map(str, digits_tuple))
    point = len(digits) + int(exponent)  # digits before the decimal point
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def json_string(text: str) -> str:
    """A JSON string as Jackson writes it, with its quotes: control characters in upper-case hex."""
    if not _CONTROL.search(text):
        return msgspec.json.encode(text).decode()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"'
        + _CONTROL.sub(lambda m: _SHORT_ESCAPES.get(m[0]) or f"\\u{ord(m[0]):04X}", escaped)
        + '"'
    )


def json_text(value: Value, type_: str) -> str:
    """A key column's value as Jackson writes it. Raises ValueError if it does not fit."""
    kind = key_kind(type_)
    if kind == "NESTED":
        return _nested_text(value, parse_type(type_))
    if kind == "STRING" and isinstance(value, str):
        return json_string(value)
    text = "null" if value is None else _plain_text(value, kind)
    quoted = kind == "BYTES" or (kind == "DOUBLE" and text[-1] in "Ny")  # NaN, Infinity
    return f'"{text}"' if quoted and value is not None else text


def _nested_text(value: Any, of: SqlType) -> str:
    if value is None:
        return "null"
    if not _has_shape(value, of):
        raise ValueError(f"{value!r} is no {of.base}")
    if of.base == "ARRAY":
        return "[" + ",".join(_nested_text(each, of.arguments[0]) for each in value) + "]"
    if of.base == "STRUCT":
        named = zip(of.field_names, of.arguments, strict=True)
        fields = (f"{json_string(n)}:{_nested_text(value.get(n), part)}" for n, part in named)
        return "{" + ",".join(fields) + "}"
    is_base64 = of.base == "BYTES" and isinstance(value, str)
    return json_text(b64decode(value) if is_base64 else value, str(of))


def _has_shape(value: object, of: SqlType) -> bool:
    """Not so for what another producer may write as the key of a topic."""
    if of.base == "ARRAY":
        return isinstance(value, list)
    return of.base != "STRUCT" or isinstance(value, dict)


def _delimited(value: Value, kind: str, delimiter: str, *, is_first: bool) -> str:
    """A field, quoted where Apache Commons CSV quotes it (ksqlDB), including a field that could
    begin a comment, and a first field that begins with neither letter nor digit."""
    text = "" if value is None else _plain_text(value, kind)
    if value is None or (not text and not is_first):
        return ""
    quoted = (
        not text
        or text[0] <= "#"
        or text[-1] <= " "
        or any(c in text for c in f'{delimiter}"\r\n')
        or (is_first and not (text[0].isascii() and text[0].isalnum()))
    )
    return '"' + text.replace('"', '""') + '"' if quoted else text


def to_double(value: float | Decimal) -> float:
    """Raises UnfitKey for an integer of more than 308 digits, which a producer may write."""
    try:
        return float(value)
    except OverflowError as error:
        raise UnfitKey(f"an integer of {len(str(value))} digits is no DOUBLE") from error


def _plain_text(value: Value, kind: str) -> str:
    if kind == "STRING" and isinstance(value, str):
        return value
    if kind == "BOOLEAN" and isinstance(value, bool):
        return "true" if value else "false"
    if kind == "BYTES" and isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if kind == "DOUBLE":
            return java_double(to_double(value))
        if kind == "DECIMAL":
            return plain_text(Decimal(value))
        if kind in {"INT", "BIGINT"}:
            return str(whole_number(value) if isinstance(value, Decimal) else int(value))
    raise ValueError(f"{value!r} is no {kind}")
