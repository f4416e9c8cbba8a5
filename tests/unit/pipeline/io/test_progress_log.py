"""Ends of topics, asked by a client that goes on with the leaders it once heard of.

The real one is met in tests/e2e (test_committed_reads, test_pipeline).
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from standpipe.adapters.kafka import ends
from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch
from standpipe.pipeline.io import progress_log
from standpipe.pipeline.io.progress_log import ProgressLog


class Client:
    """Answers `code` until it was made to look, if that helps."""

    def __init__(self, code: int, *, looking_helps: bool) -> None:
        self.code: int | None = code
        self.looking_helps = looking_helps
        self.looks: list[float] = []
        self.requests = 0

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        assert topic == "t"
        self.looks.append(timeout)
        self.code = None if self.looking_helps else self.code
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={})})

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> list[Any]:
        assert timeout == progress_log.REQUEST_S_MAX
        self.requests += 1
        if self.code is not None:
            raise progress_log._kafka.KafkaException(KafkaError(self.code))
        return [
            SimpleNamespace(
                topic=p.topic, partition=p.partition, offset=7 + p.partition, error=None
            )
            for p in asked
        ]

    def refuse(self, *_asked: object, **_how: object) -> None:
        assert self.code is not None
        raise progress_log._kafka.KafkaException(KafkaError(self.code))

    def poll(self, _wait_s: float) -> None:
        return None


def log_with(
    client: object, monkeypatch: pytest.MonkeyPatch, producer: object = None
) -> ProgressLog:
    monkeypatch.setattr(progress_log._kafka, "Producer", lambda _options: producer)
    monkeypatch.setattr(progress_log._kafka, "Consumer", lambda _options: client)
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
    assert len(client.looks) == 1


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE])
def test_what_looking_does_not_mend_is_said(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(ends, "LEADER_S_MAX", 0.3)
    client = Client(code, looking_helps=False)
    with pytest.raises(KafkaUnavailable):
        log_with(client, monkeypatch).end_offsets("t", 1)
    is_silent = code == KafkaError._TIMED_OUT
    assert (client.requests == 1) is is_silent, "Kafka that does not answer is not asked twice"
    assert client.looks, "the next request is for the leader of then"


def test_the_end_of_the_progress_topic_is_not_before_our_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that was deposed answers less: a batch would be compared with older rows."""
    client, producer = Client(0, looking_helps=False), FullProducer(room=9)
    client.code = None
    log = log_with(client, monkeypatch, producer)
    assert log.end() == 7, "as the broker says"
    producer.taken = 7
    for epoch in (1, 2):
        log.fence("Q", LeaseEpoch(epoch))
    assert log.end() == 9


class FullProducer:
    """Takes `room` records, and more once it was polled: then they are acknowledged."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.waiting: list[Any] = []
        self.taken = 0

    def produce(self, *_record: object, on_delivery: Any, **_how: object) -> None:
        if len(self.waiting) >= self.room:
            raise BufferError("Local: Queue full")
        self.waiting.append(on_delivery)

    def poll(self, _wait_s: float) -> None:
        for acknowledge in self.waiting:
            offset, self.taken = self.taken, self.taken + 1
            acknowledge(None, SimpleNamespace(offset=lambda offset=offset: offset))
        self.waiting.clear()


def test_more_rows_than_the_client_holds_are_all_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair of more than 100,000 rows ended the janitor's thread: Local: Queue full."""
    producer = FullProducer(room=3)
    log = log_with(None, monkeypatch, producer)
    log.write_rows("t", 0, [(b"k", b"v", [])] * 10)
    assert producer.taken == 10


def test_a_record_that_the_client_refuses_says_that_kafka_did_not_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        def produce(self, *_record: object, **_how: object) -> None:
            raise progress_log._kafka.KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    with pytest.raises(KafkaUnavailable, match="too large"):
        log_with(None, monkeypatch, Refusing()).write_rows("t", 0, [(b"k", b"v", [])])


def test_who_must_not_wait_loses_what_the_client_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[bytes] = []

    class Narrow:
        def produce(self, _topic: str, value: bytes, _key: None, *, partition: int) -> None:
            if taken:
                raise BufferError("Local: Queue full")
            taken.append(value)

    log_with(None, monkeypatch, Narrow()).tell([b"1", b"2"])
    assert taken == [b"1"]


class Configs:
    """Answers what a topic's configuration is, or an error."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def describe_configs(self, asked: list[Any], *, request_timeout: float) -> dict[Any, Any]:
        assert request_timeout > 0
        answer = Future[Any]()
        if self.code is None:
            answer.set_result({"max.message.bytes": SimpleNamespace(value="5")})
        else:
            answer.set_exception(progress_log._kafka.KafkaException(KafkaError(self.code)))
        return dict.fromkeys(asked, answer)


@pytest.mark.parametrize(
    ("code", "bytes_max"), [(None, 5), (KafkaError.TOPIC_AUTHORIZATION_FAILED, None)]
)
def test_how_large_a_message_of_a_topic_may_be(
    monkeypatch: pytest.MonkeyPatch, code: int | None, bytes_max: int | None
) -> None:
    assert log_with(Configs(code), monkeypatch).message_bytes_max("t") == bytes_max


def test_without_an_answer_no_limit_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the topic takes would be left out."""
    with pytest.raises(KafkaUnavailable):
        log_with(Configs(KafkaError._TIMED_OUT), monkeypatch).message_bytes_max("t")


def test_topics_of_which_kafka_tells_an_error_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would be waited for."""
    client = Client(KafkaError.NOT_LEADER_FOR_PARTITION, looking_helps=False)
    monkeypatch.setattr(client, "offsets_for_times", client.refuse)
    assert log_with(client, monkeypatch).ends_of({"t": 2}) == {}
