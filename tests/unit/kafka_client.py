"""A scripted Kafka client in place of the real one, which is met in tests/e2e."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from standpipe.adapters.kafka import ends
from standpipe.adapters.kafka import reader as kafka


def message(
    at: int,
    *,
    on: str = "T",
    part: int = 0,
    payload: bytes | None = b"v",
    key: bytes = b"k",
    code: int | None = None,
) -> Message:
    """One of the client's own, as `consume` hands it out."""
    error = None if code is None else KafkaError(code)
    return Message(topic=on, partition=part, offset=at, key=key, value=payload, error=error)


@dataclass
class Client:
    """A consumer and a reader of ends in one; notes what it is told."""

    script: list[list[Message]] = field(default_factory=list[list[Message]])
    told: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])
    asked: list[Future[Any]] = field(default_factory=list[Future[Any]])

    def consume(self, _count: int, _wait_s: float) -> list[Message]:
        return self.script.pop(0) if self.script else []

    def __getattr__(self, name: str) -> Any:
        def note(partitions: list[Any]) -> None:
            self.told += [(name, p.topic, p.partition, p.offset) for p in partitions]

        return note

    def get_watermark_offsets(self, _of: object, *, cached: bool) -> tuple[int, int]:
        assert cached
        return (0, -1001 if self.asked else 7)

    def ask(self, _partitions: object) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


def scripted(monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client that all consumers and readers of ends are from now on."""
    one = Client()
    monkeypatch.setattr(ends, "EndsReader", lambda _kafka: one)
    monkeypatch.setattr(kafka._kafka, "Consumer", lambda _options: one)
    return one
