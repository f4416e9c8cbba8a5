"""Linearizable reads over real Kafka, Spark and three nodes, judged by what the test saw committed.

The test follows the progress topic beside the nodes: what it has read there is committed, so every
read that begins later must show it. Values are counts, which a batch's source offsets turn into
batches for the judge of `tests/sim/linear_histories.py`. Meanwhile the tailer of one node stands
still for a while, and that of another one is killed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.e2e.cluster import TestCluster, wait_until
from tests.sim.linear_histories import linear_violations
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes

import standpipe
from standpipe.adapters import process
from standpipe.client import NodesUnreachable, ServerRefused
from standpipe.data.commit.progress import parse
from standpipe.data.replica.barrier import BARRIER_KEY
from standpipe.local.client.rest_client import NodesClient
from standpipe.session_token import LEVEL_PROPERTY
from standpipe.topics import progress_topic

STATEMENTS = """
CREATE STREAM L_EVENTS (K STRING KEY, V BIGINT)
    WITH (KAFKA_TOPIC='l_events', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE L_COUNTS AS SELECT K, COUNT(*) AS N FROM L_EVENTS GROUP BY K EMIT CHANGES;
"""
PARTITIONS = 4
KEYS = tuple(f"k{number}" for number in range(12))
SCAN = "SELECT K, N FROM L_COUNTS;"
Level = Literal["eventual", "linearizable"]


class Watcher(threading.Thread):
    """Reads the progress topic as anybody may, and writes down when it saw a batch."""

    def __init__(self, cluster: TestCluster, query_id: str) -> None:
        super().__init__()
        self.query_id, self.is_over = query_id, threading.Event()
        self.consumer = progress_of(cluster)
        #: (instant, batch)
        self.committed: list[tuple[float, int]] = []
        self.barriers = 0

    def run(self) -> None:
        while not self.is_over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.barriers += message.key() == BARRIER_KEY
                found = batch_in(message.value(), self.query_id)
                if found is not None:
                    self.committed.append((time.monotonic(), found[0]))
        self.consumer.close()


def progress_of(cluster: TestCluster) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "l", "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(progress_topic("default_"), 0, OFFSET_BEGINNING)])
    return consumer


def batch_in(value: bytes | None, query_id: str) -> tuple[int, dict[int, int]] | None:
    """The batch of a progress record, and the ends of the source partitions that it covers."""
    record = parse(value) if value else None
    if record is None or record.query_id != query_id or "l_events" not in record.sources:
        return None
    return record.commit.batch, dict(record.sources["l_events"])


def batches_of(cluster: TestCluster, query_id: str) -> dict[int, dict[int, int]]:
    """What all batches cover that were committed before the call."""
    consumer, found = progress_of(cluster), dict[int, dict[int, int]]()
    topic = TopicPartition(progress_topic("default_"), 0)
    end = consumer.get_watermark_offsets(topic, timeout=30)[1]
    while consumer.position([topic])[0].offset < end:
        message = consumer.poll(1.0)
        value = None if message is None or message.error() else message.value()
        batch = batch_in(value, query_id)
        if batch is not None:
            found[batch[0]] = batch[1]
    consumer.close()
    return found


class Writer(threading.Thread):
    """Some events each 20 ms. `keys`: source partition -> its keys, by offset."""

    def __init__(self, cluster: TestCluster, is_over: threading.Event) -> None:
        super().__init__()
        self.is_over = is_over
        self.producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        self.keys: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        self.random = random.Random(1)

    def run(self) -> None:
        while not self.is_over.is_set():
            for key in self.random.sample(KEYS, 3):
                number = int(key[1:]) % PARTITIONS
                self.keys[number].append(key)
                self.producer.produce("l_events", b'{"V":1}', key, partition=number)
            self.producer.flush(10)
            time.sleep(0.02)


class Reader(threading.Thread):
    """Reads one key, some, or all, until it is told to stop."""

    def __init__(self, address: str, name: str, level: Level, is_over: threading.Event) -> None:
        super().__init__()
        self.name, self.is_over = name, is_over
        self.client = standpipe.connect(
            address, consistency=level, finds_members=False, timeout_s=30
        )
        self.random = random.Random(name)
        self.answers: list[SessionAnswer] = []
        self.refused = 0
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with self.client:
                while not self.is_over.is_set():
                    self.read()
        except BaseException as fault:
            self.fault = fault

    def read(self) -> None:
        keys = self.random.sample(KEYS, self.random.choice([1, 1, 1, 3]))
        is_scan = self.random.random() < 0.1
        listed = ", ".join(f"'{key}'" for key in keys)
        text = SCAN if is_scan else f"SELECT K, N FROM L_COUNTS WHERE K IN ({listed});"
        begin = time.monotonic()
        try:
            rows = self.client.query(text)
        except (ServerRefused, NodesUnreachable):
            self.refused += 1
            return
        end, found = time.monotonic(), {row["K"]: row["N"] for row in rows}
        values = {key: found.get(key, NO_VALUE) for key in (KEYS if is_scan else keys)}
        self.answers.append(SessionAnswer(self.name, begin, end, values, text))


def as_batches(
    batches: dict[int, dict[int, int]], writer: Writer
) -> tuple[Writes, Callable[[SessionAnswer], SessionAnswer]]:
    """Which batches wrote each key, and an answer's counts as the batches that made them."""
    writes, made = Writes(), dict[tuple[str, int], int]()
    counts = dict.fromkeys(KEYS, 0)
    for batch in sorted(batches):
        ends = batches[batch]
        now = {
            key: writer.keys[int(key[1:]) % PARTITIONS][
                : ends.get(int(key[1:]) % PARTITIONS, 0)
            ].count(key)
            for key in KEYS
        }
        changed = [key for key in KEYS if now[key] != counts[key]]
        writes.add(batch, changed)
        made |= {(key, now[key]): batch for key in changed}
        counts = now

    def judged(answer: SessionAnswer) -> SessionAnswer:
        values = {
            key: NO_VALUE if count == NO_VALUE else made.get((key, count), -2)
            for key, count in answer.values.items()
        }
        return SessionAnswer(answer.session, answer.begin, answer.end, values, answer.where)

    return writes, judged


def tailer_of(cluster: TestCluster, number: int) -> int:
    found = process.read_pid(cluster.local.plans[number].data_directory / "run" / "tailer.pid")
    assert found is not None
    return found


@pytest.mark.timeout(560)
def test_no_read_lacks_what_was_committed_before_it(cluster: TestCluster) -> None:
    cluster.sql(STATEMENTS)
    over = threading.Event()
    watcher = Watcher(cluster, cluster.query_of("L_COUNTS"))
    writer = Writer(cluster, over)
    addresses = [address for _, address in cluster.addresses]
    linear = [Reader(addresses[n % 3], f"linear {n}", "linearizable", over) for n in range(6)]
    eventual = Reader(addresses[1], "eventual", "eventual", over)
    threads: list[threading.Thread] = [writer, *linear, eventual]
    try:
        watcher.start()
        writer.start()
        wait_until(lambda: len(watcher.committed) > 2, "batches")
        wait_until(lambda: _answers(addresses[0]), "rows")
        for reader in (*linear, eventual):
            reader.start()
        time.sleep(6)
        stopped = tailer_of(cluster, 1)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(4)
        os.kill(stopped, signal.SIGCONT)
        os.kill(tailer_of(cluster, 2), signal.SIGKILL)
        wait_until(
            lambda: all(len(one.answers) > 60 or one.fault is not None for one in linear),
            "answers",
        )
    finally:
        over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        watcher.is_over.set()
        watcher.join()
    assert [one.fault for one in (*linear, eventual)] == [None] * 7
    writes, judged = as_batches(batches_of(cluster, watcher.query_id), writer)
    answers = [judged(answer) for reader in linear for answer in reader.answers]
    others = [judged(answer) for answer in eventual.answers]
    assert linear_violations(writes, watcher.committed, answers) == []
    assert linear_violations(writes, watcher.committed, others), "the test would notice"
    took = [1000 * (one.end - one.begin) for one in answers]
    beside = [1000 * (one.end - one.begin) for one in others]
    print(  # figures, which no test asserts
        f"{len(answers)} linearizable reads, {sum(one.refused for one in linear)} refused, "
        f"p50 {statistics.median(took):.0f} ms; {len(others)} eventual, "
        f"p50 {statistics.median(beside):.1f} ms; {watcher.barriers} barriers, "
        f"{len(watcher.committed)} batches"
    )


def _answers(address: str) -> bool:
    with NodesClient([address]) as client, suppress(ServerRefused):
        return bool(client.pull(SCAN, {LEVEL_PROPERTY: "linearizable"}).rows)
    return False
