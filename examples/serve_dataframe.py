"""Any streaming DataFrame as a table that answers lookups: scores of customers, by their purchases.

A stream-static join and a pandas UDF, which SQL cannot say. Events of the topic `purchases`:
{"user_id": "ada", "cents": 1250, "closed": false}; a closed account has no row.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        examples/serve_dataframe.py
"""

from __future__ import annotations

import os

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from standpipe.spark import Standpipe

KAFKA = os.environ.get("KAFKA", "localhost:9092")
NODES = os.environ.get("STANDPIPE_NODES", "localhost:8088")
SECRET = os.environ.get("STANDPIPE_SECRET_FILE", ".standpipe/run/secret")
CHECKPOINT = os.environ.get("CHECKPOINT", ".standpipe/checkpoints/scores")


spark = SparkSession.builder.appName("scores").getOrCreate()


@f.pandas_udf("double")
def score(purchases: pd.Series, cents: pd.Series, weight: pd.Series) -> pd.Series:
    return cents / 100 / purchases * weight


plans = spark.createDataFrame(
    [("a", "gold", 2.0), ("b", "basic", 0.5)], "initial STRING, plan STRING, weight DOUBLE"
)

events = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", KAFKA)
    .option("subscribe", "purchases")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        f.from_json(
            f.col("value").cast("string"), "user_id STRING, cents BIGINT, closed BOOLEAN"
        ).alias("event")
    )
    .select("event.*")
)
totals = events.groupBy("user_id").agg(
    f.count("cents").alias("purchases"),
    f.sum("cents").alias("cents"),
    f.max("closed").alias("closed"),
)
scores = (
    totals.join(plans, f.substring("user_id", 1, 1) == plans.initial)
    .withColumn("score", score("purchases", "cents", "weight"))
    .select("user_id", "plan", "purchases", "cents", "score", "closed")
)

standpipe = Standpipe(nodes=NODES, secret_file=SECRET)
query = standpipe.serve(
    scores, table="SCORES", key=["user_id"], deleted="closed", checkpoint=CHECKPOINT
)
print("SCORES is served", flush=True)
query.awaitTermination()
