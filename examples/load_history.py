"""A table that begins with its history: the scores of last year, loaded in one commit.

Readers see none of the rows, or all of them. Afterwards `examples/serve_dataframe.py` may serve the
same table: the rows of its first batch replace those that were loaded, and the others stay.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \\
        examples/load_history.py
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from standpipe.spark import Standpipe

NODES = os.environ.get("STANDPIPE_NODES", "localhost:8088")
SECRET = os.environ.get("STANDPIPE_SECRET_FILE", ".standpipe/run/secret")
#: CSV with user_id, plan, purchases, cents, score
HISTORY = os.environ.get("HISTORY", "history.csv")
#: whether to wait while another program writes the table
WAIT = os.environ.get("WAIT", "") == "yes"

spark = SparkSession.builder.appName("history").getOrCreate()
history = spark.read.csv(
    HISTORY, schema="user_id STRING, plan STRING, purchases BIGINT, cents BIGINT, score DOUBLE"
)

standpipe = Standpipe(nodes=NODES, secret_file=SECRET)
loaded = standpipe.load(history, table="SCORES", key=["user_id"], wait=WAIT)
print(f"loaded with batch {loaded.batch} under lease {loaded.lease_epoch}", flush=True)

scores = standpipe.read("SCORES")
print(f"SCORES has {scores.count()} rows in batch {scores.batch}", flush=True)
scores.groupBy("PLAN").count().orderBy("PLAN").show()
