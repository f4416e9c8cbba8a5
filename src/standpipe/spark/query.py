"""A served query: Spark's streaming query, and the thread that ends it when its lease is over.

A query of several tables (`many.py`) has a lease for each, and ends with the first of them.

Not here: how it is started (`serve.py`), the commit protocol (`pipeline/commit/batch.py`).
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import structlog
from msgspec.structs import replace
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.model import QueryStatus
from standpipe.pipeline.commit.batch import PlannedOtherwise
from standpipe.pipeline.commit.fence_watch import FenceWatch
from standpipe.pipeline.failures import Fenced, QueryFailed, reason_of
from standpipe.pipeline.run.entry import RunEntry, status_of
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded
from standpipe.spark.held import HeldLease

TICK_S: Final = 0.2
#: how often the topic of the table is checked
LOOK_EVERY_S: Final = 5.0
#: how long a failed query waits for the catalog to say why, such as a DROP TABLE
EXPLAIN_S_MAX: Final = 2.0
#: how long a caller waits for the thread that ends a query
END_S_MAX: Final = 30.0

_logger = structlog.get_logger("standpipe.spark")


@dataclass
class Serving:
    """The leases of the tables of one query in this process, and what is done under them."""

    leases: Sequence[HeldLease]
    fences: FenceWatch
    entry: RunEntry = field(init=False)
    #: why it has ended; None: it runs, or the program has stopped it
    ended: ServeEnded | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _is_given_back: bool = False
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.entry = RunEntry(WantedRun(members=tuple(each.wanted for each in self.leases)))

    @property
    def members(self) -> tuple[WantedQuery, ...]:
        """What the query keeps up to date, in the order in which a batch commits them."""
        return self.entry.wanted.members

    def statuses(self, query_id: str) -> list[QueryStatus]:
        """What it reports to the nodes under one lease. Called once a second, from the thread of
        that follower."""
        return [
            replace(
                status_of(self.entry, each.wanted, time.monotonic()),
                pipeline_id=each.me.pipeline_id,
            )
            for each in self.leases
            if each.wanted.query_id == query_id
        ]

    def check_lease(self, *_: object) -> None:
        """Raises Fenced if one of the leases is over: a batch commits all tables, or none."""
        if (
            self._is_given_back
        ):  # a query that Spark has started, or has not stopped, in spite of us
            raise Fenced("this application has given its leases back")
        if over := self._over_by_catalog():
            raise Fenced(over.message)

    def begin(self, run: QueryRun) -> None:
        """It runs: watch it until it has ended."""
        self.entry.run, self.entry.state = run, "RUNNING"
        self.entry.rate_from = (0, time.monotonic())
        self._thread = threading.Thread(
            target=self._watch, args=(run,), name=f"serve {self._names}", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the query, and give the lease back: a standby takes over at once."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S_MAX)

    def settle(self) -> None:
        """Wait until everything is done that follows from the end of the query."""
        if self._thread is not None:
            self._thread.join(END_S_MAX)

    def fail(self, error: Exception) -> ServeEnded:
        """The start has failed: report it, and give the lease back."""
        ended = error if isinstance(error, ServeEnded) else None  # says more, as of a load
        try:
            self.ended = ended or self._over_by_catalog() or self._named(error)
        except Exception:  # the connection of a lease has failed; the others must be given back
            self.ended = self._named(error)
        self.abandon()
        return self.ended

    def abandon(self) -> None:
        """The start is over: give the leases back, which threads would otherwise renew as long as
        this process lives."""
        self._report_end()
        self.fences.stop()
        self._give_back()

    # ------------------------------------------------------------------------- in the thread

    def _watch(self, run: QueryRun) -> None:
        look_at = time.monotonic() + LOOK_EVERY_S
        try:
            while self.ended is None and run.is_active and not self._over.wait(TICK_S):
                self.ended = self._why_over(run)
                if self.ended is None and time.monotonic() >= look_at:
                    run.look()
                    look_at = time.monotonic() + LOOK_EVERY_S
            if self.ended is None and not self._over.is_set():
                self.ended = self._why_ended(run)
        except Exception as error:  # the JVM is gone, or the connection to the nodes has failed
            self.ended = self._named(error)
        self._end(run)

    def _end(self, run: QueryRun) -> None:
        if self.ended is not None:
            why, cause = str(self.ended), self.ended.__cause__  # where a user's code has failed
            _logger.error("no longer served", table=self._names, why=why, exc_info=cause)
        self._report_end()
        try:
            run.stop()
        except Exception as error:  # what it still writes is void
            _logger.warning("the query did not stop in time", why=str(error)[:500])
        self.fences.stop()
        self._give_back()
        atexit.unregister(self.close)

    def _give_back(self) -> None:
        self._is_given_back = True
        for each in self.leases:  # all at once: nodes that do not answer cost seconds each
            each.begin_to_give_back()
        for each in self.leases:
            each.give_back()

    def _report_end(self) -> None:
        """The last report says it: SHOW QUERIES shows it until another application writes."""
        is_final = self.ended is not None and self.ended.reason not in ("FENCED", "PAUSED")
        self.entry.run, self.entry.state = None, "FAILED" if is_final else "STOPPED"
        if self.ended is not None:
            self.entry.reason, self.entry.message = self.ended.reason, self.ended.message

    @property
    def _names(self) -> str:
        return ", ".join(each.table.name for each in self.members)

    def _over_by_catalog(self) -> ServeEnded | None:
        return next(filter(None, (each.why_over() for each in self.leases)), None)

    def _why_over(self, run: QueryRun) -> ServeEnded | None:
        if over := self._over_by_catalog():
            return over
        if blind := self.fences.failure:
            return self._named(blind)
        foreign = (each.foreign_fence(self.fences) for each in self.leases)
        if failure := next(filter(None, foreign), None):
            return self._named(failure)
        error = next((each.failure for each in run.tables.values() if each.failure), None)
        return None if error is None else self._explained(error)

    def _why_ended(self, run: QueryRun) -> ServeEnded | None:
        """None: the program has stopped it, or its trigger was for what was there."""
        seen = run.streaming_query.exception()
        return None if seen is None else self._explained(run.named(run.counts.failure or seen))

    def _explained(self, error: Exception) -> ServeEnded:
        """What the catalog says if it explains the failure; it may come a moment later."""
        deadline = time.monotonic() + EXPLAIN_S_MAX
        while time.monotonic() < deadline:
            if over := self._over_by_catalog():
                return over
            time.sleep(TICK_S)
        return self._named(error)

    def _named(self, error: Exception) -> ServeEnded:
        if isinstance(error, ServeEnded):
            return error
        found = self._ended_by(error)
        found.__cause__ = error
        return found

    def _ended_by(self, error: Exception) -> ServeEnded:
        if isinstance(error, PlannedOtherwise):
            return ServeEnded("FAILED", f"{error}: start the program again, which replays it")
        if isinstance(error, QueryFailed):
            return ServeEnded(error.reason, error.message)
        if isinstance(error, Fenced):
            return ServeEnded("FENCED", str(error))
        said = f"{type(error).__name__}: {error}"
        reason = reason_of(str(error))
        if reason is None:
            return ServeEnded("FAILED", said)
        return ServeEnded(reason, f"{self.members[0].resolution(reason)} ({said})")


class ServedQuery(StreamingQuery):
    """Spark's streaming query of a served table, or of several. It ends when a lease does;
    `awaitTermination` then raises ServeEnded, which says why."""

    def __init__(self, run: QueryRun, serving: Serving) -> None:
        """Made by `Standpipe.serve` and `serve_many`."""
        super().__init__(cast(Any, run.streaming_query)._jsq)
        self._serving = serving

    @property
    def ended(self) -> ServeEnded | None:
        """Why it has ended; None: it runs, or the program has stopped it."""
        return self._serving.ended

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """As Spark's: waits until the query has ended, or for `timeout` seconds. Raises ServeEnded
        unless the program itself has stopped it."""
        try:
            done = super().awaitTermination(timeout)
        except StreamingQueryException as error:
            self._serving.settle()
            if self.ended is None:
                raise
            # Spark was told briefly (`BatchFailed`): the cause shows where a user's code has failed
            raise self.ended from (self.ended.__cause__ or error)
        if timeout is not None and not done:
            return False
        self._serving.settle()
        if self.ended is not None:
            raise self.ended
        return done

    def stop(self) -> None:
        """Stop the query, and give the lease back: a standby takes over at once."""
        self._serving.close()
        super().stop()
