"""Avro's types as SQL types and back, as ksqlDB translates them by way of Kafka Connect.

| Avro | SQL | SQL as Avro |
|---|---|---|
| boolean, int, long, double | BOOLEAN, INTEGER, BIGINT, DOUBLE | same |
| string, bytes | STRING, BYTES | same |
| float; enum; fixed | DOUBLE; STRING; BYTES | double; string; bytes |
| decimal; date; time-millis; timestamp-millis | DECIMAL; DATE; TIME; TIMESTAMP | same |
| array; record | ARRAY; STRUCT | same |
| map, array of Connect's map entries | MAP<STRING, …> | array of map entries |
| union of null and a type | the type | every column and part is such a union |
| another union | STRUCT with a field for each branch | not written |

A field of any other type is left out: null alone, a type that contains itself, a DECIMAL of more
digits than Spark has. Names become upper-case. Source: ksqlDB's `ConnectKsqlSchemaTranslator`,
`AvroSchemas`; Confluent's `AvroData`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas.avro import AvroType, BadSchema
from standpipe.sql.schemas.expansion import Expansion, NoColumnType, struct_of
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

NAMESPACE: Final = "io.confluent.ksql.avro_schemas"
#: name of the record of a topic's values, where none is given
VALUE_NAME: Final = f"{NAMESPACE}.KsqlDataSourceSchema"
_CONNECT_ENTRY: Final = "io.confluent.connect.avro.MapEntry"
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD: Final = re.compile(r"[^_]+")
_PLAIN: Final = {
    "boolean": types.BOOLEAN,
    "int": types.INTEGER,
    "long": types.BIGINT,
    "float": types.DOUBLE,
    "double": types.DOUBLE,
    "bytes": types.BYTES,
    "fixed": types.BYTES,
    "string": types.STRING,
    "enum": types.STRING,
}
_OF_LOGICAL: Final = {
    "date": types.DATE,
    "time-millis": types.TIME,
    "timestamp-millis": types.TIMESTAMP,
}
#: keys of a map that Connect writes as entries; ksqlDB takes them as texts
_KEY_KINDS: Final = frozenset({"int", "long", "boolean", "string", "enum"})
_WRITTEN: Final[dict[str, Any]] = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "int", "logicalType": "time-millis"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-millis"},
}


def nullable(of: AvroType) -> AvroType:
    """The type itself, of a union of null and one type; of all others, the same."""
    if of.kind != "union":
        return of
    others = [each for each in of.parts if each.kind != "null"]
    return others[0] if len(others) == 1 else of


def is_map_entry(of: AvroType) -> bool:
    """Whether an array of this type is a map whose keys Avro's own maps cannot have."""
    named = {each.name for each in of.fields}
    is_marked = of.is_map_entry or of.name == _CONNECT_ENTRY
    return of.kind == "record" and is_marked and named == {"key", "value"}


def inferred(of: AvroType, *, is_key: bool, keeps_case: bool, unwraps: bool) -> list[Column]:
    """The columns of a topic whose keys or values have this schema.

    `unwraps`: the schema is that of a single column; keys always do. `keeps_case`: the statement
    names the schema by its id. Raises BadSchema with ksqlDB's reason.
    """
    expansion = _AvroExpansion(keeps_case=keeps_case)
    return expansion.columns(of, is_key=is_key, unwraps=unwraps)


def union_field(branch: AvroType) -> str:
    """The field of a STRUCT that has the values of a union's branch."""
    return branch.short_name if branch.kind in ("record", "enum") else branch.kind


class _AvroExpansion(Expansion[AvroType]):
    def root_type(self, of: AvroType) -> SqlType:
        return self.sql_type(of, ())

    def root_struct(self, of: AvroType) -> SqlType | None:
        return self.struct(of, ()) if of.kind == "record" else None

    def sql_type(self, of: AvroType, around: tuple[str, ...]) -> SqlType:
        of = nullable(of)
        self.count_type()
        if of.logical == "decimal":
            if of.precision > types.PRECISION_MAX:
                raise NoColumnType(f"DECIMAL({of.precision}, {of.scale})")
            return types.decimal(of.precision, of.scale)
        if of.logical in _OF_LOGICAL:
            return _OF_LOGICAL[of.logical]
        if of.kind in _PLAIN:
            return _PLAIN[of.kind]
        match of.kind:
            case "array" if is_map_entry(of.values):
                key, value = (each.of for each in sorted(of.values.fields, key=lambda f: f.name))
                if nullable(key).kind not in _KEY_KINDS or nullable(key).logical:
                    raise NoColumnType(f"Unsupported type for map key: {nullable(key).kind}")
                return types.map_of(types.STRING, self.sql_type(value, around))
            case "array":
                return types.array(self.sql_type(of.values, around))
            case "map":
                return types.map_of(types.STRING, self.sql_type(of.values, around))
            case "record" | "union":
                made = self.struct(of, around)
                if not made.field_names:
                    raise NoColumnType(f"{of.name or of.kind} without a field that SQL has")
                return made
            case _:
                raise NoColumnType(f"Unsupported type: {of.kind}")

    def struct(self, of: AvroType, around: tuple[str, ...]) -> SqlType:
        if of.name and of.name in around:
            raise NoColumnType(f"{of.name} contains itself")
        if len(around) >= types.NESTING_MAX:
            raise NoColumnType(types.TOO_DEEP)
        inner = (*around, of.name)
        given = (
            [(union_field(each), each) for each in of.parts if each.kind != "null"]
            if of.kind == "union"
            else [(each.name, each.of) for each in of.fields]
        )
        found: dict[str, SqlType] = {}
        for name, part in given:
            try:
                found[self.shown(name)] = self.sql_type(part, inner)
            except NoColumnType:
                continue
        return struct_of(found.items())


# --------------------------------------------------------------------------- SQL types as Avro


def key_name(source: str) -> str:
    """Full name of the record of a source's keys: `MY_STREAM` has `…MyStreamKey`."""
    return f"{NAMESPACE}.{''.join(word.capitalize() for word in _WORD.findall(source))}Key"


def schema_text(columns: Sequence[Column], full_name: str, *, wraps: bool) -> str:
    """The schema that ksqlDB would register for these columns. `wraps`: they are the fields of a
    record, else there is one column, whose type is the schema. Raises BadSchema."""
    writer = _Writer(full_name)
    if wraps:
        named = [(column.name, parse_type(column.type)) for column in columns]
        return msgspec.json.encode(writer.record(named, (full_name,))).decode()
    (column,) = columns
    made = writer.written(parse_type(column.type), (full_name,))
    return msgspec.json.encode(made).decode()


class _Writer:
    """Names of records are the path to them, joined by `_`."""

    def __init__(self, full_name: str) -> None:
        if not all(map(_FIELD.fullmatch, full_name.split("."))):
            raise BadSchema(f"Illegal character in: {full_name}")
        self._taken: set[str] = set()

    def record(self, fields: Sequence[tuple[str, SqlType]], path: tuple[str, ...]) -> Any:
        made: list[Any] = []
        for name, of in fields:
            if not _FIELD.fullmatch(name):
                what = "Illegal character in" if name[:1].isalpha() else "Illegal initial character"
                raise BadSchema(f"{what}: {name}")
            part = self._optional(of, (*path, name))
            made.append({"name": name, "type": part, "default": None})
        return {"type": "record", **self._named(path), "fields": made}

    def _named(self, path: tuple[str, ...]) -> dict[str, str]:
        name = "_".join(path)
        if name in self._taken:
            raise BadSchema(f"Can't redefine: {name}")
        self._taken.add(name)
        namespace, _, short = name.rpartition(".")
        return {"name": short, **({"namespace": namespace} if namespace else {})}

    def _optional(self, of: SqlType, path: tuple[str, ...]) -> Any:
        return ["null", self.written(of, path)]

    def written(self, of: SqlType, path: tuple[str, ...]) -> Any:
        match of.base:
            case "DECIMAL":
                sizes = {"precision": of.precision, "scale": of.scale}
                return {"type": "bytes", "logicalType": "decimal", **sizes}
            case "ARRAY":
                return {"type": "array", "items": self._optional(of.arguments[0], path)}
            case "MAP":
                return self._map(of, path)
            case "STRUCT":
                named = list(zip(of.field_names, of.arguments, strict=True))
                return self.record(named, path)
            case _:
                return _WRITTEN[of.base]

    def _map(self, of: SqlType, path: tuple[str, ...]) -> Any:
        if of.arguments[0].base != "STRING":
            raise BadSchema("Avro only supports MAP types with STRING keys")
        mark = {"connect.internal.type": "MapEntry"}
        fields = [
            {"name": "key", "type": ["null", "string"], "default": None},
            {
                "name": "value",
                "type": self._optional(of.arguments[1], (*path, "MapValue")),
                "default": None,
            },
        ]
        entry = {"type": "record", **self._named(path), "fields": fields, **mark}
        return {"type": "array", "items": entry, **mark}
