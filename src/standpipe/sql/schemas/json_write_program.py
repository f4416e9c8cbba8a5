"""Rows as JSON under a JSON Schema: how each value is written, from the schema and the columns.

    (schema, columns) ─► program ─┬─► data/encoding/json_sr_writing.py: rows of INSERT, in Python
                                  └─► pipeline/io/json_sr_rows.py: rows of queries, in Spark SQL

Each column is written into the property of its name, exactly or else in any case. NULL is written
where the schema has null, and else leaves out a property that is not required. Words that only
check values (`pattern`, `maximum`, `enum`, …) are not looked at, as by Confluent's serializer.
What the schema cannot say of any value of a column is BadSchema; what it cannot say of one value
(NULL in a required property without null) fails as the program runs.
Source: Confluent's `JsonSchemaData`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from standpipe.model import Column
from standpipe.sql.schemas.json_columns import nullable
from standpipe.sql.schemas.json_schema import JsonType
from standpipe.sql.schemas.registry import BadSchema
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

#: steps that are tried for a program: of types, and of properties that no column has. A statement
#: is judged in the leader's turn, so this also bounds its time
STEPS_MAX: Final = 20_000
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


@dataclass(frozen=True, slots=True)
class JsonStep:
    """How one value is written. `path`: to it, for messages. `takes_null`: NULL is null there.

    `parts`: of ARRAY the item, of MAP and ENTRIES the value, of OBJECT each property.
    """

    op: Literal["VALUE", "ARRAY", "MAP", "ENTRIES", "OBJECT"]
    of: SqlType
    path: str
    takes_null: bool = False
    parts: tuple[JsonStep, ...] = ()
    properties: tuple[WrittenProperty, ...] = ()

    @property
    def has_every_value(self) -> bool:
        """Whether it has each value of its type, NULL included, with no property left out."""
        return self.takes_null and self.has_every_part

    @property
    def has_every_part(self) -> bool:
        """The same of what is in it."""
        return all(part.has_every_value for part in self.parts)


@dataclass(frozen=True, slots=True)
class WrittenProperty:
    """A property of an object, and the column or field that it has the value of."""

    name: str
    column: str
    is_required: bool


def program(writer: JsonType, columns: Sequence[Column], *, wraps: bool) -> JsonStep:
    """How a row, the values of `columns`, is written under a schema. `wraps`: as an object with a
    property for each column; else the row is its only value.

    Raises BadSchema where a column has no property of a type that takes it, or a required property
    has no column, and for a schema that stands for more than STEPS_MAX types.
    """
    maker = _JsonProgramMaker()
    try:
        if not wraps:
            (column,) = columns
            return maker.step(writer, parse_type(column.type), column.name)
        named = tuple((column.name, parse_type(column.type)) for column in columns)
        return maker.step(nullable(writer), types.struct(named), "")
    except RecursionError:  # unions that refer to each other without end
        raise BadSchema("a type contains itself") from None


class _JsonProgramMaker:
    """Makes the steps of one schema. A type has its steps wherever it is used, so a short schema
    may stand for very many."""

    def __init__(self) -> None:
        self._steps_left = STEPS_MAX

    def _count(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise BadSchema(f"it stands for more than {STEPS_MAX} types")

    def step(self, of: JsonType, source: SqlType, path: str) -> JsonStep:
        """`path`: of the columns and fields around it, which are no more than its type is deep."""
        self._count()
        if of.kind == "optional":
            inner = self.step(of.parts[0], source, path)
            return replace(inner, takes_null=of.takes_null or inner.takes_null)
        base = source.base
        if base == "ARRAY" and of.kind == "array":
            item = self.step(of.parts[0], source.arguments[0], f"{path}->ARRAY")
            return JsonStep("ARRAY", source, path, parts=(item,))
        if base == "MAP" and of.kind == "map":
            part = self.step(of.parts[0], source.arguments[1], f"{path}->MAP_VAL")
            return JsonStep("MAP", source, path, parts=(part,))
        if base == "MAP" and of.kind == "entries":
            self.step(of.parts[0], types.STRING, f"{path}->MAP_KEY")
            part = self.step(of.parts[1], source.arguments[1], f"{path}->MAP_VAL")
            return JsonStep("ENTRIES", source, path, parts=(part,))
        if base == "STRUCT" and of.kind == "object":
            return self._object(of, source, path)
        if of.kind not in _TAKING.get(base, ()) or (base == "BYTES") != _is_bytes(of):
            raise BadSchema(f"Cannot serialize type {source} as {of.why or of.kind}: {path}")
        return JsonStep("VALUE", source, path)

    def _object(self, of: JsonType, source: SqlType, path: str) -> JsonStep:
        left = dict(zip(source.field_names, source.arguments, strict=True))
        parts: list[JsonStep] = []
        properties: list[WrittenProperty] = []
        for each in of.properties:
            self._count()
            name = each.name if each.name in left else each.name.upper()
            if name in left:
                parts.append(self.step(each.of, left.pop(name), f"{path}->{each.name}"))
                properties.append(WrittenProperty(each.name, name, each.is_required))
            elif each.is_required:
                raise BadSchema(f"no column has a value for {each.name}, which is required")
        if left:
            raise BadSchema(
                f"the schema has no property for {', '.join(left)}{path and f' in {path}'}"
            )
        return JsonStep("OBJECT", source, path, parts=tuple(parts), properties=tuple(properties))


def _is_bytes(of: JsonType) -> bool:
    return of.kind == "string" and of.connect == "bytes"
