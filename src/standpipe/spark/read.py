"""One committed batch of a table as a batch DataFrame: the plan behind `Standpipe.read`.

    progress topic ──► which batch is the newest, and which records it has
    table topic    ──► these records ──► the newest of each key ──► parsed

It reads the table's topic, and no node. Executors read its partitions in parallel, while a scan of
the nodes would take their processors from lookups, and its pages of LMDB would have to be kept for
as long as the job runs. The rows of all partitions are those of one batch by construction.

The topic alone must then tell the rows, as it must for a replica that is restored, so the same
obstacles apply (`data/replica/gaps.py`), and what is in doubt is an error. A foreign record that is
older than compaction may be the reason why a key has no row; `_live` raises if there is one. Nor
may a DataFrame be used once compaction may remove the records that it names; `_in_time` raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from standpipe.control.metadata.catalog import Catalog
from standpipe.data.commit.committed import Committed, Range
from standpipe.data.commit.expiry import Expiry
from standpipe.data.commit.takeover import ends_refused
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId, LeaseEpoch, Progress, Source
from standpipe.pipeline.commit.janitor import COMPACTION_LAG_MS
from standpipe.pipeline.io.committed_source import is_visible
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.source import parse, visible_columns
from standpipe.pipeline.io.source_v1 import companion
from standpipe.spark.errors import ServeRefused
from standpipe.sql.spark.to_spark import spark_input
from standpipe.sql.types.types import quoted
from standpipe.topics import TOMBSTONES_MS

#: how long an action may begin on what was read: half of what the topic keeps superseded records
#: for (`COMPACTION_LAG_MS`), so that it has the other half to end
USABLE_MS_MAX: Final = COMPACTION_LAG_MS // 2
#: no record is too large to be read again
BYTES_MAX: Final = 2**31 - 1
#: how often the progress topic is read if records are removed from it meanwhile
_TRIES: Final = 3


class CommittedFrame(ClassicDataFrame):
    """A batch DataFrame with the rows of one committed batch, and which one it is.

    Two reads with the same `lease_epoch` and `batch` have the same rows. What is made of it
    (`select`, `join`, …) is an ordinary DataFrame.
    """

    #: of the program or pipeline that committed it
    lease_epoch: LeaseEpoch
    batch: BatchId
    #: Unix ms
    committed_at_ms: int


@dataclass(frozen=True, kw_only=True)
class NewestBatch:
    """The newest batch of a table, and where its records are."""

    table: Source
    progress: Progress
    ranges: Mapping[int, list[Range]]
    #: end of each partition; records beyond the batch are read, too, as they may be in doubt
    log_ends: Mapping[int, int]
    #: offsets of which no record may be missing (`Committed.doubtful`)
    doubtful: Mapping[int, tuple[int, int]]
    #: until when (Unix ms) an action may begin
    usable_until_ms: int


def readable(catalog: Catalog, name: str) -> Source:
    """The table of that name as its query writes it. Raises ServeRefused if there is none, or if
    nothing commits batches of it."""
    source = catalog.sources.get(name)
    if source is None:
        raise ServeRefused(f"there is no table {name}", next_step="SHOW TABLES; lists all of them")
    if source.kind != "TABLE":
        raise ServeRefused(
            f"{name} is a stream, of which no batch has all rows",
            next_step=f"read its topic {source.topic} with Spark's own Kafka source",
        )
    if source.query_id is None or source.is_direct is True:
        raise ServeRefused(
            f"{name} shows a topic that other programs write, of which no batch is committed",
            next_step=f"read its topic {source.topic} with Spark's own Kafka source",
        )
    return source.stored_form()


def newest_batch(table: Source, log: ProgressLog, now_ms: int) -> NewestBatch:
    """What is committed of a table. `now_ms`: from before the call.

    Raises ServeRefused if nothing is, or if its topic is another one, and KafkaUnavailable.
    """
    found = newest_batch_if_any(table, log, now_ms)
    if found is None:
        raise ServeRefused(
            f"no batch of {table.name} is committed yet",
            next_step="start what writes it, and try again once a lookup has an answer",
        )
    return found


def newest_batch_if_any(table: Source, log: ProgressLog, now_ms: int) -> NewestBatch | None:
    """The same; None: no batch is committed yet."""
    for _ in range(_TRIES):
        committed = Committed(str(table.query_id))
        end = log.end()
        for record in log.records_until(end - 1) if end else ():
            committed.take(record)
        progress, ranges = committed.newest(), committed.table_ranges()
        if progress is None:
            return None
        if ranges is not None:
            break
    else:
        raise KafkaUnavailable(f"Kafka: {log.topic} is removed faster than it is read")
    log_ends = log.end_offsets(table.topic, table.partitions)
    _check_topic(table, committed, log)
    if why := ends_refused(progress.sinks, log_ends, rows=None):
        raise KafkaUnavailable(f"Kafka returned stale offsets for {table.topic}: {why}")
    return NewestBatch(
        table=table,
        progress=progress,
        ranges=ranges,
        log_ends=log_ends,
        doubtful=committed.doubtful(log_ends, now_ms - TOMBSTONES_MS),
        usable_until_ms=now_ms + USABLE_MS_MAX,
    )


def _check_topic(table: Source, committed: Committed, log: ProgressLog) -> None:
    """Ids are unique: if it is the right one now, the ends before were of the same topic."""
    seen = log.ask_topics([table.topic])().get(table.topic)
    if seen is None or (committed.topic_id and seen.topic_id != committed.topic_id):
        raise ServeRefused(
            f"the topic {table.topic} is not the one to which {table.name} was committed",
            next_step=f"DROP TABLE {table.name}; and create it again",
        )


def committed_frame(spark: SparkSession, found: NewestBatch, reads: KafkaReads) -> CommittedFrame:
    """The rows of the batch, as a DataFrame of the user's session. Raises ServeRefused if records
    that would have to be there are missing."""
    rows = _in_time(_parsed(_live(newest_records(spark, found, reads), found), found), found)
    frame = cast(CommittedFrame, in_session(spark, rows, CommittedFrame))
    commit = found.progress.commit
    frame.lease_epoch, frame.batch = commit.lease_epoch, commit.batch
    frame.committed_at_ms = found.progress.committed_at_ms
    return frame


def in_session(
    spark: SparkSession, rows: DataFrame, kind: type[ClassicDataFrame] = ClassicDataFrame
) -> DataFrame:
    """Rows of another session as a DataFrame of this one, whose expressions keep their meaning."""
    session, jvm = cast(Any, spark)._jsparkSession, cast(Any, spark)._jvm
    dataset = companion(jvm.org.apache.spark.sql.classic, "Dataset")
    plan = cast(Any, rows)._jdf.queryExecution().analyzed()
    return kind(dataset.ofRows(session, plan), spark)


def own_session(spark: SparkSession) -> SparkSession:
    """A session in which our expressions mean what they mean in a pipeline (`run/session.py`)."""
    own = spark.newSession()
    for name, value in (("ansi.enabled", "false"), ("caseSensitive", "true")):
        own.conf.set(f"spark.sql.{name}", value)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    own.conf.set("spark.sql.variant.allowDuplicateKeys", "true")
    return own


def _records(
    own: SparkSession,
    found: NewestBatch,
    reads: KafkaReads,
    starts: Mapping[int, int] | None = None,
) -> DataFrame:
    """The records of the table's topic up to its ends, of the partitions that are the table's."""
    topic, options = found.table.topic, reads.options(found.table.topic, headers=True)
    del options["subscribe"]
    partitions = range(found.table.partitions)
    begins = "earliest" if starts is None else _offsets(topic, {**found.log_ends, **starts})
    return (
        own.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: list(partitions)}))
        .option("startingOffsets", begins)
        .option("endingOffsets", _offsets(topic, found.log_ends))
        .load()
    )


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): at for partition, at in offsets.items()}})


def _check_whole(own: SparkSession, found: NewestBatch, reads: KafkaReads) -> None:
    if not found.doubtful:
        return
    starts = {partition: low for partition, (low, _) in found.doubtful.items()}
    count = _records(own, found, reads, starts).count()
    if count != sum(high - low for low, high in found.doubtful.values()):
        raise ServeRefused(
            f"the topic {found.table.topic} no longer tells all rows of {found.table.name}: what"
            " writes the table was away for longer than tombstones last",
            next_step=f"ask the nodes (standpipe.connect); DROP TABLE {found.table.name}; and"
            " create it again to be safe",
        )


def newest_records(spark: SparkSession, found: NewestBatch, reads: KafkaReads) -> DataFrame:
    """Each `partition` and `key` of the topic with `newest`, the newest record that the batch has
    (`value`, `timestamp`, `offset`), or null; and `shadow`: the offset of a foreign record that
    may be why it is null, or null. In a session of ours. Raises ServeRefused if records that would
    have to be there are missing."""
    own = own_session(spark)
    _check_whole(own, found, reads)
    records = _records(own, found, reads)
    clean = found.progress.clean_through
    bounds = ", ".join(f"{clean.get(p, 0)}L" for p in range(found.table.partitions))
    is_unclean = f.col("offset") >= f.get(f.expr(f"array({bounds})"), f.col("partition"))
    is_old = f.col("timestamp") < f.current_timestamp() - f.expr(
        f"INTERVAL {COMPACTION_LAG_MS // 1000} SECONDS"
    )
    is_ours = f.col("is_ours")
    row = f.struct("value", "timestamp", "offset")
    newest = f.max_by(f.when(is_ours, row), f.when(is_ours, f.col("offset"))).alias("newest")
    shadow = f.max(f.when(~is_ours & is_unclean & is_old, f.col("offset"))).alias("shadow")
    keyed = records.filter(f.col("key").isNotNull()).withColumn("is_ours", is_visible(found.ranges))
    return keyed.groupBy("partition", "key").agg(newest, shadow)


def _live(newest: DataFrame, found: NewestBatch) -> DataFrame:
    """The records of `newest_records` that are rows; without tombstones."""
    lost = f.raise_error(
        f.concat(
            f.lit(f"{found.table.name} cannot be read from its topic: at offset "),
            f.col("shadow").cast("string"),
            f.lit(" of partition "),
            f.col("partition").cast("string"),
            f.lit(
                " a record that was never committed may have superseded a row, which compaction"
                " then removed. Start what writes the table, which repairs it or replays its batch"
            ),
        )
    )
    is_live = f.when(is_lost(), lost).otherwise(f.col("newest.value").isNotNull())
    return newest.filter(is_live).select("partition", "key", "newest.*")


def is_lost() -> Column:
    """Of `newest_records`: whether the key may have a row that the topic no longer tells."""
    return f.col("newest").isNull() & f.col("shadow").isNotNull()


def _parsed(records: DataFrame, found: NewestBatch) -> DataFrame:
    """The columns of the table. Records that no replica can read are left out, as there."""
    table = found.table
    source = structs.replace(
        spark_input(table, view="rows"), timestamp_column=None, is_ours=None, timestamp_format=None
    )
    rows = parse(records, source, bytes_max=BYTES_MAX).filter("__bad IS NULL")
    rows = rows.select(*visible_columns(source))
    expiry = Expiry.of(table.window)
    expired_ms = expiry and expiry.newest_expired_ms(found.progress.watermark_ms)
    if table.window is not None and expired_ms is not None:
        edge = "WINDOWEND" if table.window.kind == "SESSION" else "WINDOWSTART"
        rows = rows.filter(f.col(edge) > expired_ms)
    return rows.select(*(f.col(quoted(name)) for name in shown_names(table)))


def shown_names(table: Source) -> list[str]:
    """The columns of a DataFrame of a table: key columns, bounds of the window, the others."""
    bounds = ("WINDOWSTART", "WINDOWEND") if table.window else ()
    keys, values = (
        [column.name for column in part] for part in (table.key_columns, table.value_columns)
    )
    return [*keys, *bounds, *values]


def _in_time(rows: DataFrame, found: NewestBatch) -> DataFrame:
    """The same rows, or an error once it is too late to read them.

    The rows that a second branch adds are none. Spark removes that branch while it is in time: the
    time of an action is a constant of its plan. Without rows of the table it still raises.
    """
    too_late = f.raise_error(
        f.lit(
            f"this DataFrame of {found.table.name} is too old: compaction may have removed its"
            " records from the topic. Call `read` again, or `persist` what it returns"
        )
    )
    is_late: Column = f.current_timestamp() > f.timestamp_millis(f.lit(found.usable_until_ms))
    nothing = rows.sparkSession.range(1).filter(f.when(is_late, too_late).otherwise(f.lit(False)))
    return rows.union(
        nothing.select(*(f.lit(None).cast(each.dataType).alias(each.name) for each in rows.schema))
    )
