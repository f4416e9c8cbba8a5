"""A user's DataFrame as the result that `pipeline.io.sink.records_of` writes.

Every expression runs in the JVM: executors need nothing but pyspark. Not here: which columns the
table has (`schema.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from standpipe.model import Column, Source, Window
from standpipe.pipeline.io.sink import records_of
from standpipe.spark.errors import ServeRefused
from standpipe.spark.schema import WINDOW
from standpipe.spark_source.columns import spark_type
from standpipe.sql.types.types import SqlType, parse_type, quoted


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """`deleted`: a Boolean column; where it is true, the row of that key is deleted.
    `deleted_if_null`: where all columns are null that are not of the key, it is, too. `timestamp`:
    the column that is the ROWTIME of a row; None: the time of its batch."""

    deleted: str | None = None
    deleted_if_null: bool = False
    timestamp: str | None = None

    def check(self, schema: t.StructType) -> None:
        """Raises ServeRefused if a column has another type than it must have."""
        for name, wanted in ((self.deleted, t.BooleanType), (self.timestamp, t.TimestampType)):
            fields = [each for each in schema.fields if name and each.name.upper() == name.upper()]
            if name and not (fields and isinstance(fields[0].dataType, wanted)):
                raise ServeRefused(
                    f"column {name} must be there, as {wanted().simpleString()}",
                    next_step="add it with withColumn",
                )

    def is_live(self, by_name: Mapping[str, str], table: Source) -> SparkColumn:
        """Whether a row stays, or deletes that of its key. `by_name`: the names of the columns, by
        those in capitals."""
        live = f.lit(True)
        if self.deleted is not None:
            live = ~f.coalesce(f.col(quoted(by_name[self.deleted.upper()])), f.lit(False))
        if self.deleted_if_null:
            has_value = f.lit(False)
            # those that it knows: others may have been added to the table
            for name in (each.name for each in table.value_columns if each.name in by_name):
                has_value = has_value | f.col(quoted(by_name[name])).isNotNull()
            live = live & has_value
        return live


def records(
    frame: DataFrame, table: Source, rules: RowRules, time: SparkColumn | None = None
) -> DataFrame:
    """The table's records, of a stream or of a batch. `time`: when the batch was planned; None:
    Spark knows, as the plan is that of the batch."""
    by_name = {name.upper(): name for name in frame.columns}

    def written(name: str, type_: str) -> SparkColumn:
        # null: a column that was added, which this program does not know
        column = f.col(quoted(by_name[name])) if name in by_name else f.lit(None)
        return column.cast(spark_type(parse_type(type_))).alias(name)

    # the time of the batch: of a stream, Spark keeps it in the checkpoint, for a replay
    time = f.current_timestamp() if time is None else time
    if rules.timestamp is not None:
        time = f.coalesce(f.col(quoted(by_name[rules.timestamp.upper()])), time)
    is_live = rules.is_live(by_name, table)
    keys, values = (
        [written(each.name, each.type) for each in part]
        for part in (table.key_columns, table.value_columns)
    )
    bounds: list[SparkColumn] = []
    if table.window is not None:
        window = quoted(by_name[WINDOW])
        frame = frame.filter(f.col(f"{window}.start").isNotNull())  # as of a null in the key
        bounds = _bounds(window, table.window)
    rowtime_ms = f.unix_millis(time)
    for each in table.key_columns:
        rowtime_ms = _checked(rowtime_ms, by_name[each.name], each, table)
    columns = [*keys, *bounds, *values]
    result = frame.select(*columns, rowtime_ms.alias("__ROWTIME"), is_live.alias("__LIVE"))
    return records_of(result, table)


def _checked(rowtime_ms: SparkColumn, name: str, key: Column, table: Source) -> SparkColumn:
    """The ROWTIME; the plan raises an error if the key has a text that is not UTF-8. Replicas would
    leave the record out, and JSON would have one key for all such texts.

    It is not the key that is checked, as a filter reads that (`records_of`): Spark could move the
    check in front of an aggregation, whose result the program filters."""
    of = parse_type(key.type)
    if not of.contains("STRING"):
        return rowtime_ms
    error = f.raise_error(
        f.lit(
            f"a row's key column {name} is not UTF-8, so nobody could look the row up in"
            f" {table.name}: leave it out with is_valid_utf8, or change it with make_valid_utf8"
        )
    )
    column = f.col(quoted(name)).cast(spark_type(of))
    return f.when(_has_invalid_text(column, of), error).otherwise(rowtime_ms)


def _has_invalid_text(value: SparkColumn, of: SqlType) -> SparkColumn:
    """False or null: all of its texts are UTF-8."""
    if of.base == "STRING":
        return ~f.is_valid_utf8(value)
    if of.base == "ARRAY":
        return f.exists(value, lambda item: _has_invalid_text(item, of.arguments[0]))
    found = f.lit(False)
    for name, part in zip(of.field_names, of.arguments, strict=True):
        found = found | _has_invalid_text(value.getField(name), part)
    return found


def _bounds(column: str, window: Window) -> list[SparkColumn]:
    """Start and end (ms). Replicas know the end from the start, so each window must have the size
    that was declared; the plan raises an error if one has not."""
    start, end = (f.unix_millis(f.col(f"{column}.{part}")) for part in ("start", "end"))
    other = f.raise_error(
        f.concat(
            f.lit(f"a window has {window.size_ms} ms, as `window_size` says, but not this one: "),
            f.col(column).cast("string"),
        )
    )
    is_right = end - start == window.size_ms
    return [
        f.when(is_right, start).otherwise(other).alias("WINDOWSTART"),
        end.alias("WINDOWEND"),
    ]


def one_of_each_key(rows: DataFrame) -> DataFrame:
    """The newest of the records of each key, so that a batch has the same rows whenever it is
    computed. Where two of them are the newest and differ, the plan raises an error."""
    rowtime_ms = f.conv(f.hex("rowtime"), 16, -10).cast("bigint")
    timed = rows.withColumn("ms", rowtime_ms)
    found = timed.groupBy("key", "partition").agg(
        f.max(f.struct("ms", "value", "rowtime")).alias("newest"),
        f.min(f.struct(-f.col("ms"), "value")).alias("other"),
    )
    ambiguous = f.raise_error(
        f.concat(
            f.lit("the DataFrame has two rows of one key, and neither is newer; its bytes: "),
            f.hex("key"),
            f.lit(". Give `timestamp`, or leave out one of them"),
        )
    )
    value = f.col("newest.value")
    is_clear = value.eqNullSafe(f.col("other.value"))
    return found.select(
        "key",
        f.when(is_clear, value).otherwise(ambiguous).alias("value"),
        f.col("newest.rowtime").alias("rowtime"),
        "partition",
    )
