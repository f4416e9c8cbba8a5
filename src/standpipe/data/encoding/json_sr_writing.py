"""Rows as JSON under a JSON Schema, of ours or of somebody else.

Each column is written into the property of its name, exactly or else in any case. NULL is written
where the schema has null, and else leaves out a property that is not required. Words that only
check values (`pattern`, `maximum`, `enum`, …) are not looked at, as by Confluent's serializer.
Source: Confluent's `JsonSchemaData`. Not here: which schema a source's rows have; the frame around
the bytes (`framed_values.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas.json_columns import nullable
from standpipe.sql.schemas.json_schema import ENTRY, JsonProperty, JsonType
from standpipe.sql.schemas.registry import BadSchema
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_NUMBERS: Final = ("integer", "number")
#: SQL type -> JSON Schema's types that take its values
_TAKING: Final[Mapping[str, tuple[str, ...]]] = {
    "BOOLEAN": ("boolean",),
    "INTEGER": _NUMBERS,
    "BIGINT": _NUMBERS,
    "DATE": _NUMBERS,
    "TIME": _NUMBERS,
    "TIMESTAMP": _NUMBERS,
    "DOUBLE": ("number",),
    "DECIMAL": ("number",),
    "STRING": ("string",),
    "BYTES": ("string",),
}

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
    if not wraps:
        (column,) = columns
        write = _writer(schema, parse_type(column.type), column.name)
        return lambda row: _encode(write(row[0]))
    named = [(column.name, parse_type(column.type)) for column in columns]
    write = _writer(nullable(schema), types.struct(tuple(named)), "")
    names = [name for name, _ in named]
    return lambda row: _encode(write(dict(zip(names, row, strict=True))))


def _writer(of: JsonType, source: SqlType, path: str) -> _Write:
    """`path`: of the columns and fields around it, which are no more than its type is deep."""
    if of.kind == "optional":
        write = _writer(of.parts[0], source, path)
        return (lambda value: None if value is None else write(value)) if of.takes_null else write
    base = source.base
    if base == "ARRAY" and of.kind == "array":
        item = _writer(of.parts[0], source.arguments[0], f"{path}->ARRAY")
        return lambda value: [*map(item, _there(value, path))]
    if base == "MAP" and of.kind == "map":
        part = _writer(of.parts[0], source.arguments[1], f"{path}->MAP_VAL")
        return lambda value: {key: part(each) for key, each in _there(value, path).items()}
    if base == "MAP" and of.kind == "entries":
        return _entries(of, source, path)
    if base == "STRUCT" and of.kind == "object":
        return _properties(of, source, path)
    if of.kind not in _TAKING.get(base, ()) or (base == "BYTES") != _is_bytes(of):
        raise BadSchema(f"Cannot serialize type {source} as {of.why or of.kind}: {path}")
    return lambda value: _there(value, path)


def _is_bytes(of: JsonType) -> bool:
    return of.kind == "string" and of.connect == "bytes"


def _there(value: Any, path: str) -> Any:
    if value is None:
        what = path.removeprefix("->") or "the value"
        raise _NoNull(f"{what} is NULL, which its schema does not allow")
    return value


def _entries(of: JsonType, source: SqlType, path: str) -> _Write:
    key = _writer(of.parts[0], types.STRING, f"{path}->MAP_KEY")
    part = _writer(of.parts[1], source.arguments[1], f"{path}->MAP_VAL")

    def write(value: Any) -> list[dict[str, Any]]:
        pairs = _there(value, path).items()
        return [dict(zip(ENTRY, (key(name), part(each)), strict=True)) for name, each in pairs]

    return write


def _properties(of: JsonType, source: SqlType, path: str) -> _Write:
    left = dict(zip(source.field_names, source.arguments, strict=True))
    steps: list[tuple[JsonProperty, str, _Write]] = []
    for each in of.properties:
        name = each.name if each.name in left else each.name.upper()
        if name in left:
            steps.append((each, name, _writer(each.of, left.pop(name), f"{path}->{each.name}")))
        elif each.is_required:
            raise BadSchema(f"no column has a value for {each.name}, which is required")
    if left:
        raise BadSchema(f"the schema has no property for {', '.join(left)}{path and f' in {path}'}")

    def write(value: Any) -> dict[str, Any]:
        row = _there(value, path)
        made: dict[str, Any] = {}
        for each, name, step in steps:
            try:
                made[each.name] = step(row.get(name))
            except _NoNull:
                if each.is_required or row.get(name) is not None:
                    raise
        return made

    return write
