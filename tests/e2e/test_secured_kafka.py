"""Nodes and a pipeline on a Kafka of three brokers with SASL_SSL, SCRAM and ACLs.

The judge reads what was acknowledged, computes every row again, and compares.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.cluster import TestCluster
from tests.e2e.kafka_cluster import KafkaCluster
from tests.e2e.secured_cluster import (
    KEYS,
    STATEMENTS,
    Feed,
    await_rows,
    documented_acls,
    feed_of,
    secured_cluster,
    secured_kafka,
)

Folders = pytest.TempPathFactory


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Folders) -> Iterator[KafkaCluster]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(kafka: KafkaCluster, tmp_path_factory: Folders) -> Iterator[TestCluster]:
    with secured_cluster(kafka, tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def feed(kafka: KafkaCluster, tmp_path_factory: Folders) -> Iterator[Feed]:
    with feed_of(kafka, tmp_path_factory.mktemp("app")) as made:
        yield made


def test_a_table_is_built_and_read_with_the_documented_acls_only(
    kafka: KafkaCluster, cluster: TestCluster, feed: Feed
) -> None:
    assert [*documented_acls()], "the page has commands"
    cluster.sql(STATEMENTS)
    for key in KEYS:
        feed.send(key)
    feed.stop()
    assert feed.errors == []
    await_rows(cluster, feed)
    cluster.sql("INSERT INTO ORDERS (K, N) VALUES ('inserted', 7);")
    cluster.wait_for_rows("SELECT * FROM TOTALS WHERE K = 'inserted';", [["inserted", 1, 7, 7]])


def test_topics_have_three_replicas_of_which_two_must_have_a_record(
    kafka: KafkaCluster, cluster: TestCluster
) -> None:
    topics = kafka.operator().list_topics(timeout=10).topics
    ours = [name for name in topics if name.startswith("shop")]
    assert len(ours) == 4, ours
    for name in ours:
        assert {len(each.replicas) for each in topics[name].partitions.values()} == {3}
        assert kafka.topic_config(name)["min.insync.replicas"] == "2"
