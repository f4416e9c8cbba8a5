"""The program of test_serve_complete.py: the three users that have paid most, of `purchases`.

As examples/serve_dataframe.py, in output mode complete: who is overtaken leaves the table.
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
    .select(f.from_json(f.col("value").cast("string"), "user_id STRING, cents BIGINT").alias("e"))
    .select("e.*")
)
best = (
    events.groupBy("user_id")
    .agg(f.sum("cents").alias("cents"))
    .orderBy(f.desc("cents"), "user_id")
    .limit(BEST)
)
query = Standpipe(
    nodes=os.environ["STANDPIPE_NODES"], secret_file=os.environ["STANDPIPE_SECRET_FILE"]
).serve(
    best,
    table="SCORES",
    key=["user_id"],
    checkpoint=os.environ["CHECKPOINT"],
    output_mode="complete",
)
print("SCORES is served", flush=True)
query.awaitTermination()
