"""Where a topic ends while the leaders of its partitions change. With Kafka: test_push_tables."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka import read_once
from standpipe.errors import KafkaUnavailable


class Admin:
    """Fails with the codes of `fails`, one a request, then answers 7."""

    def __init__(self, *fails: int) -> None:
        self.fails = list(fails)
        self.refreshed = 0

    def list_offsets(self, asked: dict[Any, object], *, request_timeout: float) -> dict[Any, Any]:
        future: Future[Any] = Future()
        if self.fails:
            future.set_exception(KafkaException(KafkaError(self.fails.pop(0))))
        else:
            future.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, future)

    def list_topics(self, topic: str, *, timeout: float) -> None:
        self.refreshed += 1
        if self.refreshed == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def ends_with(monkeypatch: pytest.MonkeyPatch, admin: Admin) -> dict[int, int]:
    monkeypatch.setattr(read_once, "LEADER_LOOK_S", 0)
    monkeypatch.setattr(read_once._admin, "AdminClient", lambda _options: admin)
    return read_once.log_ends("b", "T", 2)


def test_a_topic_without_a_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push query that follows its CREATE at once got 503 where its topic had no leader yet."""
    admin = Admin(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert ends_with(monkeypatch, admin) == {0: 7, 1: 7}
    assert admin.refreshed == 2, "else the client keeps to the leader that it knows"


def test_a_topic_that_gets_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_once, "LEADER_S_MAX", 0)
    with pytest.raises(KafkaUnavailable, match="LEADER_NOT_AVAILABLE"):
        ends_with(monkeypatch, Admin(*[KafkaError.LEADER_NOT_AVAILABLE] * 100))


def test_other_errors_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(KafkaError._TIMED_OUT)
    with pytest.raises(KafkaUnavailable):
        ends_with(monkeypatch, admin)
    assert admin.refreshed == 0
