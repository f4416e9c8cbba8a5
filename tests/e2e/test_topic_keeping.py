"""Topics while Kafka is slow, refuses one of them, or has them made by somebody else. A real Kafka,
one control process, no Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.control_cluster import ControlCluster, until
from tests.e2e.test_control import STREAM, TABLE

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.control.metadata.topic_reconciler import CreateTopic, DeleteTopic
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port

NODE = "node-1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"), any_port())
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> KafkaAdmin:
    return KafkaAdmin(broker.bootstrap_servers)


@pytest.fixture
def control(broker: Broker, kafka: KafkaAdmin, tmp_path: Path) -> Iterator[ControlCluster]:
    cluster = ControlCluster(tmp_path, broker.bootstrap_servers, names=[NODE])
    try:
        cluster.start(NODE)
        cluster.until_members(1, NODE)
        yield cluster
    finally:
        cluster.close()
        for name in kafka.partition_counts():
            kafka.carry_out(DeleteTopic(name))


def warnings_of(control: ControlCluster, sql: str, request_id: str) -> list[str]:
    answer = control.execute(NODE, sql, request_id)
    assert answer.status_code == 200, answer.text
    return [each["message"] for each in answer.json()["entities"][0]["warnings"]]


def id_of(kafka: KafkaAdmin, name: str) -> str | None:
    found = kafka.observe([name]).get(name)
    return found.topic_id if found else None


def make(kafka: KafkaAdmin, name: str, partitions: int) -> None:
    """As another program does. The broker lists a topic shortly after the controller has made it:
    until then, a statement that names it would make it, too."""
    kafka.carry_out(CreateTopic(name, partitions, {}))
    until(f"{name} is listed", lambda: id_of(kafka, name))


def settled(control: ControlCluster) -> Any:
    snapshot = control.snapshot(NODE)
    wanted = {spec.name for spec in snapshot.topics}
    recorded = {name for name, topic_id in snapshot.made_topics.items() if topic_id}
    return not snapshot.topic_faults and not snapshot.doomed_topics and wanted <= recorded


def test_a_table_is_dropped_and_created_while_kafka_stands_still(
    control: ControlCluster, kafka: KafkaAdmin, broker: Broker
) -> None:
    """Its topic is doomed and wanted at once: no topic was made or deleted again after that."""
    assert warnings_of(control, STREAM.format("S", "s"), "r1") == []
    assert warnings_of(control, TABLE, "r2") == []
    before = id_of(kafka, "T")
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        dropped = warnings_of(control, "DROP TABLE T DELETE TOPIC;", "r3")
        created = warnings_of(control, TABLE, "r4")
        assert "will be created later" in dropped[0]
        assert "will be created later" in created[0]
        until("a fault that is shown", lambda: control.snapshot(NODE).topic_faults)
        assert control.snapshot(NODE).doomed_topics == ("T",)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    until("topics as they are wanted", lambda: settled(control))
    assert id_of(kafka, "T") not in (before, None)
    assert warnings_of(control, STREAM.format("S2", "s2"), "r5") == []
    assert "s2" in kafka.partition_counts()


def test_a_name_that_kafka_refuses_among_good_ones(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    """Kafka takes a.b for a namesake of a_b: both would be the same in its metrics."""
    assert warnings_of(control, STREAM.format("A", "a_b"), "r1") == []
    refused = warnings_of(control, STREAM.format("B", "a.b"), "r2")
    assert "Topic a.b: " in refused[0]
    assert "collides" in refused[0]
    for number, topic in enumerate(["c", "d", "e"]):
        assert warnings_of(control, STREAM.format(f"X{number}", topic), f"r3{number}") == []
        assert topic in kafka.partition_counts()
    assert warnings_of(control, "DROP STREAM X0 DELETE TOPIC;", "r4") == []
    assert "c" not in kafka.partition_counts()
    (fault,) = until("the fault", lambda: control.snapshot(NODE).topic_faults)
    assert fault.startswith("topic a.b: ")
    control.execute(NODE, "DROP STREAM B;", "r5")
    until("no fault", lambda: not control.snapshot(NODE).topic_faults)


def test_a_refused_topic_is_made_once_kafka_takes_it(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    make(kafka, "x_y", 1)
    assert "collides" in warnings_of(control, STREAM.format("X", "x.y"), "r1")[0]
    kafka.carry_out(DeleteTopic("x_y"))
    until("the topic", lambda: "x.y" in kafka.partition_counts())
    until("health", lambda: settled(control))


def test_a_topic_that_another_program_made_anew_is_left_alone(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    assert warnings_of(control, STREAM.format("S", "s"), "r1") == []
    until("its id", lambda: settled(control))
    kafka.carry_out(DeleteTopic("s"))
    until("the deletion", lambda: "s" not in kafka.partition_counts())
    make(kafka, "s", 2)
    theirs = id_of(kafka, "s")
    (warning,) = warnings_of(control, "DROP STREAM S DELETE TOPIC;", "r2")
    assert "it was not deleted: another program created it again" in warning
    until("the end of it", lambda: not control.snapshot(NODE).doomed_topics)
    assert id_of(kafka, "s") == theirs
    assert not control.snapshot(NODE).topic_faults


def test_a_topic_that_was_there_is_not_deleted(control: ControlCluster, kafka: KafkaAdmin) -> None:
    make(kafka, "there", 2)
    assert warnings_of(control, STREAM.format("S", "there"), "r1") == []
    refused = control.execute(NODE, "DROP STREAM S DELETE TOPIC;", "r2")
    assert refused.status_code == 400
    assert "this cluster did not make it" in refused.json()["message"]
    make(kafka, "T", 2)
    assert warnings_of(control, TABLE, "r3") == []
    (warning,) = warnings_of(control, "DROP TABLE T DELETE TOPIC;", "r4")
    assert "this cluster did not make it" in warning
    assert {"there", "T"} <= kafka.partition_counts().keys()


def test_what_the_cluster_made_is_deleted_after_a_crash_too(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    control.execute(NODE, STREAM.format("S", "s"), "r1")
    control.kill(NODE)
    control.start(NODE)
    until("control", lambda: control.describe(NODE))
    until("its id", lambda: settled(control))
    assert warnings_of(control, "DROP STREAM S;", "r2") == []
    assert "s" in kafka.partition_counts()
    again = STREAM.format("S", "s").replace("PARTITIONS=2, ", "")
    assert warnings_of(control, again, "r3") == []
    assert warnings_of(control, "DROP STREAM S DELETE TOPIC;", "r4") == []
    assert "s" not in kafka.partition_counts()
