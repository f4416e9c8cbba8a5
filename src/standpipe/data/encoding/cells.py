"""Cells of rows as Python values, and values as the JSON that clients get (types.py has both).

A store keeps JSON as it arrived: names in any case, dates as numbers. Only queries that compute,
filter or show dates use this module; a lookup splices the bytes.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

import msgspec

from standpipe.sql.types.made_fields import MadeFields, TooManyFields
from standpipe.sql.types.types import SqlType
from standpipe.sql.types.values import (
    at_scale,
    format_date,
    format_time,
    format_timestamp,
    whole_number,
)

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


def row_of(array: bytes, types: tuple[SqlType, ...]) -> list[Any]:
    """The values of a stored JSON array. Raises TooManyFields."""
    cells, made = cast("list[Any]", _decode(array)), MadeFields(len(array))
    return [value_of(cell, of, made) for cell, of in zip(cells, types, strict=True)]


def value_of(cell: Any, of: SqlType, made: MadeFields | None = None) -> Any:
    """A decoded JSON value as a value of the type; None if it is not one.

    `made`: what its row may make; None: it has all its fields, since it was read before. Raises
    TooManyFields."""
    if cell is None:
        return None
    try:
        return _value_of(cell, of, made)
    except TooManyFields:
        raise
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return None


def _value_of(cell: Any, of: SqlType, made: MadeFields | None) -> Any:
    match of.base:
        case "STRING":
            return cell if isinstance(cell, str) else _encode(cell).decode()
        case "DOUBLE":
            return float(cell)
        case "DECIMAL":
            return _fitting(Decimal(cell), of)
        case "BYTES":
            return b64decode(cell)
        case "BOOLEAN":
            return cell if isinstance(cell, bool) else str(cell).lower() == "true"
        case "ARRAY":
            return [value_of(item, of.arguments[0], made) for item in cell]
        case "MAP":
            return {key: value_of(item, of.arguments[1], made) for key, item in cell.items()}
        case "STRUCT":
            if made is not None:
                made.make_named(of.field_names)
            folded = {name.upper(): item for name, item in cell.items()}
            return {
                name: value_of(cell.get(name, folded.get(name.upper())), part, made)
                for name, part in zip(of.field_names, of.arguments, strict=True)
            }
        case _:
            return whole_number(cell) if isinstance(cell, Decimal) else int(cell)


def _fitting(number: Decimal, of: SqlType) -> Decimal:
    """The number unchanged. Raises ValueError if it has more digits before the point than the type:
    computations with it would overflow."""
    is_too_long = number and number.adjusted() >= of.precision - of.scale
    if not number.is_finite() or is_too_long:
        raise ValueError(f"{number} does not fit {of}")
    return number


def cell_json(value: Any, of: SqlType) -> bytes:
    """A value as an answer shows it. Source: ksqlDB's REST API, values."""
    return _encode(_plain(value, of))


_SHOWN: Final = {"DATE": format_date, "TIME": format_time, "TIMESTAMP": format_timestamp}


def _plain(value: Any, of: SqlType) -> Any:
    if value is None:
        return None
    if of.base in _SHOWN:
        with suppress(OverflowError):
            return _SHOWN[of.base](value)
        return None  # its year is outside the calendar
    if of.base == "BYTES":
        return b64encode(value).decode()
    if of.base == "DECIMAL":
        return _at_scale(Decimal(value), of.scale)
    if of.base == "DOUBLE":
        number = float(value)
        return number if math.isfinite(number) else _not_finite(number)
    if of.base == "ARRAY":
        return [_plain(item, of.arguments[0]) for item in value]
    if of.base == "MAP":
        return {str(key): _plain(item, of.arguments[1]) for key, item in value.items()}
    if of.base == "STRUCT":
        parts = zip(of.field_names, of.arguments, strict=True)
        return {name: _plain(value.get(name), part) for name, part in parts}
    return value


def _at_scale(value: Decimal, scale: int) -> Decimal | None:
    """None: a computed value with more than the 38 digits of a DECIMAL."""
    with suppress(InvalidOperation):
        return at_scale(value, scale)
    return None


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
