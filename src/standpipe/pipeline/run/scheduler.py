"""Starts, watches, retries and reports all queries of this pipeline.

States are those of `model.QueryStatus`:

    STARTING ──► RUNNING ──► RETRYING ──► STARTING …     any failure that may be transient,
        │           │                                    or no progress (`watch/stall.py`); a start
        │           │                                    that hangs ends the process (`wedged`)
        └───────────┴──► FAILED                          a named one (`failures.py`): permanent

Starting blocks for a second or more (Spark plans, Kafka answers), so it happens in threads, as does
stopping (`endings.py`).
`tend` is called a few times a second from the driver's loop and never waits. After a driver has
died, queries that were in a batch begin one at a time (`pipeline/commit/blame.py`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from standpipe.adapters.kafka.refusals import KafkaAccessDenied
from standpipe.model import QueryStatus
from standpipe.pipeline import failures
from standpipe.pipeline.commit.batch_marks import LINGER_S, BatchMarks
from standpipe.pipeline.commit.blame import Blame
from standpipe.pipeline.commit.topic_check import look_at_all
from standpipe.pipeline.failures import GONE_S, NotYet, QueryFailed, reason_of
from standpipe.pipeline.io.checkpoint_path import copied
from standpipe.pipeline.io.sink_writer import is_refusal
from standpipe.pipeline.run import access
from standpipe.pipeline.run.endings import END_S_MAX, Endings, stopping_once_started
from standpipe.pipeline.run.entry import MESSAGE_LENGTH_MAX, RunEntry, status_of
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.held_query import HELD, Held, hold_query
from standpipe.pipeline.run.reconcile import RunOrder, StartRun
from standpipe.pipeline.run.start.group_run import start_run
from standpipe.pipeline.run.start.query_run import PipelineContext
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.run.watch.backlog import IDLE
from standpipe.pipeline.run.watch.stall import Signs, Work
from standpipe.pipeline.run.watch.task_progress import work_of
from standpipe.pipeline.wanted import WantedQuery

RETRY_S_FIRST = 0.5
RETRY_S_MAX = 30.0
#: a query that has run this long resets its back-off
STEADY_S = 60.0
#: how often the topics of queries are checked while no batch runs
LOOK_EVERY_S = 5.0
#: a group waits this long for a topic that one of its queries needs; then the others go on alone
MISSING_S_MAX = 10.0
#: so often in a row a group fails before it is divided, whatever the reason
GROUP_FAILURES_MAX = 3
#: a missing topic is checked less and less often, up to this pause
MISSING_PAUSE_S_MAX = 5.0

_logger = structlog.get_logger("queries")


def retry_after_s(failures: int) -> float:
    """Back-off before try number `failures` + 1, doubling."""
    return min(RETRY_S_MAX, RETRY_S_FIRST * 2 ** max(0, failures - 1))


def _work_of_start(around: PipelineContext, run_id: str) -> Work:
    """Copies are those of all starts: who hangs beside one is found out once that has ended."""
    return (*work_of(around.spark, run_id), (copied(around.checkpoints),))


@dataclass
class Queries:
    """The runs of the queries that the catalog wants, each in its state."""

    around: PipelineContext
    start: Callable[[WantedRun, PipelineContext], QueryRun | Held] = start_run
    clock: Callable[[], float] = time.monotonic
    work: Callable[[PipelineContext, str], Work] = _work_of_start
    #: the runs that have nothing to do: Spark need not be asked about each
    asleep: Callable[[], Collection[str]] = frozenset
    #: which queries are in a batch, and what is held against them
    marks: BatchMarks = field(default_factory=BatchMarks)
    #: why this process must be restarted; empty: no need
    wedged: str = ""
    _entries: dict[str, RunEntry] = field(default_factory=dict[str, RunEntry])
    _endings: Endings = field(default_factory=Endings)
    _looking: Future[None] | None = None
    _look_at: float = 0.0
    _starters: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="start")
    )
    _askers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="ask")
    )

    def known_runs(self) -> dict[str, WantedRun]:
        """The runs that this pipeline holds, in any state."""
        return {run_id: entry.wanted for run_id, entry in self._entries.items()}

    def run_ids(self) -> set[str]:
        """The ids of those runs, and of others that have not ended yet."""
        return self._entries.keys() | self._endings.run_ids()

    def known(self) -> dict[str, WantedQuery]:
        """The queries that this pipeline holds, in any state."""
        entries = self._entries.values()
        return {each.query_id: each for entry in entries for each in entry.wanted.members}

    def carry_out(self, order: RunOrder) -> None:
        """Carry out an order of `reconcile.diff`."""
        if isinstance(order, StartRun):
            run = order.wanted
            self._entries[run.run_id] = RunEntry(run)
            ids = [each.query_id for each in run.members]
            _logger.info("query wanted", run_id=run.run_id, query_ids=ids)
        else:
            self._endings.begin(self._entries.pop(order.run_id), self.clock())
            _logger.info("query no longer wanted", run_id=order.run_id)

    def tend(self) -> None:
        """Start queries that are due; notice those that have started or failed."""
        now = self.clock()
        # in this order: Spark has reported on the newest batch of a query that sleeps after it
        batches = {
            run_id: each.run.counts.batch for run_id, each in self._entries.items() if each.run
        }
        asleep = self.asleep() if batches else frozenset[str]()
        for run_id in self._endings.take_ended():
            self.marks.end(run_id)
        for entry in self._entries.values():
            if entry.lingers_until is not None and now >= entry.lingers_until:
                entry.lingers_until = None
                self.marks.end(entry.wanted.run_id)
            if entry.stopping is not None:
                self._watch_end(entry, entry.stopping, now)
            elif entry.starting is not None:
                if entry.starting.done():
                    self._started(entry, entry.starting, now)
                else:
                    self._watch_start(entry, entry.starting, now)
            elif entry.run is not None:
                run_id = entry.wanted.run_id
                entry.rested = batches[run_id] if run_id in asleep else None
                self._watch(entry, entry.run, now)
            elif entry.state in ("STARTING", "RETRYING") and now >= entry.retry_at:
                self._begin(entry, now)
        self._look(now)

    def _begin(self, entry: RunEntry, now: float) -> None:
        """Start a query, if it may be in a batch now."""
        wanted = entry.wanted
        held_s = self._endings.held_s(wanted, now)
        if held_s is not None:
            entry.message = "waits until its last run has ended"
            if held_s > END_S_MAX:
                self.wedged = f"the last run of {wanted.run_id} has not ended for {held_s:.0f} s"
            return
        if wanted.is_held:  # it runs no batch: nothing is held against it
            entry.starting = self._starters.submit(hold_query, wanted.members[0], self.around.log)
            entry.stall.began(now)
            return
        if self.marks.blame(wanted.run_id, wanted.revision) is Blame.GUILTY:
            failure = QueryFailed("DRIVER_DIED", wanted.members[0].resolution("DRIVER_DIED"))
            self._failed(entry, failure, now)
            return
        if not self.marks.try_begin(wanted.run_id, wanted.revision):
            entry.message = f"waits until {self.marks.alone()} has run alone: a driver has died"
            return
        entry.lingers_until = None
        if entry.measures_rows:
            (only,) = wanted.members
            measured = dataclasses.replace(only, measures_rows=True)
            wanted = dataclasses.replace(wanted, members=(measured,))
        entry.starting = self._starters.submit(self.start, wanted, self.around)
        entry.stall.began(now)

    def _look(self, now: float) -> None:
        """Check the topics of running queries, in a thread because Kafka may be slow."""
        runs = [entry.run for entry in self._entries.values() if entry.run is not None]
        if self._looking is not None and self._looking.done():
            self._looking.result()  # it never raises: if it does, the process must end
            self._looking = None
        if runs and now >= self._look_at and self._looking is None:
            self._look_at = now + LOOK_EVERY_S
            self._looking = self._starters.submit(_look_at, runs)

    def fail(self, query_id: str, failure: QueryFailed) -> None:
        """Stop a query for good, in whatever state it is; others of its group continue alone."""
        entry = self._entry_of(query_id)
        if entry.starting is not None and not entry.starting.cancel():
            entry.stopping, entry.ends_since = stopping_once_started(entry.starting), self.clock()
        if entry.run is not None:
            self._end(entry, entry.run, self.clock())
        entry.starting = None
        self._failed(entry, failure, self.clock())

    def failures(self) -> dict[str, str]:
        """The reasons of the queries that have failed for good."""
        failed = [entry for entry in self._entries.values() if entry.state == "FAILED"]
        return {each.query_id: entry.reason for entry in failed for each in entry.wanted.members}

    def _entry_of(self, query_id: str) -> RunEntry:
        entries = self._entries.values()
        return next(each for each in entries if query_id in each.wanted.query_ids)

    def try_again(self, ended: Mapping[str, int], newest: int) -> None:
        """Hold nothing against these queries, which a user has paused, replaced or dropped in
        these entries of the log; it was read up to `newest`. One that has FAILED starts again: if
        it was resumed at once, the catalog wants it as before."""
        if not ended:
            return
        self.marks.retry(ended, newest)
        for query_id in ended:  # an entry of a group does not fail: the group is divided
            entry = self._entries.get(query_id)
            if entry is not None and entry.state == "FAILED":
                self._entries[query_id] = entry.again()

    def statuses(self) -> list[QueryStatus]:
        """One for each query; called once a second."""
        entries = list(self._entries.values())
        now = self.clock()
        return [status_of(entry, each, now) for entry in entries for each in entry.wanted.members]

    def stop_all(self) -> None:
        """Stop all concurrently; each takes at most Spark's stopTimeout."""
        for pool in (self._starters, self._askers):
            pool.shutdown(wait=False, cancel_futures=True)
        for entry in self._entries.values():
            self._endings.begin(entry, self.clock())
        self._endings.wait_until_stopped()

    # --------------------------------------------------------------------------- transitions

    def _started(self, entry: RunEntry, starting: Future[QueryRun | Held], now: float) -> None:
        entry.starting = None
        error = starting.exception()
        if not isinstance(error, NotYet):
            entry.missing_since = None
        if error is None:
            begun, entry.state, entry.since = starting.result(), "RUNNING", now
            entry.reason = entry.message = ""
            if isinstance(begun, Held):
                entry.held, entry.reason = begun, HELD
                return
            entry.run = begun
            entry.rate_from = (0, now)
            entry.stall.began(now)
            _logger.info("query running", run_id=entry.wanted.run_id)
        elif isinstance(error, NotYet):
            self._wait(entry, error, now)
        else:
            self._failed(entry, error, now)

    def _wait(self, entry: RunEntry, missing: NotYet, now: float) -> None:
        entry.missing_since = now if entry.missing_since is None else entry.missing_since
        waited_s = now - entry.missing_since
        if missing.final_failure is not None and waited_s >= GONE_S:
            self._failed(entry, missing.final_failure, now)
            return
        if waited_s >= MISSING_S_MAX and self._divide(entry, missing.message):
            return
        self.marks.end(entry.wanted.run_id)
        entry.retry_at = now + min(MISSING_PAUSE_S_MAX, max(RETRY_S_FIRST, waited_s / 4))
        entry.reason, entry.message = missing.reason, missing.message

    def _watch(self, entry: RunEntry, run: QueryRun, now: float) -> None:
        sleeps = entry.rested is not None
        error = run.failure(sleeps=sleeps)
        if error is not None:
            self._end(entry, run, now)  # also if Spark has: its janitors may go on
            if reason_of(str(error)) == "DATA_LOSS":  # what happened to which topic?
                entry.starting = self._starters.submit(_name, run, error)
                return
            self._failed(entry, error, now)
            return
        if entry.failures and now - entry.since > STEADY_S:
            entry.failures = 0
        signs = run.signs(with_work=entry.stall.wants_work(now), sleeps=sleeps)
        if signs.doing in IDLE and not signs.has_data:
            self.marks.idle(entry.wanted.run_id)
        if not signs.has_data:  # according to Spark, whose source may hang
            there = entry.unread.ask(run.unread.is_there, self._askers, now)
            signs = dataclasses.replace(signs, has_data=there)
        silent_s = entry.stall.look(signs, now)
        if entry.stall.is_restarted(silent_s):
            self._restart(entry, run, f"no progress for {silent_s:.0f} s ({signs.doing})", now)
        elif entry.stall.is_reported(silent_s):
            entry.reason = "NO_PROGRESS"
            entry.message = f"its source has data, and nothing was committed for {silent_s:.0f} s"
            entry.message += f" ({signs.doing}); it is restarted if that continues"
        elif entry.reason == "NO_PROGRESS":
            entry.reason = entry.message = ""

    def _end(self, entry: RunEntry, run: QueryRun, now: float) -> None:
        """Stop a run; the next one begins once it has ended."""
        entry.run, entry.ends_since = None, now
        entry.stopping = self._endings.end(run)

    def _watch_end(self, entry: RunEntry, stopping: Future[None], now: float) -> None:
        ends_s = now - entry.ends_since
        if stopping.done():
            entry.stopping = None
        elif ends_s > END_S_MAX:
            self.wedged = f"the last run of {entry.wanted.run_id} has not ended for {ends_s:.0f} s"

    def _watch_start(self, entry: RunEntry, starting: Future[QueryRun | Held], now: float) -> None:
        """A start that hangs cannot be cancelled: it holds a thread, and may still write to the
        checkpoint that a second start would use. Only the process can be restarted."""
        if not starting.running():  # still queued behind others
            entry.stall.began(now)
            return
        work = self.work(self.around, entry.wanted.run_id) if entry.stall.wants_work(now) else None
        silent_s = entry.stall.look(Signs(mark=(), has_data=True, work=work), now)
        if entry.stall.is_reported(silent_s):
            entry.reason = "NO_PROGRESS"
            entry.message = f"its start takes {silent_s:.0f} s; the pipeline is restarted if "
            entry.message += "that continues"
        if entry.stall.is_restarted(silent_s):
            self.wedged = f"{entry.wanted.run_id} has not started for {silent_s:.0f} s"

    def _restart(self, entry: RunEntry, run: QueryRun, why: str, now: float) -> None:
        self._end(entry, run, now)
        entry.lingers_until = now + LINGER_S
        entry.stall.restarted(now)
        self._retry(entry, why, now)
        entry.reason = "NO_PROGRESS"

    def _failed(self, entry: RunEntry, error: BaseException, now: float) -> None:
        """A named failure is final; after any other one, the query is retried. A group is divided
        instead: each of its queries then fails, or continues, by itself."""
        message = str(error)
        entry.lingers_until = now + LINGER_S
        is_named = isinstance(error, QueryFailed) or bool(reason_of(message))
        is_own = is_named or is_refusal(message) or entry.failures >= GROUP_FAILURES_MAX
        if is_own and self._divide(entry, message):
            return
        if isinstance(error, QueryFailed):
            self._fail(entry, error.reason, error.message)
        elif reason := reason_of(message):
            self._fail(entry, reason, f"{entry.wanted.members[0].resolution(reason)} ({message})")
        else:
            why = f"{type(error).__name__}: {message}"
            self._retry(entry, why, now)
            if away := failures.registry_failure(why):
                entry.reason, entry.message = away
            acl = access.missing_acl(message, entry.wanted.members, lambda: self.around.reads.kafka)
            if acl or isinstance(error, KafkaAccessDenied):
                entry.reason, entry.message = access.REASON, acl or message
            if is_refusal(message) and not entry.measures_rows:
                entry.measures_rows = True  # so the retry leaves that row out
                entry.failures, entry.retry_at = entry.failures - 1, now

    def _fail(self, entry: RunEntry, reason: str, message: str) -> None:
        entry.state, entry.reason, entry.message = "FAILED", reason, message[:MESSAGE_LENGTH_MAX]
        _logger.error("query failed", run_id=entry.wanted.run_id, reason=reason, why=entry.message)

    def _divide(self, entry: RunEntry, why: str) -> bool:
        """Let the queries of a group continue alone, from the driver's next look at the catalog on.
        False: the entry is that of one query."""
        group = entry.wanted.group
        if group is None or len(entry.wanted.members) == 1:
            return False
        assert self.around.groups is not None
        try:
            self.around.groups.divide(group.group_id, why)
        except OSError as error:  # shared storage is away: it is tried again
            self._retry(entry, f"{type(error).__name__}: {error}", self.clock())
            return True
        entry.state, entry.retry_at = "RETRYING", math.inf
        entry.reason, entry.message = "", why[:MESSAGE_LENGTH_MAX]
        return True

    def _retry(self, entry: RunEntry, message: str, now: float) -> None:
        entry.failures += 1
        pause_s = retry_after_s(entry.failures)
        entry.state, entry.retry_at = "RETRYING", now + pause_s
        entry.reason, entry.message = "", message[:MESSAGE_LENGTH_MAX]
        _logger.warning(
            "query will be retried",
            run_id=entry.wanted.run_id,
            pause_s=pause_s,
            why=entry.message,
        )


def _look_at(runs: list[QueryRun]) -> None:
    look_at_all([each.topics for run in runs for each in run.tables.values()])


def _name(run: QueryRun, error: Exception) -> QueryRun:
    """Runs as a start that fails at once, with the named failure of the previous run."""
    raise run.named(error)
