"""From where several tables of one query go on together, with the progress topic in memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.samples import sample_table

from standpipe.config import registry
from standpipe.data.commit import progress as progress_records
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.model import (
    NO_BATCH,
    BatchId,
    Commit,
    LeaseEpoch,
    PersistentQuery,
    Progress,
    SparkPlan,
)
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.start.query_run import PipelineContext, TakenOver
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark import together
from standpipe.spark.errors import ServeEnded
from standpipe.spark.together import begun_with, committed_by_all, resume_together

PLAN = SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False)


@dataclass
class Log:
    """The progress topic."""

    records: list[Progress] = field(default_factory=list[Progress])
    topic: str = "s_progress"

    def ask_topics(self, names: Sequence[str]) -> Callable[[], dict[str, TopicSeen]]:
        return lambda: {name: TopicSeen(f"id of {name}", 1) for name in names}

    def fence(self, query_id: str, lease_epoch: LeaseEpoch) -> int:
        self.records.append(progress_records.fence(query_id, lease_epoch, nonce=7))
        return len(self.records) - 1

    def records_until(self, offset: int) -> Iterator[Progress]:
        yield from self.records[: offset + 1]


@dataclass
class World:
    """Programs, each under its own lease epoch, and the checkpoint that they share."""

    checkpoints: Path
    log: Log = field(default_factory=Log)
    epoch: int = 0
    gone: set[str] = field(default_factory=set[str])

    def resume(self, *names: str) -> tuple[list[WantedQuery], list[TakenOver], Checkpoint]:
        """A program takes these tables over. Raises as `resume_together` does."""
        members: list[WantedQuery] = []
        for name in names:
            self.epoch += 1
            query = PersistentQuery(
                query_id=name, sink=name, sources=(), statement="", plan=PLAN, is_external=True
            )
            table = sample_table(name=name, query_id=name, table_id=f"{name}_1")
            members.append(
                WantedQuery(query=query, table=table, lease_epoch=LeaseEpoch(self.epoch))
            )
        around = PipelineContext(
            spark=cast(Any, None),
            reads=KafkaReads(kafka="", config=registry.load({})),
            log=cast(ProgressLog, self.log),
            service_id="s_",
            checkpoints=self.checkpoints,
            check_lease=lambda *_: None,
            probe=cast(Any, None),
        )
        return members, *resume_together(members, around, lambda each: each not in self.gone)

    def begin(self, *names: str) -> Program:
        """A program that has taken these tables over. Raises as `resume_together` does."""
        members, _, checkpoint = self.resume(*names)
        return Program(self, members, cast(Path, checkpoint.directory))


@dataclass
class Program:
    world: World
    members: list[WantedQuery]
    directory: Path

    def batches(self, log: str) -> list[int]:
        return sorted(int(path.name) for path in (self.directory / log).glob("[0-9]*"))

    @property
    def next_batch(self) -> int:
        """The one that Spark runs first."""
        return max(self.batches("commits"), default=NO_BATCH) + 1

    def forget(self, before: int) -> None:
        """Spark removes old entries of its logs."""
        for log in ("offsets", "commits"):
            for batch in self.batches(log):
                if batch < before:
                    (self.directory / log / str(batch)).unlink()

    def run(self, batch: int, end: int, *tables: str) -> None:
        """A batch up to `end`, in which these tables are committed: all, or Spark has not noted
        it. It is planned as it was if it was planned before."""
        for log in ("offsets", "commits"):
            (self.directory / log).mkdir(exist_ok=True)
        planned = self.directory / "offsets" / str(batch)
        if not planned.exists():
            planned.write_text(f'v1\n{{"batchTimestampMs":1}}\n{json.dumps({"s": {"0": end}})}')
        for each in self.members:
            if each.query_id in tables:
                commit = Commit(lease_epoch=each.lease_epoch, batch=BatchId(batch), attempt=end)
                self.world.log.records.append(
                    Progress(
                        query_id=each.query_id,
                        commit=commit,
                        sources={"s": {0: end}},
                        sinks={0: end},
                        topic_id=f"id of {each.table.topic}",
                    )
                )
        if len(tables) == len(self.members):
            (self.directory / "commits" / str(batch)).write_text("v1")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_they_begin_with_the_first_batch(world: World) -> None:
    assert world.begin("A", "B").next_batch == 0


@pytest.mark.parametrize("committed", [0, 3], ids=["in the first batch", "in a later one"])
def test_a_batch_that_one_table_lacks_is_replayed(world: World, committed: int) -> None:
    first = world.begin("A", "B")
    for batch in range(committed):
        first.run(batch, batch * 10, "A", "B")
    first.run(committed, 99, "A")  # killed before B
    second = world.begin("A", "B")
    assert second.directory != first.directory
    assert second.next_batch == committed
    assert second.batches("offsets")[-1] == committed, "with the same offsets"
    second.run(committed, 99, "A", "B")
    assert world.begin("A", "B").next_batch == committed + 1


def test_a_table_that_is_added_begins_with_the_next_batch(world: World) -> None:
    first = world.begin("A")
    for batch in range(4):
        first.run(batch, batch * 10, "A")
    second = world.begin("A", "B")
    assert second.next_batch == 4, "the events before are not read again"
    second.run(4, 40)
    third = world.begin("A", "B")
    assert third.next_batch == 4
    third.run(4, 40, "A")  # killed before B, whose first batch this is
    assert world.begin("A", "B").next_batch == 4, "B must have it, too"


def test_a_table_that_is_left_out_does_not_hold_up_the_others(world: World) -> None:
    first = world.begin("A", "B")
    first.run(0, 1, "A", "B")
    second = world.begin("A")
    for batch in (1, 2, 3):
        second.run(batch, batch * 10, "A")
    with pytest.raises(ServeEnded, match=r"APART: A: several .* of B,.* DROP TABLE B;"):
        world.begin("A", "B")
    assert world.begin("A").next_batch == 4, "nothing was rolled back"


def test_who_was_left_out_for_long_is_named_although_spark_has_forgotten_its_batch(
    world: World,
) -> None:
    """Spark keeps what a hundred batches cover: without them, no directory agrees with all."""
    world.begin("A", "B").run(0, 1, "A", "B")
    second = world.begin("A")
    for batch in (1, 2, 3):
        second.run(batch, batch * 10, "A")
    second.forget(2)
    for _ in range(2):  # the first time, the directory of the first program is still there
        with pytest.raises(ServeEnded, match=r"APART: B: left out for .* DROP TABLE B;$"):
            world.begin("A", "B")
        assert world.begin("A").next_batch == 4
    world.begin("A").run(4, 40, "A")
    world.gone = {"B"}
    assert world.begin("A", "C").next_batch == 5


def test_a_new_table_is_not_said_to_be_behind(world: World) -> None:
    world.begin("A", "B").run(0, 1, "A", "B")
    second = world.begin("A")
    for batch in (1, 2, 3):
        second.run(batch, batch * 10, "A")
    with pytest.raises(ServeEnded, match=r"A: several batches ahead of B, .* DROP TABLE B;$"):
        world.begin("A", "B", "C")


def test_which_of_the_tables_are_behind(world: World) -> None:
    """Who is one batch behind is replayed; who is further behind has to go."""
    world.begin("A", "B", "C", "D").run(0, 1, "A", "B", "C", "D")
    second = world.begin("A", "B", "C")
    second.run(1, 10, "A", "B", "C")
    third = world.begin("A", "B")
    for batch in (2, 3, 4, 5):
        third.run(batch, batch * 10, "A", "B")
    third.run(6, 60, "A")  # killed before B
    with pytest.raises(ServeEnded, match=r"A, B: several .* DROP TABLE C; DROP TABLE D;$"):
        world.begin("A", "B", "C", "D")
    assert world.begin("A", "B").next_batch == 6


def test_a_table_that_another_program_has_written_is_named(world: World) -> None:
    world.begin("A").run(0, 1, "A")
    elsewhere = dataclasses.replace(world, checkpoints=world.checkpoints / "other")
    elsewhere.checkpoints.mkdir()
    elsewhere.begin("B").run(0, 99, "B")
    world.epoch = elsewhere.epoch
    with pytest.raises(QueryFailed, match=r"batches of B that .* DROP TABLE B;$"):
        world.begin("A", "B")
    assert world.begin("A").next_batch == 1


def test_without_the_others_a_new_table_begins_where_it_should(world: World) -> None:
    """Nothing is committed of those that are left: an empty directory would begin at the
    beginning of the source."""
    first = world.begin("A")
    for batch in range(4):
        first.run(batch, batch * 10, "A")
    world.begin("A", "B").run(4, 40, "A")  # killed before B, whose first batch this is
    alone = world.begin("B")
    assert (alone.next_batch, alone.batches("offsets")[-1]) == (4, 4)
    alone.run(4, 40, "B")
    assert world.begin("A", "B").next_batch == 5


def test_a_program_that_is_fenced_decides_nothing(world: World) -> None:
    """It goes on to write its own logs, and commits what no reader sees."""
    paused = world.begin("A", "B")
    paused.run(0, 10, "A", "B")
    there = world.begin("A", "B")
    paused.run(1, 15, "A", "B")
    there.run(1, 20, "A", "B")
    last = world.begin("A", "B")
    assert last.next_batch == 2
    assert '"0": 20' in (last.directory / "offsets" / "1").read_text()


def test_one_newer_fence_is_enough(world: World) -> None:
    world.log.fence("B", LeaseEpoch(9))
    with pytest.raises(Fenced, match="under lease epoch 9"):
        world.begin("A", "B")


def test_a_checkpoint_is_of_one_query(world: World) -> None:
    world.begin("A", "B").run(0, 1, "A", "B")
    with pytest.raises(QueryFailed, match=r"CHECKPOINT_MISMATCH.* which A, B write"):
        world.begin("C", "D")
    assert world.begin("A", "B").next_batch == 1
    world.gone = {"A", "B"}
    assert world.begin("C", "D").next_batch == 0, "they were dropped"


def test_without_the_batch_of_a_table_it_is_lost(world: World) -> None:
    first = world.begin("A", "B")
    first.run(0, 1, "A", "B")
    for path in first.directory.parent.glob("epoch-*"):
        path.rename(path.with_name(f"lost-{path.name}"))
    with pytest.raises(QueryFailed, match="CHECKPOINT_LOST"):
        world.begin("A", "B")


def test_a_file_that_cannot_be_read_ends_it(world: World) -> None:
    first = world.begin("A", "B")
    first.run(0, 1, "A", "B")
    (first.directory / together.MEMBERS_FILE).write_text("{")
    with pytest.raises(QueryFailed, match="CHECKPOINT_DAMAGED"):
        world.begin("A", "B")


def at(batch: int) -> Progress:
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=1)
    return Progress(query_id="Q", commit=commit)


@pytest.mark.parametrize(
    ("newest", "begun", "batch", "why"),
    [
        ({"A": None, "B": None}, {}, NO_BATCH, "nothing is committed"),
        ({"A": at(4), "B": at(4)}, {"A": 0, "B": 0}, 4, "all have it"),
        ({"A": at(4), "B": at(3)}, {"A": 0, "B": 0}, 3, "B is behind"),
        ({"A": at(4), "B": None}, {"A": 0}, 4, "B is new"),
        ({"A": at(4), "B": None}, {"A": 0, "B": 4}, 3, "B began with 4, and was killed"),
        ({"A": at(0), "B": None}, {"A": 0, "B": 0}, NO_BATCH, "so it was in the first batch"),
    ],
)
def test_the_batch_that_all_have(
    newest: dict[str, Progress | None], begun: dict[str, int], batch: int, why: str
) -> None:
    assert committed_by_all(newest, begun) == batch, why


def test_who_is_new_begins_with_the_next_batch() -> None:
    newest = {"A": at(4), "B": None, "C": None, "D": at(4)}
    assert begun_with(newest, {"A": 2, "C": 3, "X": 0}, 5) == {"A": 2, "B": 5, "C": 3, "D": 0}
