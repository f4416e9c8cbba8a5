"""Makes the public topic of a replaced table equal to the rows that reads now see.

    rows of the new generation ─┐
                                ├─► what differs: newer rows, and tombstones of keys that are gone
    newest record of each key ──┘

This happens once, when reads have switched to the new generation; after that each batch is written
to both topics (`batch.CommitBatch`). The public topic is a copy for other programs, outside the
commit protocol: a crash may write rows twice, and nothing repairs a fenced pipeline's late writes.
Our readers (replicas, queries that read the table) use the table's own topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.data.commit.committed import Committed
from standpipe.data.encoding.store_keys import HEADER_ROWTIME
from standpipe.model import Source
from standpipe.pipeline.io.committed_source import visible
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.sink_writer import TooLarge, WriteLimits, write_fitting


def publish_rows(
    session: SparkSession,
    table: Source,
    topic: str,
    committed: Committed,
    *,
    reads: KafkaReads,
    limits: WriteLimits,
) -> TooLarge:
    """Write to `topic` the committed rows of `table` that it lacks. Both have as many partitions,
    and a key is in the same partition of both. Returns the rows too large for `topic`."""
    ranges = {p: committed.ranges(p, 0, end) for p, end in committed.ends().items()}
    ours = _newest(visible(_records(session, table.topic, reads), ranges)).alias("ours")
    there = _newest(_records(session, topic, reads)).alias("there")
    differing = ours.join(there, "key", "full_outer").filter(
        ~f.col("ours.value").eqNullSafe(f.col("there.value"))
    )
    rowtime = f.filter(_either("headers"), lambda header: header["key"] == HEADER_ROWTIME)
    return write_fitting(
        differing.select(
            "key",
            f.col("ours.value").alias("value"),
            rowtime.alias("headers"),
            _either("partition").alias("partition"),
            f.lit(topic).alias("topic"),
        ),
        kafka=reads.kafka,
        limits=limits,
        is_table=True,
    ).too_large


def _records(session: SparkSession, topic: str, reads: KafkaReads) -> DataFrame:
    return session.read.format("kafka").options(**reads.options(topic, headers=True)).load()


def _newest(records: DataFrame) -> DataFrame:
    """The last record of each key, deletions included."""
    newest = f.max_by(f.struct("value", "headers", "partition"), "offset").alias("newest")
    keyed = records.filter(f.col("key").isNotNull())
    return keyed.groupBy("key").agg(newest).select("key", "newest.*")


def _either(column: str) -> Column:
    return f.coalesce(f"ours.{column}", f"there.{column}")
