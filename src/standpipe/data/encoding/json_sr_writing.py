"""Rows as JSON under a JSON Schema, of ours or of somebody else, in Python.

It interprets what `sql/schemas/json_write_program.py` makes of the schema and the columns; queries
that run in Spark write the same values (`pipeline/io/json_sr_rows.py`). Not here: which schema a
source's rows have; the frame around the bytes (`framed_values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas import json_write_program
from standpipe.sql.schemas.json_schema import ENTRY, JsonType
from standpipe.sql.schemas.json_write_program import JsonStep

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

_Write = Callable[[Any], Any]


class _NoNull(ValueError):
    """A NULL, for which the schema has no value."""


def to_bytes(
    schema: JsonType, columns: Sequence[Column], *, wraps: bool
) -> Callable[[Sequence[Any]], bytes]:
    """The conversion of a row under a schema, from values of `columns` in their order.

    `wraps`: the value is an object with a property for each column, else that of the only column.
    It raises ValueError for a NULL where the schema has none. Raises BadSchema where a column has
    no property of a type that takes it, or a required property has no column.
    """
    write = _writer(json_write_program.program(schema, columns, wraps=wraps))
    if not wraps:
        return lambda row: _encode(write(row[0]))
    names = [column.name for column in columns]
    return lambda row: _encode(write(dict(zip(names, row, strict=True))))


def _writer(step: JsonStep) -> _Write:
    write = _of_value(step)

    def written(value: Any) -> Any:
        if not _is_null(value):
            return write(value)
        if step.takes_null:
            return None
        what = step.path.removeprefix("->") or "the value"
        raise _NoNull(f"{what} is NULL, which its schema does not allow")

    return written


def _is_null(value: Any) -> bool:
    """JSON has no NaN and no infinity: they are NULL there."""
    return value is None or (type(value) is float and not math.isfinite(value))


def _of_value(step: JsonStep) -> _Write:
    """Writes what is not NULL."""
    match step.op:
        case "ARRAY":
            item = _writer(step.parts[0])
            return lambda value: [*map(item, value)]
        case "MAP":
            part = _writer(step.parts[0])
            return lambda value: {key: part(each) for key, each in value.items()}
        case "ENTRIES":
            part = _writer(step.parts[0])
            return lambda value: [
                dict(zip(ENTRY, (key, part(each)), strict=True)) for key, each in value.items()
            ]
        case "OBJECT":
            return _properties(step)
        case "VALUE":
            return lambda value: value


def _properties(step: JsonStep) -> _Write:
    steps = [(each, _writer(part)) for each, part in zip(step.properties, step.parts, strict=True)]

    def write(row: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for each, part in steps:
            value = row.get(each.column)
            try:
                made[each.name] = part(value)
            except _NoNull:
                if each.is_required or not _is_null(value):
                    raise
        return made

    return write
