"""The ends of partitions whose leader was killed, asked of a real Kafka of three brokers.

librdkafka's admin client takes two cores from then on: `adapters/kafka/ends.py`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer
from tests.e2e.cluster import wait_until
from tests.e2e.kafka_cluster import KafkaCluster, admin

from standpipe.adapters.kafka import ends
from standpipe.adapters.kafka.ends import EndProbe, Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.io.progress_log import ProgressLog

RECORDS = 30
#: three replicas of each partition, and one: nobody else can lead those
KEPT, ALONE = "kept", "alone"
#: of one client to a broker that is gone for some seconds. There are 150,000 a second without a
#: pause, and ten at most with it
CONNECTS_MAX = 2_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka")) as running:
        made = [admin.NewTopic(KEPT, 3, 3), admin.NewTopic(ALONE, 3, 1)]
        for answer in running.operator().create_topics(made).values():
            answer.result(30)
        producer = Producer({"bootstrap.servers": running.internal_servers})
        for topic in (KEPT, ALONE):
            for number in range(RECORDS):
                producer.produce(topic, b"v", partition=number % 3)
        assert producer.flush(60) == 0
        yield running


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """{name of a client's broker: how often it was dialled}, as the clients of `ends` tell it."""
    counts: dict[str, int] = {}

    def heard(statistics: str) -> None:
        found = json.loads(statistics)
        for name, broker in found["brokers"].items():
            counts[f"{found['name']} {name}"] = broker["connects"]

    monkeypatch.setitem(ends._OPTIONS, "statistics.interval.ms", 200)
    monkeypatch.setitem(ends._OPTIONS, "stats_cb", heard)
    return counts


def of(topic: str) -> list[Partition]:
    return [Partition(topic, number) for number in range(3)]


def leader_of(kafka: KafkaCluster, topic: str, partition: int) -> int:
    found = kafka.operator().list_topics(topic, timeout=10).topics[topic]
    return int(found.partitions[partition].leader)


def told(reader: EndsReader, wanted: Sequence[Partition]) -> Ends:
    """Nothing while Kafka tells nothing."""
    try:
        return reader.read(wanted)
    except KafkaUnavailable:
        return Ends()


@pytest.mark.timeout(300)
def test_ends_while_a_leader_is_gone_and_once_it_is_back(
    kafka: KafkaCluster, connects: dict[str, int]
) -> None:
    every = dict.fromkeys((*of(KEPT), *of(ALONE)), RECORDS // 3)
    reader, log = EndsReader(kafka.internal_servers), ProgressLog(kafka.internal_servers, "d_")
    assert told(reader, [*every]) == every
    assert log.start_offsets(KEPT, 3) == {0: 0, 1: 0, 2: 0}
    probed: list[tuple[int, int]] = []
    over = threading.Event()
    killed = leader_of(kafka, KEPT, 0)
    lost = [one for one in of(ALONE) if leader_of(kafka, ALONE, one.partition) == killed]
    thread = threading.Thread(target=keep_probing, args=(kafka, probed, over))
    thread.start()
    try:
        wait_until(lambda: probed, "the probe is answered")
        kafka.kill(killed)
        left = {one: end for one, end in every.items() if one not in lost}
        wait_until(lambda: told(reader, [*every]) == left, "all that another broker can lead")
        del probed[:]
        wait_until(lambda: probed, "the probe is answered by the new leader")
        wait_until(lambda: ends_of(log) == {0: 10, 1: 10, 2: 10}, "the pipeline, too")
        kafka.start_again(killed)
        wait_until(lambda: told(reader, [*every]) == every, "the broker is back")
        assert {end for _, end in probed} == {RECORDS // 3}
    finally:
        over.set()
        thread.join()
    gone = [count for name, count in connects.items() if name.endswith(f"/{killed}")]
    assert gone, "the clients tell what they did"
    assert max(gone) < CONNECTS_MAX


def ends_of(log: ProgressLog) -> dict[int, int]:
    try:
        return log.end_offsets(KEPT, 3)
    except KafkaUnavailable:
        return {}


def keep_probing(kafka: KafkaCluster, probed: list[tuple[int, int]], over: threading.Event) -> None:
    probe = EndProbe(kafka.internal_servers, Partition(KEPT, 0))
    while not over.wait(0.02):
        if (answer := probe.tick(time.monotonic_ns() // 1_000_000, 100)) is not None:
            probed.append(answer)
