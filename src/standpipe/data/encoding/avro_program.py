"""How values of one Avro schema become cells of columns: a program, which is data.

    writer's schema + columns ─► `program_of_cells` ─► steps ─┬► Python: avro_reading.py
                                                              └► Java, on executors: AvroRows.java

All rules are applied here, so that both interpreters only follow steps. A record is read by the
schema that it was written under, whichever that is; its fields are then matched with the columns by
name, exactly or else in any case. A column without a field is NULL, and a field without a column is
passed over. What is no value of its column's type makes the schema, and so every record under it,
unreadable. Source: Apache Avro 1.12, "Binary encoding"; ksqlDB's `ConnectDataTranslator`.

A program is bounded whatever the schema is. Named types refer to each other, so each pair of a type
and a target is one step, made once, and the steps are made in a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroType, BadSchema
from standpipe.sql.schemas.avro_columns import is_map_entry, nullable, union_field
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

#: steps, with the fields that they read and those that they make
PARTS_MAX: Final = 20_000
PROGRAM_CHARS_MAX: Final = 500_000
#: digits after the point of a writer's decimal: rounding a value divides by a power of ten
SCALE_MAX: Final = 1_000
#: number of the place of what is passed over
NOWHERE: Final = -1
#: SQL type -> Avro's types whose values it takes (ksqlDB)
_ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "BOOLEAN": ("boolean",),
    "INTEGER": ("int",),
    "BIGINT": ("int", "long"),
    "DOUBLE": ("float", "double"),
    "STRING": ("int", "long", "float", "double", "boolean", "string", "enum"),
    "BYTES": ("bytes", "fixed"),
    "DATE": ("int",),
    "TIME": ("int",),
    "TIMESTAMP": ("int", "long"),
}

#: what is made of a value without parts: as it is; text as Java's String.valueOf; bytes of a
#: column; ms out of µs, and of a day; an int as a BIGINT; a number of `decimal`
Form = Literal["", "text", "bytes", "millis", "time", "long", "decimal"]


class AvroStep(msgspec.Struct, frozen=True, array_like=True):
    """How a value of one type is read.

    `kind`: what is read: a primitive, fixed, enum, array, map, record, union; `entries`: an array
    of Connect's map entries; `branches`: a union that makes a STRUCT.
    """

    kind: str
    form: Form = ""
    #: whether the value is used; if not, it is only passed over
    is_kept: bool = True
    #: bytes of a fixed, symbols of an enum
    size: int = 0
    #: the writer's scale, and the target's precision and scale; precision 0: whatever it is
    decimal: tuple[int, int, int] = (0, 0, 0)
    #: an enum's symbols; the fields that a record or branches make
    names: tuple[str, ...] = ()
    #: the parts in the order of the bytes, or of a union's branches: (place among `names`, step)
    parts: tuple[tuple[int, int], ...] = ()


class AvroProgram(msgspec.Struct, frozen=True):
    """Step 0 reads the whole value. `is_row`: it makes a field for each column, else that of the
    only column."""

    is_row: bool
    steps: tuple[AvroStep, ...]

    def text(self) -> str:
        """As JSON, for AvroRows.java. Raises BadSchema for a long one."""
        made = msgspec.json.encode(self).decode()
        if len(made) > PROGRAM_CHARS_MAX:
            raise BadSchema(f"reading it needs more than {PROGRAM_CHARS_MAX} characters")
        return made


def program_of_cells(writer: AvroType, columns: Sequence[Column], *, wraps: bool) -> AvroProgram:
    """How values of a schema are read as cells, in the order of `columns`.

    `wraps`: the value is a record with a field for each column, else that of the only column.
    Raises BadSchema where a type does not fit its column.
    """
    if wraps and writer.kind != "record":
        raise BadSchema(f"the schema is no record, but {writer.kind}")
    if wraps:
        row = types.struct(tuple((each.name, parse_type(each.type)) for each in columns))
        return AvroProgram(is_row=True, steps=_Compiler(shows=False).steps(writer, row, ""))
    (column,) = columns
    steps = _Compiler(shows=False).steps(writer, parse_type(column.type), column.name)
    return AvroProgram(is_row=False, steps=steps)


def program_of_text(writer: AvroType) -> AvroProgram:
    """How values of a schema are read as they are. Raises BadSchema."""
    return AvroProgram(is_row=False, steps=_Compiler(shows=True).steps(writer, None, ""))


class _Compiler:
    def __init__(self, *, shows: bool) -> None:
        """`shows`: values without a target are used, too."""
        self._shows = shows
        self._made: list[AvroStep | None] = []
        #: (type, target) by their identity -> number of the step
        self._known: dict[tuple[int, int], int] = {}
        self._waiting: list[tuple[int, AvroType, SqlType | None, str]] = []
        self._parts_left = PARTS_MAX

    def steps(self, of: AvroType, target: SqlType | None, path: str) -> tuple[AvroStep, ...]:
        """All steps, of which the first reads a value of that type. Raises BadSchema."""
        self._step(of, target, path)
        while self._waiting:
            number, of, target, path = self._waiting.pop()
            self._made[number] = self._of(of, target, path)
        return tuple(each for each in self._made if each is not None)

    def _step(self, of: AvroType, target: SqlType | None, path: str) -> int:
        """The number of the step, which is made later."""
        key = (id(of), 0 if target is None else id(target))
        if key not in self._known:
            self._pay(1)
            self._known[key] = len(self._made)
            self._made.append(None)
            self._waiting.append((self._known[key], of, target, path))
        return self._known[key]

    def _pay(self, parts: int) -> None:
        self._parts_left -= parts
        if self._parts_left < 0:
            raise BadSchema(f"reading it needs more than {PARTS_MAX} steps")

    def _of(self, of: AvroType, target: SqlType | None, path: str) -> AvroStep:
        """`target` None: whatever the value is."""
        if of.kind == "union":
            return self._union(of, target, path)
        if target is None:
            return self._untyped(of)
        if target.base == "DECIMAL" and of.logical == "decimal":
            return _decimal(of, (target.precision, target.scale))
        if target.base == "ARRAY" and of.kind == "array" and not is_map_entry(of.values):
            item = self._step(of.values, target.arguments[0], f"{path}->ARRAY")
            return AvroStep("array", parts=((0, item),))
        if target.base == "MAP" and target.arguments[0].base == "STRING":
            if of.kind == "map":
                value = self._step(of.values, target.arguments[1], f"{path}->MAP_VAL")
                return AvroStep("map", parts=((0, value),))
            if is_entries(of):
                entry = types.struct((("key", types.STRING), ("value", target.arguments[1])))
                return AvroStep("entries", parts=((0, self._entry(of.values, entry, path)),))
        if target.base == "STRUCT" and of.kind == "record":
            return self._record(of, target, path)
        takes = of.kind in _ACCEPTED.get(target.base, ()) and of.logical != "decimal"
        if not takes and (target.base, of.logical) != ("TIME", "time-micros"):
            raise BadSchema(
                f"Cannot deserialize type {of.logical or of.kind} as type {target} for path: {path}"
            )
        return _scalar(of, _form(of, target), is_kept=True)

    def _entry(self, of: AvroType, target: SqlType, path: str) -> int:
        """The step of a map's entries, made at once: nothing else keeps its target."""
        self._pay(1)
        self._made.append(None)
        number = len(self._made) - 1
        self._made[number] = self._record(of, target, path)
        return number

    def _record(self, of: AvroType, target: SqlType, path: str) -> AvroStep:
        """Fields of a record, in the places of a struct's fields."""
        self._pay(len(of.fields) + len(target.field_names))
        exact = {field.name for field in of.fields}
        places = {name: place for place, name in enumerate(target.field_names)}
        folded = {name.upper(): place for name, place in places.items() if name not in exact}
        parts: list[tuple[int, int]] = []
        for field in of.fields:
            place = places.get(field.name)
            if place is None:
                place = folded.get(field.name.upper(), NOWHERE)
            part = None if place == NOWHERE else target.arguments[place]
            parts.append((place, self._step(field.of, part, f"{path}->{field.name}")))
        return AvroStep("record", names=target.field_names, parts=tuple(parts))

    def _union(self, of: AvroType, target: SqlType | None, path: str) -> AvroStep:
        self._pay(len(of.parts))
        if target is None or target.base != "STRUCT" or nullable(of) is not of:
            is_kept = target is not None or self._shows
            parts = tuple(
                (NOWHERE, self._step(each, None if each.kind == "null" else target, path))
                for each in of.parts
            )
            return AvroStep("union", is_kept=is_kept, parts=parts)
        self._pay(len(target.field_names))
        places = {name: place for place, name in enumerate(target.field_names)}
        found: list[tuple[int, int]] = []
        for each in of.parts:
            named = union_field(each)
            fits = (places[name] for name in (named, named.upper()) if name in places)
            place = NOWHERE if each.kind == "null" else min(fits, default=NOWHERE)
            part = None if place == NOWHERE else target.arguments[place]
            found.append((place, self._step(each, part, f"{path}->{named}")))
        return AvroStep("branches", names=target.field_names, parts=tuple(found))

    def _untyped(self, of: AvroType) -> AvroStep:
        is_kept = self._shows
        if of.kind in ("array", "map"):
            part = self._step(of.values, None, "")
            return AvroStep(of.kind, is_kept=is_kept, parts=((0, part),))
        if of.kind == "record":
            self._pay(len(of.fields))
            steps = [self._step(field.of, None, "") for field in of.fields]
            if not is_kept:
                return AvroStep(
                    "record", is_kept=False, parts=tuple((NOWHERE, step) for step in steps)
                )
            names = tuple(field.name for field in of.fields)
            return AvroStep("record", names=names, parts=tuple(enumerate(steps)))
        if of.logical == "decimal" and is_kept:
            return _decimal(of, (0, 0))
        return _scalar(of, "", is_kept=is_kept)


def is_entries(of: AvroType) -> bool:
    """Whether it is a map that Connect writes as an array of entries."""
    return of.kind == "array" and is_map_entry(of.values)


def _form(of: AvroType, target: SqlType) -> Form:
    if target.base == "BYTES":
        return "bytes"
    if target.base in ("TIME", "TIMESTAMP") and of.logical.endswith("-micros"):
        return "time" if target.base == "TIME" else "millis"
    if target.base in ("BIGINT", "TIMESTAMP") and of.kind == "int":
        return "long"
    return "text" if target.base == "STRING" and of.kind not in ("string", "enum") else ""


def _scalar(of: AvroType, form: Form, *, is_kept: bool) -> AvroStep:
    if of.kind == "enum":
        names = of.symbols if is_kept else ()
        return AvroStep("enum", is_kept=is_kept, size=len(of.symbols), names=names)
    return AvroStep(of.kind, form, is_kept, of.size)


def _decimal(of: AvroType, target: tuple[int, int]) -> AvroStep:
    if of.scale > SCALE_MAX:
        raise BadSchema(f"a decimal with more than {SCALE_MAX} digits after the point")
    return AvroStep(of.kind, "decimal", size=of.size, decimal=(of.scale, *target))
