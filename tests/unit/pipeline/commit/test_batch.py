"""The order of the commit protocol's steps, with everything around it faked."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

import msgspec
import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.back_pressure import LagBound, Pressure
from standpipe.errors import KafkaUnavailable
from standpipe.model import (
    BatchId,
    Commit,
    LeaseEpoch,
    NodeId,
    Offset,
    Progress,
    ReplicaState,
)
from standpipe.model_liveness import ReplicaLag
from standpipe.pipeline.commit import written_once
from standpipe.pipeline.commit.batch import (
    ATTEMPTS_MAX,
    BatchCounts,
    BatchFailed,
    CommitBatch,
    TableCommit,
)
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import LeftOut, WriteLimits, Written

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)


LEFT_OUT = LeftOut(count=1)
RECORDS = 5  # of a batch, where it counts them


class Steps(CommitBatch):
    """Notes each step instead of doing it."""

    def _write(self, rows: object, commits: Sequence[Commit]) -> Written:
        DONE.extend(("write", commit) for commit in commits)
        return Written(left_out=LEFT_OUT, records=[RECORDS] if self.limits.counts else ())


class FreeLock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class NoJanitor:
    lock = FreeLock()
    newest: Progress | None = None

    def __init__(self) -> None:
        self.is_over = False

    def is_stopped(self) -> bool:
        return self.is_over

    def stop(self) -> None:
        DONE.append(("stopped", None))

    def refuse(self, ends: dict[int, int]) -> None:
        if min(ends.values()) < 0:
            raise KafkaUnavailable("old offsets")

    def starts(self) -> dict[int, int]:
        return {}

    def since_ms(self) -> int:
        return 3

    def watermark_ms(self, of_batch_ms: int) -> int:
        return max(of_batch_ms, 2)

    def clean_through(self) -> dict[int, int]:
        return {0: 7}

    def committed(self, progress: Progress) -> None:
        DONE.append(("told", progress))


class Topics:
    """Says what was asked for when the answer is collected."""

    topic_id = "T1"
    source_topic_ids: ClassVar = {"s": "S1"}

    def __init__(self, *changed: bool) -> None:
        self.changed = list(changed)

    def ask(self) -> Callable[[], None]:
        is_changed = self.changed.pop(0) if self.changed else False

        def check() -> None:
            DONE.append(("topics", None))
            if is_changed:
                raise QueryFailed("TOPIC_CHANGED", "made anew")

        return check


class Log:
    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        DONE.append(("ends", topic))
        return dict.fromkeys(range(partitions), 9)

    def append(self, progress: Progress) -> int:
        DONE.append(("progress", progress))
        return 0


class Willing(BatchMarks):
    """Lets every batch begin at once."""

    def begin(self, *_: object) -> bool:
        return True


DONE: list[tuple[str, Any]] = []


def commit_of(directory: Path, *, lease: list[str], changed: Sequence[bool] = ()) -> Steps:
    DONE.clear()
    checkpoint = Checkpoint(directory, LeaseEpoch(4))
    (checkpoint.directory / "offsets").mkdir(parents=True)
    for batch in (0, 1):
        lines = [
            "v1",
            '{"batchWatermarkMs":5,"batchTimestampMs":6}',
            f'{{"s":{{"0":{batch + 1}1}}}}',
        ]
        (checkpoint.directory / "offsets" / str(batch)).write_text("\n".join(lines))

    def check_lease() -> None:
        DONE.append(("lease", None))
        if lease:
            raise Fenced(lease[0])

    def report_bad(starts: object, ends: object, left_out: LeftOut) -> int:
        DONE.append(("bad", None))
        return 2 + left_out.count

    return Steps(
        name="Q",
        tables=(
            TableCommit(
                query_id="Q",
                table=WANTED.table,
                lease_epoch=LeaseEpoch(4),
                janitor=cast(Janitor, NoJanitor()),
                topics=cast(TopicCheck, Topics(*changed)),
                check_lease=check_lease,
            ),
        ),
        kafka="",
        checkpoint=checkpoint,
        log=cast(ProgressLog, Log()),
        limits=WriteLimits(bytes_max=9, samples_max=1),
        source_instant=lambda ends: 1000 + ends["s"][0],
        report_bad=report_bad,
    )


def test_the_steps_come_in_the_protocols_order(tmp_path: Path) -> None:
    commit_batch = commit_of(tmp_path, lease=[])
    commit_batch(cast(Any, None), 1)
    steps = ["lease", "topics", "write", "ends", "topics", "bad", "progress", "told"]
    assert [name for name, _ in DONE] == steps
    written, progress = DONE[2][1], DONE[6][1]
    assert (progress.topic_id, progress.source_topic_ids) == ("T1", {"s": "S1"})
    assert progress.commit == written, "the progress record names what was written"
    assert progress.clean_through == {0: 7}
    assert (written.lease_epoch, written.batch) == (4, 1)
    assert progress.sources == {"s": {0: 21}}
    assert progress.sinks == dict.fromkeys(range(WANTED.table.partitions), 9)
    assert (progress.watermark_ms, progress.batch_started_ms) == (5, 6)
    assert progress.source_instant_ms == 1021, "of what the batch covers, whenever it began"
    assert progress.since_ms == 3
    counts = commit_batch.tables[0].counts
    assert (counts.batch, counts.input_records) == (1, 10)
    assert counts.bad_records == 3, "rows that are too large count, too"
    assert counts.covered == {"s": {0: 21}}


def test_a_batch_of_a_run_that_is_over_writes_nothing(tmp_path: Path) -> None:
    """It waited for the lock meanwhile; the query's next run waits for those who have it."""
    commit_batch = commit_of(tmp_path, lease=[])
    cast(Any, commit_batch.tables[0].janitor).is_over = True
    commit_batch = dataclasses.replace(commit_batch, marks=Willing())
    with pytest.raises(BatchFailed, match="stopped before its batch began"):
        commit_batch(cast(Any, None), 1)
    assert DONE == []


def test_a_batch_that_readers_saw_is_replayed_as_it_was(tmp_path: Path) -> None:
    """Of a group, one member may have a batch that is planned again for the others."""
    commit_batch = commit_of(tmp_path, lease=[])
    checkpoint = cast(Checkpoint, commit_batch.checkpoint)
    planned = checkpoint.directory / "offsets" / "1"
    covers_less = planned.read_text().replace("21", "15")
    checkpoint.roll_back(BatchId(-1))  # batch 1 is planned again
    planned.write_text(covers_less)
    newest = Progress(
        query_id="Q",
        commit=Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(1), attempt=9),
        sources={"s": {0: 21}},
    )
    cast(Any, commit_batch.tables[0].janitor).newest = newest
    with pytest.raises(BatchFailed, match="PlannedOtherwise"):
        commit_batch(cast(Any, None), 1)
    assert [name for name, _ in DONE] == ["lease", "topics"], "nothing was written"
    assert checkpoint.offsets(1).ends == {"s": {0: 21}}
    DONE.clear()
    commit_batch(cast(Any, None), 1)
    assert [each.sources for name, each in DONE if name == "progress"] == [{"s": {0: 21}}]


def test_a_batch_whose_rows_are_in_place_covers_no_more_than_it_did(tmp_path: Path) -> None:
    """One table of several was loaded after the batch, so its rows stay. If the others got more
    with it, that table would miss the difference."""
    commit_batch = commit_of(tmp_path, lease=[])
    checkpoint = cast(Checkpoint, commit_batch.checkpoint)
    planned = checkpoint.directory / "offsets" / "1"
    covers_more = planned.read_text().replace("21", "33")
    checkpoint.roll_back(BatchId(-1))  # batch 1 is planned again
    planned.write_text(covers_more)
    loaded = Progress(
        query_id="Q",
        commit=Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(1), attempt=9),
        sources={"s": {0: 21}},
        is_load=True,
    )
    cast(Any, commit_batch.tables[0].janitor).newest = loaded
    with pytest.raises(BatchFailed, match="PlannedOtherwise"):
        commit_batch(cast(Any, None), 1)
    assert checkpoint.offsets(1).ends == {"s": {0: 21}}


def test_a_commit_that_nobody_knows_of_is_not_taken_back(tmp_path: Path) -> None:
    """Its records were foreign to the janitor, which made readers see the batch before again."""

    class Silent(Log):
        def append(self, progress: Progress) -> int:
            super().append(progress)
            raise KafkaUnavailable("no answer: it is unknown whether it was written")

    class Lock(FreeLock):
        def __exit__(self, *_: object) -> None:
            DONE.append(("unlocked", None))

    class Own(NoJanitor):
        lock = Lock()

    batch = commit_of(tmp_path, lease=[])
    (own,) = batch.tables
    janitors = [Own(), Own()]
    tables = tuple(dataclasses.replace(own, janitor=cast(Janitor, each)) for each in janitors)
    group = dataclasses.replace(batch, tables=tables, numbers=(0, 1), log=cast(Any, Silent()))
    with pytest.raises(BatchFailed, match="it is unknown"):
        group(cast(Any, None), 0)
    steps = [step for step, _ in DONE]
    assert steps[steps.index("progress") :] == ["progress", *["stopped"] * 2, *["unlocked"] * 2]


class GrowingLog(Log):
    """Partition 0 of the topic grows by as much as an attempt writes."""

    def __init__(self, grows: Sequence[int]) -> None:
        self.ends = [9]
        for more in grows:
            self.ends += [self.ends[-1] + more] * 2

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return {**super().end_offsets(topic, partitions), 0: self.ends.pop(0)}


class CachedRows:
    def persist(self) -> None:
        DONE.append(("cached", None))

    def unpersist(self) -> None:
        DONE.append(("freed", None))


def test_a_function_that_fails_leaves_no_rows_in_memory(tmp_path: Path) -> None:
    def failing(_rows: object, _started_ms: int) -> NoReturn:
        raise ZeroDivisionError("of a user")

    commit_batch = dataclasses.replace(commit_of(tmp_path, lease=[]), finish=failing)
    with pytest.raises(BatchFailed, match="ZeroDivisionError"):
        commit_batch(cast(Any, CachedRows()), 1)
    assert [name for name, _ in DONE] == ["lease", "topics", "cached", "freed"]


def on_a_cluster(directory: Path, lease: list[str], *grows: int) -> Steps:
    return dataclasses.replace(
        commit_of(directory, lease=lease),
        limits=WriteLimits(bytes_max=9, samples_max=1, counts=True),
        log=cast(ProgressLog, GrowingLog(grows)),
    )


def test_rows_that_were_written_twice_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a lost task on a Spark cluster, both runs' records are in the topic."""
    read: list[Commit] = []

    def records_of(_kafka: object, _grown: object, commit: Commit) -> int:
        read.append(commit)
        return RECORDS + 2

    monkeypatch.setattr(written_once, "records_of", records_of)
    on_a_cluster(tmp_path, [], RECORDS + 2, RECORDS)(cast(Any, CachedRows()), 1)
    tries = ["ends", "write", "topics", "ends", "topics"]
    first, second = tries[:2] + tries[3:], tries[:2] + tries[3:]
    begin, end = ["lease", "topics", "cached"], ["freed", "bad", "progress", "told"]
    assert [name for name, _ in DONE] == [*begin, *first, "lease", *second, *end]
    lost, written = [what for name, what in DONE if name == "write"]
    (progress,) = (what for name, what in DONE if name == "progress")
    assert (read, progress.commit) == ([lost], written), "another attempt, whose topic is not read"
    assert lost.attempt != written.attempt
    assert progress.sinks[0] == 9 + 2 * RECORDS + 2


def test_rows_that_are_written_twice_each_time_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_once, "records_of", lambda *_: RECORDS + 1)
    commit_batch = on_a_cluster(tmp_path, [], *[RECORDS + 1] * ATTEMPTS_MAX)
    with pytest.raises(BatchFailed, match=f"NotWrittenOnce: {RECORDS + 1} records in .* for"):
        commit_batch(cast(Any, CachedRows()), 1)
    done = [name for name, _ in DONE]
    assert (done.count("write"), done.count("progress")) == (ATTEMPTS_MAX, 0)
    assert done[-1] == "freed"


def test_rows_are_not_written_again_without_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease: list[str] = []

    def records_of(*_: object) -> int:
        lease.append("taken over meanwhile")
        return RECORDS + 1

    monkeypatch.setattr(written_once, "records_of", records_of)
    with pytest.raises(BatchFailed, match="taken over meanwhile"):
        on_a_cluster(tmp_path, lease, RECORDS + 1)(cast(Any, CachedRows()), 1)
    assert [name for name, _ in DONE].count("write") == 1


def test_a_batch_waits_for_its_replicas_before_it_checks_its_lease(tmp_path: Path) -> None:
    """The lease may be lost while it waits."""
    lease: list[str] = []
    bound = LagBound(records=10, ms=0, wait_s_max=5.0)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        DONE.append(("waits", counts.waited_for))
        lease[:] = ["taken over meanwhile"]

    replicas = ReplicaWait(bound, clock=lambda: clock[0], sleep=sleep)
    commit_batch = dataclasses.replace(
        commit_of(tmp_path, lease=lease), replicas=replicas, pressure=Pressure(bound)
    )
    (table,) = commit_batch.tables
    counts, table_id = table.counts, table.table.table_id or ""
    replicas.take(NodeId("b"), [behind(table_id)])
    table.janitor.newest = Progress(
        query_id="Q", commit=table.commit_of(0, 1), sinks={0: 100}, committed_at_ms=1
    )
    with pytest.raises(BatchFailed, match="taken over meanwhile"):
        commit_batch(cast(Any, None), 1)
    assert DONE[0] == ("waits", "the replica of partition 0 on b is 90 records behind")
    assert DONE[-1] == ("lease", None)


def behind(table_id: str) -> ReplicaLag:
    return ReplicaLag(
        table_id=table_id,
        generation=1,
        partition=0,
        position=Offset(10),
        committed_end=Offset(10),
        state=ReplicaState.RUNNING,
        batch=BatchId(0),
    )


class Rows:
    """Of a batch: they can be computed into nothing."""

    def __getattr__(self, name: str) -> Any:
        if name == "save":
            DONE.append(("computed", None))
        return self

    def __call__(self, *_: object) -> Any:
        return self


@pytest.mark.parametrize(
    ("batch", "done"),
    [
        (0, ["lease", "topics", "computed"]),
        (1, ["lease", "topics", "write", "ends", "topics", "bad", "progress", "told"]),
    ],
    ids=["committed before its driver was killed", "the next one"],
)
def test_a_replayed_batch_of_a_stream_is_not_written_twice(
    tmp_path: Path, batch: int, done: list[str]
) -> None:
    """Readers of a stream would have seen its rows twice."""
    commit_batch = commit_of(tmp_path, lease=[])
    stream = msgspec.structs.replace(WANTED.table, kind="STREAM")
    janitor = NoJanitor()
    commit = Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(0), attempt=5)
    janitor.newest = Progress(query_id="Q", commit=commit, sources={"s": {0: 11}})
    table = dataclasses.replace(commit_batch.tables[0], janitor=cast(Janitor, janitor))
    of_stream = dataclasses.replace(table, table=stream)
    again = dataclasses.replace(commit_batch, tables=(of_stream,))
    again(cast(Any, Rows()), batch)
    assert [name for name, _ in DONE] == done
    DONE.clear()
    dataclasses.replace(commit_batch, tables=(table,))(cast(Any, Rows()), 0)
    assert "write" in [name for name, _ in DONE], "rows of a table replace each other"


def test_a_replayed_batch_does_not_replace_what_was_loaded_after_it(tmp_path: Path) -> None:
    """The program died before Spark noted batch 0; a load came; the program starts again."""
    commit_batch = commit_of(tmp_path, lease=[])
    (table,) = commit_batch.tables
    commit = Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(0), attempt=5)
    table.janitor.newest = Progress(
        query_id="Q", commit=commit, sources={"s": {0: 11}}, is_load=True
    )
    commit_batch(cast(Any, Rows()), 0)
    assert [name for name, _ in DONE] == ["lease", "topics", "computed"], "for Spark's state"
    DONE.clear()
    commit_batch(cast(Any, Rows()), 1)
    (progress,) = (what for name, what in DONE if name == "progress")
    assert (progress.is_load, progress.is_first) == (False, None)
    DONE.clear()
    dataclasses.replace(commit_batch, is_load=True)(cast(Any, Rows()), 0)
    (progress,) = (what for name, what in DONE if name == "progress")
    assert (progress.is_load, progress.sources) == (True, {"s": {0: 11}}), "a second load"
    assert progress.is_first is False


@pytest.mark.parametrize(
    ("changed", "done", "why"),
    [
        ([True], ["lease", "topics"], "not a byte goes into a topic that was made anew"),
        (
            [False, True],
            ["lease", "topics", "write", "ends", "topics"],
            "made anew under the batch: nothing that it wrote is committed",
        ),
    ],
)
def test_nothing_is_committed_of_a_topic_that_was_made_anew(
    tmp_path: Path, changed: list[bool], done: list[str], why: str
) -> None:
    commit_batch = commit_of(tmp_path, lease=[], changed=changed)
    with pytest.raises(BatchFailed):
        commit_batch(cast(Any, None), 0)
    assert [name for name, _ in DONE] == done, why
    assert isinstance(commit_batch.tables[0].counts.failure, QueryFailed)


def test_each_call_is_another_attempt(tmp_path: Path) -> None:
    commit_batch = commit_of(tmp_path, lease=[])
    commit_batch(cast(Any, None), 0)
    commit_batch(cast(Any, None), 0)
    first, second = [what for name, what in DONE if name == "write"]
    assert first.batch == second.batch
    assert first.attempt != second.attempt


def test_without_the_lease_nothing_is_written(tmp_path: Path) -> None:
    commit_batch = commit_of(tmp_path, lease=["a newer pipeline"])
    with pytest.raises(BatchFailed, match="a newer pipeline"):
        commit_batch(cast(Any, None), 0)
    assert isinstance(commit_batch.tables[0].counts.failure, Fenced)
    assert [name for name, _ in DONE] == ["lease"]


def test_spark_hears_few_words_of_a_failure(tmp_path: Path) -> None:
    commit_batch = commit_of(tmp_path, lease=["x" * 100_000])
    with pytest.raises(BatchFailed) as caught:
        commit_batch(cast(Any, None), 0)
    assert len(str(caught.value)) < 300
    assert caught.value.__suppress_context__
    assert len(str(commit_batch.tables[0].counts.failure)) == 100_000


def test_a_batch_of_a_group_commits_its_tables_one_after_the_other(tmp_path: Path) -> None:
    """Each under its own lease epoch and with its own delay; nothing is committed before all rows
    are written and every topic is as it was."""
    batch = commit_of(tmp_path, lease=[])
    (first,) = batch.tables
    second = dataclasses.replace(
        first,
        query_id="R",
        lease_epoch=LeaseEpoch(7),
        watermark_delay_ms=4,
        counts=BatchCounts(),
    )
    group = dataclasses.replace(batch, tables=(first, second), numbers=(0, 2))
    group(cast(Any, None), 1)
    steps = ["lease"] * 2 + ["topics"] * 2 + ["write"] * 2 + ["ends"] * 2 + ["topics"] * 2
    assert [name for name, _ in DONE] == [*steps, "bad", *["progress", "told"] * 2]
    one, other = [done for name, done in DONE if name == "progress"]
    assert (one.query_id, other.query_id) == ("Q", "R")
    assert (one.commit.lease_epoch, other.commit.lease_epoch) == (4, 7)
    assert one.commit.attempt == other.commit.attempt
    assert (one.sources, one.sinks) == (other.sources, other.sinks)
    assert [each.counts.batch for each in group.tables] == [1, 1]
    assert group._of_each(["'a'", "'b'"]) == "CASE __TABLE WHEN 0 THEN 'a' WHEN 2 THEN 'b' END"


def test_a_watermark_is_behind_that_of_the_group(tmp_path: Path) -> None:
    batch = commit_of(tmp_path, lease=[])
    late = dataclasses.replace(batch.tables[0], watermark_delay_ms=1)
    later = dataclasses.replace(batch.tables[0], watermark_delay_ms=9)
    dataclasses.replace(batch, tables=(late, later), numbers=(0, 1))(cast(Any, None), 1)
    progress = [done for name, done in DONE if name == "progress"]
    assert [each.watermark_ms for each in progress] == [4, 2], "never below the janitor's"


def test_one_lost_lease_stops_the_whole_group(tmp_path: Path) -> None:
    batch = commit_of(tmp_path, lease=["another pipeline's"])
    (lost,) = batch.tables
    held = dataclasses.replace(lost, query_id="R", check_lease=lambda: None, counts=BatchCounts())
    group = dataclasses.replace(batch, tables=(held, lost), numbers=(0, 1))
    with pytest.raises(BatchFailed):
        group(cast(Any, None), 0)
    assert [name for name, _ in DONE] == ["lease"]
    assert all(isinstance(each.counts.failure, Fenced) for each in group.tables)


def test_a_member_that_is_ahead_is_left_out_of_an_older_batch(tmp_path: Path) -> None:
    """The batch is replayed for the others: its rows are older than those that this one has."""
    batch = commit_of(tmp_path, lease=[])
    (behind,) = batch.tables
    janitor = NoJanitor()
    commit = Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(1), attempt=5)
    janitor.newest = Progress(query_id="R", commit=commit, sources={"s": {0: 21}})
    ahead = dataclasses.replace(
        behind, query_id="R", janitor=cast(Janitor, janitor), counts=BatchCounts(batch=BatchId(1))
    )
    group = dataclasses.replace(batch, tables=(behind, ahead), numbers=(0, 2))
    chosen: list[str] = []

    class GroupRows:
        def where(self, condition: str) -> None:
            chosen.append(condition)

    group(cast(Any, GroupRows()), 0)
    assert chosen == ["__TABLE IN (0)"]
    assert [done.query_id for name, done in DONE if name == "progress"] == ["Q"]
    assert [each.counts.batch for each in group.tables] == [0, 1]
    group(cast(Any, GroupRows()), 1)
    assert [done.query_id for name, done in DONE if name == "progress"] == ["Q", "Q", "R"]
    assert len(chosen) == 1, "its newest batch is replayed, under another attempt"


def in_place_of(batch: Steps, batch_id: int) -> TableCommit:
    """A second table, to which rows were loaded after that batch."""
    janitor = NoJanitor()
    commit = Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(batch_id), attempt=5)
    janitor.newest = Progress(
        query_id="R", commit=commit, sources={"s": {0: 21}}, is_load=True, is_first=False
    )
    return dataclasses.replace(
        batch.tables[0], query_id="R", janitor=cast(Janitor, janitor), counts=BatchCounts()
    )


def test_a_replay_leaves_the_rows_that_were_loaded_into_one_of_its_tables(tmp_path: Path) -> None:
    """Its program was killed before the other table had the batch."""
    batch = commit_of(tmp_path, lease=[])
    both = dataclasses.replace(batch, tables=(*batch.tables, in_place_of(batch, 1)), numbers=(0, 1))
    chosen: list[str] = []

    class GroupRows:
        def where(self, condition: str) -> None:
            chosen.append(condition)

    both(cast(Any, GroupRows()), 1)
    assert chosen == ["__TABLE IN (0)"]
    assert [done.query_id for name, done in DONE if name == "progress"] == ["Q"]


def test_what_a_table_of_several_lacks_is_chosen_from_the_finished_records(tmp_path: Path) -> None:
    """The rows of the batch are not of one table, and are computed once."""
    batch = commit_of(tmp_path, lease=[])
    seen: list[tuple[str, object]] = []

    class Records:
        def where(self, condition: str) -> None:
            seen.append(("chosen", condition))

    def finish(_rows: object, started_ms: int) -> Any:
        seen.append(("finished", started_ms))
        return Records()

    both = dataclasses.replace(
        batch,
        tables=(*batch.tables, in_place_of(batch, 1)),
        numbers=(0, 1),
        finish=finish,
    )
    both(cast(Any, CachedRows()), 1)
    assert seen == [("finished", 6), ("chosen", "__TABLE IN (0)")]
    assert [name for name, _ in DONE].count("cached") == 1
