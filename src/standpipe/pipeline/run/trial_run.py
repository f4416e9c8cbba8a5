"""Runs a few streaming queries, so that the JVM loads the classes of a pipeline, and stops the JVM.

`local/cluster/class_archive.py` runs this as a process: the JVM writes its class archive as it
exits. The queries go through what loads most classes: Kafka's source and sink, state in RocksDB,
aggregates, windows, generated code.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from standpipe.config import registry
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.sink_writer import WriteLimits, write_fitting
from standpipe.pipeline.run import session

_EVENTS, _ROWS = "events", "rows"
_PARTITIONS = 2
_JVM_EXIT_S_MAX = 240.0

_QUERIES = {
    "totals": "SELECT name, count(*) AS total, avg(amount) AS mean, max(amount) AS most, "
    "max_by(amount, at) AS newest, collect_list(amount) AS each FROM parsed GROUP BY name",
    "windows": "SELECT name, window(at, '1 hour').start AS start, sum(amount) AS total "
    "FROM parsed GROUP BY name, window(at, '1 hour')",
    "projection": "SELECT upper(name) AS name, amount * 2 AS twice, CAST(amount AS string) AS text "
    "FROM parsed WHERE name IS NOT NULL AND amount BETWEEN 0 AND 90",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m standpipe.pipeline.run.trial_run")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--java-home", required=True, type=Path)
    parser.add_argument("--java-option", action="append", default=[])
    parser.add_argument("--jars", nargs="+", required=True, type=Path)
    told = parser.parse_args(arguments)
    config = registry.Config()
    spark = session.open_session(
        config,
        master="local[2]",
        jars=told.jars,
        java_home=told.java_home,
        java_options=told.java_option,
    )
    reads = KafkaReads(kafka=told.bootstrap_servers, config=config)
    _send_events(told.bootstrap_servers)
    text = f.col("value").cast("string")
    parsed = reads.stream(spark, _EVENTS, headers=True).select(
        f.from_json(text, "name STRING, amount INT, at TIMESTAMP").alias("event")
    )
    parsed.select("event.*").withWatermark("at", "1 hour").createOrReplaceTempView("parsed")
    untyped: Any = spark
    for name, query in _QUERIES.items():
        _run_query(untyped.sql(query), told.bootstrap_servers, told.directory / name)
    spark.stop()
    return 0 if session.exit_jvm(_JVM_EXIT_S_MAX) else 1


def _send_events(bootstrap_servers: str) -> None:
    topics = [NewTopic(topic, _PARTITIONS, 1) for topic in (_EVENTS, _ROWS)]
    admin: Any = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(200):
        event = f'{{"name": "n{number % 7}", "amount": {number}, "at": "2024-01-01T00:00:00Z"}}'
        producer.produce(_EVENTS, event, headers=[("at", b"1")])
    producer.flush(30)


def _run_query(rows: DataFrame, bootstrap_servers: str, checkpoint: Path) -> None:
    limits = WriteLimits(bytes_max=1_000_000, samples_max=1)

    def write(batch: DataFrame, _: int) -> None:
        batch.persist()
        records = batch.select(
            f.col("name").cast("binary").alias("key"),
            f.to_json(f.struct("*")).cast("binary").alias("value"),
            f.lit(_ROWS).alias("topic"),
        )
        write_fitting(records, kafka=bootstrap_servers, limits=limits, is_table=True)
        batch.unpersist()

    stream = rows.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    stream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    raise SystemExit(main())
