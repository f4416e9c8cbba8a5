"""Rows as Avro: from a schema and columns to a program, which says how each value is written.

    (schema, columns) ─► program ─┬─► data/encoding/avro_writing.py: rows of INSERT, in Python
                                  └─► pipeline/run/start/AvroBytes.java: rows of queries, in Spark

Each column is written into the field of its name, exactly or else in any case; a field without a
column has its default. What the schema cannot say of any value of a column is BadSchema; what it
cannot say of one value (NULL without a null branch, an unknown symbol) fails as the program runs.
Source: Apache Avro 1.12, "Binary encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroField, AvroType, BadSchema
from standpipe.sql.schemas.avro_columns import is_map_entry
from standpipe.sql.types.types import SqlType, parse_type

#: steps that are tried for a program: of types, and of fields that no column has. A statement is
#: judged in the leader's turn, so this also bounds its time
STEPS_MAX: Final = 20_000
_LONG_MAX: Final = 2**63 - 1

Op = Literal[
    "CONSTANT",  # `data`, whatever the row has
    "BOOLEAN",
    "INT",
    "LONG",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BYTES",
    "FIXED",  # `numbers`: its size in bytes
    "ENUM",  # `names`: its symbols
    "DECIMAL",  # `numbers`: precision, scale, size of a fixed or -1
    "OPTIONAL",  # a union; `numbers`: its null branch or -1, the branch of other values
    "RECORD",  # `names`: those of the row's values; `numbers`: place of each part's value, or -1
    "ARRAY",
    "MAP",  # with keys of text
    "ENTRIES",  # a map as an array of records of a key and a value
]


class WriteStep(msgspec.Struct, frozen=True, array_like=True):
    """How one value is written. `path`: to it, for messages; `parts`: the steps of what is in it.

    `to_text` has the fields in this order, as a JSON array, and `data` in base64.
    """

    op: Op
    path: str = ""
    parts: tuple[WriteStep, ...] = ()
    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    data: bytes = b""


def program(writer: AvroType, columns: Sequence[Column], *, wraps: bool) -> WriteStep:
    """How a row, the values of `columns` in their order, is written under a schema. `wraps`: as a
    record; else the row is its only value.

    Raises BadSchema where a column has no field of a type that takes it, or a field has no value,
    and for a schema with more than STEPS_MAX types.
    """
    compiler = _ProgramMaker(STEPS_MAX)
    if wraps and writer.kind != "record":
        raise BadSchema(f"the schema is no record, but {writer.kind}")
    if not wraps:
        (column,) = columns
        return compiler.step(writer, parse_type(column.type), column.name)
    named = [(column.name, parse_type(column.type)) for column in columns]
    return compiler.record(writer, named, "")


def to_text(step: WriteStep) -> str:
    """The program as JSON, for the interpreter in Java."""
    return msgspec.json.encode(step).decode()


def long_bytes(number: int) -> bytes:
    """A number in zigzag form. Raises ValueError beyond 64 bits."""
    if not -_LONG_MAX - 1 <= number <= _LONG_MAX:
        raise ValueError(f"{number} has more than 64 bits")
    left = (number << 1) ^ (number >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def int_bytes(number: int) -> bytes:
    """The same of a number of 32 bits."""
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} has more than 32 bits")
    return long_bytes(number)


def sized_bytes(data: bytes) -> bytes:
    """Bytes behind their number."""
    return long_bytes(len(data)) + data


@dataclass
class _ProgramMaker:
    """Makes the steps of one schema. A named type has its steps wherever it is used, so a short
    schema may stand for very many."""

    steps_left: int

    def _count(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise BadSchema(f"it stands for more than {STEPS_MAX} types")

    def step(self, of: AvroType, source: SqlType, path: str) -> WriteStep:
        self._count()
        if of.kind == "union":
            return self._optional(of, source, path)
        base = source.base
        if base == "DECIMAL" and of.logical == "decimal":
            size = of.size if of.kind == "fixed" else -1
            return WriteStep("DECIMAL", path, numbers=(of.precision, of.scale, size))
        if base == "ARRAY" and of.kind == "array" and not is_map_entry(of.values):
            return WriteStep(
                "ARRAY", path, (self.step(of.values, source.arguments[0], f"{path}->ARRAY"),)
            )
        if base == "MAP" and of.kind == "map":
            return WriteStep(
                "MAP", path, (self.step(of.values, source.arguments[1], f"{path}->MAP_VAL"),)
            )
        if base == "MAP" and of.kind == "array" and is_map_entry(of.values):
            fields = [("key", SqlType("STRING")), ("value", source.arguments[1])]
            return WriteStep("ENTRIES", path, (self.record(of.values, fields, path),))
        if base == "STRUCT" and of.kind == "record":
            fields = list(zip(source.field_names, source.arguments, strict=True))
            return self.record(of, fields, path)
        op = _SCALARS.get((base, of.kind))
        if op is None or of.logical not in _LOGICAL_OF.get(base, ("",)):
            raise BadSchema(f"Cannot serialize type {source} as {of.logical or of.kind}: {path}")
        return WriteStep(op, path, numbers=(of.size,) if op == "FIXED" else (), names=of.symbols)

    def _optional(self, of: AvroType, source: SqlType, path: str) -> WriteStep:
        """A union: NULL is its null; any other value is the first branch that takes the type."""
        null = -1
        found: tuple[int, WriteStep] | None = None
        for number, branch in enumerate(of.parts):
            if branch.kind == "null":
                null = number
            elif found is None:
                try:
                    found = number, self.step(branch, source, path)
                except BadSchema:
                    if self.steps_left < 0:
                        raise
        if found is None:
            raise BadSchema(f"Cannot serialize type {source} as any of a union: {path}")
        return WriteStep("OPTIONAL", path, (found[1],), (null, found[0]))

    def record(self, of: AvroType, sources: Sequence[tuple[str, SqlType]], path: str) -> WriteStep:
        names = tuple(name for name, _ in sources)
        left = dict(sources)
        parts: list[WriteStep] = []
        places: list[int] = []
        for field in of.fields:
            name = field.name if field.name in left else field.name.upper()
            if name in left:
                parts.append(self.step(field.of, left.pop(name), f"{path}->{field.name}"))
                places.append(names.index(name))
            else:
                self._count()
                parts.append(WriteStep("CONSTANT", data=_default(field)))
                places.append(-1)
        if left:
            raise BadSchema(
                f"the schema has no field for {', '.join(left)}{path and f' in {path}'}"
            )
        return WriteStep("RECORD", path, tuple(parts), tuple(places), names)


def _default(field: AvroField) -> bytes:
    """The bytes of a field that no column has."""
    if not field.has_default:
        raise BadSchema(f"no column has a value for field {field.name}, which has no default")
    of, value = field.of, field.default
    head = b""
    if of.kind == "union":  # its default is one of the first branch
        of, head = of.parts[0], long_bytes(0)
    plain: Mapping[str, Callable[[Any], bytes]] = {
        "null": lambda _: b"",
        "boolean": lambda value: b"\x01" if value else b"\x00",
        "int": int_bytes,
        "long": long_bytes,
        "float": struct.Struct("<f").pack,
        "double": struct.Struct("<d").pack,
        "string": lambda text: sized_bytes(text.encode()),
        "bytes": lambda text: sized_bytes(text.encode("latin-1")),
        "enum": lambda text: long_bytes(of.symbols.index(text)),
    }
    try:
        if of.kind in ("array", "map") and not value:
            return head + long_bytes(0)
        return head + plain[of.kind](value)
    except (KeyError, ValueError, TypeError, AttributeError, struct.error, OverflowError) as error:
        raise BadSchema(f"field {field.name} has a default that is not read here") from error


#: of a column's type and an Avro type, where ksqlDB reads the one as the other
_SCALARS: Final[Mapping[tuple[str, str], Op]] = {
    ("BOOLEAN", "boolean"): "BOOLEAN",
    ("INTEGER", "int"): "INT",
    ("INTEGER", "long"): "LONG",
    ("BIGINT", "long"): "LONG",
    ("DOUBLE", "double"): "DOUBLE",
    ("DOUBLE", "float"): "FLOAT",
    ("STRING", "string"): "STRING",
    ("STRING", "enum"): "ENUM",
    ("BYTES", "bytes"): "BYTES",
    ("BYTES", "fixed"): "FIXED",
    ("DATE", "int"): "INT",
    ("TIME", "int"): "INT",
    ("TIMESTAMP", "long"): "LONG",
}
#: SQL type -> logical types under which its number means the same
_LOGICAL_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "DATE": ("date", ""),
    "TIME": ("time-millis", ""),
    "TIMESTAMP": ("timestamp-millis", ""),
}
