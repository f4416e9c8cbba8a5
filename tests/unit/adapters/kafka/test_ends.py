"""The ends of many partitions: what Kafka tells, and what its errors mean."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from standpipe.adapters.kafka import ends as module
from standpipe.adapters.kafka.ends import EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.errors import KafkaUnavailable

T0, T1, U0 = Partition("T", 0), Partition("T", 1), Partition("U", 0)


class Admin:
    """Answers each partition from `script`: an offset, or the code of an error."""

    def __init__(self) -> None:
        self.script: dict[tuple[str, int], int | KafkaError] = {}
        self.refreshed: list[str] = []
        self.levels: list[Any] = []

    def list_offsets(
        self, asked: dict[Any, object], *, request_timeout: float, isolation_level: Any = None
    ) -> dict[Any, Any]:
        assert request_timeout > 0
        self.levels.append(isolation_level)
        return {name: self._answer(self.script[name.topic, name.partition]) for name in asked}

    def _answer(self, said: int | KafkaError) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(said, KafkaError):
            future.set_exception(KafkaException(said))
        else:
            future.set_result(SimpleNamespace(offset=said))
        return future

    def list_topics(self, topic: str, *, timeout: float) -> None:
        assert timeout < 1
        self.refreshed.append(topic)

    def poll(self, _wait_s: float) -> None:
        return None


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    one = Admin()
    monkeypatch.setattr(module._admin, "AdminClient", lambda _options: one)
    return one


def test_what_kafka_tells(admin: Admin) -> None:
    admin.script = {
        ("T", 0): 120,
        ("T", 1): KafkaError(KafkaError.LEADER_NOT_AVAILABLE),
        ("U", 0): KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART),
    }
    told = EndsReader("b").ask([T0, T1, U0]).result(30)
    assert told == {T0: 120, U0: None}, "one is unknown, and one may be told the next time"
    assert sorted(admin.refreshed) == ["T", "U"], "else the client keeps to what it knows"


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE])
def test_when_it_tells_nothing(admin: Admin, code: int) -> None:
    admin.script = {("T", 0): KafkaError(code)}
    with pytest.raises(KafkaUnavailable, match="where topics end"):
        EndsReader("b").ask([T0]).result(30)


def test_a_client_that_cannot_even_ask(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(admin, "list_offsets", fails)
    with pytest.raises(KafkaUnavailable):
        EndsReader("b").ask([T0]).result(30)


def test_the_end_of_what_a_consumer_may_read(admin: Admin) -> None:
    admin.script = {("T", 0): 120}
    EndsReader("b").ask([T0]).result(30)
    EndsReader("b", is_stable=True).ask([T0]).result(30)
    assert admin.levels == [None, IsolationLevel.READ_COMMITTED]
