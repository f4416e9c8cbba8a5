"""What becomes of `Arrivals` when its client fails. On Kafka: e2e/test_sleeping_queries.py."""

from __future__ import annotations

from collections import deque

import confluent_kafka
import pytest

from standpipe.pipeline.io import arrivals
from standpipe.pipeline.io.arrivals import Arrivals, NewRecord


class Message:
    def __init__(self, topic: str) -> None:
        self._topic = topic

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


class Failing:
    """A client with a record of each topic, which cannot resume."""

    def __init__(self, _options: object) -> None:
        self._messages = deque([Message("a"), Message("b")])

    def incremental_assign(self, _parts: object) -> None: ...

    def pause(self, _parts: object) -> None: ...

    def resume(self, _parts: object) -> None:
        raise confluent_kafka.KafkaException("no such partition")

    def poll(self, _wait_s: float) -> Message | None:
        return self._messages.popleft() if self._messages else None

    def close(self) -> None: ...


def test_a_client_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics are due to be resumed: the first one's failure forgets the second, too."""
    monkeypatch.setattr(confluent_kafka, "Consumer", Failing)
    monkeypatch.setattr(arrivals, "QUIET_S", 0.0)
    ends = {"a": {0: 0}, "b": {0: 0}}
    heard = Arrivals("127.0.0.1:1")
    heard.watch(ends)
    both = [NewRecord("a", 0, 0), NewRecord("b", 0, 0)]
    assert heard.wait(0) == both
    assert heard.wait(0) == []
    heard.watch(ends)
    assert heard.wait(0) == both
