"""Rows of INSERT INTO … VALUES on their way into Kafka, each acknowledged by all replicas.

A Kafka client and its thread are created with the first row: most workers never need one. Topics
are looked up in the list of all topics, never by name, because a broker may create a topic that is
asked for by name, with a different number of partitions than the table has. All that wait for a
topic share one wait, and all waits share each look at the list. A known topic needs no thread.

A client that meets a fatal error takes no more rows, and its `poll` raises the error. The rows
that it had are answered at once, and the next row gets a new client. That has another producer id,
by which Kafka would not know a row again, so none is sent again from here.

Not here: what is said of a row that is not acknowledged (`adapters/kafka/row_errors.py`).

Source of the partitioner: Java clients hash with murmur2; librdkafka's own default is CRC-32.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.errors import KafkaUnavailable

if TYPE_CHECKING:
    from standpipe.adapters.kafka.row_errors import RowErrors
    from standpipe.adapters.kafka.topic_ids import TopicIds

DELIVERY_MS_MAX = 10_000
#: the partition that Kafka's default partitioner finds
BY_KEY: Final = -1
LOOKUP_SECONDS_MAX = 3.0
#: A topic that a statement has just created appears within a second.
TOPIC_SECONDS_MAX = 10.0
#: from the end of a look for topics to the next one
LOOK_SECONDS: Final = 0.05
#: one looks for topics, the other makes a client
_THREADS: Final = 2
#: From one client to the next. As a missing right fails each of them at once, INSERTs that are sent
#: again and again would make one each.
REPLACE_SECONDS_MIN: Final = 1.0


class WrittenRow(NamedTuple):
    """Where Kafka has put a record. `offset`: -1 if it did not say so."""

    topic: str
    partition: int
    offset: int


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="producer")


@dataclass(eq=False)
class _RowClient:
    """One client, and what became of it."""

    client: Any
    #: by `time.monotonic`
    born_s: float
    thread: threading.Thread | None = None
    #: the fatal error that ended it, a KafkaError; None: it takes rows
    fatal: Any = None
    #: whether Kafka has acknowledged a row of it; it had a producer id then
    has_written: bool = False
    is_replaced: bool = False


@dataclass
class RowProducer:
    """Produces to Kafka. Without bootstrap servers every call raises KafkaUnavailable."""

    kafka: Kafka
    #: the newest; one that has failed stays until a row needs another, and still lists topics
    _current: _RowClient | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _known: set[str] = field(default_factory=set[str])
    #: own ones: asyncio's few are for all that a worker may not do on its loop
    _threads: ThreadPoolExecutor = field(default_factory=_pool)
    #: who waits for which topic
    _waits: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])
    #: the look for topics that is under way
    _look: asyncio.Task[None] | None = None
    #: when the next one may begin, on the loop's clock
    _look_s: float = 0.0
    _ids: TopicIds | None = None

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int,
        *,
        partition: int = BY_KEY,
    ) -> WrittenRow:
        """Append one record and wait for the acknowledgement. `at_ms`: its timestamp (ROWTIME).

        Raises KafkaUnavailable; the row may still have been written if the answer was lost.
        OutcomeUnknown: it may have been, and its client has failed. BadRequest: Kafka refuses
        such a row for this topic.
        """
        await self.open(topic)
        return await self.post(topic, key, value, at_ms, partition=partition)

    async def open(self, topic: str) -> None:
        """Make sure that `post` may be called: the topic exists, and there is a client that takes
        rows. Raises KafkaUnavailable."""
        if topic not in self._known:
            if topic not in self._waits:
                self._waits[topic] = _shared(self._appearance(topic))
            await asyncio.shield(self._waits[topic])
        if self._current is None or self._current.fatal is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._living, topic)

    def post(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int,
        *,
        partition: int = BY_KEY,
    ) -> asyncio.Future[WrittenRow]:
        """Append one record to an opened topic: done when it is acknowledged, or fails as `send`
        does. Raised at once if the client takes no such row, or none: its own queue is full, or
        it has failed."""
        one = self._living(topic)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[WrittenRow] = loop.create_future()

        def settle(error: Any, partition: int, offset: int) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(WrittenRow(topic, partition, offset))
            else:
                fault = self._errors(topic, one).lost(error, has_written=one.has_written)
                done.set_exception(fault)

        def delivered(error: Any, message: Any) -> None:
            partition, offset = -1, -1
            if error is None:
                one.has_written = True
            if message is not None:  # a message without a value counts as false
                partition, offset = message.partition(), message.offset()
            loop.call_soon_threadsafe(settle, error, partition, -1 if offset is None else offset)

        try:
            one.client.produce(topic, value, key, partition, timestamp=at_ms, on_delivery=delivered)
        except (BufferError, _kafka().KafkaException) as error:
            raise self._errors(topic, one).not_taken(error) from error
        return done

    def _errors(self, topic: str, one: _RowClient) -> RowErrors:
        from standpipe.adapters.kafka.row_errors import RowErrors

        return RowErrors(self.kafka, topic, one.fatal)

    async def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Kafka's ids of topics that were written just now, asked for after the call; without those
        that it does not tell."""
        if not topics:
            return {}
        if self._ids is None:
            from standpipe.adapters.kafka.topic_ids import TopicIds

            self._ids = TopicIds(self.kafka)
        return await self._ids.of(topics)

    def replica_counts(self) -> dict[str, list[int]]:
        """All topics: how many replicas each partition has. Blocks; raises KafkaUnavailable."""
        topics = self._topics()
        return {
            name: [len(partition.replicas) for _, partition in sorted(topic.partitions.items())]
            for name, topic in topics.items()
        }

    def close(self) -> None:
        """Wait briefly for what is in flight, then end the threads."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        one = self._current
        if one is None:
            return
        if one.thread is not None:
            one.thread.join(timeout=1)
        with suppress(_kafka().KafkaException):  # a fatal error that nobody has heard of yet
            one.client.flush(0.5)

    async def _appearance(self, topic: str) -> None:
        """Returns when the topic is there."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TOPIC_SECONDS_MAX
        try:
            while topic not in self._known:
                if loop.time() > until_s:
                    who = connection_of(self.kafka).principal
                    raise KafkaUnavailable(
                        f"Kafka has no topic {topic}, or {who} has no right to Describe it"
                    )
                if self._look is None:
                    self._look = _shared(self._look_once())
                await asyncio.shield(self._look)
        finally:
            del self._waits[topic]

    async def _look_once(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._look_s - loop.time())
            self._known.update(await loop.run_in_executor(self._threads, self._topics))
        finally:
            self._look, self._look_s = None, loop.time() + LOOK_SECONDS

    def _topics(self) -> dict[str, Any]:
        try:
            return dict(self._any().client.list_topics(timeout=LOOKUP_SECONDS_MAX).topics)
        except _kafka().KafkaException as error:
            raise _unavailable("cannot list topics", error) from error

    def _any(self) -> _RowClient:
        """The newest client, also one that takes no more rows."""
        with self._lock:
            if self._current is None:
                self._current = self._created()
            return self._current

    def _living(self, topic: str) -> _RowClient:
        """A client that takes rows. Raises KafkaUnavailable until it is time for the next one."""
        one = self._any()
        if one.fatal is None:
            return one
        with self._lock:
            if self._current is one:
                if time.monotonic() < one.born_s + REPLACE_SECONDS_MIN:
                    raise self._errors(topic, one).not_taken(one.fatal)
                one.is_replaced, self._current = True, self._created()
        return self._any()

    def _created(self) -> _RowClient:
        connection = connection_of(self.kafka)
        if not connection.bootstrap_servers:
            raise KafkaUnavailable("this node was started without Kafka (bootstrap servers)")
        client = _kafka().Producer(
            {
                **connection.librdkafka(),
                "partitioner": "murmur2_random",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "delivery.timeout.ms": DELIVERY_MS_MAX,
                "log_level": 2,
            }
        )
        one = _RowClient(client, time.monotonic())
        one.thread = threading.Thread(target=self._poll, args=(one,), daemon=True, name="producer")
        one.thread.start()
        return one

    def _poll(self, one: _RowClient) -> None:
        """Until it is replaced and has answered all its rows: this then ends the client, too."""
        while not self._stop.is_set() and (not one.is_replaced or len(one.client)):
            try:
                one.client.poll(0.1)
            except _kafka().KafkaException as error:
                cause = error.args[0]
                if cause.fatal():
                    one.fatal = cause
                    with suppress(_kafka().KafkaException):
                        one.client.purge(blocking=False)  # else they wait for DELIVERY_MS_MAX


def _shared(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task for several who wait. Its error is read even if all of them have gone, so that asyncio
    logs no warning."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _kafka() -> Any:
    """The client library, untyped; loading it takes as long as the rest of a worker's adapters."""
    import confluent_kafka

    return confluent_kafka


def _unavailable(what: str, error: object) -> KafkaUnavailable:
    return KafkaUnavailable(f"{what}: {error}")
