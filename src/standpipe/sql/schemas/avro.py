"""An Avro schema: from its JSON text to a tree of types, as Avro's specification has it.

Named types may contain themselves, so the tree may have cycles. A logical type that does not fit
the type beneath it is ignored, as the specification demands. Source: Apache Avro 1.12,
"Specification". Not here: what SQL makes of a type (`avro_columns.py`), the bytes
(`data/encoding/avro_reading.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from standpipe.sql.schemas.registry import BadSchema

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: logical types that change what a value means to SQL, and the types that may be beneath each
LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "timestamp-millis": ("long",),
    "time-micros": ("long",),
    "timestamp-micros": ("long",),
}
#: characters of a schema: a registry is another program, and its answer is kept
SCHEMA_CHARS_MAX: Final = 1_000_000
#: bytes of a fixed: Java counts them in 32 bits
FIXED_BYTES_MAX: Final = 2**31 - 1
#: types within types, as they are written; the parser recurses
DEPTH_MAX: Final = 60
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(rf"{_NAME.pattern}(?:\.{_NAME.pattern})*")
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. `default`: as JSON; only there if `has_default`."""

    name: str
    of: AvroType
    has_default: bool = False
    default: Any = None


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. `kind`: a primitive, record, enum, array, map, fixed or union."""

    kind: str
    name: str = ""  # of a record, enum or fixed, with its namespace
    logical: str = ""  # a key of LOGICAL
    precision: int = 0  # of a decimal
    scale: int = 0
    size: int = 0  # bytes of a fixed
    fields: tuple[AvroField, ...] = ()  # of a record
    parts: tuple[AvroType, ...] = ()  # of a union: its branches; of an array or map: its values
    symbols: tuple[str, ...] = ()  # of an enum
    is_map_entry: bool = False  # Connect writes a map of others than texts as an array of these

    @property
    def values(self) -> AvroType:
        """The type of an array's or a map's values."""
        return self.parts[0]

    @property
    def short_name(self) -> str:
        """The name without its namespace; of others the kind."""
        return self.name.rpartition(".")[2] or self.kind


def parse(text: str) -> AvroType:
    """The type that a schema's text has. Raises BadSchema."""
    if len(text) > SCHEMA_CHARS_MAX:
        raise BadSchema(f"the schema has more than {SCHEMA_CHARS_MAX} characters")
    try:
        written = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSchema(f"the schema is no JSON: {error}") from None
    return _SchemaReader().read(written, "", 0)


@dataclass
class _SchemaReader:
    named: dict[str, AvroType] = field(default_factory=dict[str, AvroType])

    def read(self, written: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise BadSchema(f"the schema has more than {DEPTH_MAX} types within types")
        if isinstance(written, str):
            return self._by_name(written, namespace)
        if isinstance(written, list):
            return self._union(cast("list[Any]", written), namespace, depth)
        if not isinstance(written, dict):
            raise BadSchema(f"no type: {written!r:.80}")
        given = cast("dict[str, Any]", written)
        kind = given.get("type")
        if not isinstance(kind, str):  # {"type": {"type": "string"}}
            return self.read(kind, namespace, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(given, namespace, depth)
            case "enum" | "fixed":
                return self._of_size(given, kind, namespace)
            case "array" | "map":
                return self._collection(given, kind, namespace, depth)
            case _ if kind in PRIMITIVES:
                return _with_logical(AvroType(kind), given)
            case _:
                return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self.named.get(name) or self.named.get(_full(name, namespace))
        if found is None:
            raise BadSchema(f"unknown type {name!r:.80}")
        return found

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        made = tuple(self.read(each, namespace, depth + 1) for each in branches)
        names = [each.name or each.kind for each in made]
        if not made or any(each.kind == "union" for each in made) or len(set(names)) < len(names):
            raise BadSchema("a union has no branch, another union, or one type twice")
        return AvroType("union", parts=made)

    def _record(self, given: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        made = self._named(AvroType("record"), given, namespace)
        made.is_map_entry = given.get("connect.internal.type") == "MapEntry"
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise BadSchema(f"record {made.name} has no fields")
        inner = made.name.rpartition(".")[0]
        found: list[AvroField] = []
        for each in cast("list[Any]", fields):
            one = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
            name = one.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in one:
                raise BadSchema(f"record {made.name} has a field without a name or a type")
            of = self.read(one["type"], inner, depth + 1)
            found.append(AvroField(name, of, "default" in one, one.get("default")))
        if len({each.name for each in found}) < len(found):
            raise BadSchema(f"record {made.name} has two fields of one name")
        made.fields = tuple(found)
        return made

    def _of_size(self, given: Mapping[str, Any], kind: str, namespace: str) -> AvroType:
        made = self._named(AvroType(kind), given, namespace)
        if kind == "fixed":
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise BadSchema(f"{made.name} has no size")
            if size > FIXED_BYTES_MAX:
                raise BadSchema(f"{made.name} has more than {FIXED_BYTES_MAX} bytes")
            made.size = size
            return _with_logical(made, given)
        symbols = given.get("symbols")
        if not isinstance(symbols, list) or not symbols:
            raise BadSchema(f"{made.name} has no symbols")
        made.symbols = tuple(map(str, cast("list[Any]", symbols)))
        return made

    def _collection(
        self, given: Mapping[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroType:
        inner = given.get("items" if kind == "array" else "values")
        return AvroType(kind, parts=(self.read(inner, namespace, depth + 1),))

    def _named(self, made: AvroType, given: Mapping[str, Any], namespace: str) -> AvroType:
        """Name the type before its fields are read: they may be of the same type."""
        name, own = given.get("name"), given.get("namespace", namespace)
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
            raise BadSchema(f"no name of a type: {name!r:.80}")
        made.name = _full(name, own if isinstance(own, str) else "")
        if made.name in self.named:
            raise BadSchema(f"{made.name} is defined twice")
        self.named[made.name] = made
        return made


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical(made: AvroType, given: Mapping[str, Any]) -> AvroType:
    logical = given.get("logicalType")
    if not isinstance(logical, str) or made.kind not in LOGICAL.get(logical, ()):
        return made
    if logical == "decimal":
        precision, scale = given.get("precision"), given.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return made
        if not 0 <= scale <= precision or precision < 1:
            return made
        made.precision, made.scale = precision, scale
    made.logical = logical
    return made
