"""The window in a record's key, behind the key itself: its start; of a session, end and start."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from standpipe.model import SparkInput


def raw_key(source: SparkInput) -> SparkColumn:
    """The bytes of a record's key without its window."""
    width = _window_bytes(source)
    key = f.col("key")
    return key if not width else f.substring(key, f.lit(1), f.octet_length(key) - width)


def window_bounds(source: SparkInput) -> list[SparkColumn]:
    """WINDOWSTART and WINDOWEND; none if the keys have no window."""
    if source.window is None:
        return []
    # substring works on bytes; right() would treat them as characters
    last = f.substring(f.col("key"), f.octet_length("key") - 7, f.lit(8))
    start = f.conv(f.hex(last), 16, -10).cast("bigint")
    end = start + source.window.size_ms
    if source.window.kind == "SESSION":
        tail = f.substring(f.col("key"), f.octet_length("key") - 15, f.lit(8))
        end = f.conv(f.hex(tail), 16, -10).cast("bigint")
    return [start.alias("WINDOWSTART"), end.alias("WINDOWEND")]


def _window_bytes(source: SparkInput) -> int:
    if source.window is None:
        return 0
    return 16 if source.window.kind == "SESSION" else 8
