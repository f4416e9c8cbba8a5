"""Who counts on a topic waits for it; who asks whether it is there does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from standpipe.control.metadata.topic_reconciler import ObservedTopic
from standpipe.errors import KafkaUnavailable
from standpipe.node import topic_partitions
from standpipe.node.topic_partitions import (
    KafkaSilence,
    KafkaTopics,
    TopicPartitions,
    topic_id_of,
)


class Broker:
    """Knows topic `new` from its third look on, as one that hears of it late."""

    def __init__(self) -> None:
        self.looks = 0

    def ask(self) -> Mapping[str, int]:
        self.looks += 1
        return {"old": 2, "new": 4} if self.looks > 2 else {"old": 2}


def test_a_topic_that_was_just_made_is_found() -> None:
    broker = Broker()
    topics = TopicPartitions(KafkaTopics(broker.ask))
    assert topics["old"] == 2
    assert broker.looks == 1
    assert topics["new"] == 4
    assert broker.looks == 3


def test_asking_whether_it_is_there_looks_once() -> None:
    broker = Broker()
    topics = TopicPartitions(KafkaTopics(broker.ask))
    assert topics.get("new") is None
    assert "new" not in topics
    assert dict(topics) == {"old": 2}
    assert broker.looks == 1


def test_a_topic_that_is_not_there_is_absent_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_partitions, "ABSENT_S", 0.0)
    with pytest.raises(KeyError):
        TopicPartitions(KafkaTopics(Broker().ask))["nowhere"]


class SilentKafka:
    """Takes `takes_s` to say that it is away, on a clock of its own."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.now_s, self.asked, self.is_back = takes_s, 50.0, 0, False

    def ask(self) -> Mapping[str, int]:
        self.asked += 1
        if self.is_back:
            return {"old": 2}
        self.now_s += self.takes_s
        raise KafkaUnavailable(f"silent for {self.takes_s:g} s")


def test_kafka_is_asked_once_for_a_request_while_it_is_silent() -> None:
    """A request with forty CREATEs took two minutes."""
    kafka = SilentKafka(3.0)
    topics = TopicPartitions(KafkaTopics(kafka.ask), {"known": 3})
    looks: list[Callable[[], object]] = [
        lambda: topics["new"],
        lambda: topics.get("new"),
        lambda: "new" in topics,
        lambda: list(topics),
    ]
    for look in looks:
        with pytest.raises(KafkaUnavailable, match="silent for 3 s"):
            look()
    assert (topics["known"], kafka.asked) == (3, 1)


@pytest.mark.parametrize(
    ("takes_s", "pause_s", "asked", "why"),
    [
        (3.0, 0.9, 1, "still silent"),
        (3.0, 1.1, 2, "it may be back"),
        (0.1, 0.0, 2, "it refuses quickly: a right may have been granted"),
    ],
)
def test_kafka_counts_as_silent_for_a_while(
    takes_s: float, pause_s: float, asked: int, why: str
) -> None:
    kafka = SilentKafka(takes_s)
    silence = KafkaSilence(lambda: kafka.now_s)
    for _ in range(2):  # two requests
        with pytest.raises(KafkaUnavailable, match="silent for"):
            KafkaTopics(silence.unless_silent(kafka.ask)).look()
        kafka.now_s += pause_s
    assert kafka.asked == asked, why


def test_kafka_is_back_at_once_when_it_answers() -> None:
    kafka = SilentKafka(3.0)
    ask = KafkaSilence(lambda: kafka.now_s).unless_silent(kafka.ask)
    with pytest.raises(KafkaUnavailable):
        ask()
    kafka.is_back, kafka.now_s = True, kafka.now_s + 1.1
    assert [ask(), ask()] == [{"old": 2}] * 2
    assert kafka.asked == 3


def test_known_sources_need_no_kafka() -> None:
    topics = TopicPartitions(KafkaTopics(None), {"known": 3})
    assert topics["known"] == topics.get("known") == 3
    assert "known" in topics
    with pytest.raises(KafkaUnavailable, match="no Kafka is configured"):
        topics["other"]


def test_the_id_of_a_topic_is_awaited() -> None:
    answers = [{}, {"t": ObservedTopic(1, {}, None, "busy")}, {"t": ObservedTopic(1, {}, "id-1")}]
    assert topic_id_of(lambda _: answers.pop(0), "t") == "id-1"


@pytest.mark.parametrize(
    ("answer", "why"),
    [({}, "it is gone"), ({"t": ObservedTopic(1, {}, None, "denied")}, "denied")],
)
def test_an_id_that_kafka_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, answer: Mapping[str, ObservedTopic], why: str
) -> None:
    monkeypatch.setattr(topic_partitions, "ABSENT_S", 0.0)
    with pytest.raises(KafkaUnavailable, match=f"which topic t is: {why}"):
        topic_id_of(lambda _: answer, "t")
