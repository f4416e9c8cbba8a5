"""CREATE OR REPLACE … AS with real processes: reads never stop and never go back.

A table is replaced by one with another WHERE and another column while events come in and readers
ask all nodes. The driver dies by SIGKILL while the new generation is being built. In the end the
rows are those of the new statement, on every node and in the public topic, where keys that the new
statement leaves out are deleted.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.test_pipeline import read_all

from standpipe.config import keys
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.demo.flights import Event

KEYS = 40
PORTION = 2_000
PORTIONS = 6
#: so that the new generation takes many batches to build, and stores are soon removed
CONFIG = {
    keys.BATCH_OFFSETS_MAX.name: str(PORTION),
    keys.STATE_CLEANUP_DELAY.name: "2000",
}

STREAM = (
    "CREATE STREAM CLICKS (K STRING KEY, V INTEGER)"
    " WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=4);"
)
FIRST = "CREATE TABLE VISITS AS SELECT K, COUNT(*) AS N FROM CLICKS GROUP BY K;"
SECOND = (
    "CREATE OR REPLACE TABLE VISITS AS SELECT K, SUM(V) AS TOTAL, COUNT(*) AS N FROM CLICKS"
    " WHERE K <> 'key-7' GROUP BY K;"
)
THIRD = "CREATE OR REPLACE TABLE VISITS AS SELECT K, MAX(V) AS HIGHEST FROM CLICKS GROUP BY K;"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    running = start(tmp_path / "cluster", config=CONFIG)
    try:
        yield running
    finally:
        running.close()


@dataclass
class Feed:
    """Events that are sent, and what the tables make of them."""

    cluster: TestCluster
    sent: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def send(self, count: int) -> None:
        start = len(self.sent)
        fresh = [(f"key-{at % KEYS}", at % 101) for at in range(start, start + count)]
        now_ms = time.time_ns() // 1_000_000
        events = [
            Event(key=key.encode(), value=json.dumps({"V": v}).encode(), time_ms=now_ms)
            for key, v in fresh
        ]
        self.cluster.send("clicks", events)
        self.sent += fresh

    def of(self, key: str) -> list[int]:
        return [v for sent, v in self.sent if sent == key]


@dataclass
class Reader:
    """Asks one node for one key after the other until it is stopped."""

    address: str
    failed: list[str] = field(default_factory=list[str])
    #: column names of the answers, runs of equal ones counted
    shapes: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        keys = itertools.cycle([f"key-{at}" for at in range(KEYS) if at != 7])
        with NodesClient([self.address], timeout_s=10.0) as client:
            while not self.stopped.wait(0.05):  # the pipeline wants the processor, too
                key = next(keys)
                try:
                    answer = client.pull(f"SELECT * FROM VISITS WHERE K = '{key}';")
                except Exception as error:
                    self.failed.append(f"{key}: {error!r}")
                    continue
                if [row[0] for row in answer.rows] != [key]:
                    self.failed.append(f"{key}: {answer.rows}")
                self.note(answer.column_names)

    def note(self, names: tuple[str, ...]) -> None:
        if self.shapes and self.shapes[-1][0] == names:
            self.shapes[-1] = (names, self.shapes[-1][1] + 1)
        else:
            self.shapes.append((names, 1))


@dataclass
class Readers:
    readers: list[Reader]
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    @classmethod
    def of(cls, cluster: TestCluster) -> Readers:
        readers = cls([Reader(address) for _, address in cluster.addresses])
        for reader in readers.readers:
            thread = threading.Thread(target=reader.run, daemon=True)
            thread.start()
            readers.threads.append(thread)
        return readers

    def stop(self) -> None:
        for reader in self.readers:
            reader.stopped.set()
        for thread in self.threads:
            thread.join(30)

    def check(self, *shapes: tuple[str, ...]) -> None:
        """No read failed, and each node's answers had these columns, in this order of time."""
        for reader in self.readers:
            assert reader.failed == []
            assert [names for names, _ in reader.shapes] == [*shapes]
            assert min(count for _, count in reader.shapes) > 10, "it was there all the time"


def described(cluster: TestCluster) -> dict[str, Any]:
    (entity,) = cluster.sql("DESCRIBE VISITS;")
    return dict(entity["sourceDescription"])


def generation(cluster: TestCluster) -> int:
    return int(described(cluster)["standpipe"]["generation"])


def is_half_built(cluster: TestCluster) -> bool | None:
    successor = described(cluster)["standpipe"]["successor"]
    assert successor is not None, "it was built before its driver could be killed"
    return 5 < (successor["progressPercent"] or 0) < 95 or None


def folded(cluster: TestCluster) -> dict[str, dict[str, Any]]:
    """What a reader of the public topic makes of it: the newest value of each key."""
    rows: dict[str, dict[str, Any]] = {}
    for message in read_all(cluster.bootstrap_servers, "VISITS", 4):
        key, value = message.key(), message.value()
        assert key is not None
        if value is None:
            rows.pop(key.decode(), None)
        else:
            rows[key.decode()] = json.loads(value)
    return rows


def second_rows(feed: Feed) -> dict[str, dict[str, int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, v in feed.sent:
        found[key].append(v)
    return {
        key: {"TOTAL": sum(values), "N": len(values)}
        for key, values in found.items()
        if key != "key-7"
    }


def check_rows(cluster: TestCluster, expected: dict[str, dict[str, int]]) -> None:
    """Through every node, and in the public topic."""
    for key, row in expected.items():
        cluster.wait_for_rows(f"SELECT * FROM VISITS WHERE K = '{key}';", [[key, *row.values()]])
    for node, _ in cluster.addresses:
        for key, row in expected.items():
            cluster.wait_for_rows(
                f"SELECT * FROM VISITS WHERE K = '{key}';", [[key, *row.values()]], entry=node
            )
    wait_until(
        lambda: folded(cluster) == expected or None,
        "the public topic",
        lambda: str(folded(cluster)),
    )


@pytest.mark.timeout(1800)
def test_reads_never_stop_while_a_table_is_replaced(cluster: TestCluster) -> None:
    cluster.sql(STREAM)
    cluster.sql(FIRST)
    feed = Feed(cluster)
    for _ in range(PORTIONS):
        feed.send(PORTION)
    for at in range(KEYS):
        key = f"key-{at}"
        cluster.wait_for_rows(
            f"SELECT * FROM VISITS WHERE K = '{key}';", [[key, len(feed.of(key))]]
        )
    readers = Readers.of(cluster)
    try:
        cluster.sql(SECOND)
        wait_until(lambda: is_half_built(cluster), "the new generation half built")
        cluster.local.kill_pipeline()
        feed.send(PORTION)
        wait_until(lambda: generation(cluster) == 2 or None, "reads to move")
        feed.send(PORTION)
        check_rows(cluster, second_rows(feed))
    finally:
        readers.stop()
    readers.check(("K", "N"), ("K", "TOTAL", "N"))
    assert cluster.pull("SELECT * FROM VISITS WHERE K = 'key-7';").rows == ()
    assert described(cluster)["topic"] == "VISITS"
    check_once_more(cluster, feed)


def check_once_more(cluster: TestCluster, feed: Feed) -> None:
    """A third generation leaves nothing of the second behind but the public topic."""
    second_topics = changelogs(cluster)
    assert len(second_topics) == 1
    # columns may not be lost unseen: that is what the rules of evolution are for
    cluster.sql(THIRD)
    wait_until(lambda: generation(cluster) == 3 or None, "reads to move again")
    rows = {f"key-{at}": {"HIGHEST": max(feed.of(f"key-{at}"))} for at in range(KEYS)}
    check_rows(cluster, rows)
    wait_until(
        lambda: not (second_topics & changelogs(cluster)) or None,
        "the second generation's topic to be deleted",
    )
    wait_until(lambda: set(store_generations(cluster)) == {3} or None, "old stores to be removed")
    cluster.sql("DROP TABLE VISITS DELETE TOPIC;")
    wait_until(lambda: not changelogs(cluster) or None, "its topics to be deleted")


def changelogs(cluster: TestCluster) -> set[str]:
    (entity,) = cluster.sql("SHOW TOPICS;")
    names = {topic["name"] for topic in entity["topics"]}
    return {name for name in names if name.endswith("-changelog")}


def store_generations(cluster: TestCluster) -> Counter[int]:
    """Stores on disk, state/<table id>-<generation>/<partition>, by generation."""
    return Counter(
        int(path.parent.parent.name.rpartition("-")[2])
        for plan in cluster.local.plans
        for path in (plan.data_directory / "state").glob("*/*/data.mdb")
    )
