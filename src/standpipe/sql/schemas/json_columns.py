"""JSON Schema's types as SQL types and back, as ksqlDB translates them by way of Kafka Connect.

| JSON Schema | `connect.type` | SQL | SQL as JSON Schema |
|---|---|---|---|
| boolean, string | | BOOLEAN, STRING | same |
| integer | none, int64 | BIGINT | integer, int64 |
| integer, number | int8, int16, int32 | INTEGER | integer, int32 |
| number | none, float32, float64 | DOUBLE | number, float64 |
| string | bytes | BYTES | same |
| number with the title of Connect's Decimal | bytes | DECIMAL | same |
| integer with the title of Connect's Date, Time, Timestamp | int32, int64 | same | same |
| array; object | | ARRAY; STRUCT | same |
| array of objects with key and value | map | MAP<STRING, …> | same |
| object without known properties | map, or none | MAP<STRING, …> | array of entries |
| union of null and a type | | the type | every column and part is such a union |

A field of any other type is left out: a schema that is true or without a type, a union of several
types, a type that contains itself, a DECIMAL of more digits than Spark has. Names become
upper-case. Source: ksqlDB's `ConnectKsqlSchemaTranslator`; Confluent's `JsonSchemaData`. Two
differences: there, an object with none but additional properties is a map only under
`connect.type`; and a union of several types is a STRUCT with a field for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from standpipe.model import Column
from standpipe.sql.schemas.expansion import Expansion, NoColumnType, struct_of
from standpipe.sql.schemas.json_schema import (
    CONNECT_INDEX,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    DECIMAL_PRECISION,
    DECIMAL_SCALE,
    ENTRY,
    JsonType,
)
from standpipe.sql.schemas.registry import BadSchema
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

#: the draft that Connect writes
DRAFT: Final = "http://json-schema.org/draft-07/schema#"
#: types around a type, as they are read: in our own schemas two for each level of SQL's
AROUND_MAX: Final = 2 * types.NESTING_MAX + 2
_LOGICAL: Final = "org.apache.kafka.connect.data."
#: digits of a decimal without a precision (ksqlDB): more than Spark has
_PRECISION_DEFAULT: Final = 64
_OF_CONNECT: Final = {
    "int8": types.INTEGER,
    "int16": types.INTEGER,
    "int32": types.INTEGER,
    "int64": types.BIGINT,
    "float32": types.DOUBLE,
    "float64": types.DOUBLE,
    "bytes": types.BYTES,
}
_OF_LOGICAL: Final = {
    ("INTEGER", f"{_LOGICAL}Date"): types.DATE,
    ("INTEGER", f"{_LOGICAL}Time"): types.TIME,
    ("BIGINT", f"{_LOGICAL}Timestamp"): types.TIMESTAMP,
}
#: SQL type -> JSON's, Connect's, and the logical one
_WRITTEN: Final[dict[str, tuple[str, str, str]]] = {
    "BOOLEAN": ("boolean", "", ""),
    "INTEGER": ("integer", "int32", ""),
    "BIGINT": ("integer", "int64", ""),
    "DOUBLE": ("number", "float64", ""),
    "STRING": ("string", "", ""),
    "BYTES": ("string", "bytes", ""),
    "DECIMAL": ("number", "bytes", "Decimal"),
    "DATE": ("integer", "int32", "Date"),
    "TIME": ("integer", "int32", "Time"),
    "TIMESTAMP": ("integer", "int64", "Timestamp"),
}


def nullable(of: JsonType) -> JsonType:
    """The type itself, of a union of null and one type; of all others, the same."""
    return of.parts[0] if of.kind == "optional" else of


def inferred(of: JsonType, *, is_key: bool, keeps_case: bool, unwraps: bool) -> list[Column]:
    """The columns of a topic whose keys or values have this schema.

    `unwraps`: the schema is that of a single column; keys always do. `keeps_case`: the statement
    names the schema by its id. Raises BadSchema with ksqlDB's reason.
    """
    reader = _JsonExpansion(keeps_case=keeps_case)
    return reader.columns(of, is_key=is_key, unwraps=unwraps)


class _JsonExpansion(Expansion[JsonType]):
    def root_type(self, of: JsonType) -> SqlType:
        return self.sql_type(of, ())

    def root_struct(self, of: JsonType) -> SqlType | None:
        root = nullable(of)
        if root.kind == "union":
            raise BadSchema("Unsupported type at root of schema: a union of several types")
        return self.struct(root, ()) if root.kind == "object" else None

    def sql_type(self, of: JsonType, around: tuple[JsonType, ...]) -> SqlType:
        """The type; `around`: those that contain it. Raises NoColumnType, BadSchema."""
        self.count_type()
        if of in around:
            raise NoColumnType("a type contains itself")
        if len(around) > AROUND_MAX:
            raise NoColumnType(types.TOO_DEEP)
        inner = (*around, of)
        match of.kind:
            case "array":
                made = types.array(self.sql_type(of.parts[0], inner))
            case "map":
                made = types.map_of(types.STRING, self.sql_type(of.parts[0], inner))
            case "entries":
                made = self._entries(of, inner)
            case "optional":
                return self.sql_type(of.parts[0], inner)
            case "object":
                made = self.struct(of, around)
                if not made.field_names:
                    raise NoColumnType("object without a field that SQL has")
            case _:
                return _scalar(of)
        if made.nesting > types.NESTING_MAX:
            raise NoColumnType(types.TOO_DEEP)
        return made

    def _entries(self, of: JsonType, around: tuple[JsonType, ...]) -> SqlType:
        key, value = of.parts
        key_type = self.sql_type(key, around)
        if key_type.base not in ("INTEGER", "BIGINT", "BOOLEAN", "STRING"):
            raise NoColumnType(f"Unsupported type for map key: {key_type.base}")
        return types.map_of(types.STRING, self.sql_type(value, around))

    def struct(self, of: JsonType, around: tuple[JsonType, ...]) -> SqlType:
        """Of an object: a field for each property that has a type. Raises BadSchema."""
        found: dict[str, SqlType] = {}
        for each in of.properties:
            if not each.name:
                continue
            try:
                made = self.sql_type(each.of, (*around, of))
            except NoColumnType:
                continue
            shown = self.shown(each.name)
            if shown in found:
                raise BadSchema(
                    f"Cannot create field because of field name duplication {shown:.80}"
                )
            found[shown] = made
        return struct_of(found.items())


def _scalar(of: JsonType) -> SqlType:
    if of.kind in ("integer", "number"):
        usual = types.BIGINT if of.kind == "integer" else types.DOUBLE
        made = _OF_CONNECT.get(of.connect) if of.connect else usual
        if made is None:
            raise BadSchema(f"Unsupported type {of.connect:.80}")
        if made == types.BYTES and of.title == f"{_LOGICAL}Decimal":
            return _decimal(of)
        return _OF_LOGICAL.get((made.base, of.title), made)
    if of.kind == "string":
        return types.BYTES if of.connect == "bytes" else types.STRING
    if of.kind == "boolean":
        return types.BOOLEAN
    raise NoColumnType(f"Unsupported type: {of.why or of.kind}")


def _decimal(of: JsonType) -> SqlType:
    precision = _PRECISION_DEFAULT if of.precision is None else of.precision
    scale = of.scale or 0
    if not 1 <= precision <= types.PRECISION_MAX or scale > precision:
        raise NoColumnType(f"DECIMAL({precision}, {scale})")
    return types.decimal(precision, scale)


# ------------------------------------------------------------------------ SQL types as JSON Schema


def schema_text(columns: Sequence[Column], full_name: str | None, *, wraps: bool) -> str:
    """The schema that ksqlDB would register for these columns, words in alphabetical order as
    Connect writes them. `wraps`: they are the properties of an object, whose title is `full_name`;
    else there is one column, whose type is the schema."""
    if wraps:
        made = _object([(column.name, parse_type(column.type)) for column in columns])
        made |= {"title": full_name} if full_name else {}
    else:
        (column,) = columns
        # Apicurio takes a text without properties for a JSON Schema only if it says so
        made = {"$schema": DRAFT, **_optional(parse_type(column.type))}
    return msgspec.json.encode(made, order="sorted").decode()


def _object(fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    made = {
        name: {CONNECT_INDEX: number, **_optional(of)} for number, (name, of) in enumerate(fields)
    }
    return {"type": "object", "properties": made}


def _optional(of: SqlType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _described(of)]}


def _described(of: SqlType) -> dict[str, Any]:
    match of.base:
        case "ARRAY":
            return {"type": "array", "items": _optional(of.arguments[0])}
        case "MAP":
            entry = _object(list(zip(ENTRY, of.arguments, strict=True)))
            return {"type": "array", CONNECT_TYPE: "map", "items": entry}
        case "STRUCT":
            return _object(list(zip(of.field_names, of.arguments, strict=True)))
        case _:
            return _scalar_schema(of)


def _scalar_schema(of: SqlType) -> dict[str, Any]:
    kind, connect, logical = _WRITTEN[of.base]
    made: dict[str, Any] = {"type": kind}
    if connect:
        made[CONNECT_TYPE] = connect
    if logical:
        made |= {"title": f"{_LOGICAL}{logical}", "connect.version": 1}
    if of.base == "DECIMAL":
        sizes = {DECIMAL_PRECISION: str(of.precision), DECIMAL_SCALE: str(of.scale)}
        made[CONNECT_PARAMETERS] = sizes
    return made
