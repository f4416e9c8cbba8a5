"""When a batch goes on: its replicas caught up, its query is stopped, or it has waited enough."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.back_pressure import LagBound, Pressure
from standpipe.model import BatchId, NodeId, Offset, ReplicaState
from standpipe.model_liveness import ReplicaLag
from standpipe.pipeline.commit.replica_wait import ReplicaWait

BOUND = LagBound(records=100, ms=0, wait_s_max=5.0)
(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)


def lag_of(
    position: int, *, table_id: str = WANTED.table.table_id or "", ms: int | None = 0
) -> ReplicaLag:
    return ReplicaLag(
        table_id=table_id,
        generation=WANTED.table.generation,
        partition=0,
        position=Offset(position),
        committed_end=Offset(0),
        state=ReplicaState.RUNNING,
        batch=BatchId(1),
        replica_lag_ms=ms,
    )


class World:
    """A clock that a batch's wait moves, and one replica that `moves`."""

    def __init__(self, moves: Callable[[float], int]) -> None:
        self.now_s, self.moves = 0.0, moves
        self.told: list[str] = []
        self.wait = ReplicaWait(BOUND, clock=lambda: self.now_s, sleep=self.sleep)
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.wait.take(NodeId("b"), [lag_of(self.moves(self.now_s))])

    def batch(self, is_stopped: Callable[[], bool] = lambda: False) -> float:
        """How long a batch waits that begins with 1,000 committed records."""
        began_s = self.now_s
        tables = [(WANTED.table, {0: 1000})]
        self.wait.before_batch(
            Pressure(BOUND), tables, told=self.told.append, is_stopped=is_stopped
        )
        return self.now_s - began_s


def test_a_batch_goes_on_once_the_replica_has_caught_up() -> None:
    world = World(lambda now_s: int(900 + 50 * now_s))
    assert 1.4 < world.batch() < 1.6, "at a quarter of the bound"
    assert "partition 0 on b is 100 records behind" in world.told[0]


def test_a_batch_does_not_wait_for_a_replica_that_keeps_up() -> None:
    assert World(lambda _: 960).batch() == 0.0


def test_a_batch_that_has_waited_enough_goes_on_and_says_so() -> None:
    world = World(lambda now_s: int(10 * now_s))
    assert 5.0 <= world.batch() < 5.1
    assert "behind" in world.told[-1]


def test_a_batch_that_waits_asks_how_far_its_replicas_are() -> None:
    """With reports four times a second, healthy replicas seemed behind, and halved the rate."""
    world, asked = World(lambda _: 0), 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        world.moves = lambda _: 1000

    world.wait.ask = ask
    assert world.batch() < 0.1
    assert asked == 1
    assert world.batch() == 0.0
    assert asked == 1, "nothing to wait for"


def test_of_equals_one_may_never_have_been_at_its_end() -> None:
    """Its lag in ms is unknown: a comparison with it failed the batch of a group."""
    world = World(lambda _: 1000)
    others = [lag_of(1000, table_id="other", ms=None), lag_of(1000)]
    world.wait.take(NodeId("b"), others)
    tables = [(WANTED.table, {0: 1000}), (replace(WANTED.table, table_id="other"), {0: 1000})]
    world.wait.before_batch(
        Pressure(BOUND), tables, told=world.told.append, is_stopped=lambda: False
    )
    assert world.told == []


def test_a_query_that_is_stopped_does_not_wait() -> None:
    world = World(lambda _: 0)
    assert world.batch(lambda: world.now_s >= 1.0) < 1.1
