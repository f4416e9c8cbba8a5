"""The committed changes of a table as a streaming DataFrame: the plan behind `read_stream`.

    topic of progress ──► which records are committed
    table topic       ──► those of them that are new ──► parsed

It is the source through which a query in a pipeline reads what another one writes
(`pipeline/io/committed_source.py`): a batch and its replay see the same records, those of
stragglers and failed attempts never. The plan holds the source, so a DataFrame is for one query;
a second one is refused, for it would get what the first one has left.

Not noticed: a table that was made again under the checkpoint of the old one, once its topic is
longer than that one was. The offsets in a checkpoint do not say of which topic they are.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.model import Source
from standpipe.pipeline.io.committed_source import (
    CommittedSource,
    Upstream,
    committed_stream,
)
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.source import parse, visible_columns
from standpipe.pipeline.io.source_v1 import offsets_of
from standpipe.spark.errors import ServeRefused
from standpipe.spark.read import BYTES_MAX, in_session, own_session, shown_names
from standpipe.sql.spark.to_spark import spark_input
from standpipe.sql.types.types import quoted

#: how long an end of the topic of progress may be an older one
LATE_S_MAX: Final = 5.0
POLL_S: Final = 0.1


class ChangesSource(CommittedSource):
    """The source of one streaming query. Each error ends the query that has met it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: what the query has behind it
        self._passed: dict[int, int] = {}
        self._is_over = False

    def latestOffset(self, start: Any, _limit: Any) -> Any:  # noqa: N802
        """Where the next batch ends. Raises ServeRefused."""
        self._check_start(start)
        return super().latestOffset(start, _limit)

    def getBatch(self, start: Any, end: Any) -> Any:  # noqa: N802
        """The committed rows between two offsets. Raises ServeRefused."""
        self._check_start(start.get() if start.isDefined() else None)
        self._check_committed(end)  # of a batch before a restart: Spark asks for it once more
        return super().getBatch(start, end)

    def commit(self, end: Any) -> None:
        """No later batch begins below `end`."""
        super().commit(end)
        self._passed = offsets_of(end)[self._topic]

    def stop(self) -> None:
        """End the feed and Spark's Kafka source."""
        self._is_over = True
        super().stop()

    def _check_start(self, start: Any) -> None:
        starts = {} if start is None else offsets_of(start)[self._topic]
        if self._is_over or any(starts.get(p, 0) < at for p, at in self._passed.items()):
            raise ServeRefused(
                f"another query has read this DataFrame of {self._topic}",
                next_step="call read_stream once for each query, also to start one again",
            )

    def _check_committed(self, end: Any) -> None:
        """Whatever is in a checkpoint was committed. A broker may answer an older end at first."""
        asked, deadline = offsets_of(end)[self._topic], time.monotonic() + LATE_S_MAX
        while any(at > self._feed.ends().get(p, 0) for p, at in asked.items()):
            if time.monotonic() > deadline:
                raise ServeRefused(
                    f"the checkpoint is further than what was ever committed to {self._topic}: at"
                    f" {asked}, not {self._feed.ends()}; the table was dropped, or created again",
                    next_step="begin with a new checkpoint",
                )
            time.sleep(POLL_S)


def changed_rows(
    spark: SparkSession, table: Source, log: ProgressLog, reads: KafkaReads, deleted: str
) -> DataFrame:
    """The changes, from the first one that the topic has, as a DataFrame of the user's session.
    `deleted`: the Boolean column that says of a row that it is gone. Raises ServeRefused."""
    check_name(table, deleted)
    # for notes of Spark's Kafka source, which it can make again: where the topic begins
    notes = Path(tempfile.mkdtemp(prefix="standpipe-changes-"))
    atexit.register(shutil.rmtree, notes, ignore_errors=True)
    source = structs.replace(
        spark_input(table, view="changes"),
        timestamp_column=None,
        is_ours=None,
        timestamp_format=None,
    )
    upstream = Upstream(query_id=str(table.query_id), log=log, directory=notes)
    records = committed_stream(own_session(spark), reads, source, upstream, ChangesSource)
    rows = parse(records, source, bytes_max=BYTES_MAX).filter("__bad IS NULL")
    rows = rows.select(*visible_columns(source), f.col("__null_value"))
    columns = [f.col(quoted(name)) for name in shown_names(table)]
    return in_session(spark, rows.select(*columns, f.col("__null_value").alias(deleted)))


def check_name(table: Source, deleted: str) -> None:
    """Raises ServeRefused if the table has a column of that name, in any case."""
    if deleted.upper() in {name.upper() for name in shown_names(table)}:
        raise ServeRefused(
            f"{table.name} has a column {deleted.upper()} of its own",
            next_step="name the column that says which rows are deleted: deleted='…'",
        )
