"""What becomes of rows, and of their clients, from scripted clients. The real one:
tests/e2e/test_serve_inserts.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka import producer as module
from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.kafka.refusals import KafkaAccessDenied
from standpipe.errors import KafkaUnavailable, OutcomeUnknown

NO_ID = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no producer id", fatal=True)
OUT_OF_ORDER = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True)

Report = Callable[[Any, Any], None]


class Client:
    """Keeps rows until it is told what becomes of them. `poll` and `purge` as librdkafka's."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.rows: list[Report] = []
        self.polls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.failed = False

    def produce(self, *_record: object, on_delivery: Report, **_how: object) -> None:
        if self.failed:
            raise KafkaException(KafkaError(KafkaError._FATAL, "no more rows"))
        self.rows.append(on_delivery)

    def poll(self, _wait_s: float) -> None:
        try:
            self.polls.get(timeout=0.01)()
        except Empty:
            return

    def __len__(self) -> int:
        return len(self.rows) + self.polls.qsize()

    def purge(self, *, blocking: bool) -> None:
        assert not blocking
        self.settle(KafkaError(KafkaError._PURGE_QUEUE), None)

    def list_topics(self, *, timeout: float) -> Any:
        library = self.library
        library.looks += 1
        assert library.may_look.wait(timeout)
        if library.look_fault is not None:
            raise KafkaException(library.look_fault)
        return SimpleNamespace(topics=dict.fromkeys(library.topics))

    def settle(self, error: object, message: object) -> None:
        """All rows that it has, with the next poll."""
        rows, self.rows = self.rows, []

        def reported() -> None:
            for report in rows:
                report(error, message)

        self.polls.put(reported)

    def fail(self, error: KafkaError) -> None:
        """Fatally, with the next poll."""

        def raised() -> None:
            raise KafkaException(error)

        self.failed = True
        self.polls.put(raised)


@dataclass
class Library:
    """In place of `confluent_kafka`. `clients`: those that were made, oldest first. `looks`: how
    often topics were listed."""

    topics: set[str] = field(default_factory=lambda: {"t"})
    looks: int = 0
    may_look: threading.Event = field(default_factory=threading.Event)
    look_fault: KafkaError | None = None
    clients: list[Client] = field(default_factory=list[Client])
    KafkaException: type[Exception] = KafkaException

    def Producer(self, options: dict[str, object]) -> Client:
        assert options["enable.idempotence"]
        self.clients.append(Client(self))
        return self.clients[-1]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    library.may_look.set()
    monkeypatch.setattr(module, "_kafka", lambda: library)
    return library


def run(story: Callable[[RowProducer], Awaitable[None]]) -> None:
    async def whole() -> None:
        producer = RowProducer("b:1")
        try:
            async with asyncio.timeout(60):
                await story(producer)
        finally:
            producer._stop.set()

    asyncio.run(whole())


@contextmanager
def without_a_pause() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REPLACE_SECONDS_MIN", 0.0)
        yield


async def posted(producer: RowProducer) -> asyncio.Future[WrittenRow]:
    await producer.open("t")
    return producer.post("t", b"k", b"v", 5)


def acknowledged(kafka: Library, error: object, message: object) -> WrittenRow:
    found: list[WrittenRow] = []

    async def story(producer: RowProducer) -> None:
        row = await posted(producer)
        kafka.clients[0].settle(error, message)
        found.append(await row)

    run(story)
    return found[0]


@pytest.mark.parametrize("value", [b"v", b"", None])
def test_where_a_row_is(kafka: Library, value: bytes | None) -> None:
    """A message without a value counts as false in Python."""
    message = confluent_kafka.Message(topic="t", partition=2, offset=41, value=value)
    assert acknowledged(kafka, None, message) == WrittenRow("t", 2, 41)


def test_a_row_that_is_not_acknowledged(kafka: Library) -> None:
    with pytest.raises(KafkaUnavailable, match="cannot write to topic t"):
        acknowledged(kafka, KafkaError(KafkaError._MSG_TIMED_OUT), None)


def test_an_acknowledgement_that_does_not_say_where(kafka: Library) -> None:
    nowhere = confluent_kafka.Message(topic="t", partition=2)
    assert acknowledged(kafka, None, nowhere) == WrittenRow("t", 2, -1)


def test_an_acknowledgement_without_a_message(kafka: Library) -> None:
    assert acknowledged(kafka, None, None) == WrittenRow("t", -1, -1)


def test_a_fatal_error_answers_the_rows_at_once_and_the_next_one_gets_a_new_client(
    kafka: Library,
) -> None:
    """`poll` raised in its thread, which ended the worker."""

    async def story(producer: RowProducer) -> None:
        rows = [await posted(producer) for _ in range(3)]
        kafka.clients[0].fail(OUT_OF_ORDER)
        for row in rows:
            with pytest.raises(OutcomeUnknown, match="may have been written to topic t: out of o"):
                await row
        row = await posted(producer)
        assert len(kafka.clients) == 2, "nor was a row sent again"
        kafka.clients[1].settle(None, None)
        await row

    with without_a_pause():
        run(story)


def test_the_thread_of_a_client_that_was_replaced_ends(kafka: Library) -> None:
    async def story(producer: RowProducer) -> None:
        row = await posted(producer)
        thread = producer._any().thread
        assert thread is not None
        kafka.clients[0].fail(OUT_OF_ORDER)
        with pytest.raises(OutcomeUnknown):
            await row
        assert thread.is_alive(), "until a row needs another client: it lists topics"
        await producer.open("t")
        await asyncio.to_thread(thread.join, 2)
        assert not thread.is_alive()

    with without_a_pause():
        run(story)


def test_without_a_right_to_a_producer_id_rows_are_refused(
    kafka: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPLACE_SECONDS_MIN", 60.0)

    async def story(producer: RowProducer) -> None:
        row = await posted(producer)
        kafka.clients[0].fail(NO_ID)
        with pytest.raises(KafkaAccessDenied, match="no right to Write on topic t") as found:
            await row
        assert found.value.details["resource"] == "topic:t"
        for _ in range(3):
            with pytest.raises(KafkaAccessDenied, match="no right to Write on topic t"):
                await posted(producer)
        assert len(kafka.clients) == 1, "the next one comes after a pause"

    run(story)


def test_a_client_that_has_just_failed_takes_no_row(kafka: Library) -> None:
    """Between the fatal error and the poll that hears of it."""

    async def story(producer: RowProducer) -> None:
        await producer.open("t")
        kafka.clients[0].failed = True
        with pytest.raises(KafkaUnavailable, match="the row is not written to topic t"):
            producer.post("t", b"k", b"v", 5)

    run(story)


def test_a_client_that_failed_still_lists_topics(kafka: Library) -> None:
    """SHOW TOPICS needs no right to write."""

    async def story(producer: RowProducer) -> None:
        row = await posted(producer)
        kafka.clients[0].fail(NO_ID)
        with pytest.raises(KafkaAccessDenied):
            await row
        assert set(producer._topics()) == {"t"}
        assert len(kafka.clients) == 1

    run(story)


class NoThreads(ThreadPoolExecutor):
    """In place of asyncio's own: whoever wants one of its few threads fails."""

    def submit(self, *_what: object, **_how: object) -> Any:
        raise AssertionError("a thread of asyncio's pool")


def test_rows_of_known_topics_do_not_wait_for_those_of_missing_ones(kafka: Library) -> None:
    """Each row of a missing topic held a thread for 10 s, and each of a known one needed one."""

    async def story(producer: RowProducer) -> None:
        asyncio.get_running_loop().set_default_executor(NoThreads())
        await producer.open("t")
        kafka.may_look.clear()
        waiting = [asyncio.create_task(producer.open(name)) for name in ["u", "v"] * 20]
        while kafka.looks < 2:  # noqa: ASYNC110 it looks in a thread
            await asyncio.sleep(0.001)
        row = await posted(producer)
        kafka.clients[0].settle(None, None)
        await row
        kafka.topics |= {"u", "v"}
        kafka.may_look.set()
        await asyncio.gather(*waiting)
        assert kafka.looks == 2, "one for all that wait"

    run(story)


def test_a_topic_that_does_not_come(kafka: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPIC_SECONDS_MAX", 0.02)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)

    async def story(producer: RowProducer) -> None:
        waiting = [producer.open("gone") for _ in range(5)]
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, KafkaUnavailable)
            assert "Kafka has no topic gone, or User:ANONYMOUS has no right to Des" in found.message
        kafka.topics.add("gone")
        await producer.open("gone")

    run(story)


def test_who_waits_for_a_topic_is_told_that_kafka_does_not_answer(kafka: Library) -> None:
    async def story(producer: RowProducer) -> None:
        kafka.look_fault = KafkaError(KafkaError._TRANSPORT, "no broker")
        waiting = [producer.open("t") for _ in range(5)]
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, KafkaUnavailable)
            assert "cannot list topics" in found.message
        assert kafka.looks == 1
        kafka.look_fault = None
        await producer.open("t")

    run(story)


def test_a_client_that_gives_up_leaves_the_wait_to_the_others(kafka: Library) -> None:
    async def story(producer: RowProducer) -> None:
        kafka.may_look.clear()
        gone, other = (asyncio.create_task(producer.open("t")) for _ in range(2))
        while kafka.looks < 1:  # noqa: ASYNC110 it looks in a thread
            await asyncio.sleep(0.001)
        gone.cancel()
        kafka.may_look.set()
        await other
        assert kafka.looks == 1

    run(story)
