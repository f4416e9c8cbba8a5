"""Who may tell Kafka what: a leader that was replaced may not, whatever it had begun.

Kafka itself is a dictionary here, and slow where a test says so; the real one is met in
tests/e2e/test_control_kafka.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from tests.unit.node.in_process import STREAM, Control, body_of, configs_of, control, run

from standpipe.adapters.kafka.admin import KafkaAdmin, TopicKeeper
from standpipe.control.metadata.topic_reconciler import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    KafkaOrder,
    ObservedTopic,
)
from standpipe.node.configuration import NodeConfig
from standpipe.node.controller import main

DROP = "DROP STREAM S DELETE TOPIC;"


@dataclass
class Broker:
    """All topics: name -> which making of that name it is, from 1."""

    topics: dict[str, int] = field(default_factory=dict[str, int])
    made: int = 0
    orders: list[tuple[str, KafkaOrder]] = field(default_factory=list[tuple[str, KafkaOrder]])
    #: node whose next look at topics takes until `go` is set
    slow: str = ""
    is_looking: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class Admin(KafkaAdmin):
    """One node's client of the broker."""

    def __init__(self, broker: Broker, node: str) -> None:
        super().__init__("")
        self._broker = broker
        self._node = node

    def partition_counts(self) -> dict[str, int]:
        return dict.fromkeys(self._broker.topics, 2)

    def observe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        counts = self.partition_counts()
        found = {name: ObservedTopic(counts[name], {}) for name in names if name in counts}
        if self._broker.slow == self._node:
            self._broker.slow = ""
            self._broker.is_looking.set()
            assert self._broker.go.wait(50)
        return found

    def carry_out(self, order: KafkaOrder) -> None:
        self._broker.orders.append((self._node, order))
        match order:
            case CreateTopic() if order.name not in self._broker.topics:
                self._broker.made += 1
                self._broker.topics[order.name] = self._broker.made
            case DeleteTopic():
                self._broker.topics.pop(order.name, None)
            case CreateTopic() | ConfigureTopic():
                pass


def keepers_of(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def keeper(config: NodeConfig) -> TopicKeeper:
        made = TopicKeeper("", config.service_id)
        made.admin = Admin(broker, config.node_id)
        return made

    monkeypatch.setattr(main, "topics_of", keeper)


async def leader_of(nodes: list[Control]) -> Control:
    async with asyncio.timeout(30):
        while True:
            for node in nodes:
                if node.quorum.leading is not None:
                    return node
            await asyncio.sleep(0.01)


def test_a_deposed_leader_deletes_no_topic_that_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen the topic and is about to delete it; Kafka takes its time. Meanwhile its
    successor deletes it, and a statement makes a new one under the name."""
    broker = Broker()
    keepers_of(broker, monkeypatch)

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a", "b", "c")) as nodes:
            old = await leader_of(nodes)
            left = [node for node in nodes if node is not old]
            body_of(await old.execute(STREAM, "r1"))
            await old.until(lambda: "s" in broker.topics)
            broker.slow = old.config.node_id
            drop = asyncio.create_task(old.execute(DROP, "r2"))
            await asyncio.to_thread(broker.is_looking.wait, 30)
            heir = left[0].config.node_id
            await left[1].post("/quorum/transfer", {"node_id": heir})
            await left[0].until(lambda: "s" not in broker.topics)
            await left[0].until(lambda: not left[0].copy.catalog.doomed_topics)
            assert (await left[0].execute(STREAM, "r3")).status == 200
            await left[0].until(lambda: "s" in broker.topics)
            making, told = broker.topics["s"], len(broker.orders)
            broker.go.set()
            await drop
            assert (await left[0].execute(STREAM, "r3")).status == 200
            await asyncio.sleep(0.2)
            assert broker.topics["s"] == making
            assert [node for node, _ in broker.orders[told:]] == [], "not even tried"

    try:
        run(story)
    finally:
        broker.go.set()


def test_a_topic_that_is_dropped_and_wanted_again_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    keepers_of(broker, monkeypatch)

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            for number, sql in enumerate([STREAM, DROP, STREAM]):
                answer = msgspec.json.decode((await node.execute(sql, f"r{number}")).body)
                assert "error_code" not in answer, answer
            await node.until(lambda: not node.copy.catalog.doomed_topics)
            await node.until(lambda: "s" in broker.topics)
            making = [order for _, order in broker.orders if getattr(order, "name", "") == "s"]
            kinds = [type(order) for order in making]
            assert kinds == [CreateTopic, DeleteTopic, CreateTopic]

    run(story)
