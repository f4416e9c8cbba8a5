"""Stragglers of a real producer on a table's topic and on what a join reads, and real compaction.

A table, a stream that joins it, and a table over that stream. Records that no progress record names
are written to the topics of all three: nothing of them is ever visible, what they shadow is
repaired, and a replica that is made anew from the compacted topics is what it was before.

Not here: two drivers at once (test_pipeline.py), what happens at other moments (tests/sim).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.topic_ends import offsets

from standpipe.data.encoding.store_keys import commit_header, partition_of, rowtime_header
from standpipe.data.replica.digest_verdict import KeptDigests
from standpipe.local.demo.flights import Event
from standpipe.local.demo.progress import DemoProgress
from standpipe.model import Commit, NodeId

PARTITIONS = 4
KEYS = [f"k{number}" for number in range(20)]
STATEMENTS = """
CREATE STREAM EVENTS (K STRING KEY, V INT) WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON');
CREATE STREAM CLICKS (K STRING KEY, V INT) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON');
CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM EVENTS GROUP BY K EMIT CHANGES;
CREATE STREAM JOINED AS SELECT C.K AS K, C.V AS V, T.N AS N
  FROM CLICKS C JOIN COUNTS T ON C.K = T.K EMIT CHANGES;
CREATE TABLE TOTALS AS SELECT K, COUNT(*) AS CLICKS, MIN(N) AS LEAST, MAX(N) AS MOST
  FROM JOINED GROUP BY K EMIT CHANGES;
"""
NODE = NodeId("node-1")
#: so that Kafka compacts within seconds what it otherwise keeps for an hour
EAGER = {
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """One node, so that a replica that is made anew has no peer to copy."""
    running = start(tmp_path / "cluster", nodes=1)
    try:
        yield running
    finally:
        running.close()


class Story:
    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        for topic in ("events", "clicks"):
            cluster.topic(topic)
        cluster.sql(STATEMENTS)
        self.queries = {name: cluster.query_of(name) for name in ("COUNTS", "JOINED", "TOTALS")}
        self.progress = DemoProgress(cluster.bootstrap_servers, "default_")
        self.progress.start()
        self.sent: dict[str, int] = {}

    def send(self, topic: str, rounds: int) -> None:
        """`rounds` events of each key, and until they are committed where they are read first."""
        events = [
            Event(key=key, value=json.dumps({"V": number}), time_ms=1_700_000_000_000 + number)
            for number in range(rounds)
            for key in KEYS
        ]
        self.sent[topic] = self.sent.get(topic, 0) + self.cluster.send(topic, events)
        query = self.queries["COUNTS" if topic == "events" else "JOINED"]
        wait_until(
            lambda: self.progress.events(query, topic) >= self.sent[topic] or None,
            f"{self.sent[topic]} {topic} in {query}",
        )

    def straggle(self, name: str, rows: Mapping[str, Mapping[str, Any] | None]) -> None:
        """As a task of the newest batch would, that Spark had given up and run again."""
        query = self.queries[name]
        newest = wait_until(lambda: self.progress.newest.get(query), f"a commit of {query}")
        assert newest is not None
        committed = newest.commit
        lost = msgspec.structs.replace(committed, attempt=committed.attempt ^ 1)
        commits: list[Commit | None] = [lost, None]
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for number, (key, row) in enumerate(rows.items()):
            commit = commits[number % 2]
            marks = [] if commit is None else [("sp-commit", commit_header(commit))]
            producer.produce(
                name,
                None if row is None else json.dumps(row),
                key,
                partition=partition_of(key.encode(), PARTITIONS),
                headers=[*marks, ("sp-rowtime", rowtime_header(7))],
            )
        assert producer.flush(30) == 0

    def wait_for_counts(self, count: int) -> None:
        """Until clicks that come now are joined with these."""
        self.cluster.wait_for_rows("SELECT * FROM COUNTS;", [[key, count] for key in KEYS])
        counts, joined = self.queries["COUNTS"], self.queries["JOINED"]

        def is_read() -> bool | None:
            committed = sum(self.progress.sinks(counts).values())
            return self.progress.events(joined, "COUNTS") >= committed or None

        wait_until(is_read, "COUNTS at the join")

    def wait_for_totals(self, clicks: int, least: int, most: int) -> None:
        rows = [[key, clicks, least, most] for key in KEYS]
        self.cluster.wait_for_rows("SELECT * FROM TOTALS;", rows)

    def topic(self, name: str) -> list[tuple[int, int, bytes, bytes | None]]:
        """(partition, offset, key, value) of all that the broker still has."""
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "test"}
        )
        found: list[tuple[int, int, bytes, bytes | None]] = []
        for partition in range(PARTITIONS):
            of = TopicPartition(name, partition, 0)
            low, high = offsets(consumer, of)
            consumer.assign([TopicPartition(name, partition, low)])
            while low < high and consumer.position([of])[0].offset < high:
                for message in consumer.consume(1000, 0.2):
                    key, value = message.key(), message.value()
                    assert isinstance(key, bytes)
                    found.append((partition, message.offset() or 0, key, value))
        consumer.close()
        return found

    def newest(self, name: str) -> dict[bytes, bytes | None]:
        """What is left to who reads by offset alone."""
        return {key: value for _, _, key, value in self.topic(name)}

    def digests(self) -> dict[tuple[str, int], tuple[int, int, int | None]]:
        """Of each replica: position, batch, digest; empty: the tailer has not said it yet."""
        try:
            kept = msgspec.json.decode(self.digests_file.read_bytes(), type=list[KeptDigests])
        except FileNotFoundError:
            return {}
        return {
            (one.identity.table_id, one.identity.partition): (
                newest.position,
                newest.batch,
                newest.digest,
            )
            for one in kept
            for newest in one.recent[-1:]
        }

    @property
    def digests_file(self) -> Path:
        (plan,) = self.cluster.local.plans
        return plan.data_directory / "run" / "digests.json"

    def let_compact(self, name: str) -> None:
        """From the next record on: it begins a new segment, and the old ones are the cleaner's."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in EAGER.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    def wait_for_compaction(self, name: str) -> None:
        """Until of each key only the newest record is left, but for what came last."""

        def is_compacted() -> bool | None:
            return len(self.topic(name)) <= 2 * (len(KEYS) + 2) or None

        wait_until(is_compacted, f"compaction of {name}")


@pytest.mark.timeout(1800)
def test_nothing_of_a_straggler_is_seen_and_a_compacted_topic_is_enough(
    cluster: TestCluster,
) -> None:
    story = Story(cluster)
    story.send("events", 3)
    story.wait_for_counts(3)
    story.straggle("COUNTS", {"k0": {"N": -1}, "k1": {"N": -2}, "k2": None, "k3": None})
    story.straggle("COUNTS", {"nobody": {"N": -3}, "nobody else": {"N": -3}})
    story.send("clicks", 2)
    story.wait_for_totals(clicks=2, least=3, most=3)
    story.straggle("JOINED", {key: {"V": 9, "N": -4} for key in KEYS[:6]})
    story.straggle("TOTALS", {key: {"CLICKS": -5, "LEAST": 0, "MOST": 0} for key in KEYS[4:8]})
    story.send("events", 1)
    story.wait_for_counts(4)
    story.send("clicks", 1)
    story.wait_for_totals(clicks=3, least=3, most=4)

    def is_repaired() -> bool | None:
        counts, totals = story.newest("COUNTS"), story.newest("TOTALS")
        said = {json.loads(value or b"null")["N"] for key, value in counts.items() if value}
        clicks = {json.loads(value)["CLICKS"] for value in totals.values() if value}
        return (said, clicks) == ({4}, {3}) or None

    wait_until(is_repaired, "no key of COUNTS and TOTALS to be shadowed")
    assert story.newest("COUNTS")[b"nobody"] is None, "what never was is repaired with a tombstone"

    tables = ("COUNTS", "TOTALS")
    for name in tables:
        story.let_compact(name)
    lengths = {name: len(story.topic(name)) for name in tables}
    time.sleep(1.5)  # until their segments are old
    story.send("events", 1)
    story.wait_for_counts(5)
    story.send("clicks", 1)
    story.wait_for_totals(clicks=4, least=3, most=5)
    for name in tables:
        story.wait_for_compaction(name)
        assert len(story.topic(name)) < lengths[name]
    before = wait_until(lambda: (len(found := story.digests()) == 8 and found) or None, "digests")
    cluster.local.kill_node(NODE)
    shutil.rmtree(cluster.local.plans[0].data_directory / "state")
    story.digests_file.unlink()  # those of the run before would do
    cluster.local.restart_node(NODE)
    wait_until(
        lambda: story.digests() == before,
        f"{before} from the compacted topics",
        lambda: str(story.digests()),
    )
    story.wait_for_totals(clicks=4, least=3, most=5)
    cluster.wait_for_rows("SELECT * FROM COUNTS;", [[key, 5] for key in KEYS])
    story.progress.stop()
