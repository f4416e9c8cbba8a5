"""Who counts on a topic waits for it; who asks whether it is there does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from standpipe.control.metadata.topic_reconciler import ObservedTopic
from standpipe.errors import KafkaUnavailable
from standpipe.node import topic_partitions
from standpipe.node.topic_partitions import KafkaTopics, TopicPartitions, topic_id_of


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
