"""The program of test_serve_complete.py: three tables of `purchases`.

`SCORES` has the three users that have paid most, in output mode complete: who is overtaken leaves
the table. `HOURS` has what each user has paid in each hour: windows, which are dropped later.
`ENDED` has the same in output mode append: a window comes once the watermark has passed its end.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from standpipe.spark import Standpipe

BEST = 3

spark = SparkSession.builder.appName("best").getOrCreate()
events = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["KAFKA"])
    .option("subscribe", "purchases")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        "timestamp",
        f.from_json(f.col("value").cast("string"), "user_id STRING, cents BIGINT").alias("e"),
    )
    .select("timestamp", "e.*")
)
best = (
    events.groupBy("user_id")
    .agg(f.sum("cents").alias("cents"))
    .orderBy(f.desc("cents"), "user_id")
    .limit(BEST)
)
hours = (
    events.withWatermark("timestamp", "1 minute")
    .groupBy("user_id", f.window("timestamp", "1 hour"))
    .agg(f.sum("cents").alias("cents"))
)
standpipe = Standpipe(
    nodes=os.environ["STANDPIPE_NODES"], secret_file=os.environ["STANDPIPE_SECRET_FILE"]
)
query = standpipe.serve(
    best,
    table="SCORES",
    key=["user_id"],
    checkpoint=os.environ["CHECKPOINT"],
    output_mode="complete",
)
print("SCORES is served", flush=True)
standpipe.serve(
    hours,
    table="HOURS",
    key=["user_id"],
    checkpoint=os.environ["CHECKPOINT"] + "-hours",
    window_size="1 hour",
    retention="2 hours",
)
print("HOURS is served", flush=True)
standpipe.serve(
    hours,
    table="ENDED",
    key=["user_id"],
    checkpoint=os.environ["CHECKPOINT"] + "-ended",
    output_mode="append",
    window_size="1 hour",
)
print("ENDED is served", flush=True)
query.awaitTermination()
