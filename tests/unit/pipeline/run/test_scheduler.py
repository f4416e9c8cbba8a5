"""States of queries, with a start that is told what to do and a clock that is set."""

import dataclasses
from concurrent.futures import wait
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.commit.batch_marks import LINGER_S
from standpipe.pipeline.commit.blame import after_death
from standpipe.pipeline.failures import GONE_S, NotYet, QueryFailed
from standpipe.pipeline.io.checkpoint_path import copy_tree
from standpipe.pipeline.run import scheduler
from standpipe.pipeline.run.endings import END_S_MAX
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.held_query import Held
from standpipe.pipeline.run.reconcile import StartRun, StopRun
from standpipe.pipeline.run.scheduler import (
    LOOK_EVERY_S,
    RETRY_S_FIRST,
    RETRY_S_MAX,
    Queries,
    retry_after_s,
)
from standpipe.pipeline.run.start.query_run import PipelineContext
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.run.watch.backlog import ASK_EVERY_S, IDLE
from standpipe.pipeline.run.watch.stall import REPORT_S, RESTART_S_FIRST, Signs, Work

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)
ALONE = WantedRun(members=(WANTED,))
Q = WANTED.query_id


class Run:
    """Stands for a QueryRun."""

    def __init__(self) -> None:
        self.counts = BatchCounts(batch=BatchId(3), input_records=100, bad_records=1)
        self.backlog = None
        self.tables = {Q: self}
        self.unread = self.topics = self.log = self  # what Kafka says
        self.is_behind: bool | None = False
        self.work: Work = ()
        self.died: Exception | None = None
        self.is_stopped = self.has_data = self.is_active = False
        self.notice = ""
        self.doing, self.is_awake = "asleep", True
        self.looks = 0
        #: what Kafka says about its topics when it is asked
        self.topic_changed: QueryFailed | None = None
        self.repaired_rows = 2
        #: its janitors have ended
        self.may_end = Event()
        self.may_end.set()

    def failure(self, *, sleeps: bool) -> Exception | None:
        assert not (sleeps and self.is_awake), "Spark says more than that it sleeps"
        return self.died

    def sleep(self, world: "World") -> None:
        self.is_awake, self.doing = False, IDLE[1]
        world.queries.asleep = lambda: {Q}

    def names(self) -> set[str]:
        return {"s"}

    def ask_each(self, topics: set[str]) -> tuple[dict[str, TopicSeen], set[str]]:
        return {topic: TopicSeen("S1", 1) for topic in topics}, set()

    def look(self, seen: dict[str, TopicSeen]) -> None:
        assert seen.keys() == {"s"}
        self.looks += 1
        if self.topic_changed is not None:
            self.died, self.is_active = self.topic_changed, True

    def named(self, error: Exception) -> Exception:
        return self.topic_changed or error

    def signs(self, *, with_work: bool, sleeps: bool) -> Signs:
        assert not (sleeps and self.is_awake)
        work = self.work if with_work else None
        return Signs(mark=(self.counts.batch,), has_data=self.has_data, work=work, doing=self.doing)

    def is_there(self) -> bool:
        if self.is_behind is None:
            raise KafkaUnavailable("away")
        return self.is_behind

    def stop(self) -> None:
        self.is_stopped = True

    def wait_until_ended(self) -> None:
        assert self.may_end.wait(30)

    def count_late(self, query_id: str, rested: BatchId | None) -> int:
        assert (rested is None) == self.is_awake
        return 5


class World:
    def __init__(self, *outcomes: Run | Exception) -> None:
        self.outcomes = list(outcomes)
        self.looked: list[bool] = []
        self.now = 1000.0
        self.queries = Queries(
            cast(PipelineContext, None), start=self._start, clock=lambda: self.now
        )
        self.queries.carry_out(StartRun(ALONE))

    def _start(self, wanted: WantedRun, around: PipelineContext) -> QueryRun:
        self.looked.append(wanted.members[0].measures_rows)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return cast(QueryRun, outcome)

    def tend(self) -> str:
        """Looks that see what has ended, start what is due, and see how it went."""
        self.queries.tend()
        inner = cast(Any, self.queries)
        for _ in range(3):
            wait([e.stopping for e in inner._entries.values() if e.stopping])
            wait([e.starting for e in inner._entries.values() if e.starting])
            self.look()
        return self.look()

    def look(self) -> str:
        """A look without a wait for starts, once Kafka has answered."""
        inner = cast(Any, self.queries)
        wait([e.unread._asking for e in inner._entries.values() if e.unread._asking])
        wait([inner._looking] if inner._looking else [])
        self.queries.tend()
        (status,) = self.queries.statuses()
        return f"{status.state} {status.reason}".strip()


def test_a_held_query_starts_nothing_and_says_what_it_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(batch=BatchId(4), covered={"s": {0: 9}})
    monkeypatch.setattr(scheduler, "hold_query", lambda wanted, log: held)
    world = World()
    world.queries.around = cast(PipelineContext, SimpleNamespace(log=None))
    world.queries.carry_out(StopRun(Q))
    world.queries.carry_out(
        StartRun(WantedRun(members=(dataclasses.replace(WANTED, is_held=True),)))
    )
    assert world.tend() == "RUNNING HELD"
    (status,) = world.queries.statuses()
    assert (status.batch, status.covered) == (4, {"s": {0: 9}})
    assert world.looked == [], "Spark runs nothing"
    world.queries.carry_out(StopRun(Q))


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(1, RETRY_S_FIRST), (2, 2 * RETRY_S_FIRST), (50, RETRY_S_MAX)]
)
def test_retry_after_s(failures: int, pause_s: float) -> None:
    assert retry_after_s(failures) == pause_s


@pytest.mark.parametrize(
    ("outcome", "state", "why"),
    [
        (Run(), "RUNNING", ""),
        (NotYet("TOPIC_MISSING", "…"), "STARTING TOPIC_MISSING", "it is about to appear"),
        (QueryFailed("CHECKPOINT_MISMATCH", "…"), "FAILED CHECKPOINT_MISMATCH", "named"),
        (OSError("disk full"), "RETRYING", "not named: may pass"),
    ],
)
def test_how_a_start_ends(outcome: Run | Exception, state: str, why: str) -> None:
    assert World(outcome).tend() == state, why


def test_a_refused_row_lets_the_next_start_look_at_sizes_at_once() -> None:
    first, second, third = Run(), Run(), Run()
    world = World(first, second, third)
    assert world.tend() == "RUNNING"
    first.died = RuntimeError("…apache.kafka.common.errors.RecordTooLargeException: The message…")
    world.queries.tend()  # one look: the next ones start it again
    assert world.queries.statuses()[0].state == "RETRYING"
    assert world.tend() == "RUNNING", "without a pause"
    second.died = RuntimeError("RecordTooLargeException")
    assert world.tend() == "RETRYING"
    assert world.tend() == "RETRYING", "looking did not help: now it backs off"
    world.now += RETRY_S_FIRST
    assert world.tend() == "RUNNING"
    assert world.looked == [False, True, True]


def test_a_query_that_died_is_tried_again_after_its_pause() -> None:
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    first.died = RuntimeError("broker away")
    assert world.tend() == "RETRYING"
    assert world.tend() == "RETRYING", "the pause is not over"
    world.now += RETRY_S_FIRST
    assert world.tend() == "RUNNING"


def test_a_query_whose_janitor_died_is_stopped_and_started_anew() -> None:
    """It went on for ever: nothing was called clean any more, and no replica could be restored."""
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    first.is_active, first.died = True, ValueError("no progress record")
    assert world.tend() == "RETRYING"
    entry = cast(Any, world.queries)._entries[Q]
    wait([entry.stopping] if entry.stopping else [])
    assert first.is_stopped
    assert world.queries.statuses()[0].message == "ValueError: no progress record"
    world.now += RETRY_S_FIRST
    world.tend()
    assert world.tend() == "RUNNING"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("[KAFKA_DATA_LOSS] Some data may have been lost"), "DATA_LOSS"),
        (QueryFailed("CHECKPOINT_DAMAGED", "offsets/3 cannot be read"), "CHECKPOINT_DAMAGED"),
    ],
)
def test_a_named_death_is_final(error: Exception, reason: str) -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.died = error
    assert world.tend() == f"FAILED {reason}"
    world.now += 3600
    assert world.tend() == f"FAILED {reason}"


@pytest.mark.parametrize("message", ["UnknownTopicOrPartitionException", "Partitions were changed"])
def test_that_a_topic_is_unknown_is_not_final(message: str) -> None:
    """Kafka says so for a moment, too: the next start asks which topic there is."""
    first = Run()
    changed = QueryFailed("TOPIC_CHANGED", "made anew")
    world = World(first, changed)
    world.tend()
    first.died = RuntimeError(message)
    assert world.tend() == "RETRYING"
    world.now += RETRY_S_FIRST
    assert world.tend() == "FAILED TOPIC_CHANGED", "confirmed"


@pytest.mark.parametrize(
    ("confirmed", "state"),
    [(QueryFailed("TOPIC_CHANGED", "…"), "FAILED TOPIC_CHANGED"), (None, "FAILED DATA_LOSS")],
    ids=["the topic was made anew", "retention, say"],
)
def test_lost_data_are_named_by_what_happened(confirmed: QueryFailed | None, state: str) -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.died, run.topic_changed = RuntimeError("[KAFKA_DATA_LOSS] …"), confirmed
    assert world.tend() == state


def test_topics_are_looked_at_while_no_batch_comes() -> None:
    run = Run()
    world = World(run)
    world.tend()
    world.tend()
    assert run.looks == 1, "not at every turn"
    run.topic_changed = QueryFailed("TOPIC_CHANGED", "topic s was deleted")
    world.now += LOOK_EVERY_S
    assert world.tend() == "FAILED TOPIC_CHANGED"
    entry = cast(Any, world.queries)._entries[Q]
    wait([entry.stopping] if entry.stopping else [])
    assert run.is_stopped, "Spark ran it until then"


def test_what_is_only_told_of_a_topic_stops_nothing() -> None:
    run = Run()
    world = World(run)
    run.notice = "topic A has 8 partitions, and the catalog says 4"
    assert world.tend() == "RUNNING TOPIC_CHANGED"
    (status,) = world.queries.statuses()
    assert status.message == run.notice
    run.notice = ""
    assert world.tend() == "RUNNING"


@pytest.mark.parametrize(
    ("final_failure", "state", "why"),
    [
        (None, "STARTING TOPIC_MISSING", "nobody has committed of it: it may yet be made"),
        (QueryFailed("TOPIC_CHANGED", "deleted"), "FAILED TOPIC_CHANGED", "it cannot come back"),
    ],
)
def test_a_topic_that_stays_away(final_failure: QueryFailed | None, state: str, why: str) -> None:
    missing = NotYet("TOPIC_MISSING", "…", final_failure)
    world = World(*[missing] * 4)
    assert world.tend() == "STARTING TOPIC_MISSING"
    world.now += GONE_S - 0.1
    assert world.tend() == "STARTING TOPIC_MISSING", "a broker may not know it yet"
    world.now += 5.0
    assert world.tend() == state, why


def test_a_topic_that_was_away_for_a_moment_has_all_the_time_again() -> None:
    missing = NotYet("TOPIC_MISSING", "…", QueryFailed("TOPIC_CHANGED", "deleted"))
    world = World(missing, OSError("disk full"), missing)
    world.tend()
    for _ in range(2):
        world.now += GONE_S
        assert world.tend() in ("RETRYING", "RETRYING TOPIC_MISSING")


def test_the_report_has_counts_and_rate() -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.counts.input_records += 50
    world.now += 1.0
    (status,) = world.queries.statuses()
    counts = (status.bad_records, status.late_records, status.repaired_rows)
    assert (status.batch, *counts) == (3, 1, 5, 2)
    assert status.lease_epoch == 2
    assert status.input_rows_per_second == 50.0


@pytest.mark.parametrize("is_active", [False, True])
def test_the_next_run_waits_for_the_janitors_of_the_last_one(is_active: bool) -> None:
    """Theirs would be committed among its batches: rows of one were lost for good."""
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    first.died, first.is_active = RuntimeError("broker away"), is_active
    first.may_end.clear()
    assert world.look() == "RETRYING"
    entry = cast(Any, world.queries)._entries[Q]
    assert not wait([entry.stopping], timeout=0.2).done, "stopped it is at once"
    assert first.is_stopped
    world.now += END_S_MAX
    assert world.look() == "RETRYING"
    assert (len(world.looked), world.queries.wedged) == (1, "")
    world.now += 1
    world.look()
    assert "has not ended for 301 s" in world.queries.wedged
    first.may_end.set()
    assert world.tend() == "RUNNING"
    assert len(world.looked) == 2


def test_a_run_that_failed_ends_while_long_starts_have_all_threads() -> None:
    """It waited for them, and after 300 s the driver was restarted, with all that it ran."""
    run, busy, may_go_on = Run(), Barrier(3), Event()

    def start(wanted: WantedRun, around: PipelineContext) -> QueryRun:
        if wanted is not ALONE:  # it publishes the rows of a table, say
            busy.wait(30)
            assert may_go_on.wait(30)
        return cast(QueryRun, run)

    queries = Queries(cast(PipelineContext, None), start=start, clock=lambda: 1000.0)
    entries = cast(Any, queries)._entries
    queries.carry_out(StartRun(ALONE))
    queries.tend()
    wait([entries[Q].starting])
    queries.tend()
    for name in ("B", "C"):
        other = dataclasses.replace(WANTED, query=replace(WANTED.query, query_id=name))
        queries.carry_out(StartRun(WantedRun(members=(other,))))
    queries.tend()
    try:
        busy.wait(30)
        run.died = RuntimeError("broker away")
        queries.tend()
        assert wait([entries[Q].stopping], timeout=10).done
        assert run.is_stopped
    finally:
        may_go_on.set()


class SlowToStop(Run):
    """As a run whose batch Spark aborts: up to 5 s."""

    def __init__(self) -> None:
        super().__init__()
        self.may_stop = Event()

    def stop(self) -> None:
        assert self.may_stop.wait(30)
        super().stop()


def test_stop_takes_its_time_and_the_loop_goes_on() -> None:
    run, other = SlowToStop(), Run()
    world = World(run, other)
    world.tend()
    world.queries.carry_out(StopRun(Q))
    assert world.queries.known() == {}
    assert world.queries.run_ids() == {Q}, "what it writes must not be removed yet"
    world.queries.carry_out(StartRun(ALONE))
    assert world.tend() == "STARTING"
    assert world.looked == [False], "the new one has not begun"
    world.now += END_S_MAX
    assert world.tend() == "STARTING"
    assert not world.queries.wedged
    world.now += 1
    world.tend()
    assert "has not ended for 301 s" in world.queries.wedged

    run.may_stop.set()
    cast(Any, world.queries)._endings.wait_until_ended()
    assert run.is_stopped
    assert world.tend() == "RUNNING"
    assert world.queries.run_ids() == {Q}


def test_stop_all() -> None:
    run = Run()
    world = World(run)
    world.tend()
    world.queries.stop_all()
    assert run.is_stopped


def test_a_query_without_progress_is_reported_and_started_anew() -> None:
    """Only while there is something to do; the run before has ended when the next one starts."""
    first, second = Run(), Run()
    world = World(first, second)
    assert world.tend() == "RUNNING"
    world.now += RESTART_S_FIRST
    assert world.tend() == "RUNNING", "its source has no data"
    first.has_data = True
    world.now += REPORT_S - 1
    assert world.tend() == "RUNNING"
    world.now += 1
    assert world.tend() == "RUNNING NO_PROGRESS"
    first.counts.batch = BatchId(4)
    assert world.tend() == "RUNNING", "it got somewhere"
    world.now += RESTART_S_FIRST
    world.tend()
    entry = cast(Any, world.queries)._entries[Q]
    assert (entry.state, entry.stall.restarts) == ("RETRYING", 1)
    wait([entry.stopping] if entry.stopping else [])
    assert first.is_stopped
    world.now += RETRY_S_MAX
    world.tend()
    assert world.tend() == "RUNNING"
    assert entry.run is second


def test_a_batch_whose_tasks_get_somewhere_is_no_stall() -> None:
    """Each batch over 180 s was ended at 180 s, for ever."""
    run = Run()
    world = World(run)
    world.tend()
    run.has_data = True
    for records in range(60):
        run.work = ((1, records),)
        world.now += REPORT_S / 2
        assert world.look() == "RUNNING"
    world.now += REPORT_S
    assert world.look() == "RUNNING NO_PROGRESS", "they stand still"


@pytest.mark.parametrize(
    ("is_behind", "state", "why"),
    [
        (True, "RUNNING NO_PROGRESS", "Spark's source hangs, and Spark says that there is no data"),
        (False, "RUNNING", "there is none"),
        (None, "RUNNING", "Kafka does not say"),
    ],
)
@pytest.mark.parametrize("sleeps", [False, True])
def test_an_idle_query_that_is_behind_its_topics_stands_still(
    is_behind: bool | None, state: str, why: str, *, sleeps: bool
) -> None:
    run = Run()
    world = World(run)
    world.tend()
    if sleeps:  # its waking was lost, and nobody will say so
        run.sleep(world)
    world.look()
    run.is_behind = is_behind
    world.now += ASK_EVERY_S  # as long as it takes at most until Kafka is asked
    world.look()
    world.look()
    world.now += REPORT_S
    assert world.look() == state, why
    assert ASK_EVERY_S + REPORT_S <= 30, "reported within 30 s"


def test_a_start_that_hangs_is_reported_and_ends_the_process() -> None:
    go_on = Event()
    world = World(Run())

    def hanging(wanted: WantedRun, around: PipelineContext) -> QueryRun:
        is_there.set()
        go_on.wait()
        return cast(QueryRun, world.outcomes[0])

    is_there = Event()
    world.queries.start = hanging
    world.queries.work = lambda _around, _query: ()
    world.queries.tend()
    is_there.wait()
    try:
        assert world.look() == "STARTING"
        world.now += REPORT_S
        assert world.look() == "STARTING NO_PROGRESS"
        assert not world.queries.wedged
        world.queries.work = lambda _around, _query: ((1, 1),)
        world.look()
        world.now += RESTART_S_FIRST - 1
        world.queries.work = lambda _around, _query: ((1, 2),)
        world.look()
        assert not world.queries.wedged, "its rows are being published"
        world.now += RESTART_S_FIRST
        world.look()
        assert Q in world.queries.wedged
    finally:
        go_on.set()


def test_a_start_that_copies_its_checkpoint_is_no_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does nothing meanwhile. After 180 s the driver was restarted, and so was the copy."""
    world, is_there, go_on = World(Run()), Event(), Event()

    def copying(wanted: WantedRun, around: PipelineContext) -> QueryRun:
        is_there.set()
        go_on.wait()
        return cast(QueryRun, world.outcomes[0])

    monkeypatch.setattr(scheduler, "work_of", lambda _spark, _pool: ())
    around = SimpleNamespace(spark=None, checkpoints=tmp_path)
    world.queries.start, world.queries.around = copying, cast(PipelineContext, around)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "1.sst").touch()
    world.queries.tend()
    is_there.wait()
    try:
        for number in range(10):
            world.now += RESTART_S_FIRST / 3
            copy_tree(tmp_path / "old", tmp_path / f"new-{number}")
            world.look()
        assert not world.queries.wedged
        world.now += RESTART_S_FIRST
        world.look()
        assert Q in world.queries.wedged, "the copy hangs"
    finally:
        go_on.set()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[KAFKA_DATA_LOSS.X] …", "DATA_LOSS"),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] …", "PLAN_CHANGED"),
    ],
)
def test_a_known_failure_of_spark_says_what_resolves_it(message: str, reason: str) -> None:
    run = Run()
    world = World(run)
    world.tend()
    run.died = RuntimeError(message)
    assert world.tend() == f"FAILED {reason}"
    (status,) = world.queries.statuses()
    assert "DROP TABLE A; and then CREATE TABLE A AS SELECT" in status.message
    assert message in status.message


def test_a_query_that_ended_two_drivers_is_failed_by_name() -> None:
    world = World(Run())
    marks = world.queries.marks
    for _ in range(2):
        marks.docket = after_death(marks.docket, {Q: WANTED.query.revision}, is_of_jvm=True)
    assert world.tend() == "FAILED DRIVER_DIED"
    (status,) = world.queries.statuses()
    assert f"PAUSE {Q}; and then RESUME {Q}" in status.message
    assert world.looked == [], "it was not started"
    world.queries.try_again({"another one": 7}, 7)
    assert world.tend() == "FAILED DRIVER_DIED"
    world.queries.try_again({Q: 5}, 7)  # as a driver that starts reads it: from before
    assert world.tend() == "FAILED DRIVER_DIED"
    world.queries.try_again({Q: 8}, 9)  # it was paused
    assert world.tend() == "RUNNING"


def test_a_failed_query_that_was_paused_and_resumed_starts_again() -> None:
    """Both in one page of the log: the catalog wants it as before. It stayed FAILED."""
    first = Run()
    world = World(first, QueryFailed("CHECKPOINT_LOST", "…"), Run())
    world.tend()
    first.died, first.is_active = QueryFailed("TOPIC_CHANGED", "…"), True
    first.may_end.clear()
    assert world.look() == "FAILED TOPIC_CHANGED"
    world.queries.try_again({"another one": 8}, 9)
    assert world.look() == "FAILED TOPIC_CHANGED"
    world.queries.try_again({Q: 10}, 11)
    assert world.look() == "STARTING"
    assert len(world.looked) == 1, "its last run has not ended"
    first.may_end.set()
    assert world.tend() == "FAILED CHECKPOINT_LOST", "its own failure, not that of before"
    world.queries.try_again({}, 12)
    world.now += 3600
    assert world.tend() == "FAILED CHECKPOINT_LOST"
    world.queries.try_again({Q: 13}, 14)
    assert world.tend() == "RUNNING"
    assert world.queries.statuses()[0].message == ""
    world.queries.try_again({Q: 15}, 16)
    assert world.tend() == "RUNNING", "only what has failed starts again"
    assert len(world.looked) == 3


def test_a_query_waits_while_a_suspect_runs_alone() -> None:
    world = World(Run())
    marks = world.queries.marks
    marks.docket = after_death(marks.docket, {"B": 1, "C": 1}, is_of_jvm=True)
    assert marks.try_begin("B", 1)
    assert world.tend() == "STARTING"
    assert world.queries.statuses()[0].message == "waits until B has run alone: a driver has died"
    marks.finished("B")
    assert world.tend() == "RUNNING"
    assert world.queries.statuses()[0].message == ""


@pytest.mark.parametrize(
    ("does", "is_marked", "why"),
    [
        ("starts", True, "a start counts: plans are computed before the first step of a batch"),
        ("is idle", False, "Spark says that there is nothing to do"),
        ("waits", False, "so it says it of a query that sleeps"),
        ("sleeps", False, "and this one need not be asked about"),
        ("fails", True, "a JVM that dies answers for a while"),
        ("failed a while ago", False, "the driver is alive"),
        ("misses a topic", False, "it did not start"),
        ("is dropped", False, "it was stopped"),
    ],
)
def test_when_a_query_counts_as_in_a_batch(does: str, is_marked: bool, why: str) -> None:
    run = Run()
    world = World(
        NotYet("TOPIC_MISSING", "…") if does == "misses a topic" else run, OSError("full")
    )
    world.tend()
    if does == "is idle":
        run.doing = IDLE[0]
    elif does == "waits":
        run.doing = IDLE[1]
    elif does == "sleeps":
        run.sleep(world)
    elif "fail" in does:
        run.died = RuntimeError("Job aborted")
    elif does == "is dropped":
        world.queries.carry_out(StopRun(Q))
        cast(Any, world.queries)._endings.wait_until_ended()
    world.queries.tend()
    if does == "failed a while ago":
        cast(Any, world.queries)._entries[Q].retry_at = world.now + LINGER_S + 1
        world.now += LINGER_S
        world.queries.tend()
    assert (Q in cast(Any, world.queries).marks._turns.in_batch) is is_marked, why


def test_a_look_that_raises_is_not_lost() -> None:
    run = Run()
    world = World(run)
    world.tend()

    def look(seen: dict[str, TopicSeen]) -> None:
        raise ValueError("a bug")

    run.look = look
    world.now += LOOK_EVERY_S
    world.queries.tend()
    wait([cast(Any, world.queries)._looking])
    with pytest.raises(ValueError, match="a bug"):
        world.queries.tend()


@pytest.mark.parametrize("before", ["RUNNING", "RETRYING", "STARTING TOPIC_MISSING"])
def test_a_query_is_failed_from_outside_in_any_state(before: str) -> None:
    run = Run()
    outcome = {"RUNNING": run, "RETRYING": OSError("full")}.get(before)
    world = World(outcome or NotYet("TOPIC_MISSING", "…"))
    assert world.tend() == before
    world.queries.fail(Q, QueryFailed("FOREIGN_FENCE", "…"))
    entry = cast(Any, world.queries)._entries[Q]
    wait([entry.stopping] if entry.stopping else [])
    assert world.tend() == "FAILED FOREIGN_FENCE"
    assert world.queries.failures() == {Q: "FOREIGN_FENCE"}
    world.now += 3600
    assert world.tend() == "FAILED FOREIGN_FENCE", "it is not tried again"
    assert run.is_stopped is (before == "RUNNING")
