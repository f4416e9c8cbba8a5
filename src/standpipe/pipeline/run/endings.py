"""Ends runs beside the driver's loop, which never waits, and says which have not ended yet.

Spark's stop aborts a batch and takes up to its stopTimeout, after which our part of the batch may
still run; a start cannot be cancelled once it has begun; a janitor ends after its current step.
Until all are over, a run may write to the checkpoints of its queries, and to their topics, so no
other run of one of them may begin.

Not here: which runs end, and when (`scheduler.py`).
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from standpipe.pipeline.run.entry import MESSAGE_LENGTH_MAX, RunEntry
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.held_query import Held
from standpipe.pipeline.run.start.running_query import QueryRun

#: runs that Spark stops at once
STOPS_MAX: Final = 8
#: a run that has not ended by then never will, and only another process can run its queries
END_S_MAX: Final = 300.0

_logger = structlog.get_logger("queries")


@dataclass(frozen=True)
class _Ending:
    wanted: WantedRun
    thread: threading.Thread
    #: what ran has been stopped; a start may still be under way
    stopped: threading.Event
    #: on the clock of `Queries`
    since: float


@dataclass
class Endings:
    """The runs that end."""

    _endings: list[_Ending] = field(default_factory=list[_Ending])
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(STOPS_MAX))

    def begin(self, entry: RunEntry, now: float) -> None:
        """End a run in whatever state it is. Does not wait."""
        entry.state = "STOPPED"
        stopped = threading.Event()
        # a daemon: a start that hangs must not keep the process
        thread = threading.Thread(
            target=_end, args=(entry, self._slots, stopped), name="stop", daemon=True
        )
        self._endings.append(_Ending(entry.wanted, thread, stopped, now))
        thread.start()

    def end(self, run: QueryRun) -> Future[None]:
        """End a run, after which its queries may be started again. Does not wait: the future is
        done once another run of them may begin.

        Not in the threads that start queries: a start may take an hour, and a run that has failed
        would go on until then."""
        ended: Future[None] = Future()
        work = (run, self._slots, ended)
        # a daemon, as above; the future also tells the process when it takes too long
        threading.Thread(target=_end_run, args=work, name="end", daemon=True).start()
        return ended

    def take_ended(self) -> list[str]:
        """The ids of the runs that have ended since the last call."""
        ended = [each for each in self._endings if not each.thread.is_alive()]
        self._endings = [each for each in self._endings if each not in ended]
        return [each.wanted.run_id for each in ended]

    def held_s(self, wanted: WantedRun, now: float) -> float | None:
        """How long a run has waited for another one to end that has a query of it; None: it may
        begin."""
        ids = set(wanted.query_ids)
        before = [each for each in self._endings if not ids.isdisjoint(each.wanted.query_ids)]
        return max((now - each.since for each in before), default=None)

    def run_ids(self) -> set[str]:
        """The ids of the runs that end."""
        return {each.wanted.run_id for each in self._endings}

    def wait_until_stopped(self) -> None:
        """Return once all that ran has been stopped, whatever is still being started."""
        for each in self._endings:
            each.stopped.wait()

    def wait_until_ended(self) -> None:
        """Return once nothing is being stopped or started any more."""
        for each in self._endings:
            each.thread.join()


def _end(entry: RunEntry, slots: threading.Semaphore, stopped: threading.Event) -> None:
    starting = entry.starting
    is_starting = starting is not None and not starting.cancel()
    try:
        with slots:
            if entry.run is not None:
                stop_run(entry.run)
    finally:
        stopped.set()
    if entry.run is not None:
        entry.run.wait_until_ended()
    with suppress(CancelledError):
        if entry.stopping is not None:
            entry.stopping.exception()
    if is_starting and starting is not None:
        stop_started(starting)


def _end_run(run: QueryRun, slots: threading.Semaphore, ended: Future[None]) -> None:
    try:
        with slots:
            stop_run(run)
        run.wait_until_ended()
    finally:
        ended.set_result(None)


def stop_run(run: QueryRun | Held) -> None:
    """Stop a run. A query that does not stop in time ends with the JVM at the latest."""
    try:
        run.stop()
    except Exception as error:
        _logger.warning("query did not stop in time", why=str(error)[:MESSAGE_LENGTH_MAX])


def end_run(run: QueryRun | Held) -> None:
    """Stop a run that may be over already. Returns once another one of its queries may begin."""
    stop_run(run)
    run.wait_until_ended()


def stop_started(starting: Future[QueryRun | Held]) -> None:
    """Stop what was being started, once that is over. Returns once it has ended."""
    with suppress(CancelledError):
        if starting.exception() is None:
            end_run(starting.result())


def stopping_once_started(starting: Future[QueryRun | Held]) -> Future[None]:
    """Stop what is being started, once that is over. The future is done once it has ended."""
    ended: Future[None] = Future()

    def end(started: Future[QueryRun | Held]) -> None:
        try:
            stop_started(started)
        finally:
            ended.set_result(None)

    starting.add_done_callback(end)
    return ended
