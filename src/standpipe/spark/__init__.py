"""Serve any streaming DataFrame as a table of Standpipe (docs/spark.md).

from standpipe.spark import Standpipe

sp = Standpipe(nodes="node1:8088,node2:8088", secret_file="secret")
query = sp.serve(scores, table="SCORES", key=["user_id"], checkpoint="/mnt/checkpoints/scores")
query.awaitTermination()
"""

from __future__ import annotations

from standpipe.spark.errors import ServeEnded, ServeRefused
from standpipe.spark.load import LoadedBatch
from standpipe.spark.many import Table
from standpipe.spark.query import ServedQuery
from standpipe.spark.read import CommittedFrame
from standpipe.spark.serve import Standpipe

__all__ = [
    "CommittedFrame",
    "LoadedBatch",
    "ServeEnded",
    "ServeRefused",
    "ServedQuery",
    "Standpipe",
    "Table",
]
