"""Nodes, a pipeline and a program on a Kafka with SASL_SSL, SCRAM and ACLs (kafka_cluster.py).

The users have the ACLs of docs/operations/kafka.md and no others. `Feed` knows what Kafka has
acknowledged, and so which rows there must be.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shlex
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from tests.e2e.cluster import TestCluster, free_port_range, wait_until
from tests.e2e.kafka_cluster import KafkaCluster
from tests.e2e.topic_ends import end_offset

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.adapters.kafka.connection import connect_by
from standpipe.config import registry
from standpipe.errors import KafkaUnavailable
from standpipe.local.cluster.steps import Steps
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster

PAGE = Path(__file__).parents[2] / "docs/operations/kafka.md"
NODE, PIPELINE, APP = "standpipe-node", "standpipe-pipeline", "app"
SERVICE = "shop_"
PLAIN_USERS = {"plain": "plain-password"}
#: what must appear in no output
CANARY = {name: f"canary-{uuid.uuid4().hex}" for name in (NODE, PIPELINE, APP)}
KEYS = [f"k{number}" for number in range(8)]


def documented_acls() -> Iterator[tuple[str, str, str, str, str]]:
    """(principal, operation, resource, name, pattern) of the commands on the page."""
    text = PAGE.read_text().replace("\\\n", " ")
    parser = argparse.ArgumentParser()
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--resource-pattern-type", default="literal")
    for command in re.findall(r"^kafka-acls --add.*$", text, re.MULTILINE):
        said = parser.parse_args(shlex.split(command)[1:])
        for operation in said.operation:
            spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            for topic in said.topic:
                pattern = said.resource_pattern_type.upper()
                yield said.allow_principal, spelled, "TOPIC", topic, pattern


@contextmanager
def secured_kafka(directory: Path) -> Iterator[KafkaCluster]:
    """Three brokers with the users and their ACLs."""
    with KafkaCluster(directory, PLAIN_USERS) as running:
        for name, password in CANARY.items():
            running.add_user(name, password)
        for acl in documented_acls():
            running.allow(*acl)
        running.allow(f"User:{APP}", "WRITE", "TOPIC", "shop.", "PREFIXED")
        yield running


@contextmanager
def secured_cluster(
    kafka: KafkaCluster, directory: Path, java_options: str = ""
) -> Iterator[TestCluster]:
    """Three nodes and a driver, each with a user of its own, and with different mechanisms."""
    local = LocalCluster(
        ClusterOptions(
            directory=directory,
            node_port=free_port_range(),
            bootstrap_servers=kafka.sasl_servers,
            workers=1,
            master="local[2]",
            pipelines=0,
            config=settings_of(NODE, kafka, directory),
        ),
        Steps(Console(), quiet=True),
    )
    for user in (NODE, PIPELINE):
        wait_until_let_in(user, kafka, directory)
    with pytest.MonkeyPatch.context() as patch:
        options = os.environ.get("JDK_JAVA_OPTIONS", "")
        patch.setenv("JDK_JAVA_OPTIONS", f"{options} {java_options}")
        local.start()
        running = TestCluster(local)
        try:
            as_pipeline = settings_of(PIPELINE, kafka, directory, "SCRAM-SHA-256")
            nodes = local.options
            local.options = dataclasses.replace(nodes, config=as_pipeline)
            local.pipelines.append(local._make_pipeline("pipeline"))
            local.options = nodes
            local.pipelines[0].start()
            yield running
        finally:
            running.close()


def wait_until_let_in(user: str, kafka: KafkaCluster, directory: Path) -> None:
    """Until brokers know the user, which they learn a moment after it was made. What starts asks
    Kafka once, and is not to wait long."""
    config = registry.load(settings_of(user, kafka, directory))
    admin, said = KafkaAdmin(connect_by(config, kafka.sasl_servers, {})), [""]

    def is_let_in() -> bool:
        try:
            admin.partition_counts()
        except KafkaUnavailable as error:
            said[:] = [error.message]
            return False
        return True

    wait_until(is_let_in, f"{user} at Kafka", lambda: said[0])


def settings_of(
    user: str, kafka: KafkaCluster, directory: Path, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, str]:
    secret = directory.parent / f"{directory.name}-{user}-password"
    secret.touch(0o600)
    secret.write_text(CANARY[user])
    return {"ksql.service.id": SERVICE, **kafka.settings(user, secret, mechanism)}


@contextmanager
def feed_of(kafka: KafkaCluster, directory: Path) -> Iterator[Feed]:
    """A program that is not ours, with a user of its own."""
    config = registry.load(settings_of(APP, kafka, directory))
    made = Feed(connect_by(config, kafka.sasl_servers, {}).librdkafka(), kafka.internal_servers)
    yield made
    made.stop()


class Feed:
    """Events at a steady rate, as a program that is not ours sends them. `judge_servers`: where its
    topic can be read without a login."""

    def __init__(self, options: dict[str, object], judge_servers: str) -> None:
        self._judge_servers = judge_servers
        self._producer: Any = Producer(
            {
                **options,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                # so that it soon leaves a broker that hangs
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        #: key -> numbers that were acknowledged, in order
        self.acknowledged: dict[str, list[int]] = {key: [] for key in KEYS}
        self.errors: list[str] = []
        self._sent = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged or failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        assert self._producer.flush(150) == 0

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.send(KEYS[self._sent % len(KEYS)])

    def send(self, key: str) -> None:
        self._sent += 1
        number = self._sent

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged[key].append(number)
            else:
                self.errors.append(str(error))

        value = f'{{"N": {number}}}'
        self._producer.produce("shop.orders", value, key, on_delivery=delivered)
        self._producer.poll(0)

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def rows(self) -> list[list[object]]:
        """Every row of the table, computed from the topic, which has all that was acknowledged.

        It may have more: where a broker was killed before it could say that it has a record,
        librdkafka may start another epoch of its producer and send the record once more.
        """
        there = self._in_topic()
        for key, numbers in self.acknowledged.items():
            lost = set(numbers) - set(there.get(key, ()))
            assert not lost, f"Kafka has acknowledged these of {key} and lost them: {lost}"
        every = ((key, there.get(key, [])) for key in KEYS)
        return [[key, len(n), sum(n), max(n)] for key, n in every if n]

    def _in_topic(self) -> dict[str, list[int]]:
        """Key -> the numbers of its records."""
        options = {"bootstrap.servers": self._judge_servers, "group.id": "judge"}
        consumer: Any = Consumer({**options, "enable.auto.commit": False, "log_level": 0})
        found: dict[str, list[int]] = {}
        try:
            for partition in range(PARTITIONS):
                place = TopicPartition("shop.orders", partition, 0)
                end = end_offset(consumer, place)
                consumer.assign([place])
                position = 0
                while position < end:
                    message = consumer.poll(30)
                    assert message is not None, "the topic can be read"
                    if message.error() is None:
                        number = json.loads(message.value())["N"]
                        found.setdefault(message.key().decode(), []).append(number)
                        position = message.offset() + 1
        finally:
            consumer.close()
        return found


PARTITIONS = 4
STATEMENTS = (
    "CREATE STREAM ORDERS (K STRING KEY, N BIGINT) "
    f"WITH (KAFKA_TOPIC='shop.orders', VALUE_FORMAT='JSON', PARTITIONS={PARTITIONS});"
    "CREATE TABLE TOTALS WITH (KAFKA_TOPIC='shop.totals') AS SELECT K, COUNT(*) AS C, "
    "SUM(N) AS S, MAX(N) AS M FROM ORDERS GROUP BY K EMIT CHANGES;"
)


def wait_for_events(feed: Feed, count: int) -> None:
    """Until so many more are acknowledged."""
    wanted = feed.acknowledged_count + count
    wait_until(
        lambda: feed.acknowledged_count >= wanted, f"{wanted} events", lambda: str(feed.errors)
    )


def await_rows(cluster: TestCluster, feed: Feed) -> None:
    for row in feed.rows():
        cluster.wait_for_rows(f"SELECT * FROM TOTALS WHERE K = '{row[0]}';", [row])
