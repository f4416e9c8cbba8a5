"""Rows as Avro's bytes, under a schema of ours or of somebody else.

Each column is written into the field of its name, exactly or else in any case; a field without a
column has its default. Source: Apache Avro 1.12, "Binary encoding". Not here: which schema a
source's rows have; the frame around the bytes (`framed_values.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from standpipe.data.encoding.avro_reading import is_entries
from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroField, AvroType, BadSchema
from standpipe.sql.schemas.avro_columns import is_map_entry
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.sql.types.values import DECIMALS, as_decimal

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_LONG_MAX: Final = 2**63 - 1

_Write = Callable[[Any], bytes]


def to_bytes(
    writer: AvroType, columns: Sequence[Column], *, wraps: bool
) -> Callable[[Sequence[Any]], bytes]:
    """The conversion of a row under a schema, from values of `columns` in their order.

    It raises ValueError for a NULL where the schema has none, and for a value out of range. Raises
    BadSchema where a column has no field of a type that takes it, or a field has no value.
    """
    if wraps and writer.kind != "record":
        raise BadSchema(f"the schema is no record, but {writer.kind}")
    if not wraps:
        (column,) = columns
        write = _writer(writer, parse_type(column.type), column.name)
        return lambda row: write(row[0])
    targets = [(column.name, parse_type(column.type)) for column in columns]
    record = _record(writer, targets, "")
    names = [name for name, _ in targets]
    return lambda row: record(dict(zip(names, row, strict=True)))


def _writer(of: AvroType, source: SqlType, path: str) -> _Write:
    if of.kind == "union":
        return _optional(of, source, path)
    base = source.base
    if base == "DECIMAL" and of.logical == "decimal":
        return lambda value: _decimal_bytes(value, of)
    if base == "ARRAY" and of.kind == "array" and not is_map_entry(of.values):
        return _block(_writer(of.values, source.arguments[0], f"{path}->ARRAY"))
    if base == "MAP" and (of.kind == "map" or is_entries(of)):
        return _map_writer(of, source, path)
    if base == "STRUCT" and of.kind == "record":
        return _record(of, list(zip(source.field_names, source.arguments, strict=True)), path)
    writes = _SCALARS.get((base, of.kind))
    if writes is None or of.logical not in _LOGICAL_OF.get(base, ("",)):
        raise BadSchema(f"Cannot serialize type {source} as {of.logical or of.kind}: {path}")
    return lambda value: writes(_there(value, path))


def _there(value: Any, path: str) -> Any:
    if value is None:
        what = path.removeprefix("->") or "the value"
        raise ValueError(f"{what} is NULL, which its schema does not allow")
    return value


def _optional(of: AvroType, source: SqlType, path: str) -> _Write:
    """A union: NULL is its null; any other value is the first branch that takes the type."""
    null: int | None = None
    found: tuple[int, _Write] | None = None
    for number, branch in enumerate(of.parts):
        if branch.kind == "null":
            null = number
        elif found is None:
            try:
                found = number, _writer(branch, source, path)
            except BadSchema:
                continue
    if found is None:
        raise BadSchema(f"Cannot serialize type {source} as any of a union: {path}")
    head, write = _long(found[0]), found[1]

    def written(value: Any) -> bytes:
        if value is None and null is not None:
            return _long(null)
        return head + write(value)

    return written


def _record(of: AvroType, sources: Sequence[tuple[str, SqlType]], path: str) -> _Write:
    left = dict(sources)
    steps: list[tuple[str | None, _Write]] = []
    for field in of.fields:
        name = field.name if field.name in left else field.name.upper()
        if name in left:
            steps.append((name, _writer(field.of, left.pop(name), f"{path}->{field.name}")))
        else:
            filled = _default(field)
            steps.append((None, lambda _, filled=filled: filled))
    if left:
        raise BadSchema(f"the schema has no field for {', '.join(left)}{path and f' in {path}'}")

    def written(row: Any) -> bytes:
        values = _there(row, path)
        return b"".join(write(None if name is None else values.get(name)) for name, write in steps)

    return written


def _default(field: AvroField) -> bytes:
    """The bytes of a field that no column has."""
    if not field.has_default:
        raise BadSchema(f"no column has a value for field {field.name}, which has no default")
    of, value = field.of, field.default
    head = b""
    if of.kind == "union":  # its default is one of the first branch
        of, head = of.parts[0], _long(0)
    plain: Mapping[str, _Write] = {
        "null": lambda _: b"",
        "boolean": _boolean_bytes,
        "int": _int_bytes,
        "long": _long,
        "float": _FLOAT.pack,
        "double": _DOUBLE.pack,
        "string": _text_bytes,
        "bytes": lambda text: _sized(text.encode("latin-1")),
        "enum": lambda text: _long(of.symbols.index(text)),
    }
    try:
        if of.kind in ("array", "map") and not value:
            return head + _long(0)
        return head + plain[of.kind](value)
    except (KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise BadSchema(f"field {field.name} has a default that is not read here") from error


def _map_writer(of: AvroType, source: SqlType, path: str) -> _Write:
    value_of = source.arguments[1]
    if of.kind == "map":
        write = _writer(of.values, value_of, f"{path}->MAP_VAL")
        pairs = _block(lambda pair: _text_bytes(str(pair[0])) + write(pair[1]))
        return lambda value: pairs(list(_there(value, path).items()))
    fields = [("key", SqlType("STRING")), ("value", value_of)]
    entries = _block(_record(of.values, fields, path))
    return lambda value: entries(
        [{"key": str(key), "value": each} for key, each in _there(value, path).items()]
    )


def _block(write: _Write) -> _Write:
    def written(items: Any) -> bytes:
        if items is None:
            raise ValueError("an array or a map is NULL, which its schema does not allow")
        body = b"".join(map(write, items))
        return (_long(len(items)) + body if items else b"") + _long(0)

    return written


def _long(number: int) -> bytes:
    if not -_LONG_MAX - 1 <= number <= _LONG_MAX:
        raise ValueError(f"{number} has more than 64 bits")
    left = (number << 1) ^ (number >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _int_bytes(number: int) -> bytes:
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} has more than 32 bits")
    return _long(number)


def _boolean_bytes(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _text_bytes(text: str) -> bytes:
    return _sized(text.encode())


def _decimal_bytes(value: Any, of: AvroType) -> bytes:
    number = as_decimal(_there(value, "a DECIMAL"), SqlType("DECIMAL", of.precision, of.scale))
    unscaled = int(number.scaleb(of.scale, DECIMALS))
    if of.kind == "fixed":
        return unscaled.to_bytes(of.size, "big", signed=True)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _sized(unscaled.to_bytes(size, "big", signed=True))


_SCALARS: Final[Mapping[tuple[str, str], _Write]] = {
    ("BOOLEAN", "boolean"): _boolean_bytes,
    ("INTEGER", "int"): _int_bytes,
    ("INTEGER", "long"): _long,
    ("BIGINT", "long"): _long,
    ("DOUBLE", "double"): _DOUBLE.pack,
    ("STRING", "string"): _text_bytes,
    ("BYTES", "bytes"): _sized,
    ("DATE", "int"): _int_bytes,
    ("TIME", "int"): _int_bytes,
    ("TIMESTAMP", "long"): _long,
}
#: SQL type -> logical types under which its number means the same
_LOGICAL_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "DATE": ("date", ""),
    "TIME": ("time-millis", ""),
    "TIMESTAMP": ("timestamp-millis", ""),
}
