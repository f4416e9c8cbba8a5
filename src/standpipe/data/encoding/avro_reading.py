"""Avro's bytes as cells of columns, or as text: the interpreter of `avro_program.py` in Python.

Cells have the form of `source_values.py`. What a value may make is bounded by its own bytes: items,
fields of structs, texts of the schema, depth. On executors `pipeline/io/avro/AvroRows.java` does
the same.

Not here: which type fits which column (`avro_program.py`); rows as Avro's bytes
(`avro_writing.py`); the frame around them (`framed_values.py`).
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

from standpipe.data.encoding.avro_program import (
    NOWHERE,
    SCALE_MAX,
    AvroProgram,
    AvroStep,
    Form,
    program_of_cells,
    program_of_text,
)
from standpipe.data.encoding.kafka_keys import java_double
from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroType
from standpipe.sql.types import types
from standpipe.sql.types.made_fields import MadeFields
from standpipe.sql.types.values import as_decimal, at_scale

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: bytes of a 64-bit number, seven bits in each
_LONG_BYTES_MAX: Final = 10
#: items of arrays and maps beyond one for each byte: some take no byte at all
FREE_ITEMS: Final = 1024
#: fields of structs that a value may make for each byte, beside those that are free
#: (`sql/types/made_fields.py`). A field that the writer has takes a byte; others are NULL
FIELDS_PER_BYTE_MAX: Final = 16
#: bytes of texts that a value takes from its schema, where one byte may stand for a long text:
#: symbols of enums and, where they are shown, names of fields. So many, and these for each byte
FREE_TEXT_BYTES: Final = 65_536
TEXT_PER_BYTE_MAX: Final = 64
#: records, arrays, maps and unions within each other: both interpreters recurse
DEPTH_MAX: Final = 200
#: bytes of a decimal's digits, of which 16 are enough for a column
DECIMAL_BYTES_MAX: Final = 500
#: exact: 500 bytes have 1,205 digits
_EXACT: Final = Context(prec=1_300 + SCALE_MAX)


class _Input:
    """The bytes of one value. Reading beyond them raises ValueError."""

    __slots__ = ("_at", "_data", "_items_left", "_text_left", "depth", "fields")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._items_left = len(data) + FREE_ITEMS
        self.fields: Final = MadeFields(len(data), FIELDS_PER_BYTE_MAX)
        self._text_left = TEXT_PER_BYTE_MAX * len(data) + FREE_TEXT_BYTES
        self.depth = 0

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

    def make_text(self, size: int) -> None:
        self._text_left -= size
        if self._text_left < 0:
            raise ValueError("more text of its schema than its bytes allow")

    def deepen(self) -> None:
        """Whoever calls it raises `depth` by one, and lowers it after the value's parts."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise ValueError(f"it is nested deeper than {DEPTH_MAX} levels")

    def check_ended(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")


_Read = Callable[[_Input], Any]


def to_cells(writer: AvroType, columns: Sequence[Column], *, wraps: bool) -> Callable[[bytes], Any]:
    """The conversion of a value under a schema: cells in the order of `columns`.

    `wraps`: the value is a record with a field for each column, else that of the only column. It
    raises ValueError for bytes that are none. Raises BadSchema where a type does not fit its
    column.
    """
    program = program_of_cells(writer, columns, wraps=wraps)
    read = _whole(program)
    return (lambda data: list(read(data).values())) if program.is_row else lambda d: [read(d)]


def to_text(writer: AvroType) -> Callable[[bytes], str]:
    """The conversion of a value to text, as Avro's own tools show it; raises as `to_cells`."""
    read = _whole(program_of_text(writer), shows_names=True)
    return lambda data: json.dumps(read(data), ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)  # a Decimal


def _whole(program: AvroProgram, *, shows_names: bool = False) -> Callable[[bytes], Any]:
    """`shows_names`: a record's value contains the names of its fields, as the writer has them."""
    reads: list[_Read] = []
    # a step finds those of its parts when it reads: a type may contain itself
    reads.extend(_reader(step, reads, shows_names=shows_names) for step in program.steps)

    def convert(data: bytes) -> Any:
        given = _Input(data)
        made = reads[0](given)
        given.check_ended()
        return made

    return convert


def _reader(step: AvroStep, reads: Sequence[_Read], *, shows_names: bool) -> _Read:
    """`reads`: of all steps, once they are there."""
    match step.kind:
        case "record":
            return _record(step, reads, sum(map(_size, step.names)) if shows_names else 0)
        case "union" | "branches":
            return _union(step, reads)
        case "array":
            return _array(step.parts[0][1], reads)
        case "map":
            return _map(step.parts[0][1], reads)
        case "entries":
            return _entries(step.parts[0][1], reads)
        case _:
            raw = _raw(step)
            return _FORMS[step.form](raw, step) if step.form else raw


def _record(step: AvroStep, reads: Sequence[_Read], names_bytes: int) -> _Read:
    """A dict with an entry for each name, in their order. `names_bytes`: what the names count."""
    names, absent = step.names, dict.fromkeys(step.names)
    parts = [(None if at == NOWHERE else names[at], number) for at, number in step.parts]

    def read(data: _Input) -> dict[str, Any]:
        data.deepen()
        data.fields.make(len(names))
        if names_bytes:
            data.make_text(names_bytes)
        made: dict[str, Any] = dict(absent)
        for name, number in parts:
            value = reads[number](data)
            if name is not None:
                made[name] = value
        data.depth -= 1
        return made

    return read


def _union(step: AvroStep, reads: Sequence[_Read]) -> _Read:
    makes_struct, names, parts = step.kind == "branches", step.names, step.parts

    def read(data: _Input) -> Any:
        data.deepen()
        branch = data.long()
        if not 0 <= branch < len(parts):
            raise ValueError(f"a union has no branch {branch}")
        place, number = parts[branch]
        value = reads[number](data)
        data.depth -= 1
        if not makes_struct or reads[number] is _null:
            return value
        data.fields.make(len(names))
        return {name: value if at == place else None for at, name in enumerate(names)}

    return read


def _array(item: int, reads: Sequence[_Read]) -> _Read:
    def read(data: _Input) -> list[Any]:
        data.deepen()
        step = reads[item]
        made = [step(data) for _ in data.block_items()]
        data.depth -= 1
        return made

    return read


def _map(value: int, reads: Sequence[_Read]) -> _Read:
    def read(data: _Input) -> dict[str, Any]:
        data.deepen()
        step = reads[value]
        made = {_string(data): step(data) for _ in data.block_items()}
        data.depth -= 1
        return made

    return read


def _entries(entry: int, reads: Sequence[_Read]) -> _Read:
    def read(data: _Input) -> dict[str, Any]:
        data.deepen()
        made: dict[str, Any] = {}
        for _ in data.block_items():
            found = reads[entry](data)
            if found["key"] is None:
                raise ValueError("a map with a null key")
            made[found["key"]] = found["value"]
        data.depth -= 1
        return made

    return read


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
    return _of_32_bits(data.long())


def _of_32_bits(number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} has more than 32 bits")
    return number


def _raw(step: AvroStep) -> _Read:
    """Values of a type that has no parts."""
    match step.kind:
        case "enum":
            return _enum(step)
        case "fixed":
            return lambda data: data.take(step.size)
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
            return named[step.kind]


def _enum(step: AvroStep) -> _Read:
    sizes = [*map(_size, step.names)]

    def read(data: _Input) -> str:
        number = data.long()
        if not 0 <= number < step.size:
            raise ValueError(f"an enum has no symbol {number}")
        if not step.is_kept:
            return ""
        data.make_text(sizes[number])
        return step.names[number]

    return read


def _size(text: str) -> int:
    return len(text.encode())


def _java_text(value: Any) -> str:
    """As Java's String.valueOf."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def _decimal(raw: _Read, step: AvroStep) -> _Read:
    written, precision, scale = step.decimal
    target = types.decimal(precision, scale) if precision else None

    def read(data: _Input) -> Decimal:
        digits = raw(data)
        if len(digits) > DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of more than {DECIMAL_BYTES_MAX} bytes")
        number = Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-written, _EXACT)
        if target is None:
            return number
        try:
            return as_decimal(at_scale(number, target.scale, ROUND_HALF_UP), target)
        except InvalidOperation as error:
            raise ValueError(f"{number} does not fit {target}") from error

    return read


_FORMS: Final[dict[Form, Callable[[_Read, AvroStep], _Read]]] = {
    "text": lambda raw, _: lambda data: _java_text(raw(data)),
    "bytes": lambda raw, _: lambda data: b64encode(raw(data)).decode(),
    "millis": lambda raw, _: lambda data: raw(data) // 1000,
    "time": lambda raw, _: lambda data: _of_32_bits(raw(data) // 1000),
    "long": lambda raw, _: raw,
    "decimal": _decimal,
}
