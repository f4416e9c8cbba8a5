"""A streaming query that Spark runs: whether it lives, what it has done, and for which tables.

Not here: how one is started (`query_run.py`, `start/group_run.py`), and what follows when it fails
(`scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.model import BatchId
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.topic_check import TopicCheck, look_at_all
from standpipe.pipeline.run.watch.backlog import IDLE, Backlog, Unread
from standpipe.pipeline.run.watch.late_records import LateRecords
from standpipe.pipeline.run.watch.stall import Signs
from standpipe.pipeline.run.watch.task_progress import work_of


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """What a run does for one of its queries."""

    query_id: str
    counts: BatchCounts
    janitor: Janitor
    topics: TopicCheck
    late: LateRecords
    #: set if the table is built beside the one that serves reads
    backlog: Backlog | None = None

    @property
    def failure(self) -> Exception | None:
        """What must end the run although Spark continues."""
        return self.topics.failure or self.janitor.failure

    @property
    def notice(self) -> str:
        """What to report about its topics although it continues."""
        return self.topics.notice

    @property
    def repaired_rows(self) -> int:
        """Shadowed rows that were rewritten since the query started."""
        return self.janitor.repaired


@dataclass(kw_only=True)
class QueryRun:
    """A streaming query that Spark runs, or ran: for one query, or for those of a group."""

    streaming_query: StreamingQuery
    #: by query id
    tables: Mapping[str, TableRun]
    unread: Unread
    spark: SparkSession
    #: tells the probe that the query has ended
    leave_probe: Callable[[], None] = field(default=lambda: None)

    @property
    def is_active(self) -> bool:
        """Whether Spark is running it."""
        return bool(self.streaming_query.isActive)

    @property
    def counts(self) -> BatchCounts:
        """What it has done: its tables have the same batches."""
        return self._any.counts

    @property
    def _any(self) -> TableRun:
        return next(iter(self.tables.values()))

    def failure(self, *, sleeps: bool = False) -> Exception | None:
        """What ended the query or must end it; None while it runs normally. `sleeps`: it is known
        to run, and to have nothing to do."""
        if sleeps or self.is_active:
            return next((each.failure for each in self.tables.values() if each.failure), None)
        self._leave()
        ended = self.counts.failure or self.streaming_query.exception()
        return ended or RuntimeError("Spark ended the query without an error")

    def look(self) -> None:
        """Check its topics while no batch runs. Never raises."""
        look_at_all([each.topics for each in self.tables.values()])

    def named(self, error: Exception) -> Exception:
        """The named topic failure that explains `error`, or `error` itself."""
        self.look()
        failures = (each.topics.failure for each in self.tables.values())
        return next(filter(None, failures), error)

    def signs(self, *, with_work: bool, sleeps: bool = False) -> Signs:
        """Signs of progress: what was committed, and whether there is anything to do."""
        mark = (self.counts.batch, self.counts.input_records)
        if sleeps:  # each question to Spark is a call into the JVM
            return Signs(mark=mark, has_data=False, doing=IDLE[-1])
        said = self.streaming_query.status
        return Signs(
            mark=mark,
            has_data=bool(said["isDataAvailable"]),
            work=work_of(self.spark, str(self.streaming_query.name)) if with_work else None,
            doing=str(said["message"]),
        )

    def stop(self) -> None:
        """Abort the current batch; it is replayed at the next start."""
        self._leave()
        self.streaming_query.stop()

    def wait_until_ended(self) -> None:
        """Return once its janitors and its batch have ended, after `stop` or a failure: before, no
        other run of its queries may begin."""
        for each in self.tables.values():
            each.janitor.wait_until_ended()

    def _leave(self) -> None:
        self.leave_probe()
        for each in self.tables.values():
            each.janitor.stop()

    def count_late(self, query_id: str, rested: BatchId | None = None) -> int:
        """Records behind the watermark so far. Spark drops them; we count them, and log in the
        processing log which batches had them. In a group, Spark counts those of all its tables.
        `rested`: the query has slept after this batch, so Spark has reported on it; None: it may
        be in a batch."""
        table = self.tables[query_id]
        if rested is None or table.late.rested != rested:
            # an array in the JVM: only those of its elements that are looked at come over
            recent = cast(Any, self.streaming_query)._jsq.recentProgress()
            table.janitor.swept.log.tell(table.late.take(recent))
            table.late.rested = rested
        return table.late.count
