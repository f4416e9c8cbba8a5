"""What Spark SQL cannot do but a static Java method can, as columns: murmur2, the bytes of doubles.

A windowed key must be in the partition of its key *without* the window (docs/INTERFACES.md), but
Kafka's producer would hash all of it; and a table keeps its number of partitions although its topic
is given more. So the partition is computed here, by the method that the producer uses; it is in the
jar of Spark's Kafka connector. The generated code of a stage calls the
method: no Python worker is needed, and executors need nothing of ours.

Depends on Spark's internals: `StaticInvoke`, and `ExpressionUtils` for a column of an expression.
Rejected: an Arrow UDF (a Python process per core, which takes an eighth of a small batch's
processor time); SQL's `java_method`, which takes no bytes.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql.classic.column import Column as ClassicColumn

_POSITIVE = 0x7FFFFFFF


def partition_column(raw_key: SparkColumn, count: int) -> SparkColumn:
    """The `partition` column of Spark's Kafka sink for a key without its window: Kafka's default
    (`Utils.murmur2`, as a positive number, modulo `count`)."""
    hashed = _call(
        "org.apache.kafka.common.utils.Utils.murmur2", raw_key, "BinaryType", "IntegerType"
    )
    return hashed.bitwiseAND(f.lit(_POSITIVE)) % count


def double_bytes(value: SparkColumn) -> SparkColumn:
    """A DOUBLE key as Kafka's DoubleSerializer writes it; 0.0 for -0.0, which SQL calls equal."""
    bits = _call("java.lang.Double.doubleToLongBits", value + f.lit(0.0), "DoubleType", "LongType")
    return big_endian(bits, "BIGINT")


def big_endian(value: SparkColumn, sql_type: str) -> SparkColumn:
    """The 8 bytes of a BIGINT, or the 4 of an INTEGER. CAST AS BINARY is the same method, but is
    refused where ANSI mode is on, as in a user's session."""
    takes, width = ("LongType", "bigint") if sql_type == "BIGINT" else ("IntegerType", "int")
    method = "org.apache.spark.sql.catalyst.util.NumberConverter.toBinary"
    return _call(method, value.cast(width), takes, "BinaryType")


def bytes_double(value: SparkColumn) -> SparkColumn:
    """Inverse of `double_bytes`; null unless there are exactly 8 bytes."""
    bits = f.conv(f.hex(value), 16, -10).cast("bigint")
    number = _call("java.lang.Double.longBitsToDouble", bits, "LongType", "DoubleType")
    return f.when(f.octet_length(value) == 8, number)


def _call(method: str, argument: SparkColumn, takes: str, returns: str) -> SparkColumn:
    """The result of a static method of one argument; null for a null. `takes`, `returns`: names of
    Spark's `DataTypes`."""
    java = cast(Any, SparkContext)._jvm
    types = java.org.apache.spark.sql.types.DataTypes
    sequence = java.org.apache.spark.api.python.PythonUtils.toSeq
    columns = java.org.apache.spark.sql.classic.ExpressionUtils
    class_name, _, name = method.rpartition(".")
    # the jars of Spark's sessions are not on the JVM's class path
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    invoked = java.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        java.java.lang.Class.forName(class_name, True, loader),
        getattr(types, returns),
        name,
        sequence([columns.expression(cast(Any, argument)._jc)]),
        sequence([getattr(types, takes)]),
        True,  # a null makes a null
        False,  # it returns no null
        True,  # it is deterministic
        java.scala.Option.empty(),
    )
    return ClassicColumn(columns.column(invoked))
