"""The ends of many partitions: what Kafka tells, and what its errors mean.

The real client is met in tests/e2e: `test_dead_leader`.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from standpipe.adapters.kafka import ends as module
from standpipe.adapters.kafka.ends import EARLIEST, LATEST, EndProbe, Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.errors import KafkaUnavailable

T0, T1, T2, U0 = Partition("T", 0), Partition("T", 1), Partition("T", 2), Partition("U", 0)


@dataclass
class Kafka:
    """Brokers with their partitions. Clients learn who leads what by `list_topics` alone."""

    ends: dict[Partition, int] = field(default_factory=dict[Partition, int])
    leaders: dict[Partition, int] = field(default_factory=dict[Partition, int])
    gone: set[int] = field(default_factory=set[int])
    #: partitions of which their leaders say an error
    faults: dict[Partition, int] = field(default_factory=dict[Partition, int])
    options: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    #: partitions of each request, and topics that were looked at
    requests: list[set[Partition]] = field(default_factory=list[set[Partition]])
    looks: list[str] = field(default_factory=list[str])

    def lead(self, broker: int, *partitions: Partition) -> None:
        for one in partitions:
            self.leaders[one] = broker
            self.ends.setdefault(one, 10 * (one.partition + 1))


class Client:
    """Takes the leaders it learnt last for those that lead."""

    def __init__(self, kafka: Kafka, options: dict[str, Any]) -> None:
        self.kafka = kafka
        self.known = dict(kafka.leaders)
        kafka.options.append(options)

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> Iterator[Any]:
        assert timeout == module.PROBE_TIMEOUT_S
        assert {one.offset for one in asked} == {LATEST}
        wanted = {Partition(one.topic, one.partition) for one in asked}
        self.kafka.requests.append(wanted)
        leaders = {self.known[one] for one in wanted if one in self.known} - {-1}
        if leaders & self.kafka.gone:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if not leaders:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        for one in wanted & self.kafka.faults.keys():
            raise KafkaException(KafkaError(self.kafka.faults[one]))
        return (self._told(one) for one in wanted)

    def _told(self, one: Partition) -> Any:
        leader = self.known.get(one)
        code = KafkaError._UNKNOWN_PARTITION if leader is None else KafkaError.LEADER_NOT_AVAILABLE
        error = None if leader is not None and leader >= 0 else KafkaError(code)
        offset = self.kafka.ends[one] if error is None else -1
        return SimpleNamespace(topic=one.topic, partition=one.partition, offset=offset, error=error)

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        assert timeout < 1
        self.kafka.looks.append(topic)
        of = {one: leader for one, leader in self.kafka.leaders.items() if one.topic == topic}
        self.known = {o: leader for o, leader in self.known.items() if o.topic != topic} | of
        error = None if of else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        partitions = {one.partition: SimpleNamespace(leader=leader) for one, leader in of.items()}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def poll(self, _wait_s: float) -> None:
        return None


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    one = Kafka()
    monkeypatch.setattr(module._kafka, "Consumer", lambda options: Client(one, options))
    return one


def told(reader: EndsReader, *wanted: Partition) -> Ends:
    return reader.ask(wanted).result(30)


def test_what_kafka_tells(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    kafka.lead(-1, T1)
    reader = EndsReader("b")
    assert told(reader, T0, T1, U0) == {T0: 10, U0: None}, (
        "one is unknown, and one may be told the next time"
    )
    assert sorted(kafka.looks) == ["T", "U"], "else the client keeps to what it knows"


def test_a_leader_that_is_gone_holds_up_the_others_once(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    kafka.lead(2, T1, T2)
    kafka.gone = {2}
    reader = EndsReader("b")
    with pytest.raises(KafkaUnavailable, match="where topics end"):
        told(reader, T0, T1, T2)
    assert told(reader, T0, T1, T2) == {T0: 10}, "each broker has a request of its own"
    assert sorted(map(sorted_numbers, kafka.requests)) == [[0], [0, 1, 2], [1, 2]]
    kafka.lead(1, T1, T2)
    assert told(reader, T0, T1, T2) == {T0: 10, T1: 20, T2: 30}, "the new leader is heard of"
    kafka.requests.clear()
    assert told(reader, T0, T1, T2) == {T0: 10, T1: 20, T2: 30}
    assert kafka.requests == [{T0, T1, T2}], "and there is one request again"


def sorted_numbers(wanted: set[Partition]) -> list[int]:
    return sorted(one.partition for one in wanted)


def test_a_question_that_failed_leaves_no_cycle(kafka: Kafka) -> None:
    """Tailers collect none: each would keep its frames, with all partitions, for ever."""
    kafka.lead(1, T0)
    kafka.gone = {1}
    reader, others = EndsReader("b"), set(threading.enumerate())
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):  # with one request for all, and with one for each broker
            answer = reader.ask([T0])
            gone = weakref.ref(answer)
            with contextlib.suppress(KafkaUnavailable):
                answer.result(30)
            del answer
            for thread in set(threading.enumerate()) - others:
                thread.join(1)
            assert gone() is None
    finally:
        gc.enable()


def test_a_partition_that_nobody_leads_holds_up_nothing(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    kafka.lead(2, T1)
    kafka.gone = {2}
    reader = EndsReader("b")
    with pytest.raises(KafkaUnavailable):
        told(reader, T0, T1)
    kafka.lead(-1, T1)
    assert told(reader, T0, T1) == {T0: 10}
    kafka.requests.clear()
    assert told(reader, T0, T1) == {T0: 10}
    assert kafka.requests == [{T0, T1}], "what has no leader is left out by the client"


def test_a_partition_whose_leader_says_an_error_hides_no_other(kafka: Kafka) -> None:
    """A topic that was just made, or one with a broken disk."""
    kafka.lead(1, *(every := [T0, T1, T2, U0]))
    kafka.faults = {T1: KafkaError.NOT_LEADER_FOR_PARTITION}
    reader = EndsReader("b")
    assert told(reader, *every) == {T0: 10, T2: 30, U0: 10}, "at once: no time was lost"
    assert kafka.requests[0] == {*every}
    kafka.faults.clear()
    kafka.requests.clear()
    assert told(reader, *every) == {T0: 10, T1: 20, T2: 30, U0: 10}
    assert kafka.requests == [{*every}]


def test_a_topic_that_got_its_leaders_meanwhile_is_told_at_once(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    kafka.lead(-1, U0)
    reader = EndsReader("b")
    assert told(reader, T0) == {T0: 10}
    kafka.lead(1, U0)
    assert told(reader, T0, U0) == {T0: 10, U0: 10}


def test_when_it_knows_none_of_them(kafka: Kafka) -> None:
    assert told(EndsReader("b"), T0, U0) == {T0: None, U0: None}
    kafka.lead(-1, T0)
    with pytest.raises(KafkaUnavailable, match="no leader is known"):
        told(EndsReader("b"), T0)


def test_the_end_of_what_a_consumer_may_read(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    told(EndsReader("b"), T0)
    told(EndsReader("b", is_stable=True), T0)
    levels = [options["isolation.level"] for options in kafka.options]
    assert levels == ["read_uncommitted", "read_committed"]


def test_threads_that_ask_first_share_a_client(kafka: Kafka) -> None:
    kafka.lead(1, T0)
    reader = EndsReader("b")
    threads = [threading.Thread(target=reader.request, args=([T0],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kafka.options) == 1


def test_nothing_is_asked_of_nothing(kafka: Kafka) -> None:
    assert EndsReader("b").request([], EARLIEST) == {}
    assert kafka.options == []


class Asked(EndsReader):
    """Whose answers the test gives."""

    def __init__(self) -> None:
        self.answers: list[Future[Ends]] = []

    def ask(self, partitions: Any) -> Future[Ends]:
        assert [*partitions] == [T0]
        self.answers.append(Future())
        return self.answers[-1]


def test_a_probe_asks_one_question_at_a_time_and_never_waits() -> None:
    probe = EndProbe("b", T0)
    reader = probe._reader = Asked()
    assert probe.tick(1000, 100) is None
    assert probe.tick(1200, 100) is None
    assert len(reader.answers) == 1, "no answer yet, no second question"
    reader.answers[0].set_result({T0: 7})
    assert probe.tick(1300, 100) == (1000, 7), "the instant of the question, not of the answer"
    assert probe.tick(1301, 100) is None
    reader.answers[1].set_exception(KafkaUnavailable("gone"))
    assert probe.tick(1500, 100) is None
    assert len(reader.answers) == 3, "asked again"
    reader.answers[2].set_result({T0: None})
    assert probe.tick(1700, 100) is None, "Kafka does not know the topic: nothing is confirmed"


def test_what_a_real_client_takes() -> None:
    """Options of a name that it does not know, it refuses."""
    assert module._kafka.TopicPartition is TopicPartition
    EndsReader("127.0.0.1:1")._client()
