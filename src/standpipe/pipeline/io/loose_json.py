"""JSON as ksqlDB reads it, for the records that Spark's parser reads otherwise, or not at all.

ksqlDB finds a field in any case of its letters (exact name first), takes numbers out of text, and
cuts 2.7 to an INTEGER. Spark's parser wants one spelling and one kind of token, and is far quicker,
so it goes first (`source.py`). Where it may have missed something, the text is rewritten for it:
names in capitals beside what they were, numbers as numbers. What cannot be a number stays as it is,
and Spark's parser calls it corrupt.

One function over the text, with each step bound once (`_let`): an expression per column and
spelling made plans that took longer than their batches (2.6 s for 19 columns, measured), and would
be computed again for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.model import Column
from standpipe.pipeline.io import type_mapping
from standpipe.sql.types.types import SqlType, parse_type, struct

_OBJECT = "map<string,variant>"
_LIST = "array<variant>"
#: ksqlDB's types that JSON holds as numbers
_NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIME", "TIMESTAMP")
#: a name in front of a colon with letters of both cases; possessive, for there is nothing to undo
_MIXED_NAME = r'"(?=[^"]*[a-z])(?=[^"]*[A-Z])[^"]*+"\s*+:'


def may_be_missed(text: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Whether a field may have a name that Spark's parser does not look for."""
    of = _row_type(columns)
    return text.rlike(_MIXED_NAME) if _has_capitals(of) else f.lit(False)


def rewritten(text: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """The text of an object with names and numbers as Spark's parser wants them; null for what is
    no object."""
    return f.to_json(_fields(f.from_json(text, _OBJECT), _row_type(columns)))


def _let(value: SparkColumn, then: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """`then` of a value that is computed once, however often `then` names it."""
    return f.get(f.transform(f.array(value), then), f.lit(0))


def _row_type(columns: Sequence[Column]) -> SqlType:
    return struct(tuple((column.name, parse_type(column.type)) for column in columns))


def _has_capitals(of: SqlType) -> bool:
    """Whether ksqlDB finds a field, at any depth, in any case: those in capitals."""
    return any(name == name.upper() for name in of.field_names) or any(
        map(_has_capitals, of.arguments)
    )


def _with_numbers(whole: SparkColumn, of: SqlType) -> SparkColumn:
    """A map of a record's fields, its numbers made such, all at once, where that can be."""
    fields = [
        f"`{spelling.replace('`', '``')}`: {_number(part)}"
        for name, part in zip(of.field_names, of.arguments, strict=True)
        if part.base in _NUMBERS
        for spelling in _spellings(name)
    ]
    if not fields:
        return whole

    def cast(fields_: SparkColumn) -> SparkColumn:
        made = f.try_variant_get(f.to_variant_object(fields_), "$", f"struct<{', '.join(fields)}>")
        return f.map_concat(fields_, f.from_json(f.to_json(made), _OBJECT))  # nulls are left out

    return _let(whole, cast)


def _spellings(name: str) -> tuple[str, ...]:
    """Of those under which the parser looks for a field: what `_fields` leaves."""
    return (name,) if name == name.upper() else type_mapping.spellings(name)


def _number(of: SqlType) -> str:
    return type_mapping.wire_type(of, any_case=False).simpleString()


def _fields(whole: SparkColumn, of: SqlType) -> SparkColumn:
    """A map of a record's fields: each under its own name, and in capitals where nothing has that
    name itself; numbers as numbers."""
    given = set(of.field_names)
    # Spark's parser would find what is not rebuilt here
    doubles = sorted({name.lower() for name in given if name == name.upper()} - given)

    def both(fields: SparkColumn) -> SparkColumn:
        all_ = f.map_concat(f.transform_keys(fields, lambda name, _: f.upper(name)), fields)
        return f.map_filter(all_, lambda name, _: ~name.isin(doubles)) if doubles else all_

    found = _let(whole, both)
    for name, part in zip(of.field_names, of.arguments, strict=True):
        if part.is_nested and _is_loose(part):
            for spelling in _spellings(name):
                found = _let(found, _replacing(spelling, part))
    return _with_numbers(found, of)


def _is_loose(of: SqlType) -> bool:
    """Whether Spark's parser may miss something in it."""
    return _has_capitals(of) or any(map(of.contains, _NUMBERS))


def _replacing(name: str, part: SqlType) -> Callable[[SparkColumn], SparkColumn]:
    """Of a map of fields: the same with a nested one rebuilt, where there is one."""

    def replace(fields: SparkColumn) -> SparkColumn:
        value = f.try_element_at(fields, f.lit(name))
        again = f.create_map(f.lit(name), _inside(value, part))
        return f.when(value.isNull(), fields).otherwise(f.map_concat(fields, again))

    return replace


def _inside(value: SparkColumn, of: SqlType) -> SparkColumn:
    """A VARIANT with the structs in it as `_fields` has them; itself where it is not `of`."""
    if not _is_loose(of):
        return value
    if of.base in _NUMBERS:
        return f.coalesce(f.try_variant_get(value, "$", _number(of)).cast("variant"), value)
    if of.base == "ARRAY":
        items = f.try_variant_get(value, "$", _LIST)
        made = f.transform(items, lambda item: _inside(item, of.arguments[0]))
    else:
        fields = f.try_variant_get(value, "$", _OBJECT)
        made = (
            _fields(fields, of)
            if of.base == "STRUCT"
            else f.transform_values(fields, lambda _, item: _inside(item, of.arguments[1]))
        )
    return f.coalesce(f.to_variant_object(made), value)
