"""Schemas, columns and bytes of Avro, drawn at random.

Values are drawn as the bytes of a schema's value, so that no second encoder is needed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from standpipe.sql.schemas.avro import AvroType
from standpipe.sql.types.types import SqlType

SCALARS = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")
#: SQL type -> types of Avro that fit it
FITTING: dict[str, tuple[Any, ...]] = {
    "BOOLEAN": ("boolean",),
    "INTEGER": ("int", {"type": "int", "logicalType": "date"}),
    "BIGINT": ("int", "long", {"type": "long", "logicalType": "timestamp-micros"}),
    "DOUBLE": ("float", "double"),
    "STRING": ("string", "int", "long", "float", "double", "boolean", "ENUM"),
    "BYTES": ("bytes", "FIXED"),
    "DATE": ("int", {"type": "int", "logicalType": "date"}),
    "TIME": ({"type": "int", "logicalType": "time-millis"},
             {"type": "long", "logicalType": "time-micros"}),
    "TIMESTAMP": ({"type": "long", "logicalType": "timestamp-millis"}, "int",
                  {"type": "long", "logicalType": "timestamp-micros"}),
}  # fmt: skip
TEXTS = ("", "a", "ü", "😀", "a\n\t\x00", "x" * 60, "\ufffd", '"\\')
NUMBERS = (0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 999, -999, 10**12)
LARGE = (2**63 - 1, -(2**63), 2**31, 10**15)
DOUBLES = (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 0.1, 1e7,
           2e23, 1e-3, 9.999e-4, 123456789.125, 2.2250738585072014e-308)  # fmt: skip


def sql_type(chance: random.Random, depth: int = 2) -> SqlType:
    """A type of a column."""
    kind = chance.randrange(14 if depth else 10)
    if kind < 9:
        return SqlType(SCALARS[kind])
    if kind == 9:
        precision = chance.choice((1, 5, 9, 38))
        return SqlType("DECIMAL", precision, chance.randrange(min(precision, 6) + 1))
    if kind == 10:
        return SqlType("ARRAY", arguments=(sql_type(chance, depth - 1),))
    if kind == 11:
        return SqlType("MAP", arguments=(SqlType("STRING"), sql_type(chance, depth - 1)))
    names = ("X", "y", "Zz", "INT")[: chance.randrange(1, 5)]
    parts = tuple(sql_type(chance, depth - 1) for _ in names)
    return SqlType("STRUCT", arguments=parts, field_names=names)


class Writers:
    """Draws schemas for columns. Each has names of its own, as Avro asks for within a schema."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.count = chance, 0

    def named(self, kind: str, **more: Any) -> dict[str, Any]:
        self.count += 1
        return {"type": kind, "name": f"N{self.count}", **more}

    def spelled(self, name: str) -> str:
        return self.chance.choice((name, name, name.lower(), name.upper(), name.capitalize()))

    def record(self, fields: list[tuple[str, SqlType]], depth: int = 3) -> dict[str, Any]:
        """A record with most of these fields, in some case and order, and with others."""
        made = self.named("record")
        found: dict[str, Any] = {}
        for name, of in fields:
            if self.chance.random() < 0.9:
                found[self.spelled(name)] = self.optional(self.of(of, depth))
            if self.chance.random() < 0.1:
                found.setdefault(self.spelled(name), self.of(of, depth))
        for number in range(self.chance.randrange(3)):
            found[f"extra{number}"] = self.any(2, made["name"])
        names = list(found)
        self.chance.shuffle(names)
        return {**made, "fields": [{"name": name, "type": found[name]} for name in names]}

    def optional(self, of: Any) -> Any:
        draw = self.chance.random()
        if isinstance(of, list) or draw < 0.3:
            return of
        return ["null", of] if draw < 0.8 else [of, "null"] if draw < 0.95 else [of]

    def of(self, sql: SqlType, depth: int) -> Any:
        if self.chance.random() < 0.02:
            return self.any(1, None)
        if sql.base == "DECIMAL":
            scale = self.chance.choice((0, sql.scale, 7, 30))
            size = {"logicalType": "decimal", "precision": 40, "scale": scale}
            return {"type": "bytes", **size} if depth % 2 else self.named("fixed", size=9, **size)
        if sql.base == "ARRAY":
            return {"type": "array", "items": self.optional(self.of(sql.arguments[0], depth - 1))}
        if sql.base == "MAP":
            value = self.optional(self.of(sql.arguments[1], depth - 1))
            if self.chance.random() < 0.5:
                return {"type": "map", "values": value}
            key = self.chance.choice(("string", ["null", "string"], "long", "boolean"))
            fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
            entry = self.named("record", fields=fields)
            return {"type": "array", "items": {**entry, "connect.internal.type": "MapEntry"}}
        if sql.base == "STRUCT":
            if "INT" in sql.field_names and self.chance.random() < 0.5:
                return ["null", "int", "string", {"type": "array", "items": "int"}]
            named = list(zip(sql.field_names, sql.arguments, strict=True))
            return self.record(named, depth - 1)
        return self.scalar(self.chance.choice(FITTING[sql.base]))

    def scalar(self, of: Any) -> Any:
        if of == "ENUM":
            return self.named("enum", symbols=["A", "B", "C"])
        return self.named("fixed", size=self.chance.randrange(20)) if of == "FIXED" else of

    def any(self, depth: int, around: str | None) -> Any:
        """Any type; one of those around it, if it is not None, which then contains itself."""
        kind = self.chance.randrange(9 if depth else 5)
        if kind < 4:
            kinds = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
            return self.chance.choice(kinds)
        if kind == 4:
            return self.scalar(self.chance.choice(("ENUM", "FIXED")))
        if kind == 5:
            return {"type": "array", "items": self.any(depth - 1, around)}
        if kind == 6:
            return {"type": "map", "values": self.any(depth - 1, around)}
        if kind == 7 and around is not None:
            return ["null", around, "string"]
        made = self.named("record")
        fields = [{"name": f"f{n}", "type": self.any(depth - 1, made["name"])} for n in range(2)]
        return {**made, "fields": fields}


def number(value: int) -> bytes:
    """A number as Avro writes it."""
    left = (value << 1) ^ (value >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def value(of: AvroType, chance: random.Random, depth: int = 0) -> bytes:
    """The bytes of some value of a type."""
    match of.kind:
        case "record":
            return b"".join(value(each.of, chance, depth + 1) for each in of.fields)
        case "union":
            ends = [at for at, each in enumerate(of.parts) if each.kind == "null"]
            branch = ends[0] if ends and depth > 8 else chance.randrange(len(of.parts))
            return number(branch) + value(of.parts[branch], chance, depth + 1)
        case "array":
            return b"".join(_blocks(of, chance, depth, is_map=False))
        case "map":
            return b"".join(_blocks(of, chance, depth, is_map=True))
        case _:
            return _scalar(of, chance)


def _blocks(of: AvroType, chance: random.Random, depth: int, *, is_map: bool) -> Iterator[bytes]:
    for _ in range(chance.randrange(3) if depth < 8 else 0):
        count = chance.randrange(1, 4)
        items = [
            (_text(chance) if is_map else b"") + value(of.values, chance, depth + 1)
            for _ in range(count)
        ]
        whole = b"".join(items)
        yield number(-count) + number(len(whole)) if chance.random() < 0.3 else number(count)
        yield whole
    yield number(0)


def _text(chance: random.Random) -> bytes:
    made = chance.choice(TEXTS).encode()
    return number(len(made)) + made


def _scalar(of: AvroType, chance: random.Random) -> bytes:
    match of.kind:
        case "null":
            return b""
        case "boolean":
            return bytes([chance.randrange(2)])
        case "int":
            return number(chance.choice(NUMBERS[:-1]))
        case "long":
            return number(chance.choice(NUMBERS + LARGE))
        case "float":
            return chance.randbytes(4) if chance.random() < 0.5 else struct.pack("<f", 0.1)
        case "double":
            drawn = chance.choice(DOUBLES)
            return chance.randbytes(8) if chance.random() < 0.5 else struct.pack("<d", drawn)
        case "fixed":
            return chance.randbytes(of.size) if chance.random() < 0.5 else bytes(of.size)
        case "enum":
            return number(chance.randrange(len(of.symbols)))
        case "bytes":
            made = chance.randbytes(chance.choice((0, 1, 2, 4, 9, 17)))
            return number(len(made)) + made
        case _:
            return _text(chance)


def broken(data: bytes, chance: random.Random) -> bytes:
    """The bytes with something wrong, most often."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(made) + 1)
        draw = chance.randrange(4)
        if draw == 0:
            del made[at:]
        elif draw == 1:
            made[at:at] = chance.randbytes(chance.randrange(1, 12))
        elif draw == 2:
            made[at : at + 1] = bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))])
        else:
            del made[at : at + 1]
    return bytes(made)
