"""ksqlDB's types on the wire and inside Spark: a parser's schema, and the conversion of its result.

A topic holds TIMESTAMP as Unix ms, DATE as days and TIME as ms of the day, but Spark SQL has its
own types. ksqlDB matches the fields of a JSON object in any case, but Spark expects one spelling.
So each type has a *wire type* (for from_json, from_csv, to_json) and a pair of expressions that
convert between it and the type that the query's SQL sees. TIME stays INT ms on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from standpipe.model import Column
from standpipe.sql.types.types import INSTANT_MS_MAX, SqlType, parse_type

_PLAIN: dict[str, t.DataType] = {
    "BOOLEAN": t.BooleanType(),
    "INTEGER": t.IntegerType(),
    "BIGINT": t.LongType(),
    "DOUBLE": t.DoubleType(),
    "STRING": t.StringType(),
    "BYTES": t.BinaryType(),  # base64 text in JSON, on both sides
    "DATE": t.IntegerType(),
    "TIME": t.IntegerType(),
    "TIMESTAMP": t.LongType(),
}
#: column in which Spark's parsers put a text that they could not parse
CORRUPT = "__corrupt"
#: these differ between the wire and the query
_CONVERTED = ("DATE", "TIMESTAMP")


def spellings(name: str) -> tuple[str, ...]:
    """The JSON field names under which to look for a column, best first: exact, upper, lower.

    Not here: mixed case (`tailNum` for TAILNUM), which is slower (`loose_json.py`).
    """
    return tuple(dict.fromkeys((name, name.upper(), name.lower())))


def spellings_of(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The `spellings` of an object's fields. One is left out where it is the name of another field,
    or belongs to an earlier one: Spark refuses a schema that has a name twice."""
    taken, found = set(names), dict[str, tuple[str, ...]]()
    for name in names:
        others = [spelling for spelling in spellings(name) if spelling not in taken]
        taken.update(others)
        found[name] = (name, *others)
    return found


def wire_schema(columns: Sequence[Column], *, any_case: bool) -> t.StructType:
    """Schema for a parser. `any_case`: it has each column under each of its spellings."""
    named = [(column.name, parse_type(column.type)) for column in columns]
    return _struct(named, any_case=any_case)


def _struct(named: Sequence[tuple[str, SqlType]], *, any_case: bool) -> t.StructType:
    schema, found = t.StructType(), spellings_of([name for name, _ in named])
    for name, type_ in named:
        for spelling in found[name] if any_case else (name,):
            schema = schema.add(spelling, wire_type(type_, any_case=any_case))
    return schema


def wire_type(type_: SqlType, *, any_case: bool) -> t.DataType:
    """The Spark type of a value in the topic."""
    match type_.base:
        case "ARRAY":
            return t.ArrayType(wire_type(type_.arguments[0], any_case=any_case))
        case "MAP":
            key, value = (wire_type(part, any_case=any_case) for part in type_.arguments)
            return t.MapType(key, value)
        case "STRUCT":
            named = list(zip(type_.field_names, type_.arguments, strict=True))
            return _struct(named, any_case=any_case)
        case "DECIMAL":
            return t.DecimalType(type_.precision, type_.scale)
        case base:
            return _PLAIN[base]


def fields_of(
    parsed: SparkColumn, columns: Sequence[Column], *, any_case: bool
) -> dict[str, SparkColumn]:
    """The columns of the query by name, from a parsed struct of their wire schema."""
    named = [(column.name, parse_type(column.type)) for column in columns]
    return _fields(parsed, named, any_case=any_case)


def _fields(
    parsed: SparkColumn, named: Sequence[tuple[str, SqlType]], *, any_case: bool
) -> dict[str, SparkColumn]:
    spelled, found = spellings_of([name for name, _ in named]), dict[str, SparkColumn]()
    for name, type_ in named:
        each = [
            from_wire(parsed.getField(spelling), type_, any_case=any_case)
            for spelling in (spelled[name] if any_case else (name,))
        ]
        found[name] = f.coalesce(*each) if len(each) > 1 else each[0]
    return found


def from_wire(value: SparkColumn, type_: SqlType, *, any_case: bool) -> SparkColumn:
    """The value as the query sees it."""
    match type_.base:
        case "TIMESTAMP":
            # null: raising would stop the query for all other records too
            fits = value.between(-INSTANT_MS_MAX, INSTANT_MS_MAX)
            return f.when(fits, f.timestamp_millis(value))
        case "DATE":
            return f.date_from_unix_date(value)
        case "STRUCT":
            named = list(zip(type_.field_names, type_.arguments, strict=True))
            fields = _fields(value, named, any_case=any_case)
            aliased = [field.alias(name) for name, field in fields.items()]
            return f.when(value.isNotNull(), f.struct(*aliased))
        case "ARRAY" if _changes(type_.arguments[0]):
            element = type_.arguments[0]
            return f.transform(value, lambda item: from_wire(item, element, any_case=any_case))
        case "MAP" if _changes(type_.arguments[1]):
            part = type_.arguments[1]
            return f.transform_values(
                value, lambda _, item: from_wire(item, part, any_case=any_case)
            )
        case _:
            return value


def to_wire(value: SparkColumn, type_: SqlType) -> SparkColumn:
    """The value as the topic stores it."""
    match type_.base:
        case "TIMESTAMP":
            return f.unix_millis(value)
        case "DATE":
            return f.unix_date(value)
        case "STRUCT" if _changes(type_):
            fields = [
                to_wire(value.getField(name), part).alias(name)
                for name, part in zip(type_.field_names, type_.arguments, strict=True)
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
        case "ARRAY" if _changes(type_.arguments[0]):
            element = type_.arguments[0]
            return f.transform(value, lambda item: to_wire(item, element))
        case "MAP" if _changes(type_.arguments[1]):
            part = type_.arguments[1]
            return f.transform_values(value, lambda _, item: to_wire(item, part))
        case _:
            return value


def _changes(type_: SqlType) -> bool:
    """Whether a nested value must be rebuilt: a struct always, because of its fields' names."""
    return type_.contains("STRUCT") or any(type_.contains(base) for base in _CONVERTED)
