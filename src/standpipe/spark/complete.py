"""Output mode complete: each batch is the whole result, and the table becomes equal to it.

    rows of the result ──┐
                         ├─► what differs: other values, and tombstones of keys that are gone
    rows of the table  ──┘

Each batch reads the rows of the table's newest commit from its topic (`read.py`). So a replay, a
takeover by another program or a load in between need no rule of their own. A row whose values are
the same is not written again, and keeps its ROWTIME.

Rejected: keeping the result of the batch before in Spark (two copies of it, and the first batch of
a run needs the topic all the same); a tombstone for every key that was ever there (they would grow
without bound).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from standpipe.model import Source
from standpipe.pipeline.io.java_functions import big_endian
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.spark.read import is_lost, newest_batch_if_any, newest_records


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Finds what a batch has to write of a whole result (`CommitBatch.finish`)."""

    table: Source
    log: ProgressLog
    reads: KafkaReads

    def __call__(self, rows: DataFrame, started_ms: int) -> DataFrame:
        """`rows`: the records of the result (`rows.records`); `started_ms`: the ROWTIME of
        tombstones. Raises ServeRefused if the topic no longer tells all rows, and
        KafkaUnavailable."""
        own = rows.withColumn("value", f.col("value").cast("binary"))
        found = newest_batch_if_any(self.table, self.log, time.time_ns() // 1_000_000)
        if found is None:
            return own
        there = newest_records(rows.sparkSession, found, self.reads).select(
            "key",
            "partition",
            f.col("newest.value").alias("there"),
            # a row that may be gone from the topic is in the replicas: write the key in any case
            is_lost().alias("is_lost"),
        )
        return differing(own, there, started_ms)


def differing(rows: DataFrame, there: DataFrame, started_ms: int) -> DataFrame:
    """The records of a result that a table lacks, and tombstones of what it has beyond, with that
    ROWTIME. `there`: `key`, `partition`, `there` (null: no row) and `is_lost`."""
    both = rows.join(there, ["key", "partition"], "full_outer")
    is_other = ~f.col("value").eqNullSafe(f.col("there"))
    now = big_endian(f.lit(started_ms).cast("bigint"), "BIGINT")
    return both.filter(is_other | f.coalesce("is_lost", f.lit(False))).select(
        "key", "value", f.coalesce("rowtime", now).alias("rowtime"), "partition"
    )
