"""A user's program under Spark Connect, in a process of its own: what it gets, as JSON.

A session of Spark Connect cannot be in one process with a classic one. It starts a server from
PySpark's own jars (`remote("local[1]")`), which looks for formats as a server elsewhere does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameReader

from standpipe.spark import Standpipe

nodes, table = os.environ["STANDPIPE_NODES"], os.environ["TABLE"]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
said: dict[str, object] = {"session": type(spark).__module__}


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


try:

    def reader() -> DataFrameReader:
        return spark.read.format("standpipe").option("nodes", nodes)

    frame = reader().load(table)
    said["count"] = frame.count()
    said["row"] = frame.where("K = 'k7'").select("N").collect()[0]["N"]
    eventual = reader().option("consistency", "eventual").load(table)
    said["eventual"] = eventual.count()
    said["where"] = reader().option("where", "K IN ('k7', 'k8')").load(table).count()
    said["unknown"] = error_of(lambda: reader().load("NONE").count())
    sp = Standpipe(nodes=nodes, secret_file=os.environ["STANDPIPE_SECRET_FILE"])
    stream = spark.readStream.format("rate").load()
    said["read"] = error_of(lambda: sp.read(table, spark))
    said["read_stream"] = error_of(lambda: sp.read_stream(table, spark))
    said["load"] = error_of(lambda: sp.load(frame, table=table, key=["K"]))
    said["serve"] = error_of(
        lambda: sp.serve(stream, table="RATE", key=["value"], checkpoint="/nowhere")
    )
finally:
    spark.stop()
print(json.dumps(said))
