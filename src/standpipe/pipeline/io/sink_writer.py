"""Writes a batch's records to their topics, without the rows that are too large for them.

A row that Kafka rejects fails its batch, and the batch would be retried endlessly. So rows are
measured first, inside Spark and without passing through Python. In a table, a tombstone replaces a
row that is too large (an older row must not pass for the current one); in a stream, the row is left
out. Their number and keys come from the same pass (`observe`), which costs each batch about 20 ms
and a tenth of the throughput. A query therefore starts without it, and measures rows once Kafka has
rejected one (`is_refusal`): each pipeline that holds the query runs at most one batch twice.

A row that its schema in a registry cannot have is left out, too, where another program's schema is
given. In a table's copy, a tombstone stands for it: the table itself has the row.

Not here: a topic's size limit (`ProgressLog.message_bytes_max`); the headers (`batch.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.pipeline.io.source import RAW_BYTES_MAX

#: what a record needs besides key and value: our headers, lengths, the batch header
OVERHEAD_BYTES: Final = 1024
REASON: Final = "ROW_TOO_LARGE"
#: column of records, and why such a row is left out
UNWRITABLE: Final = "unwritable"
UNWRITABLE_REASON: Final = "ROW_NOT_IN_SCHEMA"

_METRICS: Final = "rows too large"
_UNWRITABLE: Final = "rows not in their schema"
_COUNTED: Final = "records written"
_MESSAGE_BYTES: Final = 1_048_588  # Kafka's default of max.message.bytes
_REQUEST_BYTES: Final = 1024 * 1024  # Kafka's default of max.request.size
_BUFFER_BYTES: Final = 32 * 1024 * 1024  # and of buffer.memory
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"


@dataclass(frozen=True, kw_only=True)
class WriteLimits:
    """`bytes_max`: limit for key and value of a row together. `samples_max`: how many rows of a
    batch the processing log names. `looks`: measure each row; otherwise Kafka rejects the batch of
    a larger one. `counts`: count the records (`commit/written_once.py`)."""

    bytes_max: int
    samples_max: int
    looks: bool = True
    counts: bool = False


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The rows of a batch that were not written, as they are too large or not in their schema: how
    many, and some of them for the log, the largest ones first."""

    count: int = 0
    samples: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Written:
    """`records`: how many were written to each of the `counted` topics."""

    left_out: LeftOut = LeftOut()
    records: Sequence[int] = ()


def may_repeat_tasks(spark: SparkSession) -> bool:
    """Whether Spark there runs a task again that was lost. In local mode its batch fails."""
    return re.fullmatch(r"local(\[(\d+|\*)\])?", str(spark.sparkContext.master)) is None


def row_bytes_max(configured: int, topics: Sequence[int | None]) -> int:
    """Largest row, in bytes, that fits topics with these message limits.

    None: not known, so Kafka's default applies. A batch that always fails is worse than a row that
    is left out.
    """
    known = [_MESSAGE_BYTES if each is None else each for each in topics]
    return min([configured, *(each - OVERHEAD_BYTES for each in known)])


def is_refusal(message: str) -> bool:
    """Whether a batch failed because a row exceeded the producer's or the topic's limit."""
    return "RecordTooLargeException" in message


def write_fitting(
    rows: DataFrame,
    *,
    kafka: Kafka,
    limits: WriteLimits,
    is_table: bool,
    counted: Sequence[str] = (),
) -> Written:
    """Write records (`key`, `value`, `topic`, …); see the module for those that are too large.
    `counted`: the topics whose records are counted. Where the records have a column `unwritable`,
    those of which it is true are left out, or are tombstones in a table.

    Uses Spark's Kafka sink: acks = all, and it fails the batch if one record fails. Where rows are
    measured or counted, the sink is called as `DataFrame.write` calls it, because the metrics of
    the separate plan that `write` makes cannot be read.
    """
    judges_schema = UNWRITABLE in rows.columns
    if not limits.looks and not counted and not judges_schema:
        request = str(limits.bytes_max + OVERHEAD_BYTES)
        writer = rows.write.format("kafka").options(**connection_of(kafka).spark())
        writer.option("kafka.max.request.size", request).save()
        return Written()
    marked = writable(rows, limits, is_table=is_table) if judges_schema else rows
    marked = fitting(marked, limits, is_table=is_table) if limits.looks else marked
    if counted:
        counts = [f.count_if(f.col("topic") == name).alias(name) for name in counted]
        marked = marked.observe(_COUNTED, *counts)
    jvm: Any = cast(Any, rows.sparkSession)._jvm
    options = jvm.java.util.HashMap()
    for name, value in _producer(kafka, limits).items():
        options.put(name, value)
    execution = cast(Any, marked)._jdf.queryExecution()
    kafka010 = jvm.org.apache.spark.sql.kafka010
    kafka010.KafkaWriter.write(execution, options, jvm.scala.Option.empty())
    metrics = execution.observedMetrics()
    large, unfit, records = map(metrics.get, (_METRICS, _UNWRITABLE, _COUNTED))
    parts = [
        parsed(large.get().json(), limits.bytes_max) if large.isDefined() else LeftOut(),
        parsed(unfit.get().json(), None) if unfit.isDefined() else LeftOut(),
    ]
    return Written(
        left_out=LeftOut(
            count=sum(each.count for each in parts),
            samples=[sample for each in parts for sample in each.samples],
        ),
        # of a plan that Spark found to be empty there are no metrics
        records=[
            records.get().getLong(place) if records.isDefined() else 0
            for place in range(len(counted))
        ],
    )


def fitting(rows: DataFrame, limits: WriteLimits, *, is_table: bool) -> DataFrame:
    """The rows that can be written; the plan observes metrics of those that cannot."""
    key_bytes = f.coalesce(f.octet_length("key"), f.lit(0))
    size = key_bytes.cast("bigint") + f.coalesce(f.octet_length("value"), f.lit(0))
    sized = rows.withColumn("__bytes", size)
    large = f.when(f.col("__bytes") > limits.bytes_max, f.col("__bytes"))
    row = f.struct(
        f.substring(f.col("key").cast("binary"), f.lit(1), f.lit(RAW_BYTES_MAX)).alias("key"),
        f.col("topic").alias("topic"),
        f.col("__bytes").alias("bytes"),
    )
    metrics = [f.count(large).alias("count")]
    if limits.samples_max:
        metrics.append(f.call_function("max_by", row, large, f.lit(limits.samples_max)).alias("of"))
    marked = sized.observe(_METRICS, *metrics)
    if not is_table:
        return marked.filter(large.isNull()).drop("__bytes")
    # a key that is too large by itself was never written, so it needs no tombstone
    fits = f.when(large.isNull(), f.col("value"))
    return marked.filter(key_bytes <= limits.bytes_max).withColumn("value", fits).drop("__bytes")


def writable(rows: DataFrame, limits: WriteLimits, *, is_table: bool) -> DataFrame:
    """The rows that their schema has; the plan observes metrics of the others. In a table these
    have a key and no value, which is a tombstone, or no key."""
    is_unfit = f.coalesce(f.col(UNWRITABLE), f.lit(False))
    unfit = f.when(is_unfit, f.lit(1))
    key = f.substring(f.col("key").cast("binary"), f.lit(1), f.lit(RAW_BYTES_MAX))
    row = f.struct(key.alias("key"), f.col("topic").alias("topic"))
    metrics = [f.count(unfit).alias("count")]
    if limits.samples_max:
        metrics.append(f.call_function("max_by", row, unfit, f.lit(limits.samples_max)).alias("of"))
    marked = rows.observe(_UNWRITABLE, *metrics)
    left_out = is_unfit & f.col("key").isNull() if is_table else is_unfit
    return marked.filter(~left_out).drop(UNWRITABLE)


def parsed(metrics: str, bytes_max: int | None) -> LeftOut:
    """Parses `metrics`, the row that Spark observed, as JSON. `bytes_max`: what the rows exceed;
    None: their schema does not have them."""
    row: dict[str, Any] = json.loads(metrics)
    samples = [
        {
            "topic": each["topic"],
            "partition": None,  # it was never written
            "offset": None,
            "reason": UNWRITABLE_REASON if bytes_max is None else REASON,
            "key_base64": each.get("key"),
            **({} if bytes_max is None else {"bytes": each["bytes"], "bytes_max": bytes_max}),
        }
        for each in row.get("of") or ()
    ]
    return LeftOut(count=int(row["count"]), samples=samples)


def _producer(kafka: Kafka, limits: WriteLimits) -> dict[str, str]:
    """Producer options that lift Kafka's own limit of 1 MiB, by the size before compression. Rows
    that nobody has measured are refused above the limit."""
    request = limits.bytes_max + OVERHEAD_BYTES
    least = _REQUEST_BYTES if limits.looks else 0
    return {
        **connection_of(kafka).java(),
        "key.serializer": _BYTES,
        "value.serializer": _BYTES,
        "max.request.size": str(max(least, request)),
        "buffer.memory": str(max(_BUFFER_BYTES, 2 * request)),
    }
