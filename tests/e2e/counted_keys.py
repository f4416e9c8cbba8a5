"""A table of counts per key under a steady writer, and what each committed batch of it covers.

Values are counts. A batch's source offsets say how often each key was read by then, so counts turn
into the batches that made them, as the judges of `tests/sim/session_histories.py` want them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.e2e.cluster import TestCluster
from tests.e2e.topic_ends import end_offset
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes

import standpipe
from standpipe.adapters import process
from standpipe.data.commit.progress import parse
from standpipe.topics import progress_topic

PARTITIONS = 4
Level = Literal["eventual", "snapshot", "linearizable"]
KEYS = tuple(f"k{number}" for number in range(12))


def statements(name: str) -> str:
    """A stream NAME_EVENTS over topic name_events, and the table NAME_COUNTS of it."""
    return f"""
        CREATE STREAM {name}_EVENTS (K STRING KEY, V BIGINT) WITH (
            KAFKA_TOPIC='{topic_of(name)}', VALUE_FORMAT='JSON', PARTITIONS={PARTITIONS});
        CREATE TABLE {name}_COUNTS AS
            SELECT K, COUNT(*) AS N FROM {name}_EVENTS GROUP BY K EMIT CHANGES;
    """


def topic_of(name: str) -> str:
    return f"{name.lower()}_events"


def progress_of(cluster: TestCluster) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "l", "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(progress_topic("default_"), 0, OFFSET_BEGINNING)])
    return consumer


def batch_in(value: bytes | None, query_id: str, topic: str) -> tuple[int, dict[int, int]] | None:
    """The batch of a progress record, and the ends of the source partitions that it covers."""
    record = parse(value) if value else None
    if record is None or record.query_id != query_id or topic not in record.sources:
        return None
    return record.commit.batch, dict(record.sources[topic])


def batches_of(cluster: TestCluster, query_id: str, topic: str) -> dict[int, dict[int, int]]:
    """What all batches cover that were committed before the call."""
    consumer, found = progress_of(cluster), dict[int, dict[int, int]]()
    of = TopicPartition(progress_topic("default_"), 0)
    end = end_offset(consumer, of)
    while consumer.position([of])[0].offset < end:
        message = consumer.poll(1.0)
        value = None if message is None or message.error() else message.value()
        batch = batch_in(value, query_id, topic)
        if batch is not None:
            found[batch[0]] = batch[1]
    consumer.close()
    return found


class Reader(threading.Thread):
    """Reads through one node at a level, one `read` after the other, until it is told to stop.

    `pause_s`: between two reads. Readers without one leave hardly any processor to a test beside
    theirs, and to the pipeline that they wait for.
    """

    def __init__(
        self,
        address: str,
        name: str,
        level: Level,
        is_over: threading.Event,
        *,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__()
        self.name, self.address, self.level, self.is_over = name, address, level, is_over
        self.pause_s = pause_s
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
                while not self.is_over.wait(self.pause_s):
                    self.read()
        except BaseException as fault:
            self.fault = fault

    def read(self) -> None:
        raise NotImplementedError


class Writer(threading.Thread):
    """Some events at a time. `keys`: source partition -> its keys, by offset."""

    def __init__(
        self,
        cluster: TestCluster,
        topic: str,
        is_over: threading.Event,
        *,
        at_once: int = 3,
        every_s: float = 0.02,
    ) -> None:
        """`at_once`: keys that get an event together, each `every_s`."""
        super().__init__()
        self.topic, self.is_over = topic, is_over
        self.at_once, self.every_s = at_once, every_s
        self.producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        self.keys: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        self.random = random.Random(1)

    def run(self) -> None:
        while not self.is_over.is_set():
            for key in self.random.sample(KEYS, self.at_once):
                number = int(key[1:]) % PARTITIONS
                self.keys[number].append(key)
                self.producer.produce(self.topic, b'{"V":1}', key, partition=number)
            self.producer.flush(10)
            time.sleep(self.every_s)  # the pace of the events, not a wait for anything


def as_batches(
    batches: dict[int, dict[int, int]], keys: dict[int, list[str]]
) -> tuple[Writes, Callable[[SessionAnswer], SessionAnswer]]:
    """Which batches wrote each key, and an answer's counts as the batches that made them. `keys`:
    of a `Writer`."""
    writes, made = Writes(), dict[tuple[str, int], int]()
    counts, read = dict.fromkeys(KEYS, 0), dict.fromkeys(keys, 0)
    for batch in sorted(batches):
        changed = set[str]()
        for number, end in batches[batch].items():
            for key in keys[number][read[number] : end]:
                counts[key] += 1
                changed.add(key)
            read[number] = max(read[number], end)
        writes.add(batch, sorted(changed))
        made |= {(key, counts[key]): batch for key in changed}

    def judged(answer: SessionAnswer) -> SessionAnswer:
        values = {
            key: NO_VALUE if count == NO_VALUE else made.get((key, count), -2)
            for key, count in answer.values.items()
        }
        return SessionAnswer(answer.session, answer.begin, answer.end, values, answer.where)

    return writes, judged


def values_of(rows: Sequence[tuple[str, int]], keys: Sequence[str]) -> dict[str, int]:
    """What an answer shows of each key that was asked for."""
    found = dict(rows)
    return {key: found.get(key, NO_VALUE) for key in keys}


def tailer_of(cluster: TestCluster, number: int) -> int:
    found = process.read_pid(cluster.local.plans[number].data_directory / "run" / "tailer.pid")
    assert found is not None
    return found
