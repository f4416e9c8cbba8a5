"""A Spark query over a topic that "one of our queries" writes: prints what it saw, and ends.

    python -m tests.e2e.committed_child BOOTSTRAP TOPIC QUERY_ID CHECKPOINT …

The topic is declared as a stream of its own. Run until drained from each checkpoint in turn; each
line is JSON: [checkpoint, batch, [[partition, offset, ROWTIME], …]].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from standpipe.config import registry
from standpipe.local.cluster.jvm import archive_options, find_java, jars
from standpipe.model import Column, SparkInput
from standpipe.pipeline.io.committed_source import Upstream
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.source import open_view
from standpipe.pipeline.run import session

BATCH_OFFSETS = 7


def main() -> None:
    servers, topic, query_id, *checkpoints = sys.argv[1:]
    config = registry.load({"standpipe.pipeline.commit.batch.offsets.max": str(BATCH_OFFSETS)})
    java = find_java()
    spark = session.open_session(
        config,
        master="local[1]",
        jars=jars("spark"),
        java_home=java.home,
        java_options=archive_options("spark", java),
    )
    log = ProgressLog(servers, "default_")
    reads = KafkaReads(kafka=servers, config=config)
    for checkpoint in checkpoints:
        drain(spark.newSession(), log, reads, topic, query_id, checkpoint)
    session.kill_jvm()


def drain(
    spark: SparkSession,
    log: ProgressLog,
    reads: KafkaReads,
    topic: str,
    query_id: str,
    checkpoint: str,
) -> None:
    upstream = Upstream(query_id=query_id, log=log, directory=Path(checkpoint))
    source = SparkInput(
        source="S",
        topic=topic,
        view="V",
        columns=(Column(name="N", type="INTEGER"),),
        key_format="NONE",
        value_format="JSON",
    )
    open_view(spark, source, reads, upstream, Path(checkpoint))

    def show(rows: DataFrame, batch: int) -> None:
        columns = ("ROWPARTITION", "ROWOFFSET", "ROWTIME")
        seen = sorted(tuple(row[name] for name in columns) for row in rows.collect())
        print(json.dumps([checkpoint, batch, seen]), flush=True)

    query = (
        spark.table("V")
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(show)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
