"""Rows as Avro's bytes, under a schema of ours or of somebody else, in Python.

It interprets what `sql/schemas/avro_write_program.py` makes of the schema and the columns; queries
that run in Spark write the same bytes (`pipeline/run/start/AvroBytes.java`). Source: Apache Avro
1.12, "Binary encoding". Not here: which schema a source's rows have; the frame around the bytes
(`framed_values.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from standpipe.model import Column
from standpipe.sql.schemas import avro_write_program
from standpipe.sql.schemas.avro import AvroType
from standpipe.sql.schemas.avro_write_program import WriteStep, int_bytes, long_bytes, sized_bytes
from standpipe.sql.types.types import SqlType
from standpipe.sql.types.values import DECIMALS, as_decimal

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")

_Write = Callable[[Any], bytes]


def to_bytes(
    writer: AvroType, columns: Sequence[Column], *, wraps: bool
) -> Callable[[Sequence[Any]], bytes]:
    """The conversion of a row under a schema, from values of `columns` in their order.

    It raises ValueError for a NULL where the schema has none, and for a value out of range. Raises
    BadSchema where a column has no field of a type that takes it, or a field has no value.
    """
    step = avro_write_program.program(writer, columns, wraps=wraps)
    if not wraps:
        write = _writer(step)
        return lambda row: write(row[0])
    return _fields(step)


def _writer(step: WriteStep) -> _Write:
    match step.op:
        case "CONSTANT":
            return lambda _: step.data
        case "OPTIONAL":
            return _optional(step)
        case "RECORD":
            write, names = _fields(step), step.names

            def record(value: Any) -> bytes:
                values = _there(value, step.path)
                return write([values.get(name) for name in names])

            return record
        case "ARRAY":
            return _block(_writer(step.parts[0]))
        case "MAP":
            part = _writer(step.parts[0])
            pairs = _block(lambda pair: _text_bytes(str(pair[0])) + part(pair[1]))
            return lambda value: pairs(list(_there(value, step.path).items()))
        case "ENTRIES":
            entry = _block(_fields(step.parts[0]))
            return lambda value: entry(
                [(str(key), each) for key, each in _there(value, step.path).items()]
            )
        case "DECIMAL":
            return lambda value: _decimal_bytes(_there(value, "a DECIMAL"), *step.numbers)
        case "ENUM":
            places = {symbol: place for place, symbol in enumerate(step.names)}
            return lambda value: _enum_bytes(_there(value, step.path), places)
        case "FIXED":
            return lambda value: _fixed_bytes(_there(value, step.path), *step.numbers)
        case _:
            plain = _SCALARS[step.op]
            return lambda value: plain(_there(value, step.path))


def _there(value: Any, path: str) -> Any:
    if value is None:
        what = path.removeprefix("->") or "the value"
        raise ValueError(f"{what} is NULL, which its schema does not allow")
    return value


def _optional(step: WriteStep) -> _Write:
    null, branch = step.numbers
    head, write = long_bytes(branch), _writer(step.parts[0])

    def written(value: Any) -> bytes:
        if value is None and null >= 0:
            return long_bytes(null)
        return head + write(value)

    return written


def _fields(step: WriteStep) -> Callable[[Sequence[Any]], bytes]:
    """Writes a record, from values in the order of `names`."""
    writes = [(place, _writer(part)) for place, part in zip(step.numbers, step.parts, strict=True)]
    return lambda row: b"".join(write(None if place < 0 else row[place]) for place, write in writes)


def _block(write: _Write) -> _Write:
    def written(items: Any) -> bytes:
        if items is None:
            raise ValueError("an array or a map is NULL, which its schema does not allow")
        body = b"".join(map(write, items))
        return (long_bytes(len(items)) + body if items else b"") + long_bytes(0)

    return written


def _boolean_bytes(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _text_bytes(text: str) -> bytes:
    return sized_bytes(text.encode())


def _float_bytes(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except OverflowError:
        raise ValueError(f"{value} has more than 32 bits") from None


def _fixed_bytes(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes, and its schema has {size}")
    return data


def _enum_bytes(text: str, places: Mapping[str, int]) -> bytes:
    if text not in places:
        raise ValueError(f"{text!r:.80} is no symbol of its schema")
    return long_bytes(places[text])


def _decimal_bytes(value: Any, precision: int, scale: int, size: int) -> bytes:
    number = as_decimal(value, SqlType("DECIMAL", precision, scale))
    unscaled = int(number.scaleb(scale, DECIMALS))
    if size >= 0:
        try:
            return unscaled.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise ValueError(f"{number} has more than {size} bytes") from None
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return sized_bytes(unscaled.to_bytes(length, "big", signed=True))


_SCALARS: Final[Mapping[str, _Write]] = {
    "BOOLEAN": _boolean_bytes,
    "INT": int_bytes,
    "LONG": long_bytes,
    "FLOAT": _float_bytes,
    "DOUBLE": _DOUBLE.pack,
    "STRING": _text_bytes,
    "BYTES": sized_bytes,
}
