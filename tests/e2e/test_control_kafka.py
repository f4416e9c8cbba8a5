"""Topics follow statements: one control process and a real Kafka. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.control_cluster import ControlCluster, until
from tests.e2e.test_control import STREAM, TABLE

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.control.ddl.responses import TOPIC_WILL_FOLLOW
from standpipe.control.metadata.topic_reconciler import CreateTopic, DeleteTopic, ObservedTopic
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
    """One control process; all topics are gone after the test."""
    cluster = ControlCluster(tmp_path, broker.bootstrap_servers, names=[NODE])
    try:
        cluster.start(NODE)
        cluster.until_members(1, NODE)
        yield cluster
    finally:
        cluster.close()
        for name in kafka.partition_counts():
            kafka.carry_out(DeleteTopic(name))


def followed(control: ControlCluster, sql: str, request_id: str) -> None:
    """Until the answer says that Kafka's topics are as the statement wants them. A statement waits
    ten seconds for that; a busy broker may take longer, and the same request is asked again. A
    warning about one topic fails."""

    def has_followed() -> bool:
        answer = control.execute(NODE, sql, request_id)
        assert answer.status_code == 200, answer.text
        warnings = [each["message"] for each in answer.json()["entities"][0]["warnings"]]
        assert all(text.startswith(TOPIC_WILL_FOLLOW) for text in warnings), warnings
        return not warnings

    until(f"the topics of {sql}", has_followed)


def observed(kafka: KafkaAdmin, name: str) -> ObservedTopic:
    return kafka.observe([name])[name]


def test_topics_are_there_when_a_statement_is_answered(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    followed(control, STREAM.format("S", "s"), "r1")
    assert observed(kafka, "s").partitions == 2
    followed(control, TABLE, "r2")
    table = observed(kafka, "T")
    assert table.partitions == 2
    assert table.config["cleanup.policy"] == "compact"
    assert table.config["min.compaction.lag.ms"] == "3600000"
    assert table.config["delete.retention.ms"] == "604800000"
    assert observed(kafka, "default__progress").config["cleanup.policy"] == "compact"
    assert observed(kafka, "default_ksql_processing_log").config["retention.ms"] == "604800000"


def test_a_statement_over_a_topic_takes_its_partitions(
    control: ControlCluster, kafka: KafkaAdmin
) -> None:
    kafka.carry_out(CreateTopic("there", 5, {}))
    sql = STREAM.format("S", "there").replace("PARTITIONS=2, ", "")
    assert control.execute(NODE, sql, "r1").status_code == 200
    until("the snapshot", lambda: control.snapshot(NODE).sources)
    assert control.snapshot(NODE).sources[0].partitions == 5
    missing = control.execute(NODE, sql.replace("there", "nowhere"), "r2")
    assert missing.status_code == 400


def test_only_delete_topic_deletes(control: ControlCluster, kafka: KafkaAdmin) -> None:
    followed(control, STREAM.format("KEEP", "keep"), "r1")
    followed(control, STREAM.format("GO", "go"), "r2")
    followed(control, "DROP STREAM KEEP;", "r3")
    followed(control, "DROP STREAM GO DELETE TOPIC;", "r4")
    counts = kafka.partition_counts()
    assert "keep" in counts
    assert "go" not in counts
    kafka.carry_out(CreateTopic("go", 1, {}))
    control.kill(NODE)
    control.start(NODE)
    until("control", lambda: control.describe(NODE))
    followed(control, STREAM.format("S", "s"), "r5")
    assert "go" in kafka.partition_counts(), "a later namesake is safe, also after a restart"


def test_a_deleted_topic_can_be_made_anew(control: ControlCluster, kafka: KafkaAdmin) -> None:
    followed(control, STREAM.format("S", "s"), "r1")
    followed(control, "DROP STREAM S DELETE TOPIC;", "r2")
    again = STREAM.format("S", "s").replace("PARTITIONS=2", "PARTITIONS=3")
    followed(control, again, "r3")
    assert observed(kafka, "s").partitions == 3


def test_a_wrong_configuration_is_mended(control: ControlCluster, kafka: KafkaAdmin) -> None:
    kafka.carry_out(CreateTopic("T", 2, {"cleanup.policy": "delete"}))
    followed(control, STREAM.format("S", "s"), "r1")
    followed(control, TABLE, "r2")
    assert observed(kafka, "T").config["cleanup.policy"] == "compact"


def test_statements_are_logged_while_kafka_is_away(tmp_path: Path) -> None:
    port = any_port()
    cluster = ControlCluster(tmp_path, f"127.0.0.1:{port}", names=[NODE])
    broker = Broker(tmp_path / "kafka", port)
    try:
        cluster.start(NODE)
        cluster.until_members(1, NODE)
        answer = cluster.execute(NODE, STREAM.format("S", "s"), "r1")
        assert answer.status_code == 200
        assert (
            "the topic will be created later"
            in answer.json()["entities"][0]["warnings"][0]["message"]
        )
        unknown = STREAM.format("S2", "s2").replace("PARTITIONS=2, ", "")
        refused = cluster.execute(NODE, unknown, "r2")
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50308)
        broker.start()
        admin = KafkaAdmin(broker.bootstrap_servers)
        until("the topic", lambda: "s" in admin.partition_counts())
    finally:
        cluster.close()
        broker.stop()
