"""Makes `spark.read.format("standpipe")` known: PySpark asks every installed module whose name
begins with `pyspark_` for a `DefaultSource`, when a format is first looked up."""

from __future__ import annotations

from standpipe.spark_source.source import StandpipeSource as DefaultSource

__all__ = ["DefaultSource"]
