"""Ends of topics, asked by a client that goes on with the leaders it once heard of.

The real one is met in tests/e2e (test_committed_reads, test_pipeline).
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from standpipe.errors import KafkaUnavailable
from standpipe.pipeline import progress_log
from standpipe.pipeline.progress_log import ProgressLog


class Client:
    """Answers `code` until it was made to look, if that helps."""

    def __init__(self, code: int, *, looking_helps: bool) -> None:
        self.code: int | None = code
        self.looking_helps = looking_helps
        self.looks = 0

    def list_topics(self, topic: str, *, timeout: float) -> None:
        assert (topic, timeout) == ("t", progress_log.REQUEST_S_MAX)
        self.looks += 1
        self.code = None if self.looking_helps else self.code

    def list_offsets(self, asked: dict[Any, object], *, request_timeout: float) -> dict[Any, Any]:
        assert request_timeout > 0
        answers: dict[Any, Any] = {}
        for place in asked:
            answers[place] = answer = Future[Any]()
            if self.code is None:
                answer.set_result(SimpleNamespace(offset=7 + place.partition))
            else:
                answer.set_exception(progress_log._kafka.KafkaException(KafkaError(self.code)))
        return answers


def log_with(client: Client, monkeypatch: pytest.MonkeyPatch) -> ProgressLog:
    monkeypatch.setattr(progress_log._kafka, "Producer", lambda _options: None)
    monkeypatch.setattr(progress_log._admin, "AdminClient", lambda _options: client)
    return ProgressLog("b", "default_")


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._NOENT,
    ],
)
def test_a_topic_without_leaders_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A new topic's leaders were missing for four minutes; it had them after 200 ms."""
    client = Client(code, looking_helps=True)
    assert log_with(client, monkeypatch).end_offsets("t", 2) == {0: 7, 1: 8}
    assert client.looks == 1


@pytest.mark.parametrize(
    ("code", "looks"), [(KafkaError._TIMED_OUT, 0), (KafkaError.LEADER_NOT_AVAILABLE, 1)]
)
def test_what_looking_does_not_mend_is_said(
    monkeypatch: pytest.MonkeyPatch, code: int, looks: int
) -> None:
    client = Client(code, looking_helps=False)
    with pytest.raises(KafkaUnavailable):
        log_with(client, monkeypatch).end_offsets("t", 1)
    assert client.looks == looks, "Kafka that does not answer is not asked twice"
