"""No source lag is too small: below the instant of a batch, it and those before it have every
record. On real Kafka and real Spark, with a backlog of many batches and with records that come
while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.e2e.test_pipeline import (
    BATCH_RECORDS,
    PARTITIONS,
    PROCESSING_LOG,
    PROGRESS,
    World,
    eventually,
    make_topics,
)
from tests.unit.pipeline.fake_node import FakeNode

from standpipe.control.metadata import feature_levels
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port

pytestmark = pytest.mark.e2e
#: the broker dates a record before a reader can see it, at most by so much
APPEND_MS_MAX = 1000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Broker(tmp_path / "kafka", any_port()) as broker, FakeNode(feature_levels.NEWEST) as node:
        make_topics(broker.bootstrap_servers, {PROGRESS: 1, PROCESSING_LOG: 1})
        world = World(broker.bootstrap_servers, tmp_path, "_1", node)
        try:
            yield world
        finally:
            for driver in world.drivers:
                driver.kill()


def date_on_append(world: World, topic: str) -> None:
    """The broker's clock dates the records, not that of their producer."""
    entry = ConfigEntry(
        "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result()


def test_no_instant_is_newer_than_a_record_that_its_batch_lacks(world: World) -> None:
    topic, query_id = f"f{world.tag}", world.query("PLANES").query_id
    date_on_append(world, topic)
    world.send_flights(8 * BATCH_RECORDS, seed=1)
    world.drive()
    eventually("the first batches", lambda: world.progress(query_id))
    world.send_flights(4 * BATCH_RECORDS, seed=2)
    world.wait_until_caught_up()
    world.send_flights(10, seed=3)
    world.wait_until_caught_up()

    written = world.read(topic, PARTITIONS)
    batches = world.progress(query_id)
    assert len(batches) > 8, "a backlog"
    known_ms = 0
    for batch in batches:
        ends = batch.sources[topic]
        left = [m.timestamp()[1] for m in written if m.offset() >= ends.get(m.partition(), 0)]
        oldest_ms = min(left, default=batch.committed_at_ms)
        why = f"{batch.commit}: {batch.source_instant_ms - oldest_ms} ms too new"
        assert batch.source_instant_ms <= oldest_ms + APPEND_MS_MAX, why
        assert batch.source_instant_ms >= known_ms, "it never goes back"
        known_ms = batch.source_instant_ms
    last_ms = max(message.timestamp()[1] for message in written[-10:])
    assert batches[-1].source_instant_ms > 0, "everything was read: it is known"
    assert batches[-1].source_instant_ms >= min(last_ms, batches[0].committed_at_ms)
