"""Avro's bytes as cells of columns, or as text.

A record is read by the schema that it was written under, whichever that is; its fields are then
matched with the columns by name, exactly or else in any case. A column without a field is NULL, and
a field without a column is passed over. What is no value of its column's type makes the schema, and
so every record under it, unreadable. Source: Apache Avro 1.12, "Binary encoding"; ksqlDB's
`ConnectDataTranslator`. Cells have the form of `source_values.py`.

Not here: rows as Avro's bytes (`avro_writing.py`); the frame around them (`framed_values.py`).
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from standpipe.data.encoding.kafka_keys import java_double
from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroType, BadSchema
from standpipe.sql.schemas.avro_columns import is_map_entry, nullable, union_field
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.sql.types.values import DECIMALS, as_decimal, at_scale

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: bytes of a 64-bit number, seven bits in each
_LONG_BYTES_MAX: Final = 10
#: items of arrays and maps beyond one for each byte: some take no byte at all
_FREE_ITEMS: Final = 1024
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


class _Input:
    """The bytes of one value. Reading beyond them raises ValueError."""

    __slots__ = ("_at", "_data", "_items_left")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._items_left = len(data) + _FREE_ITEMS

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes are announced, {len(self._data) - self._at} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def long(self) -> int:
        """A number in zigzag form, of 64 bits."""
        found = 0
        for shift in range(0, 7 * _LONG_BYTES_MAX, 7):
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                if found >> 64:
                    break
                return (found >> 1) ^ -(found & 1)
        raise ValueError("a number of more than 64 bits")

    def block_items(self) -> Iterator[None]:
        """One for each item of an array or a map, which is written in blocks."""
        while count := self.long():
            if count < 0:
                self.long()  # bytes of the block, for readers that pass over it
                count = -count
            self._items_left -= count
            if self._items_left < 0:
                raise ValueError("more items than the value has bytes")
            yield from (None for _ in range(count))

    def check_ended(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")


_Read = Callable[[_Input], Any]


def to_cells(writer: AvroType, columns: Sequence[Column], *, wraps: bool) -> Callable[[bytes], Any]:
    """The conversion of a value under a schema: cells in the order of `columns`.

    `wraps`: the value is a record with a field for each column, else that of the only column. It
    raises ValueError, OverflowError or RecursionError for bytes that are none. Raises BadSchema
    where a type does not fit its column.
    """
    if wraps and writer.kind != "record":
        raise BadSchema(f"the schema is no record, but {writer.kind}")
    if not wraps:
        (column,) = columns
        read = _Compiler().reader(writer, parse_type(column.type), column.name)
        return _whole(lambda data: [read(data)])
    targets = [(column.name, parse_type(column.type)) for column in columns]
    row = _Compiler().row(writer, targets, "")
    return _whole(lambda data: list(row(data).values()))


def to_text(writer: AvroType) -> Callable[[bytes], str]:
    """The conversion of a value to text, as Avro's own tools show it; raises as `to_cells`."""
    read = _Compiler().reader(writer, None, "")
    return _whole(lambda data: json.dumps(read(data), ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)  # a Decimal


def _whole(read: _Read) -> Callable[[bytes], Any]:
    def convert(data: bytes) -> Any:
        given = _Input(data)
        made = read(given)
        given.check_ended()
        return made

    return convert


class _Compiler:
    """Makes a reader of each type once: a named type may contain itself."""

    def __init__(self) -> None:
        self._plain: dict[int, _Read] = {}

    def reader(self, of: AvroType, target: SqlType | None, path: str) -> _Read:
        """`target` None: whatever the value is, as Python's JSON has it."""
        if of.kind == "union":
            return self._union(of, target, path)
        if target is None:
            return self._untyped(of)
        if target.base == "DECIMAL" and of.logical == "decimal":
            return _fitted_decimal(of, target)
        if target.base == "ARRAY" and of.kind == "array" and not is_map_entry(of.values):
            return _items(self.reader(of.values, target.arguments[0], f"{path}->ARRAY"))
        if target.base == "MAP" and (of.kind == "map" or is_entries(of)):
            return self._map(of, target, path)
        if target.base == "STRUCT" and of.kind == "record":
            fields = list(zip(target.field_names, target.arguments, strict=True))
            return self.row(of, fields, path)
        takes = of.kind in _ACCEPTED.get(target.base, ()) and of.logical != "decimal"
        if not takes and (target.base, of.logical) != ("TIME", "time-micros"):
            raise BadSchema(
                f"Cannot deserialize type {of.logical or of.kind} as type {target} for path: {path}"
            )
        return _scalar(of, target)

    def row(self, of: AvroType, targets: Sequence[tuple[str, SqlType]], path: str) -> _Read:
        """Fields of a record, as a dict with an entry for each target, in their order."""
        exact = {field.name for field in of.fields}
        wanted: dict[str, tuple[str, SqlType]] = {}
        folded: dict[str, tuple[str, SqlType]] = {}
        for name, target in targets:
            (wanted if name in exact else folded)[name if name in exact else name.upper()] = (
                name,
                target,
            )
        steps: list[tuple[str | None, _Read]] = []
        for field in of.fields:
            found = wanted.get(field.name) or folded.get(field.name.upper())
            name, target = found or (None, None)
            steps.append((name, self.reader(field.of, target, f"{path}->{field.name}")))
        absent = dict.fromkeys((name for name, _ in targets), None)

        def read(data: _Input) -> dict[str, Any]:
            made: dict[str, Any] = dict(absent)
            for name, step in steps:
                value = step(data)
                if name is not None:
                    made[name] = value
            return made

        return read

    def _union(self, of: AvroType, target: SqlType | None, path: str) -> _Read:
        is_struct = target is not None and target.base == "STRUCT" and nullable(of) is of
        fields = target.field_names if target is not None else ()
        branches: list[tuple[str | None, _Read]] = []
        for branch in of.parts:
            if branch.kind == "null":
                branches.append((None, _null))
            elif is_struct:
                named = union_field(branch)
                name = next((n for n in fields if n in (named, named.upper())), None)
                part = target.field(name) if target is not None and name is not None else None
                branches.append((name, self.reader(branch, part, f"{path}->{named}")))
            else:
                branches.append((None, self.reader(branch, target, path)))

        def read(data: _Input) -> Any:
            number = data.long()
            if not 0 <= number < len(branches):
                raise ValueError(f"a union has no branch {number}")
            name, step = branches[number]
            value = step(data)
            if not is_struct or step is _null:
                return value
            return {each: value if each == name else None for each in fields}

        return read

    def _map(self, of: AvroType, target: SqlType, path: str) -> _Read:
        value_of = target.arguments[1]
        if of.kind == "map":
            value = self.reader(of.values, value_of, f"{path}->MAP_VAL")
            return _entries(_string, value)
        entry = self.row(of.values, [("key", SqlType("STRING")), ("value", value_of)], path)

        def read(data: _Input) -> dict[str, Any]:
            made: dict[str, Any] = {}
            for _ in data.block_items():
                found = entry(data)
                if found["key"] is None:
                    raise ValueError("a map with a null key")
                made[found["key"]] = found["value"]
            return made

        return read

    def _untyped(self, of: AvroType) -> _Read:
        if id(of) not in self._plain:
            # found while it is made, and looked up again for each value
            self._plain[id(of)] = partial(self._read_later, of)
            self._plain[id(of)] = self._made_untyped(of)
        return self._plain[id(of)]

    def _read_later(self, of: AvroType, data: _Input) -> Any:
        return self._plain[id(of)](data)

    def _made_untyped(self, of: AvroType) -> _Read:
        if of.logical == "decimal":
            return _decimal(of)
        match of.kind:
            case "array":
                return _items(self.reader(of.values, None, ""))
            case "map":
                return _entries(_string, self.reader(of.values, None, ""))
            case "record":
                steps = [(field.name, self.reader(field.of, None, "")) for field in of.fields]
                return lambda data: {name: step(data) for name, step in steps}
            case _:
                return _raw(of)


def is_entries(of: AvroType) -> bool:
    """Whether it is a map that Connect writes as an array of entries."""
    return of.kind == "array" and is_map_entry(of.values)


def _null(_: _Input) -> None:
    return None


def _string(data: _Input) -> str:
    return data.take(data.long()).decode()


def _boolean(data: _Input) -> bool:
    (byte,) = data.take(1)
    if byte > 1:
        raise ValueError(f"{byte} is no boolean")
    return bool(byte)


def _int(data: _Input) -> int:
    number = data.long()
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} has more than 32 bits")
    return number


def _raw(of: AvroType) -> _Read:
    """Values of a type that has no parts."""
    match of.kind:
        case "enum":
            return lambda data: _symbol(of, data.long())
        case "fixed":
            return lambda data: data.take(of.size)
        case "bytes":
            return lambda data: data.take(data.long())
        case "float":
            return lambda data: _FLOAT.unpack(data.take(4))[0]
        case "double":
            return lambda data: _DOUBLE.unpack(data.take(8))[0]
        case "long":
            return _Input.long
        case _:
            named = {"null": _null, "boolean": _boolean, "int": _int, "string": _string}
            return named[of.kind]


def _symbol(of: AvroType, number: int) -> str:
    if not 0 <= number < len(of.symbols):
        raise ValueError(f"{of.name} has no symbol {number}")
    return of.symbols[number]


def _scalar(of: AvroType, target: SqlType) -> _Read:
    raw = _raw(of)
    if target.base == "BYTES":
        return lambda data: b64encode(raw(data)).decode()
    if target.base in ("TIME", "TIMESTAMP") and of.logical.endswith("-micros"):
        return lambda data: raw(data) // 1000
    if target.base == "STRING" and of.kind not in ("string", "enum"):
        return lambda data: _java_text(raw(data))
    return raw


def _java_text(value: Any) -> str:
    """As Java's String.valueOf."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def _decimal(of: AvroType) -> _Read:
    raw = _raw(of)

    def read(data: _Input) -> Decimal:
        unscaled = int.from_bytes(raw(data), "big", signed=True)
        return Decimal(unscaled).scaleb(-of.scale, DECIMALS) if of.scale else Decimal(unscaled)

    return read


def _fitted_decimal(of: AvroType, target: SqlType) -> _Read:
    read = _decimal(of)

    def fitted(data: _Input) -> Decimal:
        number = read(data)
        try:
            return as_decimal(at_scale(number, target.scale, ROUND_HALF_UP), target)
        except InvalidOperation as error:
            raise ValueError(f"{number} does not fit {target}") from error

    return fitted


def _items(item: _Read) -> _Read:
    return lambda data: [item(data) for _ in data.block_items()]


def _entries(key: _Read, value: _Read) -> _Read:
    return lambda data: {key(data): value(data) for _ in data.block_items()}
