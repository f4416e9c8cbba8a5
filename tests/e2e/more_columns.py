"""The program of test_serve_columns.py: what each user has spent. MORE=1 adds a column to it, and
LOAD=1 loads a row that it does not have."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from standpipe.spark import Standpipe

spark = SparkSession.builder.appName("columns").getOrCreate()
standpipe = Standpipe(
    nodes=os.environ["STANDPIPE_NODES"], secret_file=os.environ["STANDPIPE_SECRET_FILE"]
)
if os.environ.get("LOAD"):
    rows = spark.createDataFrame([("zoe", 7)], "user_id STRING, cents BIGINT")
    standpipe.load(rows, table="SCORES", key=["user_id"], wait=True)
    print(sorted(map(str, standpipe.read("SCORES").collect())), flush=True)
    raise SystemExit
spent = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["KAFKA"])
    .option("subscribe", "purchases")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        f.from_json(f.col("value").cast("string"), "user_id STRING, cents BIGINT").alias("event")
    )
    .select("event.*")
    .groupBy("user_id")
    .agg(f.sum("cents").alias("cents"))
)
if os.environ.get("MORE"):
    spent = spent.withColumn("euros", f.col("cents") / 100)
query = standpipe.serve(spent, table="SCORES", key=["user_id"], checkpoint=os.environ["CHECKPOINT"])
print("SCORES is served", flush=True)
query.awaitTermination()
