"""Kafka is asked for what is open, and for nothing else. Its answers come when the test says."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from tests.unit.node.workers import USERS

from standpipe.adapters.kafka.ends import Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.control.liveness.lag import Reporter
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId, NodeId, Offset, ReplicaState
from standpipe.model_liveness import ReplicaLag
from standpipe.node.liveness.end_watch import EndWatch

B = NodeId("b")


class Kafka(EndsReader):
    """Keeps the questions; the test answers the newest."""

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[set[Partition]] = []
        self.answer: Future[Ends] = Future()

    def ask(self, partitions: Iterable[Partition]) -> Future[Ends]:
        self.asked.append(set(partitions))
        self.answer = Future()
        return self.answer


class Hands:
    now_ms = 1000

    def boot_ms(self) -> int:
        return self.now_ms


class World:
    def __init__(self) -> None:
        self.kafka, self.clock = Kafka(), Hands()
        self.catalog: Catalog = msgspec.structs.replace(EMPTY, sources={"USERS": USERS})
        clock: Any = self.clock
        self.watch = EndWatch("", lambda: self.catalog, clock, self.kafka)
        self.watch.ledger.members({B: "x"})
        self._reporter = Reporter(1)

    def told(self, end: int, table: str = "T1") -> None:
        lag = ReplicaLag(
            table_id=table,
            generation=1,
            partition=2,
            position=Offset(end),
            committed_end=Offset(end),
            state=ReplicaState.RUNNING,
            batch=BatchId(1),
        )
        self._reporter.observe([lag])
        self.watch.ledger.take(B, "x", self._reporter.full(), self.clock.now_ms)
        self.pass_ms(1)

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.watch.look()

    def ends(self) -> list[int]:
        return [known.lag.committed_end for known in self.watch.ledger.known()]


HERE = Partition("USERS", 2)


def test_it_asks_while_something_is_open_and_one_question_at_a_time() -> None:
    world = World()
    world.pass_ms(250)
    assert world.kafka.asked == [], "nothing was reported"
    world.told(100)
    world.pass_ms(250)
    assert world.kafka.asked == [{HERE}], "the first is not answered yet"
    world.kafka.answer.set_result({HERE: 120})
    world.pass_ms(250)
    world.told(120)
    world.pass_ms(250)
    assert world.kafka.asked == [{HERE}], "all of it is within the end"
    world.told(130)
    assert world.kafka.asked == [{HERE}] * 2
    assert world.ends() == [120]
    world.kafka.answer.set_result({HERE: 140})
    world.pass_ms(250)
    assert world.ends() == [130]


@pytest.mark.parametrize("table", ["T9", ""])
def test_a_replica_of_no_table_is_not_asked_for(table: str) -> None:
    world = World()
    world.told(100, table)
    world.pass_ms(250)
    assert world.kafka.asked == []


def test_what_is_refused_is_logged_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.told(10**12)
    world.kafka.answer.set_result({HERE: 120})
    world.pass_ms(250)
    assert world.ends() == []
    said = capsys.readouterr().out
    assert "lag report refused" in said
    for fact in ("peer=b", "reported_end=1000000000000", "kafka_end=120", "next_step="):
        assert fact in said


def test_kafka_that_fails_or_does_not_know_the_topic(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.told(100)
    world.kafka.answer.set_result({HERE: 120})
    world.pass_ms(250)
    world.told(200)
    for _ in range(30):
        if not world.kafka.answer.done():
            world.kafka.answer.set_exception(KafkaUnavailable("down"))
        world.pass_ms(250)
    assert world.ends() == [200], "given up: reports are believed as they come"
    assert "not checked" in capsys.readouterr().out
    world.kafka.answer.set_result({HERE: None})
    world.pass_ms(250)
    assert world.ends() == [200]
    assert not world.kafka.answer.done(), "it is asked for again, until it is there"


def test_a_node_without_kafka_believes_what_it_hears() -> None:
    world = World()
    world.watch = EndWatch("", lambda: world.catalog, world.watch._clock)
    world.watch.ledger.members({B: "x"})
    world.told(10**12)
    assert world.ends() == [10**12]
