"""Two tables from one streaming DataFrame: it is computed once, and both have every batch.

`SPENDING` has what each customer has spent, `SCORES` scores of those whose account is open. Events
of the topic `purchases`: {"user_id": "ada", "cents": 1250, "closed": false}.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        examples/serve_many.py
"""

from __future__ import annotations

import os

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.spark import Standpipe, Table

KAFKA = os.environ.get("KAFKA", "localhost:9092")
NODES = os.environ.get("STANDPIPE_NODES", "localhost:8088")
SECRET = os.environ.get("STANDPIPE_SECRET_FILE", ".standpipe/run/secret")
CHECKPOINT = os.environ.get("CHECKPOINT", ".standpipe/checkpoints/customers")


spark = SparkSession.builder.appName("customers").getOrCreate()

plans = spark.createDataFrame(
    [("a", "gold", 2.0), ("b", "basic", 0.5)], "initial STRING, plan STRING, weight DOUBLE"
)
event = "user_id STRING, cents BIGINT, closed BOOLEAN"
totals = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", KAFKA)
    .option("subscribe", "purchases")
    .option("startingOffsets", "earliest")
    .load()
    .select(f.from_json(f.col("value").cast("string"), event).alias("event"))
    .select("event.*")
    .groupBy("user_id")
    .agg(
        f.count("cents").alias("purchases"),
        f.sum("cents").alias("cents"),
        f.max("closed").alias("closed"),
    )
)


@f.pandas_udf("double")
def score(purchases: pd.Series, cents: pd.Series, weight: pd.Series) -> pd.Series:
    return cents / 100 / purchases * weight


def scores_of(batch: DataFrame) -> DataFrame:
    return (
        batch.join(plans, f.substring("user_id", 1, 1) == plans.initial)
        .withColumn("score", score("purchases", "cents", "weight"))
        .select("user_id", "plan", "purchases", "cents", "score", "closed")
    )


def spending_of(batch: DataFrame) -> DataFrame:
    return batch.select("user_id", "cents")


standpipe = Standpipe(nodes=NODES, secret_file=SECRET)
query = standpipe.serve_many(
    totals,
    {
        "SCORES": Table(scores_of, key=["user_id"], deleted="closed"),
        "SPENDING": Table(spending_of, key=["user_id"]),
    },
    checkpoint=CHECKPOINT,
)
print("SCORES and SPENDING are served", flush=True)
query.awaitTermination()
