"""Cells of an answer as Python values, by the SQL type of their column. Pure.

| SQL | Python |
|---|---|
| BOOLEAN, INTEGER, BIGINT, STRING | bool, int, int, str |
| DOUBLE | float; NaN and the infinities, too |
| DECIMAL(p, s) | Decimal with s digits after the point |
| BYTES | bytes |
| DATE, TIME | date, time |
| TIMESTAMP | datetime in UTC |
| ARRAY, MAP, STRUCT | list, dict, dict, with values of these types in them |

A lookup hands out a row as it is stored: the names of a STRUCT's fields may be in any case, and a
DATE may be a number of days. A cell that is no value of its type is an error, never a wrong value.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from standpipe.errors import ServerError, StatementError
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.sql.types.values import DECIMALS, EPOCH

Convert = Callable[[Any], Any]

_EPOCH_DAY: Final = date(1970, 1, 1)
_plain: Final = msgspec.json.Decoder(list[Any])
_exact: Final = msgspec.json.Decoder(list[Any], float_hook=Decimal)
_plain_rows: Final = msgspec.json.Decoder(list[list[Any]])
_exact_rows: Final = msgspec.json.Decoder(list[list[Any]], float_hook=Decimal)


class CellReader:
    """Reads rows (JSON arrays) of columns with these types into tuples."""

    def __init__(self, types: Sequence[str]) -> None:
        parsed = [known_type(each) for each in types]
        is_exact = any(of is not None and of.contains("DECIMAL") for of in parsed)
        self._decoder = _exact if is_exact else _plain
        self._decoder_of_rows = _exact_rows if is_exact else _plain_rows
        self._converts = [
            (place, convert)
            for place, of in enumerate(parsed)
            if of is not None and (convert := converter(of, is_exact=is_exact)) is not None
        ]
        self._count = len(parsed)

    def row(self, line: bytes) -> tuple[Any, ...]:
        """One row. Raises ServerError if it is none."""
        try:
            return self._values(self._decoder.decode(line))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise ServerError(f"the answer has a row that cannot be read: {error}") from error

    def rows(self, lines: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Many rows, decoded at once. Raises ServerError if one is none."""
        try:
            found = self._decoder_of_rows.decode(b"[%b]" % b",".join(lines))
            if len(found) != len(lines):
                raise ValueError("a line is not one row")
            if self._converts or {*map(len, found)} - {self._count}:
                return [self._values(cells) for cells in found]
            return list(map(tuple, found))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise ServerError(f"the answer has a row that cannot be read: {error}") from error

    def values(self, cells: Sequence[Any]) -> tuple[Any, ...]:
        """One row that is decoded, with Decimal for numbers with a point. Raises ServerError."""
        try:
            return self._values(list(cells))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise ServerError(f"the answer has a row that cannot be read: {error}") from error

    def _values(self, cells: list[Any]) -> tuple[Any, ...]:
        if len(cells) != self._count:
            raise ValueError(f"{len(cells)} values for {self._count} columns")
        for place, convert in self._converts:
            if (cell := cells[place]) is not None:
                cells[place] = convert(cell)
        return tuple(cells)


@lru_cache(maxsize=1024)
def reader_of(types: tuple[str, ...]) -> CellReader:
    """The reader of rows with these types, kept for later answers."""
    return CellReader(types)


def known_type(text: str) -> SqlType | None:
    """The type of a column; None: one of a later release, whose cells stay as JSON has them."""
    try:
        return parse_type(text)
    except StatementError:
        return None


def converter(of: SqlType, *, is_exact: bool) -> Convert | None:
    """From a decoded cell that is not null to its value; None: the cell is the value.

    `is_exact`: numbers with a point were decoded as Decimal.
    """
    if of.base == "DOUBLE":
        return float  # a whole number, a text such as NaN, or a Decimal
    if of.base in _SIMPLE:
        return _SIMPLE[of.base]
    if of.base == "DECIMAL":
        return _decimal(of.scale)
    if of.base == "ARRAY":
        return _items(converter(of.arguments[0], is_exact=is_exact))
    if of.base == "MAP":
        return _map_values(converter(of.arguments[1], is_exact=is_exact))
    if of.base == "STRUCT":
        return _struct(of, is_exact=is_exact)
    return None


def _decimal(scale: int) -> Convert:
    unit = Decimal(1).scaleb(-scale)
    return lambda cell: Decimal(cell).quantize(unit, context=DECIMALS)


def _items(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda cell: [None if each is None else convert(each) for each in cell]


def _map_values(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda cell: {key: None if each is None else convert(each) for key, each in cell.items()}


def _struct(of: SqlType, *, is_exact: bool) -> Convert:
    parts = [
        (name, name.upper(), converter(part, is_exact=is_exact))
        for name, part in zip(of.field_names, of.arguments, strict=True)
    ]

    def convert(cell: Any) -> dict[str, Any]:
        upper = {str(name).upper(): each for name, each in cell.items()}
        found: dict[str, Any] = {}
        for name, upper_name, change in parts:
            each = cell.get(name, upper.get(upper_name))
            found[name] = each if change is None or each is None else change(each)
        return found

    return convert


def _date(cell: Any) -> date:
    if isinstance(cell, str):
        return date.fromisoformat(cell)
    return _EPOCH_DAY + timedelta(days=int(cell))


def _time(cell: Any) -> time:
    if isinstance(cell, str):
        return time.fromisoformat(cell)
    return (EPOCH + timedelta(milliseconds=int(cell))).time()


def _timestamp(cell: Any) -> datetime:
    if isinstance(cell, str):
        moment = datetime.fromisoformat(cell)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return EPOCH + timedelta(milliseconds=int(cell))


def _bytes(cell: Any) -> bytes:
    return b64decode(cell, validate=True)


_SIMPLE: Final[dict[str, Convert]] = {
    "BYTES": _bytes,
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
}
