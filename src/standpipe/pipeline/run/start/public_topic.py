"""Makes the public topic of a replaced table equal to the rows that reads now see.

    rows of the new generation ─┐
                                ├─► what differs: newer rows, and tombstones of keys that are gone
    newest record of each key ──┘

This happens once, when reads have switched to the new generation; after that each batch is written
to both topics (`batch.CommitBatch`). A table in AVRO or JSON_SR has such a copy from its first
generation on, under the schemas of its query's plan. The public topic is a copy for other programs,
outside the commit protocol: a crash may write rows twice, and nothing repairs a fenced pipeline's
late writes. Our readers (replicas, queries that read the table) use the table's own topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.config.keys import RECORD_BYTES_MAX
from standpipe.data.commit.committed import Committed
from standpipe.data.encoding.store_keys import HEADER_ROWTIME
from standpipe.pipeline.io.committed_source import visible
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.sink import records_of
from standpipe.pipeline.io.sink_writer import UNWRITABLE, LeftOut, WriteLimits, write_fitting
from standpipe.pipeline.io.source import parse, visible_columns
from standpipe.pipeline.run.start import session_functions
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.spark.to_spark import spark_input


def publish_rows(
    session: SparkSession,
    wanted: WantedQuery,
    topic: str,
    committed: Committed,
    *,
    reads: KafkaReads,
    limits: WriteLimits,
) -> LeftOut:
    """Write to `topic` the committed rows of the table that it lacks. Both have as many partitions;
    a key has the same in both, unless it is in AVRO or JSON_SR. Returns the rows that `topic`
    cannot have."""
    table = wanted.table
    if table.generation == 1 and not committed.ends():
        return LeftOut()  # a new table: what its topic may hold is another program's
    ranges = {p: committed.ranges(p, 0, end) for p, end in committed.ends().items()}
    ours = _newest(visible(_records(session, table.topic, reads), ranges))
    if table.public_formats:
        ours = _in_public_form(session, ours, wanted, bytes_max=reads.config[RECORD_BYTES_MAX])
    there = _newest(_records(session, topic, reads))
    return write_fitting(
        lacking(ours, there).withColumn("topic", f.lit(topic)),
        kafka=reads.kafka,
        limits=limits,
        is_table=True,
    ).left_out


def lacking(ours: DataFrame, there: DataFrame) -> DataFrame:
    """What a topic lacks, whose newest records are `there`, to have `ours`: newer rows, and
    tombstones of all other keys. Both have `key`, `value`, `headers` and `partition`."""
    ours, there = ours.alias("ours"), there.alias("there")
    differing = ours.join(there, "key", "full_outer").filter(
        ~f.col("ours.value").eqNullSafe(f.col("there.value"))
    )
    rowtime = f.filter(_either("headers"), lambda header: header["key"] == HEADER_ROWTIME)
    return differing.select(
        "key",
        f.col("ours.value").alias("value"),
        rowtime.alias("headers"),
        _either("partition").alias("partition"),
        *([f.col(f"ours.{UNWRITABLE}")] if UNWRITABLE in ours.columns else []),
    )


def _in_public_form(
    session: SparkSession, newest: DataFrame, wanted: WantedQuery, *, bytes_max: int
) -> DataFrame:
    """The newest records of the table's own topic as those of the public one: read as a query over
    the table reads them, and written as a batch of its query writes them."""
    table, plan = wanted.table, wanted.query.plan
    session_functions.register_needed(session, table, plan)
    source = spark_input(table, "", keeps_nulls=True)
    stored = newest.withColumns({"offset": f.lit(0), "timestamp": f.current_timestamp()})
    rows = parse(stored, source, bytes_max=bytes_max).filter("__bad IS NULL")
    bounds = ("WINDOWSTART", "WINDOWEND") if table.window else ()
    keys, values = table.key_columns, table.value_columns
    names = [*(c.name for c in keys), *bounds, *(c.name for c in values), "ROWTIME", "__PRESENT"]
    result = rows.select(*visible_columns(source)).select(*(f"`{name}`" for name in names))
    made = records_of(result, table, has_own_key=bool(plan.has_own_key), schemas=plan.schemas)
    header = f.struct(f.lit(HEADER_ROWTIME).alias("key"), f.col("rowtime").alias("value"))
    return made.select(
        f.col("public_key").alias("key"),
        f.col("public_value").alias("value"),
        f.array(header).alias("headers"),
        f.col("public_partition").alias("partition"),
        *([UNWRITABLE] if UNWRITABLE in made.columns else []),
    )


def _records(session: SparkSession, topic: str, reads: KafkaReads) -> DataFrame:
    return session.read.format("kafka").options(**reads.options(topic, headers=True)).load()


def _newest(records: DataFrame) -> DataFrame:
    """The last record of each key, deletions included."""
    newest = f.max_by(f.struct("value", "headers", "partition"), "offset").alias("newest")
    keyed = records.filter(f.col("key").isNotNull())
    return keyed.groupBy("key").agg(newest).select("key", "newest.*")


def _either(column: str) -> Column:
    return f.coalesce(f"ours.{column}", f"there.{column}")
