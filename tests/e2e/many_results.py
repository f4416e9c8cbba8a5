"""The program of test_serve_many.py: whole results, and windows, as several tables each.

In output mode complete: `SCORES` has the three users that have paid most, `INITIALS` what users of
each initial have paid that have not paid 1,000 alone. Of windows: `HOURS` has what each user has
paid in each hour, and drops old ones; `NEWEST` the newest hour of each user, without windows.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.spark import Standpipe, Table

spark = SparkSession.builder.appName("results").getOrCreate()
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
totals = events.groupBy("user_id").agg(f.sum("cents").alias("cents"))
hours = (
    events.withWatermark("timestamp", "1 minute")
    .groupBy("user_id", f.window("timestamp", "1 hour"))
    .agg(f.sum("cents").alias("cents"))
)


def best(batch: DataFrame) -> DataFrame:
    return batch.orderBy(f.desc("cents"), "user_id").limit(3)


def initials(batch: DataFrame) -> DataFrame:
    initial = f.substring("user_id", 1, 1).alias("initial")
    return batch.where("cents < 1000").groupBy(initial).agg(f.sum("cents").alias("cents"))


def newest(batch: DataFrame) -> DataFrame:
    at = f.unix_millis("window.start")
    found = batch.groupBy("user_id").agg(
        f.max(at).alias("at"), f.max_by("cents", at).alias("cents")
    )
    return found.select("user_id", "at", "cents")


standpipe = Standpipe(
    nodes=os.environ["STANDPIPE_NODES"], secret_file=os.environ["STANDPIPE_SECRET_FILE"]
)
query = standpipe.serve_many(
    totals,
    {"SCORES": Table(best, key=["user_id"]), "INITIALS": Table(initials, key=["initial"])},
    checkpoint=os.environ["CHECKPOINT"],
    output_mode="complete",
)
standpipe.serve_many(
    hours,
    {
        "NEWEST": Table(newest, key=["user_id"]),
        "HOURS": Table(
            lambda batch: batch, key=["user_id"], window_size="1 hour", retention="2 hours"
        ),
    },
    checkpoint=os.environ["CHECKPOINT"] + "-hours",
)
print("all are served", flush=True)
query.awaitTermination()
