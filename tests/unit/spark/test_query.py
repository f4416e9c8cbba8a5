"""What ends a served query, and what it then says: with a node in memory and no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from tests.samples import sample_table
from tests.unit.pipeline.fake_node import SECRET, FakeNode
from tests.unit.pipeline.queries_of import commands_of

from standpipe.control.metadata.commands import (
    Command,
    DropSource,
    EndPipelines,
    SetQueryState,
    StartPipeline,
)
from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch, PersistentQuery
from standpipe.pipeline.commit.batch import BatchCounts, PlannedOtherwise
from standpipe.pipeline.commit.fence_watch import FenceSeen
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.run.control_client import Follower
from standpipe.pipeline.run.reconcile import external_query
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark import query
from standpipe.spark.errors import ServeEnded
from standpipe.spark.held import HeldLease
from standpipe.spark.query import ServedQuery, Serving

DECLARED = """
CREATE TABLE X (ID STRING PRIMARY KEY, V INT)
    WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL');
"""
X = "EXTERNAL_X_1"
BESIDE = DECLARED.replace(" X ", " Y ").replace("'x'", "'y'")
Y = "EXTERNAL_Y_2"


class FakeFences:
    """Of a progress topic in which somebody may have written a fence."""

    seen: FenceSeen | None = None
    failure: Exception | None = None

    def newest(self, query_id: str) -> FenceSeen | None:
        return self.seen if query_id == X else None

    def stop(self) -> None:
        pass


@dataclass
class FakeRun:
    """A streaming query of Spark, as far as it is looked at. It has no table of its own."""

    is_active: bool = True
    error: Exception | None = None
    counts: BatchCounts = field(default_factory=BatchCounts)
    tables: dict[str, Any] = field(default_factory=dict[str, Any])
    stops: int = 0

    @property
    def streaming_query(self) -> FakeRun:
        return self

    def exception(self) -> Exception | None:
        return self.error

    def ends(self, seen: Exception | None, failure: Exception | None = None) -> None:
        """Spark ends it; `failure`: what its last batch raised."""
        self.error, self.counts.failure, self.is_active = seen, failure, False

    def named(self, error: Exception) -> Exception:
        return error

    def look(self) -> bool:
        return True

    def stop(self) -> None:
        self.stops += 1


@dataclass
class World:
    node: FakeNode
    serving: Serving
    run: FakeRun
    fences: FakeFences

    def logs(self, *commands: Command) -> None:
        for command in commands:
            self.node.log(command)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def held(node: FakeNode, query_id: str, pipeline_id: str) -> HeldLease:
    follower = Follower([node.address], SECRET, list, query_id, is_external=True)
    follower.start()
    me = follower.register(pipeline_id, is_over=lambda: False)
    assert me is not None
    eventually(lambda: external_query(follower.catalog, query_id, me))
    wanted = external_query(follower.catalog, query_id, me)
    assert wanted is not None
    return HeldLease(follower, me, wanted)


@contextmanager
def running(*leases: HeldLease, node: FakeNode) -> Generator[World]:
    fences, run = FakeFences(), FakeRun()
    serving = Serving(leases, cast(Any, fences))
    serving.begin(cast(Any, run))
    yield World(node, serving, run, fences)
    serving.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An application that holds the lease and runs."""
    monkeypatch.setattr(query, "EXPLAIN_S_MAX", 1.0)
    with FakeNode() as node:
        for created in commands_of(DECLARED):
            node.log(created)
        with running(held(node, X, "a"), node=node) as found:
            yield found


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """One that holds the leases of two tables."""
    monkeypatch.setattr(query, "EXPLAIN_S_MAX", 1.0)
    with FakeNode() as node:
        for created in commands_of(DECLARED + BESIDE):
            node.log(created)
        with running(held(node, X, "a"), held(node, Y, "a2"), node=node) as found:
            yield found


def test_a_start_that_is_interrupted_gives_the_lease_back(world: World) -> None:
    # Ctrl-C in a notebook: its process lives on, and a thread renewed the lease
    assert not any(isinstance(each, EndPipelines) for each in world.node.commands)
    world.serving.abandon()
    assert any(isinstance(each, EndPipelines) for each in world.node.commands)


def test_what_spark_still_runs_commits_nothing_once_the_lease_is_given_back(world: World) -> None:
    # Ctrl-C while Spark starts it: its connection to the nodes is closed, and learns of nothing
    world.serving.abandon()
    with pytest.raises(Fenced, match="given its leases back"):
        world.serving.check_lease()


def test_a_start_that_fails_gives_all_leases_back_although_one_connection_has_failed() -> None:
    with FakeNode() as node:
        for created in commands_of(DECLARED + BESIDE):
            node.log(created)
        leases = [held(node, X, "a"), held(node, Y, "a2")]
        leases[0].follower._fail(ValueError("a command of a newer release"))
        serving = Serving(leases, cast(Any, FakeFences()))
        ended = serving.fail(ZeroDivisionError("of a function"))
        assert str(ended) == "FAILED: ZeroDivisionError: of a function"
        assert node.catalog().pipelines == {}


def test_leases_are_given_back_together() -> None:
    """Nodes that do not answer cost seconds for each."""
    said: list[str] = []

    @dataclass
    class Connection:
        name: str

        def begin_to_close(self) -> None:
            said.append(f"begin {self.name}")

        def close(self) -> None:
            said.append(f"wait {self.name}")

    wanted = WantedQuery(
        query=PersistentQuery(query_id=X, sink="X", sources=(), statement="", plan=cast(Any, None)),
        table=sample_table(),
        lease_epoch=LeaseEpoch(1),
    )
    leases = [HeldLease(cast(Any, Connection(name)), cast(Any, None), wanted) for name in "XY"]
    Serving(leases, cast(Any, FakeFences())).abandon()
    assert said == ["begin X", "begin Y", "wait X", "wait Y"]


OTHER = StartPipeline(pipeline_id="b", version=3, isolates=X)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([DropSource(name="X")], "DROPPED"),
        ([SetQueryState(query_ids=(X,), state="PAUSED")], "PAUSED"),
        ([OTHER, EndPipelines(pipeline_ids=("a",))], "FENCED"),
    ],
)
def test_the_catalog_ends_it_without_a_batch(
    world: World, commands: list[Command], reason: str
) -> None:
    world.logs(*commands)
    world.serving.settle()
    assert world.serving.ended is not None
    assert (world.serving.ended.reason, world.run.stops) == (reason, 1)
    assert "a" not in world.node.catalog().pipelines, "it has given its lease back"
    with pytest.raises(Fenced):
        world.serving.check_lease()


OTHER_OF_Y = StartPipeline(pipeline_id="b", version=3, isolates=Y)


@pytest.mark.parametrize(
    ("commands", "reason", "words"),
    [
        ([DropSource(name="Y")], "DROPPED", "Y was dropped"),
        ([SetQueryState(query_ids=(Y,), state="PAUSED")], "PAUSED", Y),
        ([OTHER_OF_Y, EndPipelines(pipeline_ids=("a2",))], "FENCED", "the lease of Y"),
    ],
)
def test_what_ends_one_of_its_tables_ends_it(
    both: World, commands: list[Command], reason: str, words: str
) -> None:
    both.logs(*commands)
    both.serving.settle()
    assert both.serving.ended is not None
    assert (both.serving.ended.reason, both.run.stops) == (reason, 1)
    assert words in both.serving.ended.message
    assert not {"a", "a2"} & both.node.catalog().pipelines.keys(), "both leases are given back"
    with pytest.raises(Fenced):
        both.serving.check_lease(X, both.serving.members[0].lease_epoch)


def test_no_thread_stays_once_it_is_stopped(both: World) -> None:
    names = {each.name for each in threading.enumerate()}
    assert {"serve X, Y", "follow"} <= names
    both.serving.close()
    left = {each.name for each in threading.enumerate()}
    assert not {"serve X, Y", "follow"} & left


def test_each_lease_reports_its_own_table(both: World) -> None:
    both.serving.entry.run = None  # the run of this test has no tables
    for query_id, pipeline_id in ((X, "a"), (Y, "a2")):
        (status,) = both.serving.statuses(query_id)
        assert (status.query_id, status.pipeline_id) == (query_id, pipeline_id)
        assert status.lease_epoch == both.node.catalog().leases[query_id].lease_epoch


def test_a_standby_changes_nothing(world: World) -> None:
    world.logs(OTHER)
    eventually(lambda: "b" in world.serving.leases[0].follower.catalog.pipelines)
    world.serving.check_lease()
    assert (world.serving.ended, world.run.stops) == (None, 0)
    world.serving.close()
    assert (world.serving.ended, world.run.stops) == (None, 1), "stopped by the program"
    eventually(lambda: world.node.catalog().leases[X].pipeline_id == "b")


@pytest.mark.parametrize(
    ("seen", "failure", "reason", "words"),
    [
        (None, None, None, "its trigger was for what was there"),
        (ValueError("brief"), ZeroDivisionError("of a UDF"), "FAILED", "ZeroDivisionError: of a"),
        (ValueError("a plan"), None, "FAILED", "ValueError: a plan"),
        (ValueError("brief"), QueryFailed("TOPIC_CHANGED", "x is new"), "TOPIC_CHANGED", "x is"),
        (ValueError("KAFKA_DATA_LOSS at 7"), None, "DATA_LOSS", "KAFKA_DATA_LOSS at 7"),
        (None, ValueError("interrupted"), None, "a batch that was aborted is no failure"),
    ],
)
def test_spark_ends_it(
    world: World,
    seen: Exception | None,
    failure: Exception | None,
    reason: str | None,
    words: str,
) -> None:
    world.run.ends(seen, failure)
    world.serving.settle()
    ended = world.serving.ended
    assert (ended and ended.reason) == reason, words
    assert ended is None or words in ended.message
    assert world.node.catalog().pipelines == {}


def test_a_failure_that_a_drop_explains_is_named_after_it(world: World) -> None:
    """The topic is gone before this process has read of the DROP."""
    world.node.is_mute = True
    world.run.ends(ValueError("brief"), QueryFailed("TOPIC_CHANGED", "x was deleted"))
    world.node.log(DropSource(name="X"))
    world.node.is_mute = False
    world.serving.settle()
    assert world.serving.ended is not None
    assert world.serving.ended.reason == "DROPPED"


def test_a_fence_that_no_lease_explains_ends_it(world: World) -> None:
    world.fences.seen = FenceSeen(LeaseEpoch(99), time.monotonic())
    world.serving.settle()
    assert isinstance(world.serving.ended, ServeEnded)
    assert world.serving.ended.reason == "FOREIGN_FENCE"
    assert "lease epoch 99" in world.serving.ended.message


def test_it_ends_if_nobody_would_notice_such_a_fence(world: World) -> None:
    """As once the application may no longer read the progress topic."""
    world.fences.failure = KafkaUnavailable("User:app is not authorised to Read the topic p")
    world.serving.settle()
    assert world.serving.ended is not None
    assert "not authorised to Read the topic p" in world.serving.ended.message
    assert world.serving.ended.__cause__ is world.fences.failure
    assert world.run.stops == 1


def test_a_batch_that_is_planned_otherwise_says_what_to_do(world: World) -> None:
    world.run.ends(ValueError("brief"), PlannedOtherwise("batch 6 was committed before"))
    world.serving.settle()
    assert world.serving.ended is not None
    assert world.serving.ended.reason == "FAILED"
    assert "batch 6 was committed before: start the program again" in world.serving.ended.message


def test_the_error_of_a_users_code_is_the_cause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback names the line; Spark is told briefly."""
    error = ZeroDivisionError("of a function")
    world.run.ends(ValueError("brief"), error)
    world.serving.settle()
    assert world.serving.ended is not None
    assert world.serving.ended.__cause__ is error
    served = ServedQuery.__new__(ServedQuery)
    served._serving = world.serving

    def of_spark(*_: object) -> None:
        raise StreamingQueryException("brief")

    monkeypatch.setattr(StreamingQuery, "awaitTermination", of_spark)
    with pytest.raises(ServeEnded, match="of a function") as caught:
        served.awaitTermination()
    assert caught.value.__cause__ is error
