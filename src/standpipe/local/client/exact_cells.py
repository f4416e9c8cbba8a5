"""Cells of an answer as a command prints them: JSON values, in which a DECIMAL is exact.

JSON has one kind of number, and it becomes a float where it has a point: 15 digits, and no zeros at
the end. A DECIMAL has up to 38 digits, and always those of its scale. Answers with one are decoded
exactly; their DOUBLEs are floats after that, as in all other answers.

A cell that does not fit its column stays as it came: printing is no place to refuse it.

Not here: cells as Python's dates, bytes and so on (`data/encoding/answer_values.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from standpipe.data.encoding.answer_values import known_type
from standpipe.sql.types.types import SqlType
from standpipe.sql.types.values import DECIMALS

Change = Callable[[Any], Any]

_plain: Final = msgspec.json.Decoder()
_exact: Final = msgspec.json.Decoder(float_hook=Decimal)


class ExactCells:
    """Reads rows of columns with these types: `decode` a line of JSON, then `row` its cells."""

    def __init__(self, types: Sequence[str]) -> None:
        parsed = [known_type(each) for each in types]
        is_exact = any(of is not None and of.contains("DECIMAL") for of in parsed)
        self._decoder = _exact if is_exact else _plain
        self._changes = [
            (place, change)
            for place, of in enumerate(parsed)
            if is_exact and of is not None and (change := _change_of(of)) is not None
        ]

    def decode(self, line: bytes | str) -> Any:
        """JSON; numbers with a point are Decimal if a column has one. Raises DecodeError."""
        return self._decoder.decode(line)

    def row(self, cells: Sequence[Any]) -> tuple[Any, ...]:
        """The cells of a decoded row: DECIMALs with the digits of their scale, DOUBLEs as float."""
        found = list(cells)
        for place, change in self._changes:
            found[place] = change(found[place])
        return tuple(found)


def _change_of(of: SqlType) -> Change | None:
    """From a cell that was decoded exactly to the one that is printed; None: they are the same."""
    if of.base == "DECIMAL":
        return _decimal(of.scale)
    if of.base == "DOUBLE":
        return lambda cell: float(cell) if isinstance(cell, Decimal) else cell
    if of.base == "ARRAY":
        return _of_items(_change_of(of.arguments[0]))
    if of.base == "MAP":
        return _of_values(_change_of(of.arguments[1]))
    if of.base == "STRUCT":
        return _of_fields(of)
    return None


def _decimal(scale: int) -> Change:
    unit = Decimal(1).scaleb(-scale)

    def change(cell: Any) -> Any:
        if isinstance(cell, bool) or not isinstance(cell, int | Decimal):
            return cell
        exact = Decimal(cell)
        try:
            padded = exact.quantize(unit, context=DECIMALS)
        except ArithmeticError:  # more digits than a DECIMAL has
            return exact
        return padded if padded == exact else exact

    return change


def _of_items(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda cell: (
        [change(each) for each in cast("list[Any]", cell)] if isinstance(cell, list) else cell
    )


def _of_values(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda cell: (
        {key: change(each) for key, each in cast("dict[str, Any]", cell).items()}
        if isinstance(cell, dict)
        else cell
    )


def _of_fields(of: SqlType) -> Change:
    """A stored row may have the names of a STRUCT's fields in another case."""
    parts = list(zip(of.field_names, map(_change_of, of.arguments), strict=True))
    changes = {name.upper(): change for name, change in parts} | dict(parts)

    def change(cell: Any) -> Any:
        if not isinstance(cell, dict):
            return cell
        found: dict[str, Any] = {}
        for name, each in cast("dict[str, Any]", cell).items():
            of_name = changes[name] if name in changes else changes.get(name.upper())
            found[name] = each if of_name is None else of_name(each)
        return found

    return change
