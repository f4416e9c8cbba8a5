"""AVRO as columns: a function in Java (`AvroRows.java`) runs the programs of a batch's schemas.

The generated code of a plan refers to the function and does not contain it, so another batch with
other schemas has the same code, which is compiled once.

Rejected: Spark's `from_avro`. It reads one schema that is known when the plan is made. A record of
ten bytes that announces a long array takes the memory of the JVM, a deep one its stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.classic.column import Column as ClassicColumn

from standpipe.data.encoding import avro_reading
from standpipe.model import Column
from standpipe.pipeline.io import java_classes, type_mapping
from standpipe.sql.types.made_fields import FREE_FIELDS

_JAR: Final = "standpipe-avro.jar"
_SOURCES: Final = (Path(__file__).with_name("AvroRows.java"),)
_LIMITS: Final = {
    "free_items": avro_reading.FREE_ITEMS,
    "free_fields": FREE_FIELDS,
    "fields_per_byte": avro_reading.FIELDS_PER_BYTE_MAX,
    "free_text_bytes": avro_reading.FREE_TEXT_BYTES,
    "text_per_byte": avro_reading.TEXT_PER_BYTE_MAX,
    "depth": avro_reading.DEPTH_MAX,
    "decimal_bytes": avro_reading.DECIMAL_BYTES_MAX,
}


def prepare(spark: SparkSession) -> None:
    """Add the function's class to a session."""
    java_classes.add_jar(spark, _JAR, _SOURCES)


def row_type(columns: Sequence[Column], corrupt: str) -> t.StructType:
    """What a key or a value becomes: the columns' wire types, and a text that is always null."""
    return type_mapping.wire_schema(columns, any_case=False).add(corrupt, t.StringType())


def rows_of(
    spark: SparkSession,
    framed: SparkColumn,
    of: t.StructType,
    programs: Mapping[int, str],
    *,
    is_complete: bool,
) -> SparkColumn:
    """A column of structs `of`; null for a null, and for what cannot be read.

    `programs`: schema's id -> `AvroProgram.text`. `is_complete`: every schema was looked up, so
    that one without a program makes its records bad; otherwise, they end the query."""
    given = {
        "limits": _LIMITS,
        "is_complete": is_complete,
        "programs": {str(number): msgspec.Raw(text.encode()) for number, text in programs.items()},
    }
    java = cast(Any, spark)._jvm
    function = java_classes.new_object(spark, "AvroRows", msgspec.json.encode(given).decode())
    data_type = java.org.apache.spark.sql.types.DataType.fromJson(of.json())
    udf = java_classes.new_udf(spark, function, "UDF1", data_type)
    columns = cast(Any, spark)._sc._gateway.new_array(java.org.apache.spark.sql.Column, 1)
    columns[0] = cast(Any, framed)._jc
    return ClassicColumn(udf.apply(columns))
