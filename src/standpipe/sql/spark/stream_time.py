"""What is late within a batch: a record is judged by the stream time at its own place.

ksqlDB reads record by record: stream time is the newest time so far, and a window is closed once
that is `grace` behind its end. Spark judges by a watermark, which moves only between batches, so a
large batch would count events that the same records, read one by one, would not. So each record
gets the stream time of its partition at that record (`StreamTime.java`), and a window that is
closed by then does not count it. Between batches, Spark's watermark judges as before.

In a group of queries an event whose key is null moves stream time, too; alone it does not.

Only records of one topic are in a known order: after a join there is none, and nothing is added.
"""

from __future__ import annotations

from typing import Final

from standpipe.model import Window

#: column with the stream time of a record, ms
STREAM_TIME: Final = "`__T`"
#: column with the window of a row
WINDOW: Final = "`__W`"


def timed_sql(rows: str, condition: str = "true") -> str:
    """The rows with STREAM_TIME. Only those for which `condition` holds move it."""
    time = "`ROWTIME`" if condition == "true" else f"IF({condition}, `ROWTIME`, NULL)"
    return (
        f"SELECT *, standpipe_stream_time(`ROWPARTITION`, `ROWOFFSET`, {time}) AS {STREAM_TIME}"  # noqa: S608
        f" FROM {rows}"
    )


def tumbling_end(window: Window, time: str = "`ROWTIME`") -> str:
    """The end of the TUMBLING window of a row, ms."""
    return f"{time} - pmod({time}, {window.size_ms}L) + {window.size_ms}L"


def is_open(end: str, window: Window) -> str:
    """Whether a window with this end still counts the row."""
    return f"{end} + {window.grace_ms}L > {STREAM_TIME}"
