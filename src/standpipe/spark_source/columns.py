"""Columns of a table as Spark has them, and rows of an answer as Arrow has them.

| SQL | Spark |
|---|---|
| BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING | BOOLEAN, INT, BIGINT, DOUBLE, STRING |
| DECIMAL(p, s), BYTES, DATE | DECIMAL(p, s), BINARY, DATE |
| TIMESTAMP | TIMESTAMP, in UTC |
| TIME | INT: milliseconds of the day |
| ARRAY, MAP, STRUCT | ARRAY, MAP with keys of STRING, STRUCT, with these types in them |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import time
from typing import Any, Final

from pyspark.sql import types as t
from pyspark.sql.pandas import types as arrow_types

from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.arrow import library
from standpipe.sql.types.types import SqlType, parse_type

_PLAIN: Final[Mapping[str, type[t.DataType]]] = {
    "BOOLEAN": t.BooleanType,
    "INTEGER": t.IntegerType,
    "BIGINT": t.LongType,
    "DOUBLE": t.DoubleType,
    "STRING": t.StringType,
    "BYTES": t.BinaryType,
    "DATE": t.DateType,
    "TIME": t.IntegerType,
    "TIMESTAMP": t.TimestampType,
}
#: of one batch of Arrow: what is decoded at a time
BATCH_ROWS: Final = 10_000


def spark_type(of: SqlType) -> t.DataType:
    """Spark's type of a column."""
    match of.base:
        case "ARRAY":
            return t.ArrayType(spark_type(of.arguments[0]))
        case "MAP":
            return t.MapType(t.StringType(), spark_type(of.arguments[1]))
        case "STRUCT":
            parts = zip(of.field_names, of.arguments, strict=True)
            return t.StructType([t.StructField(name, spark_type(part)) for name, part in parts])
        case "DECIMAL":
            return t.DecimalType(of.precision, of.scale)
        case base:
            return _PLAIN[base]()


def spark_schema(columns: Mapping[str, SqlType]) -> t.StructType:
    """The schema of a table: all of its columns, each of which may be null."""
    return t.StructType([t.StructField(name, spark_type(of)) for name, of in columns.items()])


def record_batches(
    lines: Sequence[bytes], types: Sequence[str], schema: t.StructType
) -> Iterator[Any]:
    """Rows of an answer (JSON arrays) as record batches of pyarrow. `types`: SQL types of the
    columns of `schema`. Raises ServerError for a line that is no row."""
    pyarrow = library("pyarrow", "standpipe[pandas]")
    in_arrow: Any = arrow_types  # it has no types of its own
    arrow_schema = in_arrow.to_arrow_schema(schema, timezone="UTC")
    reader = reader_of(tuple(types))
    converts = [_in_spark(parse_type(each)) for each in types]
    for start in range(0, len(lines), BATCH_ROWS):
        rows = reader.rows(lines[start : start + BATCH_ROWS])
        columns = [
            cells
            if convert is None
            else [None if each is None else convert(each) for each in cells]
            for cells, convert in zip(zip(*rows, strict=True), converts, strict=True)
        ]
        arrays = [
            pyarrow.array(cells, type=field.type)
            for cells, field in zip(columns, arrow_schema, strict=True)
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _in_spark(of: SqlType) -> Callable[[Any], Any] | None:
    """From a value as the client has it to the one that becomes Spark's; None: it is that."""
    if not of.contains("TIME"):
        return None
    if of.base == "TIME":
        return _milliseconds
    parts = [_or_same(_in_spark(part)) for part in of.arguments]
    if of.base == "ARRAY":
        return lambda items: [parts[0](each) for each in items]
    if of.base == "MAP":
        return lambda pairs: {name: parts[1](each) for name, each in pairs.items()}
    named = dict(zip(of.field_names, parts, strict=True))
    return lambda fields: {name: named[name](each) for name, each in fields.items()}


def _or_same(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _milliseconds(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000
