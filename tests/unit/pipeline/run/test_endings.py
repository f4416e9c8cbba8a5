"""How runs end: beside the loop, and never before what was being started has ended too."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, cast

import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.pipeline.run.endings import Endings, stopping_once_started
from standpipe.pipeline.run.entry import RunEntry
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.held_query import Held
from standpipe.pipeline.run.start.running_query import QueryRun

ONE, OTHER = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
    "CREATE TABLE B AS SELECT K, SUM(N) AS C FROM S GROUP BY K;"
)


class Run:
    """Stands for a QueryRun."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.stops, self.failure = 0, failure
        #: its janitors have ended
        self.may_end = Event()
        self.may_end.set()

    def stop(self) -> None:
        self.stops += 1
        if self.failure is not None:
            raise self.failure

    def wait_until_ended(self) -> None:
        assert self.may_end.wait(30)


def entry(run: Run | None = None, **told: Any) -> RunEntry:
    return RunEntry(WantedRun(members=(ONE,)), run=cast(QueryRun | None, run), **told)


def started() -> tuple[Future[QueryRun | Held], Run]:
    """A start that has begun, so that it cannot be cancelled, and what it will start."""
    starting: Future[QueryRun | Held] = Future()
    assert starting.set_running_or_notify_cancel()
    return starting, Run()


def test_a_run_ends_once_what_is_being_started_has_been_stopped() -> None:
    endings, (starting, run) = Endings(), started()
    endings.begin(entry(starting=starting), 10.0)
    endings.wait_until_stopped()
    assert endings.take_ended() == []
    assert endings.held_s(WantedRun(members=(ONE,)), 13.0) == 3.0
    assert endings.held_s(WantedRun(members=(OTHER,)), 13.0) is None
    both = WantedRun(members=(OTHER, ONE))
    assert endings.held_s(both, 13.0) == 3.0, "one of its queries is enough"
    starting.set_result(cast(QueryRun, run))
    endings.wait_until_ended()
    assert run.stops == 1
    assert endings.take_ended() == [ONE.query_id]
    assert endings.take_ended() == []
    assert endings.held_s(both, 13.0) is None


def test_what_is_stopped_late_has_ended_once_its_janitors_have() -> None:
    starting, run = started()
    run.may_end.clear()
    ended = stopping_once_started(starting)
    Thread(target=starting.set_result, args=(run,)).start()
    with pytest.raises(TimeoutError):
        ended.result(0.2)
    run.may_end.set()
    assert ended.result(30) is None
    assert run.stops == 1


def test_a_start_that_fails_late_leaves_nothing_to_stop() -> None:
    starting, _ = started()
    ended = stopping_once_started(starting)
    starting.set_exception(OSError("full"))
    assert ended.result(0) is None


def test_a_start_that_fails_leaves_nothing_to_stop() -> None:
    endings, (starting, run) = Endings(), started()
    endings.begin(entry(starting=starting), 0.0)
    starting.set_exception(OSError("full"))
    endings.wait_until_ended()
    assert (run.stops, endings.take_ended()) == (0, [ONE.query_id])


def test_a_start_that_has_not_begun_never_does() -> None:
    endings, starting = Endings(), Future[QueryRun | Held]()
    endings.begin(entry(starting=starting), 0.0)
    endings.wait_until_ended()
    assert starting.cancelled()


@pytest.mark.parametrize("failure", [None, TimeoutError("5 s are over"), RuntimeError("no JVM")])
def test_a_run_that_does_not_stop_in_time_is_given_up(failure: Exception | None) -> None:
    endings, run = Endings(), Run(failure)
    endings.begin(entry(run), 0.0)
    endings.wait_until_ended()
    assert run.stops == 1
    assert endings.run_ids() == {ONE.query_id}, "until somebody looks"
    assert endings.take_ended() == [ONE.query_id]
    assert endings.run_ids() == set()


def test_a_run_has_ended_once_its_janitors_have() -> None:
    """A driver that stops does not wait for them: they end with its process."""
    endings, run = Endings(), Run()
    run.may_end.clear()
    endings.begin(entry(run), 10.0)
    endings.wait_until_stopped()
    assert run.stops == 1
    (ending,) = endings._endings
    ending.thread.join(0.2)
    assert endings.take_ended() == []
    assert endings.held_s(WantedRun(members=(ONE,)), 13.0) == 3.0
    run.may_end.set()
    endings.wait_until_ended()
    assert endings.take_ended() == [ONE.query_id]


def test_a_run_that_is_ended_by_itself_has_ended_once_its_janitors_have() -> None:
    run = Run(OSError("it does not stop in time"))
    run.may_end.clear()
    ended = Endings().end(cast(QueryRun, run))
    with pytest.raises(TimeoutError):
        ended.result(0.2)
    run.may_end.set()
    assert ended.result(30) is None
    assert run.stops == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_run_that_is_stopped_already_is_waited_for(is_cancelled: bool) -> None:
    endings, stopping = Endings(), Future[None]()
    endings.begin(entry(stopping=stopping), 0.0)
    endings.wait_until_stopped()
    assert endings.take_ended() == []
    if is_cancelled:
        assert stopping.cancel()
    else:
        stopping.set_result(None)
    endings.wait_until_ended()
    assert endings.take_ended() == [ONE.query_id]
