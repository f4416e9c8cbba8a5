"""Who counts on a topic waits for it; who asks whether it is there does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from standpipe.errors import KafkaUnavailable
from standpipe.node import topic_partitions
from standpipe.node.topic_partitions import KafkaTopics, TopicPartitions


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
