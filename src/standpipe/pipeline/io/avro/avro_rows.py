"""Rows of a query in AVRO: which functions of its session write them, and what these are given.

`run/start/session_functions.py` makes the functions from `writers_of`; a plan calls them by name,
with a struct of the columns. So neither the driver nor an executor asks a registry. What a function
writes says a program (`sql/schemas/avro_write_program.py`): the same bytes as INSERT … VALUES. But
a query writes a record without a value for a bare NULL, as in ksqlDB; INSERT … VALUES refuses it.

Rejected: Spark's `to_avro` (spark-avro). It has types of its own, ends the query at a value that
the schema cannot have, and is one more jar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.model import Column, Source, SparkPlan
from standpipe.sql.declarations.published import public_form
from standpipe.sql.declarations.registered import Part
from standpipe.sql.declarations.sink_schemas import columns_of, format_of, wraps
from standpipe.sql.schemas import avro, avro_write_program
from standpipe.sql.types.types import SqlType, parse_type

_FUNCTIONS: Final[dict[Part, str]] = {
    "KEY": "standpipe_avro_key",
    "VALUE": "standpipe_avro_value",
}
_CONVERTED: Final = ("DATE", "TIMESTAMP", "MAP", "STRUCT")


@dataclass(frozen=True, kw_only=True)
class AvroWriter:
    """A function of a session: its name, and what `AvroBytes.java` is made with."""

    name: str
    schema_id: int
    program: str
    wraps: bool


def writers_of(table: Source, plan: SparkPlan) -> list[AvroWriter]:
    """The functions that write the keys and the values of a query in AVRO, if any.

    Raises BadSchema, a ValueError, for a schema that cannot have the columns.
    """
    public = public_form(table)
    made: list[AvroWriter] = []
    for part, written_under in zip(_FUNCTIONS, plan.schemas or (), strict=False):
        if written_under is None or format_of(public, part) != "AVRO":
            continue
        schema_id, text = written_under
        is_wrapped = wraps(public, part)
        step = avro_write_program.program(
            avro.parse(text), columns_of(public, part), wraps=is_wrapped
        )
        program = avro_write_program.to_text(step)
        name = _FUNCTIONS[part]
        made.append(AvroWriter(name=name, schema_id=schema_id, program=program, wraps=is_wrapped))
    return made


def written(part: Part, columns: Sequence[tuple[Column, SparkColumn]]) -> SparkColumn:
    """The bytes of one part of a row, as the query's function writes it; null if it cannot."""
    values = [
        _given(value, parse_type(column.type)).alias(column.name) for column, value in columns
    ]
    return f.call_function(_FUNCTIONS[part], f.struct(*values))


def _given(value: SparkColumn, of: SqlType) -> SparkColumn:
    """The value as `AvroBytes.java` takes it: times as numbers, maps as pairs in their order."""
    match of.base:
        case "TIMESTAMP":
            return f.unix_millis(value)
        case "DATE":
            return f.unix_date(value)
        case "STRUCT":
            fields = [
                _given(value.getField(name), part).alias(name)
                for name, part in zip(of.field_names, of.arguments, strict=True)
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
        case "ARRAY" if any(map(of.contains, _CONVERTED)):
            item = of.arguments[0]
            return f.transform(value, lambda each: _given(each, item))
        case "MAP":
            item = of.arguments[1]
            pairs = f.map_entries(value)
            return f.transform(
                pairs, lambda pair: f.struct(pair["key"], _given(pair["value"], item))
            )
        case _:
            return value
