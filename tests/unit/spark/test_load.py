"""The order of a load's steps and what each failure leaves, with the topics in memory; no Spark.

On Spark and Kafka: tests/e2e/test_load_table.py; which row of a key counts:
tests/e2e/test_frame_rows_on_spark.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.samples import sample_table
from tests.unit.data.rows import commit

from standpipe.config import registry
from standpipe.data.commit import progress as progress_records
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.repair import SweptRecord
from standpipe.data.commit.takeover import streamed
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.errors import KafkaUnavailable
from standpipe.model import Commit, LeaseEpoch, PersistentQuery, Progress, SparkPlan
from standpipe.pipeline.commit import janitor as janitors
from standpipe.pipeline.commit.batch import CommitBatch
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import LeftOut, Written
from standpipe.pipeline.run.start.query_run import PipelineContext
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark import load
from standpipe.spark.errors import ServeEnded, ServeRefused
from standpipe.spark.load import LoadedBatch, load_rows

TABLE = sample_table(query_id="Q", table_id="T_1")
PLAN = SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False)
QUERY = PersistentQuery(
    query_id="Q", sink="T", sources=(), statement="", plan=PLAN, is_external=True
)
Row = tuple[bytes, bytes | None]


@dataclass
class Topics:
    """The progress topic and the table's topic. `at_append`: what happens before a commit."""

    progress: list[Progress] = field(default_factory=list[Progress])
    rows: list[SweptRecord] = field(default_factory=list[SweptRecord])
    at_append: Callable[[], None] = field(default=lambda: None)
    topic: str = "default__progress"

    # ----------------------------------------------------------------- as ProgressLog does it

    def ask_topics(self, names: Sequence[str]) -> Callable[[], dict[str, TopicSeen]]:
        return lambda: {name: TopicSeen(f"id of {name}", 1) for name in names}

    def fence(self, query_id: str, lease_epoch: LeaseEpoch) -> int:
        self.progress.append(progress_records.fence(query_id, lease_epoch, nonce=7))
        return len(self.progress) - 1

    def records_until(self, offset: int) -> Iterator[Progress]:
        yield from self.progress[: offset + 1]

    def message_bytes_max(self, _topic: str) -> int | None:
        return None

    def end_offsets(self, topic: str, _partitions: int) -> dict[int, int]:
        assert topic != self.topic, "a broker may answer less than what was appended"
        return {0: len(self.rows)}

    def end(self) -> int:
        return len(self.progress)

    def append(self, progress: Progress) -> int:
        self.at_append()
        self.progress.append(progress)
        return len(self.progress) - 1

    def write_rows(self, _topic: str, _partition: int, rows: Sequence[Any]) -> None:
        for key, value, headers in rows:
            self.write_row((key, value), headers)

    # --------------------------------------------------------------------------- as programs do

    def write_row(self, row: Row, headers: Sequence[tuple[str, bytes | None]]) -> None:
        place = len(self.rows)
        self.rows.append(SweptRecord(place, *row, headers, time.time_ns() // 1_000_000))

    def write(self, rows: Sequence[Row], by: Commit) -> None:
        for row in rows:
            self.write_row(row, [(HEADER_COMMIT, commit_header(by))])

    def commit(self, by: Commit, **changes: Any) -> None:
        self.progress.append(
            Progress(query_id="Q", commit=by, sinks={0: len(self.rows)}, **changes)
        )

    def shown(self) -> dict[bytes, bytes]:
        """What a replica shows that has read all of it."""
        committed, found = Committed("Q"), dict[bytes, bytes | None]()
        for record in self.progress:
            committed.take(record)
        for row in self.rows:
            if committed.shows(0, row.offset, row.headers or ()) and row.key is not None:
                found[row.key] = row.value
        return {key: value for key, value in found.items() if value is not None}

    def by_order(self) -> dict[bytes, bytes | None]:
        """What compaction leaves."""
        return {row.key: row.value for row in self.rows if row.key is not None}


@dataclass
class Reader:
    """Of the table's topic, as a janitor reads it."""

    topics: Topics
    position: int = 0

    def poll(self, _wait_s: float) -> list[tuple[int, list[SweptRecord], int]]:
        found, self.position = self.topics.rows[self.position :], len(self.topics.rows)
        return [(0, found, self.position)]

    def close(self) -> None: ...


@dataclass
class World:
    topics: Topics
    epoch: int = 2
    why_over: str = ""
    left_out: LeftOut = field(default_factory=LeftOut)
    error: Exception | None = None
    rows: Sequence[Row] = ((b"ada", b"2"), (b"eve", b"2"))

    def load(self) -> LoadedBatch:
        wanted = WantedQuery(query=QUERY, table=TABLE, lease_epoch=LeaseEpoch(self.epoch))
        around = PipelineContext(
            spark=cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(master="local"))),
            reads=KafkaReads(kafka="", config=registry.load({})),
            log=cast(ProgressLog, self.topics),
            service_id="default_",
            checkpoints=Path(),
            check_lease=self.check_lease,
            probe=cast(Any, None),
        )
        return load_rows(cast(Any, None), wanted, around)

    def check_lease(self, *_: object) -> None:
        if self.why_over:
            raise Fenced(self.why_over)

    def write(self, commits: Sequence[Commit]) -> Written:
        (by,) = commits
        self.topics.write(self.rows, by)
        if self.error is not None:
            raise self.error
        return Written(left_out=self.left_out)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    topics = Topics()
    world = World(topics)
    monkeypatch.setattr(CommitBatch, "_write", lambda _self, _rows, commits: world.write(commits))
    monkeypatch.setattr(janitors, "TopicReader", lambda *_: Reader(topics))
    monkeypatch.setattr(janitors, "read_once", lambda _k, _t, _p, end: iter([topics.rows[:end]]))
    monkeypatch.setattr(janitors, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(janitors, "REPAIR_EVERY_S", 0.01)
    monkeypatch.setattr(janitors, "REPAIR_AFTER_MS", 0)
    monkeypatch.setattr(load, "POLL_S", 0.01)
    return world


SERVED = {"sources": {"s": {0: 9}}, "topic_id": "id of T", "source_instant_ms": 5}


def serve(topics: Topics, batch: int = 0) -> None:
    """A program has committed rows, and is gone."""
    topics.write([(b"ada", b"1"), (b"bob", b"1")], commit(1, batch))
    topics.commit(commit(1, batch), watermark_ms=3, batch_started_ms=4, **SERVED)


def test_a_load_of_a_new_table_is_its_first_batch(world: World) -> None:
    loaded = world.load()
    assert (loaded.lease_epoch, loaded.batch) == (2, 0)
    fence, written, declared = world.topics.progress
    assert progress_records.is_fence(fence)
    assert (written.is_load, written.is_first, written.sinks) == (True, True, {0: 2})
    assert written.sources == {}
    assert written.batch_started_ms > 0, "nothing in it is older (`since_ms`)"
    assert declared.clean_through == {0: 2}, "a replica may trust the topic from now on"
    assert world.topics.shown() == {b"ada": b"2", b"eve": b"2"}


def test_a_load_adds_to_the_newest_batch(world: World) -> None:
    serve(world.topics, batch=0)
    serve(world.topics, batch=1)
    loaded = world.load()
    assert (loaded.lease_epoch, loaded.batch) == (2, 1)
    written = next(each for each in world.topics.progress if each.is_load)
    assert not written.is_first
    assert written.sources == SERVED["sources"], "the checkpoint of its program is still right"
    assert (written.source_instant_ms, written.watermark_ms, written.batch_started_ms) == (5, 3, 4)
    assert world.topics.shown() == {b"ada": b"2", b"bob": b"1", b"eve": b"2"}


def test_a_load_after_a_batch_without_a_topic_says_that_it_is_not_the_first(world: World) -> None:
    """A topic pattern may match no topic yet. The program's next start would take the load for one
    from before any batch, run batch 0 from the beginning, and replace its rows."""
    world.topics.commit(commit(1, 0), topic_id="id of T")
    world.load()
    world.epoch = 3
    world.load()
    loads = [each for each in world.topics.progress if each.is_load]
    assert {each.commit.lease_epoch for each in loads} == {2, 3}
    assert {each.is_first for each in loads} == {False}, "nor what declares the topic clean"
    newest = world.topics.progress[-1]
    assert not newest.sources
    assert streamed(newest) is newest, "its checkpoint has batch 0"


def test_run_twice_it_gives_the_same_rows(world: World) -> None:
    serve(world.topics)
    world.load()
    once = world.topics.shown()
    world.epoch = 3
    assert world.load().lease_epoch == 3
    assert world.topics.shown() == once


def test_a_load_that_was_killed_is_not_seen_and_the_next_one_counts(world: World) -> None:
    serve(world.topics)
    world.topics.write([(b"bob", b"66"), (b"new", b"66")], commit(2, 0, attempt=5))
    world.epoch = 3
    world.load()
    assert world.topics.shown() == {b"ada": b"2", b"bob": b"1", b"eve": b"2"}
    assert world.topics.by_order() == {**world.topics.shown(), b"new": None}, "and is repaired"


def test_paused_until_another_program_had_taken_over(world: World) -> None:
    serve(world.topics)
    zombies: list[None] = []

    def take_over() -> None:
        if not zombies:
            zombies.append(None)
            world.topics.fence("Q", LeaseEpoch(3))

    world.topics.at_append = take_over
    with pytest.raises(Fenced, match="no reader sees these rows"):
        world.load()
    assert world.topics.shown() == {b"ada": b"1", b"bob": b"1"}


def test_paused_until_its_record_was_removed(world: World) -> None:
    """Then nobody can tell whether it counted, and it must not say that no reader sees its rows."""
    serve(world.topics)

    def removed(progress: Progress) -> int:
        del progress
        return len(world.topics.progress) - 1

    world.topics.append = removed  # type: ignore[method-assign]
    with pytest.raises(ServeEnded, match=r"FAILED: .* its rows may be visible, or not"):
        world.load()


@pytest.mark.parametrize("at", ["before", "while it writes"])
def test_without_the_lease_it_commits_nothing(world: World, at: str) -> None:
    serve(world.topics)
    if at == "before":
        world.why_over = "Q was paused"
    else:
        real = world.write

        def write(commits: Sequence[Commit]) -> Written:
            world.why_over = "Q was paused"
            return real(commits)

        world.write = write  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="Q was paused"):
        world.load()
    assert not any(each.is_load for each in world.topics.progress)
    assert world.topics.shown() == {b"ada": b"1", b"bob": b"1"}


@pytest.mark.parametrize(
    ("error", "left_out", "raised", "words"),
    [
        (OSError("No space left on device"), 0, OSError, "No space left"),
        (None, 2, ServeRefused, "2 rows are larger than their topic accepts"),
    ],
    ids=["the disk of an executor is full", "rows are too large"],
)
def test_what_fails_leaves_the_topic_as_it_was(
    world: World, error: Exception | None, left_out: int, raised: type[Exception], words: str
) -> None:
    serve(world.topics)
    world.error, world.left_out = error, LeftOut(count=left_out)
    with pytest.raises(raised, match=words):
        world.load()
    assert world.topics.shown() == {b"ada": b"1", b"bob": b"1"}
    assert world.topics.by_order() == {**world.topics.shown(), b"eve": None}
    newest = world.topics.progress[-1]
    assert newest.clean_through == {0: len(world.topics.rows)}


def test_what_kafka_has_not_answered_is_left_to_the_next_program(world: World) -> None:
    """It may have the progress record: then a repair would take committed rows for foreign ones."""
    serve(world.topics)

    def fail() -> None:
        raise KafkaUnavailable("Kafka: no answer")

    world.topics.at_append = fail
    before = len(world.topics.progress)
    with pytest.raises(ServeEnded, match=r"FAILED: Kafka: no answer: .* or not; load again"):
        world.load()
    assert len(world.topics.progress) == before + 1, "its fence, and no repair"


def test_a_table_without_rows_needs_no_repair(world: World) -> None:
    world.error = OSError("No space left on device")
    with pytest.raises(OSError, match="No space left"):
        world.load()
    assert all(map(progress_records.is_fence, world.topics.progress))
    world.error, world.epoch = None, 3
    world.load()
    assert world.topics.shown() == {b"ada": b"2", b"eve": b"2"}


def test_a_load_over_a_load_that_came_before_any_batch(world: World) -> None:
    world.load()
    world.epoch, world.rows = 3, [(b"ada", None), (b"bob", b"3")]
    world.load()
    assert world.topics.shown() == {b"bob": b"3", b"eve": b"2"}
    assert not any(each.sources for each in world.topics.progress)
    assert world.topics.progress[-1].is_load
    assert world.topics.progress[-1].is_first, "the first batch of a stream is still to come"
