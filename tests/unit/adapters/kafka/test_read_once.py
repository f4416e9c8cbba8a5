"""Where a topic ends while the leaders of its partitions change. With Kafka: test_push_tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka import ends, read_once
from standpipe.errors import KafkaUnavailable


class Client:
    """Fails with the codes of `fails`, one a request, then answers 7."""

    def __init__(self, *fails: int) -> None:
        self.fails = list(fails)
        self.refreshed = 0

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> list[Any]:
        assert timeout == read_once.REQUEST_S_MAX
        if self.fails:
            raise KafkaException(KafkaError(self.fails.pop(0)))
        return [
            SimpleNamespace(topic=one.topic, partition=one.partition, offset=7, error=None)
            for one in asked
        ]

    def list_topics(self, topic: str, *, timeout: float) -> None:
        self.refreshed += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _wait_s: float) -> None:
        return None


def ends_with(monkeypatch: pytest.MonkeyPatch, client: Client) -> dict[int, int]:
    monkeypatch.setattr(ends, "LEADER_LOOK_S", 0)
    monkeypatch.setattr(ends._kafka, "Consumer", lambda _options: client)
    return read_once.log_ends("b", "T", 2)


def test_a_topic_without_a_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push query that follows its CREATE at once got 503 where its topic had no leader yet."""
    client = Client(
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_PARTITION,
    )
    assert ends_with(monkeypatch, client) == {0: 7, 1: 7}
    assert client.refreshed == 3, "else the client keeps to the leader that it knows"


def test_a_topic_that_gets_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "LEADER_S_MAX", 0)
    with pytest.raises(KafkaUnavailable, match="LEADER_NOT_AVAILABLE"):
        ends_with(monkeypatch, Client(*[KafkaError.LEADER_NOT_AVAILABLE] * 100))


def test_other_errors_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(KafkaError._TIMED_OUT)
    with pytest.raises(KafkaUnavailable):
        ends_with(monkeypatch, client)
    assert client.refreshed == 1, "for the next request"
