"""Windows expire: in a replica by the watermark, in the topic later, and a restore agrees.

Real Spark, real Kafka, one node, so that a replica that is made anew has no peer to copy. Not here:
when a window expires (tests/unit/data/commit/test_expiry.py), the index (test_window_index.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.e2e.cluster import TestCluster, start, wait_until

from standpipe.data.replica.digest_verdict import KeptDigests
from standpipe.local.demo.flights import Event
from standpipe.model import LeaseEpoch, NodeId, Progress, Source, Window
from standpipe.pipeline.commit import swept_topic
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.swept_topic import SweptTopic
from standpipe.pipeline.io.progress_log import ProgressLog

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
KEYS = [f"k{number}" for number in range(10)]
PARTITIONS = 4
STATEMENTS = """
CREATE STREAM READINGS (K STRING KEY, V INT)
  WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE HOURLY AS SELECT K, COUNT(*) AS N FROM READINGS
  WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 4 HOURS, GRACE PERIOD 1 HOUR)
  GROUP BY K EMIT CHANGES;
"""
NODE = NodeId("node-1")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    running = start(tmp_path / "cluster", nodes=1)
    try:
        yield running
    finally:
        running.close()


def send(cluster: TestCluster, hour: int, keys: Sequence[str] = KEYS) -> None:
    """An event of each key in this hour."""
    value, time_ms = json.dumps({"V": 1}), BEGIN_MS + hour * HOUR_MS
    cluster.send("readings", [Event(key=key, value=value, time_ms=time_ms) for key in keys])


def tick(cluster: TestCluster, hour: int) -> None:
    """One event alone: no two batches can share it, and the second drop what it makes expire."""
    send(cluster, hour, KEYS[:1])


def wait_for_hours(cluster: TestCluster, *hours: int, ticks: Sequence[int] = ()) -> None:
    """Until these windows, and no others, have a row of each key, and of `ticks` of the first."""
    keys = dict.fromkeys(hours, KEYS) | dict.fromkeys(ticks, KEYS[:1])
    rows = [
        [key, BEGIN_MS + hour * HOUR_MS, BEGIN_MS + (hour + 1) * HOUR_MS, 1]
        for hour, each in keys.items()
        for key in each
    ]
    cluster.wait_for_rows("SELECT * FROM HOURLY;", rows)


def digests(cluster: TestCluster) -> dict[int, int | None]:
    """Of the newest batch that each replica shows; empty: the tailer has not said it yet."""
    try:
        data = digests_file(cluster).read_bytes()
    except FileNotFoundError:
        return {}
    kept = msgspec.json.decode(data, type=list[KeptDigests])
    return {one.identity.partition: each.digest for one in kept for each in one.recent[-1:]}


def digests_file(cluster: TestCluster) -> Path:
    (plan,) = cluster.local.plans
    return plan.data_directory / "run" / "digests.json"


def hourly(query_id: str) -> Source:
    """The table, as far as a janitor needs it."""
    window = Window(
        kind="TUMBLING",
        size_ms=HOUR_MS,
        advance_ms=HOUR_MS,
        grace_ms=HOUR_MS,
        retention_ms=4 * HOUR_MS,
    )
    return Source(
        name="HOURLY",
        kind="TABLE",
        columns=(),
        topic="HOURLY",
        partitions=PARTITIONS,
        key_format="KAFKA",
        value_format="JSON",
        statement="",
        window=window,
        query_id=query_id,
    )


class Sweeper:
    """A janitor that does only what it does to expired windows, as if a week had gone by."""

    def __init__(self, cluster: TestCluster, query_id: str) -> None:
        self.log = ProgressLog(cluster.bootstrap_servers, "default_")
        self.query_id, self.servers = query_id, cluster.bootstrap_servers

    def newest(self) -> Progress | None:
        return self.janitor().newest

    def janitor(self) -> Janitor:
        swept = SweptTopic(
            query_id=self.query_id,
            table=hourly(self.query_id),
            lease_epoch=LeaseEpoch(1),
            kafka=self.servers,
            log=self.log,
            check_lease=lambda: None,
            ask_topics=lambda: lambda: None,
        )
        return Janitor(swept, self.log.records())

    def starts(self) -> dict[int, int]:
        return self.log.start_offsets("HOURLY", PARTITIONS)


@pytest.mark.timeout(900)
def test_windows_expire_in_replicas_and_topics(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topic("readings")
    cluster.sql(STATEMENTS)
    for hour in (0, 1, 2):  # one by one: nothing is late, however batches part the events
        send(cluster, hour)
        wait_for_hours(cluster, *range(hour + 1))
    tick(cluster, 8)
    wait_for_hours(cluster, 0, 1, 2, ticks=[8])  # Spark's watermark moves with the batch after
    send(cluster, 9)
    wait_for_hours(cluster, 9, ticks=[8])  # those that began 4 hours before 8 and more are gone
    send(cluster, 2)  # late, and of a window that expired
    send(cluster, 10)
    wait_for_hours(cluster, 9, 10, ticks=[8])

    sweeper = Sweeper(cluster, cluster.query_of("HOURLY"))
    ends = sweeper.log.end_offsets("HOURLY", PARTITIONS)

    def is_clean() -> bool | None:
        newest = sweeper.newest()
        return (newest is not None and newest.clean_through == ends) or None

    wait_until(is_clean, "the idle query to call its topic clean")
    janitor_now = sweeper.janitor()
    janitor_now.swept.delete_expired(janitor_now.newest)
    assert set(sweeper.starts().values()) == {0}, "a week of grace, for who was away"
    monkeypatch.setattr(swept_topic, "TOMBSTONES_MS", -60_000)  # what was written just now, too
    janitor_now.swept.delete_expired(janitor_now.newest)
    starts = sweeper.starts()
    assert sum(starts.values()) == 3 * len(KEYS), "hours 0 to 2 of each key, and no more"

    before = digests(cluster)
    assert len(before) == PARTITIONS
    cluster.local.kill_node(NODE)
    shutil.rmtree(cluster.local.plans[0].data_directory / "state")
    digests_file(cluster).unlink()  # those of the run before would do
    cluster.local.restart_node(NODE)
    wait_for_hours(cluster, 9, 10, ticks=[8])
    wait_until(lambda: digests(cluster) == before or None, "the same from what is left")
    tick(cluster, 13)
    wait_for_hours(cluster, 9, 10, ticks=[8, 13])
    tick(cluster, 14)
    wait_for_hours(cluster, 10, ticks=[13, 14])  # 9 + retention = 13: the edge itself is gone
