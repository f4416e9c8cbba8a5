"""JSON as ksqlDB reads it, for records that Spark's parser reads differently, or not at all.

ksqlDB matches field names in any case (exact name first), parses numbers from text, and truncates
2.7 to an INTEGER. Spark's parser accepts one spelling and one kind of token, and is far faster, so
it runs first (`source.py`). Where it may have missed something, the text is rewritten for it: each
name also in upper case, numbers as numbers. What cannot be a number stays as it is, and Spark's
parser reports it as corrupt.

The rewrite is one function over the text, with each step bound once (`let`). One expression per
column and spelling made plans that took longer than their batches (2.6 s for 19 columns, measured),
and would be computed again for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.model import Column
from standpipe.pipeline.io import type_mapping
from standpipe.sql.schemas.json_schema import ENTRY
from standpipe.sql.types.types import SqlType, parse_type, struct

_OBJECT = "map<string,variant>"
_TEXTS = "map<string,string>"
_LIST = "array<variant>"
#: of Spark's JSON parser, which takes more than JSON
STRICT = {"allowSingleQuotes": "false"}
#: ksqlDB's types that JSON holds as numbers
_NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIME", "TIMESTAMP")
#: types of a map's key in an entry: texts, booleans, whole numbers, also of more than 64 bits
_KEY_TYPES = r"^(STRING|BOOLEAN|BIGINT|DECIMAL\(\d+,0\))$"
#: a mixed-case name before a colon; possessive quantifiers, because backtracking cannot help
_MIXED_NAME = r'"(?=[^"]*[a-z])(?=[^"]*[A-Z])[^"]*+"\s*+:'


def may_be_missed(text: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Whether a field may have a name that Spark's parser does not look for."""
    of = _row_type(columns)
    return text.rlike(_MIXED_NAME) if _has_capitals(of) else f.lit(False)


def rewritten(
    text: SparkColumn, columns: Sequence[Column], *, takes_entries: bool = False
) -> SparkColumn:
    """The text of an object with names and numbers as Spark's parser expects them; null for what
    is not an object. `takes_entries`: maps may be arrays of objects with a key and a value, as
    Connect writes them (`data/encoding/json_sr_reading.py`)."""
    of = _row_type(columns)
    fields = _with_texts(f.from_json(text, _OBJECT, STRICT), text, of)
    return f.to_json(_Rewrite(takes_entries).fields(fields, of))


def let(value: SparkColumn, then: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """`then(value)`, with the value computed once however often `then` uses it."""
    return f.get(f.transform(f.array(value), then), f.lit(0))


def _row_type(columns: Sequence[Column]) -> SqlType:
    return struct(tuple((column.name, parse_type(column.type)) for column in columns))


def _has_capitals(of: SqlType) -> bool:
    """Whether a field, at any depth, is in upper case: ksqlDB matches those in any case."""
    return any(name == name.upper() for name in of.field_names) or any(
        map(_has_capitals, of.arguments)
    )


def _with_texts(whole: SparkColumn, text: SparkColumn, of: SqlType) -> SparkColumn:
    """A map of a record's fields, whose text is given, with the very text of what is in a STRING
    column and is no text: a VARIANT keeps neither the form of numbers nor the order of names."""
    named = list(zip(of.field_names, of.arguments, strict=True))
    texts = [name for name, part in named if part.base == "STRING"]
    if not texts:
        return whole
    others = [name for name, part in named if part.base != "STRING"]
    upper = sorted({name.upper() for name in texts})

    def is_changed(name: SparkColumn, value: SparkColumn) -> SparkColumn:
        in_any_case = f.upper(name).isin(upper)
        is_of_text = name.isin(texts) | (
            in_any_case & ~name.isin(others) if others else in_any_case
        )
        return is_of_text & ~f.schema_of_variant(value).isin("STRING", "VOID")

    def exact(fields: SparkColumn, found: SparkColumn) -> SparkColumn:
        def kept(name: SparkColumn, value: SparkColumn) -> SparkColumn:
            as_text = f.try_element_at(found, name).cast("variant")
            return f.when(is_changed(name, value), as_text).otherwise(value)

        return f.transform_values(fields, kept)

    def checked(fields: SparkColumn) -> SparkColumn:
        any_changed = f.exists(
            f.map_entries(fields), lambda each: is_changed(each["key"], each["value"])
        )
        again = f.from_json(text, _TEXTS, STRICT)  # rare: only then is the text parsed once more
        made = let(again, lambda found: exact(fields, found))
        return f.when(any_changed, made).otherwise(fields)

    return let(whole, checked)


def _with_numbers(whole: SparkColumn, of: SqlType) -> SparkColumn:
    """A map of a record's fields with text converted to numbers where possible, in one step."""
    spelled = _spellings_of(of)
    fields = [
        f"`{spelling.replace('`', '``')}`: {_number(part)}"
        for name, part in zip(of.field_names, of.arguments, strict=True)
        if part.base in _NUMBERS
        for spelling in spelled[name]
    ]
    if not fields:
        return whole

    def cast(fields_: SparkColumn) -> SparkColumn:
        # a cast makes 1 of true: left as it is, it is corrupt, as in ksqlDB
        numbers = f.map_filter(fields_, lambda _, value: ~_is_boolean(value))
        made = f.try_variant_get(f.to_variant_object(numbers), "$", f"struct<{', '.join(fields)}>")
        return f.map_concat(fields_, f.from_json(f.to_json(made), _OBJECT))  # nulls are left out

    return let(whole, cast)


def _is_boolean(value: SparkColumn) -> SparkColumn:
    return f.coalesce(f.schema_of_variant(value) == "BOOLEAN", f.lit(False))


def _spellings_of(of: SqlType) -> dict[str, tuple[str, ...]]:
    """The names under which the parser looks for a field and that `_Rewrite.fields` keeps."""
    spelled = type_mapping.spellings_of(of.field_names)
    return {name: (name,) if name == name.upper() else spelled[name] for name in spelled}


def _number(of: SqlType) -> str:
    return type_mapping.wire_type(of, any_case=False).simpleString()


@dataclass(frozen=True)
class _Rewrite:
    takes_entries: bool

    def fields(self, whole: SparkColumn, of: SqlType) -> SparkColumn:
        """A map of a record's fields: each under its own name, and under its upper-case name unless
        another field has that name; numbers as numbers."""
        given = set(of.field_names)
        # drop lower-case duplicates: Spark's parser would find them, and they are not rebuilt here
        doubles = sorted({name.lower() for name in given if name == name.upper()} - given)

        def both(fields: SparkColumn) -> SparkColumn:
            all_ = f.map_concat(f.transform_keys(fields, lambda name, _: f.upper(name)), fields)
            return f.map_filter(all_, lambda name, _: ~name.isin(doubles)) if doubles else all_

        found, spelled = let(whole, both), _spellings_of(of)
        for name, part in zip(of.field_names, of.arguments, strict=True):
            if part.is_nested and self._is_loose(part):
                for spelling in spelled[name]:
                    found = let(found, self._replacing(spelling, part))
        return _with_numbers(found, of)

    def _is_loose(self, of: SqlType) -> bool:
        """Whether Spark's parser may miss something in a value of this type."""
        if self.takes_entries and of.contains("MAP"):
            return True
        return _has_capitals(of) or any(map(of.contains, _NUMBERS))

    def _replacing(self, name: str, part: SqlType) -> Callable[[SparkColumn], SparkColumn]:
        """A function that rebuilds the nested field `name` in a map of fields, if it is there."""

        def replace(fields: SparkColumn) -> SparkColumn:
            value = f.try_element_at(fields, f.lit(name))
            again = f.create_map(f.lit(name), self._inside(value, part))
            return f.when(value.isNull(), fields).otherwise(f.map_concat(fields, again))

        return replace

    def _inside(self, value: SparkColumn, of: SqlType) -> SparkColumn:
        """A VARIANT with its structs rebuilt as by `fields`; unchanged if it is not of type
        `of`."""
        if not self._is_loose(of):
            return value
        if of.base in _NUMBERS:
            made = f.try_variant_get(value, "$", _number(of)).cast("variant")
            return f.when(_is_boolean(value), value).otherwise(f.coalesce(made, value))
        if of.base == "ARRAY":
            items = f.try_variant_get(value, "$", _LIST)
            made = f.transform(items, lambda item: self._inside(item, of.arguments[0]))
        elif of.base == "STRUCT":
            made = self.fields(f.try_variant_get(value, "$", _OBJECT), of)
        else:
            fields = f.try_variant_get(value, "$", _OBJECT)
            if self.takes_entries:
                fields = f.coalesce(fields, _of_entries(value))
            made = f.transform_values(fields, lambda _, item: self._inside(item, of.arguments[1]))
        return f.coalesce(f.to_variant_object(made), value)


def _of_entries(value: SparkColumn) -> SparkColumn:
    """The map that a VARIANT, an array of entries, stands for; null if it is none."""
    key, part = ENTRY
    entries = f.transform(
        f.try_variant_get(value, "$", _LIST), lambda each: _entry(each, key, part)
    )

    def made(found: SparkColumn) -> SparkColumn:
        are_entries = f.forall(found, lambda each: each["key"].isNotNull())
        return f.when(are_entries, f.map_from_entries(found))

    return let(entries, made)


def _entry(entry: SparkColumn, key: str, part: str) -> SparkColumn:
    name = f.try_variant_get(entry, f"$.{key}", "variant")
    text = f.when(
        f.schema_of_variant(name).rlike(_KEY_TYPES), f.try_variant_get(name, "$", "string")
    )
    return f.struct(text.alias("key"), f.try_variant_get(entry, f"$.{part}", "variant").alias(part))
