"""JSON as ksqlDB reads it, for the records that Spark's parser reads otherwise, or not at all.

ksqlDB finds a field in any case of its letters (exact name first), takes numbers out of text, and
cuts 2.7 to an INTEGER. Spark's parser wants one spelling and one kind of token, and is far quicker,
so it goes first (`source.py`); only what `is_missed` or is corrupt comes here, as VARIANT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.model import Column
from standpipe.pipeline import wire
from standpipe.sql.types import SqlType, parse_type, struct

_OBJECT = "map<string,variant>"
_LIST = "array<variant>"


def read(text: SparkColumn, columns: Sequence[Column], corrupt: str) -> SparkColumn:
    """A struct as `wire.wire_schema(columns, any_case=True)` and the field `corrupt` describe it:
    the text, where it is no JSON or holds something that does not fit its column."""
    of = _row_type(columns)
    row = f.try_parse_json(text)
    whole = f.try_variant_get(row, "$", _OBJECT)
    bad = whole.isNull() | _is_bad(row, of)
    return f.struct(*_fields(whole, of), f.when(bad, text).alias(corrupt))


def is_missed(parsed: SparkColumn, text: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Whether a column stayed null and the text has a field of its name in mixed letters."""
    of = _row_type(columns)
    names = sorted({name for name in _names(of) if name.lower() != name})
    if not names:
        return f.lit(False)
    each = "|".join(f'(?!(?:{_spelt(name)})")(?i:{re.escape(name)})' for name in names)
    return _has_null(parsed, of) & text.rlike(f'"(?:{each})"\\s*:')


def _row_type(columns: Sequence[Column]) -> SqlType:
    return struct(tuple((column.name, parse_type(column.type)) for column in columns))


def _spelt(name: str) -> str:
    return "|".join(map(re.escape, wire.spellings(name)))


def _names(of: SqlType) -> Iterator[str]:
    """Names of fields, at any depth, that ksqlDB finds in any case: those in capitals."""
    yield from (name for name in of.field_names if name == name.upper())
    for part in of.arguments:
        yield from _names(part)


def _has_null(value: SparkColumn, of: SqlType) -> SparkColumn:
    if of.base != "STRUCT":
        inside = of.is_nested and any(map(_holds_struct, of.arguments))
        return f.lit(True) if inside else value.isNull()
    found = value.isNull()
    for name, part in zip(of.field_names, of.arguments, strict=True):
        absent = f.lit(True)
        for spelling in wire.spellings(name):
            absent = absent & _has_null(value.getField(spelling), part)
        found = found | absent
    return found


def _holds_struct(of: SqlType) -> bool:
    return of.base == "STRUCT" or any(map(_holds_struct, of.arguments))


def _member(whole: SparkColumn, name: str) -> SparkColumn:
    """The exact name, the other spellings that Spark's parser knows, then any case."""
    found = [f.try_element_at(whole, f.lit(spelling)) for spelling in wire.spellings(name)]
    if name == name.upper():
        alike = f.map_filter(whole, lambda key, _: f.upper(key) == name)
        found.append(f.try_element_at(f.map_values(alike), f.lit(1)))
    return f.coalesce(*found)


def _fields(whole: SparkColumn, of: SqlType) -> Iterator[SparkColumn]:
    """Each field under its first spelling; the other spellings are null."""
    for name, part in zip(of.field_names, of.arguments, strict=True):
        first, *others = wire.spellings(name)
        yield _value(_member(whole, name), part).alias(first)
        nothing = f.lit(None).cast(wire.wire_type(part, any_case=True))
        yield from (nothing.alias(other) for other in others)


def _value(found: SparkColumn, of: SqlType) -> SparkColumn:
    """A VARIANT as the wire type; null where it does not fit."""
    if of.base == "STRUCT":
        whole = f.try_variant_get(found, "$", _OBJECT)
        return f.when(whole.isNotNull(), f.struct(*_fields(whole, of)))
    if of.base == "ARRAY":
        items = f.try_variant_get(found, "$", _LIST)
        return f.transform(items, lambda item: _value(item, of.arguments[0]))
    if of.base == "MAP":
        entries = f.try_variant_get(found, "$", _OBJECT)
        return f.transform_values(entries, lambda _, item: _value(item, of.arguments[1]))
    text = f.try_variant_get(found, "$", "string")
    if of.base == "BYTES":
        return f.try_to_binary(text, f.lit("base64"))
    wanted = wire.wire_type(of, any_case=True)
    if of.base in ("INTEGER", "BIGINT", "DATE", "TIME", "TIMESTAMP"):  # 2.7 is 2, and 1E3 is 1000
        return f.coalesce(text.cast(wanted), text.cast("double").cast(wanted))
    if of.base == "BOOLEAN":  # a cast would take 1 and yes, too
        return f.when(f.lower(text).isin("true", "false"), text.cast(wanted))
    return text.cast(wanted)


def _is_bad(found: SparkColumn, of: SqlType) -> SparkColumn:
    """Whether a VARIANT, or something inside it, says something that its type cannot hold."""
    is_there = found.isNotNull() & ~f.is_variant_null(found)
    if of.base == "STRUCT":
        whole = f.try_variant_get(found, "$", _OBJECT)
        bad = whole.isNull()
        for name, part in zip(of.field_names, of.arguments, strict=True):
            bad = bad | _is_bad(_member(whole, name), part)
    elif of.base in ("ARRAY", "MAP"):
        items = f.try_variant_get(found, "$", _LIST if of.base == "ARRAY" else _OBJECT)
        each = items if of.base == "ARRAY" else f.map_values(items)
        bad = items.isNull() | f.exists(each, lambda item: _is_bad(item, of.arguments[-1]))
    else:
        bad = _value(found, of).isNull()
    return f.coalesce(is_there & bad, f.lit(False))
