"""Rows of a query in JSON_SR: 0, the id of their schema, and JSON under it, as Spark SQL.

`sql/schemas/json_write_program.py` says how each value is written; nodes write the same bytes for
INSERT … VALUES (`data/encoding/json_sr_writing.py`). Under our own schemas each value may be NULL,
so a row is one call of Spark's to_json. Where a schema has no null, the text is put together from
its parts, of which NULL leaves one out or makes the whole row unwritable.

Rejected: to_json for all. It leaves out all fields that are NULL, or none. Rejected: Java, as for
AVRO. There is nothing that Spark SQL cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.kafka_keys import json_string
from standpipe.model import Column, WrittenSchema
from standpipe.pipeline.io import type_mapping
from standpipe.pipeline.io.loose_json import let
from standpipe.sql.schemas import json_schema, json_write_program
from standpipe.sql.schemas.json_schema import ENTRY
from standpipe.sql.schemas.json_write_program import JsonStep

_KEEP_NULLS: Final = {"ignoreNullFields": "false"}
_NULL: Final = "null"


def written(
    schema: WrittenSchema, columns: Sequence[tuple[Column, SparkColumn]], *, wraps: bool
) -> SparkColumn:
    """The bytes of one part of a row; null if the schema does not have it. `wraps`: as an object
    with a property for each column; else the row is its only value.

    Raises BadSchema, a ValueError, for a schema that cannot have the columns.
    """
    schema_id, text = schema
    declared = [column for column, _ in columns]
    step = json_write_program.program(json_schema.parse(text), declared, wraps=wraps)
    if not wraps:
        made = _text(columns[0][1], step)
    elif step.has_every_part:
        made = _text_of(f.struct(*(value.alias(column.name) for column, value in columns)), step)
    else:
        # no struct: each property would hold all columns
        made = _object({column.name: value for column, value in columns}.__getitem__, step)
    head = f.expr(f"X'{framed(schema_id, b'').hex()}'")
    return f.concat(head, made.cast("binary"))


def _text(value: SparkColumn, step: JsonStep) -> SparkColumn:
    """JSON; null if the schema does not have the value."""
    value = _in_json(value, step)
    made = _text_of(value, step)
    if step.takes_null:
        return f.when(value.isNull(), _NULL).otherwise(made)
    return f.when(value.isNotNull(), made)


def _text_of(value: SparkColumn, step: JsonStep) -> SparkColumn:
    """The same of a value that is not NULL."""
    if step.has_every_part:
        # to_json takes no plain value: it gets an array, whose brackets are cut off
        text = f.to_json(f.array(_on_wire(value, step)), _KEEP_NULLS)
        return f.substring(text, f.lit(2), f.length(text) - 2)
    match step.op:
        case "OBJECT":
            return _object(value.getField, step)
        case "ARRAY":
            item = step.parts[0]
            return _list(f.transform(value, lambda each: _text(each, item)), "[", "]")
        case "MAP":
            part = step.parts[0]
            pairs = f.transform(
                f.map_entries(value),
                lambda pair: f.concat(_plain(pair["key"]), f.lit(":"), _text(pair["value"], part)),
            )
            return _list(pairs, "{", "}")
        case "ENTRIES":
            part = step.parts[0]
            pairs = f.transform(f.map_entries(value), lambda pair: _entry(pair, part))
            return _list(pairs, "[", "]")
        case "VALUE":
            raise AssertionError("it has no part")


def _object(field_of: Callable[[str], SparkColumn], step: JsonStep) -> SparkColumn:
    """`field_of`: the value of a column or field by its name."""
    members: list[SparkColumn] = []
    for each, part in zip(step.properties, step.parts, strict=True):
        field = _in_json(field_of(each.column), part)
        member = f.concat(f.lit(f",{json_string(each.name)}:"), _text(field, part))
        if not (each.is_required or part.takes_null):
            member = f.when(field.isNull(), "").otherwise(member)
        members.append(member)
    # named once: it has the text of every object within
    return f.concat(f.lit("{"), f.substr(f.concat(*members), f.lit(2)), f.lit("}"))


def _in_json(value: SparkColumn, step: JsonStep) -> SparkColumn:
    """The value, or NULL for a DOUBLE that is no number of JSON: NaN and the infinities. -0.0 is
    0.0, as both are equal keys."""
    if step.of.base != "DOUBLE":
        return value
    return f.when(f.abs(value) < f.lit(float("inf")), value + f.lit(0.0))


def _entry(pair: SparkColumn, part: JsonStep) -> SparkColumn:
    key, value = (f'"{name}":' for name in ENTRY)
    return f.concat(
        f.lit(f"{{{key}"),
        _plain(pair["key"]),
        f.lit(f",{value}"),
        _text(pair["value"], part),
        f.lit("}"),
    )


def _list(texts: SparkColumn, begin: str, end: str) -> SparkColumn:
    """The texts behind each other; null if one of them is."""

    def joined(parts: SparkColumn) -> SparkColumn:
        whole = f.concat(f.lit(begin), f.array_join(parts, ","), f.lit(end))
        return f.when(~f.exists(parts, lambda part: part.isNull()), whole)

    return let(texts, joined)


def _plain(text: SparkColumn) -> SparkColumn:
    """A text as JSON."""
    made = f.to_json(f.array(text))
    return f.substring(made, f.lit(2), f.length(made) - 2)


def _on_wire(value: SparkColumn, step: JsonStep) -> SparkColumn:
    """The value as to_json takes it; the schema has every value of its type."""
    match step.op:
        case "VALUE":
            return type_mapping.to_wire(_in_json(value, step), step.of)
        case "ARRAY":
            item = step.parts[0]
            return f.transform(value, lambda each: _on_wire(each, item))
        case "MAP":
            part = step.parts[0]
            return f.transform_values(value, lambda _, each: _on_wire(each, part))
        case "ENTRIES":
            part = step.parts[0]
            key, name = ENTRY
            return f.transform(
                f.map_entries(value),
                lambda pair: f.struct(
                    pair["key"].alias(key), _on_wire(pair["value"], part).alias(name)
                ),
            )
        case "OBJECT":
            properties = zip(step.properties, step.parts, strict=True)
            fields = [
                _on_wire(value.getField(each.column), part).alias(each.name)
                for each, part in properties
            ]
            return f.when(value.isNotNull(), f.struct(*fields)) if fields else value
