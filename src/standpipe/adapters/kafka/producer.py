"""Rows of INSERT INTO … VALUES on their way into Kafka, each acknowledged by all replicas.

A Kafka client and its thread are created with the first row: most workers never need one. Topics
are looked up in the list of all topics, never by name, because a broker may create a topic that is
asked for by name, with a different number of partitions than the table has.

Source of the partitioner: Java clients hash with murmur2; librdkafka's own default is CRC-32.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.errors import KafkaUnavailable

if TYPE_CHECKING:
    from standpipe.adapters.kafka.topic_ids import TopicIds

DELIVERY_MS_MAX = 10_000
#: the partition that Kafka's default partitioner finds
BY_KEY: Final = -1
LOOKUP_SECONDS_MAX = 3.0
#: A topic that a statement has just created appears within a second.
TOPIC_SECONDS_MAX = 10.0


class WrittenRow(NamedTuple):
    """Where Kafka has put a record. `offset`: -1 if it did not say so."""

    topic: str
    partition: int
    offset: int


@dataclass
class RowProducer:
    """Produces to Kafka. Without bootstrap servers every call raises KafkaUnavailable."""

    kafka: Kafka
    _producer: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _poller: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _known: set[str] = field(default_factory=set[str])
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
        """
        await self.open(topic)
        return await self.post(topic, key, value, at_ms, partition=partition)

    async def open(self, topic: str) -> None:
        """Make sure that `post` may be called. Raises KafkaUnavailable."""
        await asyncio.to_thread(self._client_for, topic)

    def post(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int,
        *,
        partition: int = BY_KEY,
    ) -> asyncio.Future[WrittenRow]:
        """Append one record to an opened topic: done when it is acknowledged, or fails with
        KafkaUnavailable, which is raised at once when the client's own queue is full."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[WrittenRow] = loop.create_future()

        def settle(error: Any, partition: int, offset: int) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(WrittenRow(topic, partition, offset))
            else:
                done.set_exception(self._failed(topic, error))

        def delivered(error: Any, message: Any) -> None:
            partition, offset = -1, -1
            if message is not None:  # a message without a value counts as false
                partition, offset = message.partition(), message.offset()
            loop.call_soon_threadsafe(settle, error, partition, -1 if offset is None else offset)

        try:
            self._client().produce(
                topic, value, key, partition, timestamp=at_ms, on_delivery=delivered
            )
        except (BufferError, _kafka().KafkaException) as error:
            raise self._failed(topic, error) from error
        return done

    def _failed(self, topic: str, error: object) -> KafkaUnavailable:
        from standpipe.adapters.kafka.refusals import refused

        denied = refused(self.kafka, error, "Write", topic)
        return denied or _unavailable(f"cannot write to topic {topic}", error)

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
        """Wait briefly for what is in flight, then end the thread."""
        self._stop.set()
        if self._poller is not None:
            self._poller.join(timeout=1)
        if self._producer is not None:
            self._producer.flush(0.5)

    def _client_for(self, topic: str) -> Any:
        """The client, once the topic exists."""
        until = time.monotonic() + TOPIC_SECONDS_MAX
        while topic not in self._known:
            self._known.update(self._topics())
            if topic not in self._known:
                if time.monotonic() > until:
                    who = connection_of(self.kafka).principal
                    raise KafkaUnavailable(
                        f"Kafka has no topic {topic}, or {who} has no right to Describe it"
                    )
                time.sleep(0.05)
        return self._client()

    def _topics(self) -> dict[str, Any]:
        try:
            return dict(self._client().list_topics(timeout=LOOKUP_SECONDS_MAX).topics)
        except _kafka().KafkaException as error:
            raise _unavailable("cannot list topics", error) from error

    def _client(self) -> Any:
        connection = connection_of(self.kafka)
        if not connection.bootstrap_servers:
            raise KafkaUnavailable("this node was started without Kafka (bootstrap servers)")
        with self._lock:
            if self._producer is None:
                self._producer = _kafka().Producer(
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
                self._poller = threading.Thread(target=self._poll, daemon=True, name="producer")
                self._poller.start()
            return self._producer

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.1)


def _kafka() -> Any:
    """The client library, untyped; loading it takes as long as the rest of a worker's adapters."""
    import confluent_kafka

    return confluent_kafka


def _unavailable(what: str, error: object) -> KafkaUnavailable:
    return KafkaUnavailable(f"{what}: {error}")
