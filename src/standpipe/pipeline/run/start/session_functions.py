"""Registers those of ksqlDB's functions that we wrote in Java as functions of a Spark session.

Regular expressions and LIKE (`LinearPatterns.java`): Spark runs its own on Java's engine, in which
one pattern and one value can block a task permanently and cannot be interrupted. JSON in texts
(`JsonTexts.java`): Spark's own functions read and write it differently from ksqlDB's. The stream
time of a record (`StreamTime.java`): it depends on the records before. Rows in AVRO
(`AvroBytes.java`): one function for each schema of a query, in the query's own session.

The classes are compiled by Spark's Janino and put into a jar that the session hands to its
executors, so nothing is built and they need nothing of ours.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from standpipe.model import Source, SparkPlan
from standpipe.pipeline.io import avro_rows
from standpipe.pipeline.io.avro_rows import AvroWriter
from standpipe.sql.expressions.evaluator import WORK_MAX

SOURCES: Final = tuple(
    Path(__file__).with_name(f"{name}.java")
    for name in ("LinearPatterns", "JsonTexts", "StreamTime", "AvroBytes")
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
    ("standpipe_stream_time", "StreamTime", (), "BIGINT"),
)

#: the jar, once it is there: of this process's JVM, until the process ends
_jars: list[TemporaryDirectory[str]] = []
_making = Lock()


def is_needed(*texts: str | None) -> bool:
    """Whether Spark SQL calls one of the functions: compiling takes half a second."""
    return any(name in text for text in texts if text for name, *_ in _FUNCTIONS)


def register_needed(spark: SparkSession, table: Source, plan: SparkPlan) -> None:
    """Add the functions that a query needs, to read and to write, to its session. Raises ValueError
    for schemas that cannot be used."""
    if is_needed(plan.sql, plan.batch_sql, *(step.sql for step in plan.steps)):
        register(spark)
    register_avro(spark, avro_rows.writers_of(table, plan))


def register_avro(spark: SparkSession, writers: Sequence[AvroWriter]) -> None:
    """Add the functions that write rows under schemas of a registry (`avro_rows.written`)."""
    if not writers:
        return
    java, class_of = _classes(spark)
    for each in writers:
        schema_id = java.java.lang.Integer.valueOf(each.schema_id)
        function = _new(java, class_of("AvroBytes"), schema_id, each.program, each.wraps)
        of = java.org.apache.spark.sql.types.DataType.fromDDL("BINARY")
        cast(Any, spark)._jsparkSession.udf().register(each.name, function, of)


def _classes(spark: SparkSession) -> tuple[Any, Callable[[str], Any]]:
    """The JVM, and what finds our classes in it: the session has the jar from now on."""
    java = cast(Any, spark)._jvm
    cast(Any, spark).sql(f"ADD JAR '{_jar(java)}'")
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    return java, lambda name: java.java.lang.Class.forName(f"standpipe.{name}", True, loader)


def register(spark: SparkSession) -> None:
    """Add the functions to a session, and to those that its streaming queries clone from it."""
    java, found = _classes(spark)
    types = java.org.apache.spark.sql.types.DataType
    registry = cast(Any, spark)._jsparkSession.udf()
    for name, of_class, given, of in _FUNCTIONS:
        made = found(of_class)
        limits = _limits(java) if of_class == "LinearPatterns" else ()
        function = _new(java, made, *given, *limits)
        if of_class == "StreamTime":
            registry.register(name, _unmoved(spark, function, types.fromDDL(of)))
        else:
            registry.register(name, function, types.fromDDL(of))


def _unmoved(spark: SparkSession, function: Any, of: Any) -> Any:
    """A UDF3 that Spark does not move before a filter.

    `functions.udf` is called by reflection: Py4J chooses among its overloads by itself, and in some
    JVMs took the one for Scala's functions (UNTYPED_SCALA_UDF)."""
    java, new_array = cast(Any, spark)._jvm, cast(Any, spark)._sc._gateway.new_array
    class_of = java.java.lang.Class.forName
    kinds = new_array(java.java.lang.Class, 2)
    kinds[0] = class_of("org.apache.spark.sql.api.java.UDF3")
    kinds[1] = class_of("org.apache.spark.sql.types.DataType")
    given = new_array(java.java.lang.Object, 2)
    given[0], given[1] = function, of
    udf = class_of("org.apache.spark.sql.functions").getMethod("udf", kinds)
    return udf.invoke(None, given).asNondeterministic()


def _jar(java: Any) -> Path:
    with _making:
        if not _jars:
            scratch = java.java.lang.System.getProperty("java.io.tmpdir")
            _jars.append(TemporaryDirectory(prefix="standpipe-", dir=scratch))
            with zipfile.ZipFile(Path(_jars[0].name) / _JAR, "w") as classes:
                for source in SOURCES:
                    compiler = java.org.codehaus.janino.SimpleCompiler()
                    compiler.cook(source.read_text())
                    for name, code in dict(compiler.getBytecodes()).items():
                        classes.writestr(name.replace(".", "/") + ".class", bytes(code))
        return Path(_jars[0].name) / _JAR


def _limits(java: Any) -> tuple[Any, ...]:
    # Py4J would pass a small number as an Integer, whatever is declared
    return java.java.lang.Long.valueOf(str(STEPS_MAX)), WORK_MAX


def _new(java: Any, made: Any, *given: Any) -> Any:
    (constructor,) = made.getConstructors()
    arguments = java.java.util.ArrayList()
    for each in given:
        arguments.add(each)
    return constructor.newInstance(arguments.toArray())
