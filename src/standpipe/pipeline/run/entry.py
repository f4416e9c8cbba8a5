"""The state of one run that a pipeline should have, and its reports about its queries.

Not here: the changes of the state (`scheduler.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import structlog

from standpipe.model import BatchId, QueryStatus
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.held_query import Held, committed
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.run.watch.backlog import BackgroundQuestion
from standpipe.pipeline.run.watch.stall import StallWatch
from standpipe.pipeline.wanted import WantedQuery

MESSAGE_LENGTH_MAX = 2000
#: how long after its last wait for a replica a query is still said to be throttled
THROTTLED_S = 5.0

T = TypeVar("T")

_logger = structlog.get_logger("queries")


@dataclass
class RunEntry:
    """A run that the catalog wants, in its state (`model.QueryStatus`)."""

    wanted: WantedRun
    state: Literal["STARTING", "RUNNING", "RETRYING", "FAILED", "STOPPED"] = "STARTING"
    starting: Future[QueryRun | Held] | None = None
    run: QueryRun | None = None
    held: Held | None = None
    since: float = 0.0
    failures: int = 0
    #: Kafka has rejected one of its rows as too large
    measures_rows: bool = False
    #: until when it counts as in a batch although that batch has failed; None: it does not
    lingers_until: float | None = None
    #: the instant since which something that it needs has been missing
    missing_since: float | None = None
    retry_at: float = 0.0
    reason: str = ""
    message: str = ""
    stall: StallWatch = field(default_factory=StallWatch)
    unread: BackgroundQuestion = field(default_factory=BackgroundQuestion)
    #: stops a run that hung or failed; the next run does not start before it has ended
    stopping: Future[None] | None = None
    #: since when it does
    ends_since: float = 0.0
    #: the batch after which the query sleeps; None: it may be in a batch
    rested: BatchId | None = None
    #: (input records, instant) at the previous report, for the rate
    rate_from: tuple[int, float] = (0, 0.0)

    def again(self) -> RunEntry:
        """An entry that restarts the run once the previous one has ended."""
        return RunEntry(
            self.wanted,
            stopping=self.stopping,
            ends_since=self.ends_since,
            lingers_until=self.lingers_until,
        )


def status_of(entry: RunEntry, query: WantedQuery, now_s: float) -> QueryStatus:
    """The status of one of its queries. Called once a second: rates are those of a second.

    What Spark says of one query, and nobody can read, is left out: all queries of a pipeline are in
    one report, and without it they would be UNRESPONSIVE.
    """
    run = entry.run
    table = run.tables[query.query_id] if run else None
    rate = 0.0
    if run is not None:
        records, since = entry.rate_from
        rate = max(0.0, (run.counts.input_records - records) / max(now_s - since, 0.001))
        if query is entry.wanted.members[-1]:
            entry.rate_from = (run.counts.input_records, now_s)
    late, backlog = 0, None
    if run is not None and table is not None:
        # read before the batch: a later batch covers no less
        backlog = _answer(query, table.backlog.backlog_records) if table.backlog else None
        counted = _answer(query, lambda: run.count_late(query.query_id, entry.rested))
        late = table.late.count if counted is None else counted
    batch, covered = committed(table, entry.held)
    reason, message = entry.reason, entry.message
    if table is not None and table.notice and not reason:
        reason, message = "TOPIC_CHANGED", table.notice[:MESSAGE_LENGTH_MAX]
    if table is not None and not reason and now_s - table.counts.waited_s < THROTTLED_S:
        reason, message = "THROTTLED", f"its batches wait: {table.counts.waited_for}"
    return QueryStatus(
        query_id=query.query_id,
        state=entry.state,
        reason=reason,
        message=message,
        lease_epoch=query.lease_epoch,
        batch=batch,
        covered=covered,
        input_rows_per_second=round(rate, 1),
        bad_records=table.counts.bad_records if table else 0,
        late_records=late,
        repaired_rows=table.repaired_rows if table else 0,
        read_records=table.backlog.read_records() if table and table.backlog else 0,
        backlog_records=backlog,
        group=entry.wanted.group_id,
        at_ms=time.time_ns() // 1_000_000,
    )


def _answer(query: WantedQuery, question: Callable[[], T]) -> T | None:
    """What Spark answers; None: it cannot be read, which is logged."""
    try:
        return question()
    except Exception as error:  # the JVM may answer anything; the next time it may be right
        why = f"{type(error).__name__}: {error}"[:MESSAGE_LENGTH_MAX]
        _logger.warning("a detail of a query cannot be read", query_id=query.query_id, why=why)
        return None
