"""Nodes and a pipeline on a Kafka of three brokers with SASL_SSL, SCRAM and ACLs.

The judge reads what was acknowledged, computes every row again, and compares. Longer, at random:
tests/e2e/broker_kills.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.kafka_cluster import KafkaCluster
from tests.e2e.processes import descendants
from tests.e2e.secured_cluster import (
    CANARY,
    KEYS,
    NODE,
    PIPELINE,
    PLAIN_USERS,
    STATEMENTS,
    Feed,
    await_rows,
    documented_acls,
    feed_of,
    secured_cluster,
    secured_kafka,
    wait_for_events,
)

from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.adapters.kafka.connection import connect_by
from standpipe.config import registry
from standpipe.control.metadata.topic_reconciler import CreateTopic
from standpipe.errors import KafkaUnavailable, StandpipeError

Folders = pytest.TempPathFactory


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Folders) -> Iterator[KafkaCluster]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(kafka: KafkaCluster, tmp_path_factory: Folders) -> Iterator[TestCluster]:
    """Nodes log at DEBUG anyway; the driver's JVM does here."""
    folder = tmp_path_factory.mktemp("secured")
    with secured_cluster(kafka, folder, "-Dstandpipe.spark.log.level=DEBUG") as running:
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


def test_a_missing_acl_is_named_and_a_query_goes_on_once_it_is_there(
    kafka: KafkaCluster, cluster: TestCluster
) -> None:
    cluster.sql(
        "CREATE STREAM ELSEWHERE (K STRING KEY, N BIGINT) WITH (KAFKA_TOPIC='shop.more', "
        "VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    inserted = [0]

    def refusal() -> StandpipeError | None:
        try:
            cluster.sql("INSERT INTO ELSEWHERE (K, N) VALUES ('x', 1);")
        except StandpipeError as refused:
            return refused
        inserted[0] += 1
        return None

    with kafka.limited(f"User:{NODE}", "WRITE", "shop.more"):
        refused = wait_until(refusal, "the ACL reaches the brokers")
    assert f"User:{NODE} has no right to Write on topic shop.more" in str(refused)
    wait_until(lambda: refusal() is None, "the ACL is there again")
    with kafka.limited(f"User:{PIPELINE}", "READ", "shop.more"):
        cluster.sql(
            "CREATE TABLE LATER WITH (KAFKA_TOPIC='shop.later') AS "
            "SELECT K, COUNT(*) AS C FROM ELSEWHERE GROUP BY K EMIT CHANGES;"
        )
        acl = f"User:{PIPELINE} has no right to Read on topic shop.more"
        wait_until(lambda: acl in status_of(cluster), acl, lambda: status_of(cluster))
    cluster.wait_for_rows("SELECT * FROM LATER WHERE K = 'x';", [["x", inserted[0]]])


def status_of(cluster: TestCluster) -> str:
    """What the pipeline says of its queries."""
    return str(cluster.sql("SHOW QUERIES;"))


@pytest.mark.parametrize("way", ["PLAIN", "a certificate"])
def test_both_libraries_are_let_in(way: str, kafka: KafkaCluster, tmp_path: Path) -> None:
    """SCRAM: the other tests, where nodes use SCRAM-SHA-512 and the pipeline SCRAM-SHA-256."""
    truststore = {"kafka.ssl.truststore.location": str(kafka.truststore)}
    if way == "PLAIN":
        secret = tmp_path / "password"
        secret.touch(0o600)
        secret.write_text(PLAIN_USERS["plain"])
        config = registry.load(kafka.settings("plain", secret, "PLAIN"))
        connection, user = connect_by(config, kafka.sasl_servers, {}), "plain"
    else:
        pem = {"kafka.ssl.keystore.location": str(kafka.client_pem("bearer"))}
        config = registry.load({"kafka.security.protocol": "SSL", **truststore, **pem})
        connection, user = connect_by(config, kafka.mtls_servers, {}), "bearer"
    operator = KafkaAdmin(kafka.internal_servers)
    operator.carry_out(CreateTopic(f"of.{user}", 1, {}))
    kafka.allow(f"User:{user}", "DESCRIBE_CONFIGS", "TOPIC", f"of.{user}")
    kafka.allow(f"User:{user}", "DESCRIBE", "TOPIC", f"of.{user}")
    known = KafkaAdmin(connection)

    def sees_its_topic() -> bool:
        with suppress(KafkaUnavailable):  # the first connection may take longer than one call
            return known.partition_counts() == {f"of.{user}": 1}
        return False

    wait_until(sees_its_topic, way)
    said = kafka.described_by_java(f"of.{user}", connection.java(), tmp_path)
    assert f"configs for topic of.{user} are" in said


def test_nothing_is_lost_wrong_or_twice_when_a_broker_is_killed(
    kafka: KafkaCluster, cluster: TestCluster, feed: Feed
) -> None:
    """Hung, shut down, again and again: `make broker-kills`."""
    feed.start()
    wait_for_events(feed, 200)
    number = kafka.controller()  # also a leader of a third of the partitions
    kafka.kill(number)
    wait_for_events(feed, 300)
    kafka.start_again(number)
    wait_for_events(feed, 100)
    feed.stop()
    assert feed.errors == []
    await_rows(cluster, feed)


def test_no_output_has_a_secret(cluster: TestCluster) -> None:
    """After all that the tests above did, at DEBUG: logs, files, command lines, environments of
    processes, and what clients may ask for."""
    shown: dict[str, bytes] = {}
    folders = [Path(cluster.local.options.directory)]
    for child in descendants(os.getpid()):
        for name in ("cmdline", "environ"):
            with suppress(OSError, psutil.NoSuchProcess):
                what = Path(f"/proc/{child.pid}/{name}").read_bytes()
                shown[f"{child.name()} {child.pid} {name}"] = what
                folders += map(Path, re.findall(r"-Djava.io.tmpdir=([^\0\"]+)", what.decode()))
    assert len(folders) > 1, "the scratch folder of the driver is found"
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        with suppress(FileNotFoundError):
            shown[str(path)] = path.read_bytes()
    for text in ("SHOW PROPERTIES;", "SHOW QUERIES EXTENDED;", "SHOW TABLES EXTENDED;"):
        shown[text] = repr(cluster.sql(text)).encode()
    shown["SHOW QUERIES;"] = status_of(cluster).encode()
    with SyncClient(timeout_s=10) as client:
        for page in ("/info", "/clusterStatus", "/metrics", "/healthcheck"):
            shown[page] = client.get(cluster.addresses[0][1], page).body
    assert NODE.encode() in shown["SHOW PROPERTIES;"], "the user's name is no secret"
    log = shown[str(cluster.local.directory.logs / "pipeline.log")]
    assert b"sasl.jaas.config = [hidden]" in log, "Kafka's clients in the JVM do log at DEBUG"
    found = {
        name: place
        for place, text in shown.items()
        for name, word in CANARY.items()
        if word.encode() in text
    }
    assert found == {}
    assert len(shown) > 40, "they are found"
