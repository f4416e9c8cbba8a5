"""Rows as JSON under a JSON Schema, of ours or of somebody else, in Python.

It interprets what `sql/schemas/json_write_program.py` makes of the schema and the columns; queries
that run in Spark write the same bytes (`pipeline/io/json_sr_rows.py`), since the bytes of a key
decide its partition. Not here: which schema a source's rows have; the frame around the bytes
(`framed_values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from standpipe.data.encoding.kafka_keys import java_double, json_string
from standpipe.model import Column
from standpipe.sql.schemas import json_write_program
from standpipe.sql.schemas.json_schema import ENTRY, JsonType
from standpipe.sql.schemas.json_write_program import JsonStep
from standpipe.sql.types.types import SqlType

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

#: a value as the text of its JSON
_Write = Callable[[Any], str]


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
        return lambda row: write(row[0]).encode()
    names = [column.name for column in columns]
    return lambda row: write(dict(zip(names, row, strict=True))).encode()


def _writer(step: JsonStep) -> _Write:
    write = _of_value(step)

    def written(value: Any) -> str:
        if not _is_null(value):
            return write(value)
        if step.takes_null:
            return "null"
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
            return lambda value: f"[{','.join(map(item, value))}]"
        case "MAP":
            part = _writer(step.parts[0])
            return lambda value: _object((key, part(each)) for key, each in value.items())
        case "ENTRIES":
            part = _writer(step.parts[0])
            return lambda value: (
                "["
                + ",".join(
                    _object(zip(ENTRY, (json_string(key), part(each)), strict=True))
                    for key, each in value.items()
                )
                + "]"
            )
        case "OBJECT":
            return _properties(step)
        case "VALUE":
            return _scalar(step.of)


def _object(members: Iterable[tuple[str, str]]) -> str:
    """`members`: names, and the JSON of their values."""
    return f"{{{','.join(f'{json_string(name)}:{text}' for name, text in members)}}}"


def _scalar(of: SqlType) -> _Write:
    """As Jackson writes it, which Spark uses. -0.0 is 0.0, as both are equal keys."""
    match of.base:
        case "STRING":
            return json_string
        case "DOUBLE":
            return lambda value: java_double(float(value))
        case _:
            return lambda value: _encode(value).decode()


def _properties(step: JsonStep) -> _Write:
    steps = [(each, _writer(part)) for each, part in zip(step.properties, step.parts, strict=True)]

    def write(row: Any) -> str:
        made: list[tuple[str, str]] = []
        for each, part in steps:
            value = row.get(each.column)
            try:
                made.append((each.name, part(value)))
            except _NoNull:
                if each.is_required or not _is_null(value):
                    raise
        return _object(made)

    return write
