"""Registers those of ksqlDB's functions that we wrote in Java as functions of a Spark session.

Regular expressions and LIKE (`LinearPatterns.java`): Spark runs its own on Java's engine, in which
one pattern and one value can block a task permanently and cannot be interrupted. JSON in texts
(`JsonTexts.java`): Spark's own functions read and write it differently from ksqlDB's. So it does
dates and times by a pattern (`TimeTexts.java`). The stream
time of a record (`StreamTime.java`): it depends on the records before. Rows in AVRO
(`AvroBytes.java`): one function for each schema of a query, in the query's own session.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from standpipe.model import Source, SparkInput, SparkPlan
from standpipe.pipeline.io import java_classes
from standpipe.pipeline.io.avro import avro_rows
from standpipe.pipeline.io.avro.avro_rows import AvroWriter
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.functions.time_patterns import CENTURY_FIRST

SOURCES: Final = tuple(
    Path(__file__).with_name(f"{name}.java")
    for name in ("LinearPatterns", "JsonTexts", "TimeTexts", "StreamTime", "AvroBytes")
)
#: of one call: about a second. What reads a character of a text in RE2/J takes that many times as
#: long as in RE2, and a batch can wait longer than a worker's loop
STEPS_MAX: Final = 1 << 26
_JAR: Final = "standpipe-functions.jar"
#: name in plans, class, its arguments, type of result
_FUNCTIONS: Final = (
    ("standpipe_regexp_extract", "LinearPatterns", ("EXTRACT",), "STRING"),
    ("standpipe_regexp_extract_all", "LinearPatterns", ("ALL",), "ARRAY<STRING>"),
    ("standpipe_regexp_replace", "LinearPatterns", ("REPLACE",), "STRING"),
    ("standpipe_regexp_split", "LinearPatterns", ("SPLIT",), "ARRAY<STRING>"),
    ("standpipe_like", "LinearPatterns", ("LIKE",), "BOOLEAN"),
    ("standpipe_json_extract", "JsonTexts", ("EXTRACT",), "STRING"),
    ("standpipe_json_is_valid", "JsonTexts", ("IS_JSON",), "BOOLEAN"),
    ("standpipe_json_length", "JsonTexts", ("LENGTH",), "INT"),
    ("standpipe_json_contains", "JsonTexts", ("CONTAINS",), "BOOLEAN"),
    ("standpipe_json_items", "JsonTexts", ("ITEMS",), "ARRAY<STRING>"),
    ("standpipe_json_keys", "JsonTexts", ("KEYS",), "ARRAY<STRING>"),
    ("standpipe_json_records", "JsonTexts", ("RECORDS",), "MAP<STRING, STRING>"),
    ("standpipe_json_concat", "JsonTexts", ("CONCAT",), "STRING"),
    ("standpipe_date", "TimeTexts", ("DATE",), "INT"),
    ("standpipe_lenient_date", "TimeTexts", ("LENIENT_DATE",), "INT"),
    ("standpipe_time", "TimeTexts", ("TIME",), "INT"),
    ("standpipe_instant", "TimeTexts", ("INSTANT",), "BIGINT"),
    ("standpipe_shown_date", "TimeTexts", ("SHOWN_DATE",), "STRING"),
    ("standpipe_shown_time", "TimeTexts", ("SHOWN_TIME",), "STRING"),
    ("standpipe_shown_instant", "TimeTexts", ("SHOWN_INSTANT",), "STRING"),
    ("standpipe_stream_time", "StreamTime", (), "BIGINT"),
)


def is_needed(sources: Sequence[Source | SparkInput], *texts: str | None) -> bool:
    """Whether rows of a source, or Spark SQL, need one of the functions: compiling takes half a
    second."""
    if any(each.timestamp_format is not None for each in sources):  # `io/source.py` calls one
        return True
    return any(name in text for text in texts if text for name, *_ in _FUNCTIONS)


def register_needed(spark: SparkSession, table: Source, plan: SparkPlan) -> None:
    """Add the functions that a query needs, to read and to write, to its session. Raises ValueError
    for schemas that cannot be used."""
    sources = (table, *plan.inputs)
    if is_needed(sources, plan.sql, plan.batch_sql, *(step.sql for step in plan.steps)):
        register(spark)
    register_avro(spark, avro_rows.writers_of(table, plan))


def register_avro(spark: SparkSession, writers: Sequence[AvroWriter]) -> None:
    """Add the functions that write rows under schemas of a registry (`avro_rows.written`)."""
    if not writers:
        return
    java = cast(Any, spark)._jvm
    java_classes.add_jar(spark, _JAR, SOURCES)
    for each in writers:
        schema_id = java.java.lang.Integer.valueOf(each.schema_id)
        given = (schema_id, each.program, each.wraps)
        function = java_classes.new_object(spark, "AvroBytes", *given)
        of = java.org.apache.spark.sql.types.DataType.fromDDL("BINARY")
        cast(Any, spark)._jsparkSession.udf().register(each.name, function, of)


def register(spark: SparkSession) -> None:
    """Add the functions to a session, and to those that its streaming queries clone from it."""
    java = cast(Any, spark)._jvm
    java_classes.add_jar(spark, _JAR, SOURCES)
    types = java.org.apache.spark.sql.types.DataType
    registry = cast(Any, spark)._jsparkSession.udf()
    for name, of_class, given, of in _FUNCTIONS:
        limits = _limits(java, of_class)
        function = java_classes.new_object(spark, of_class, *given, *limits)
        if of_class == "StreamTime":
            unmoved = java_classes.new_udf(spark, function, "UDF3", types.fromDDL(of))
            registry.register(name, unmoved)
        else:
            registry.register(name, function, types.fromDDL(of))


def _limits(java: Any, of_class: str) -> tuple[Any, ...]:
    """What else a class is made with."""
    if of_class == "LinearPatterns":
        # Py4J would pass a small number as an Integer, whatever is declared
        return java.java.lang.Long.valueOf(str(STEPS_MAX)), WORK_MAX
    return (CENTURY_FIRST,) if of_class == "TimeTexts" else ()
