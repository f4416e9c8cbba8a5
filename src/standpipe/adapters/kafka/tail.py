"""Reads partitions from given offsets on, for one reader, never waiting: push queries and PRINT.

Each tail has its own consumer: two readers of a partition are at different offsets, and one that
does not poll must not hold up another. The client bounds what is fetched but not yet polled
(`queued.max.messages.kbytes`): when a reader stops polling, fetching stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import confluent_kafka
import structlog
from confluent_kafka import KafkaError

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.reader import REDIAL_OPTIONS, Partition
from standpipe.adapters.kafka.refusals import refused
from standpipe.data.query.record_rows import TopicRecord
from standpipe.errors import ServerError

_kafka: Any = confluent_kafka  # its type hints are partial; what leaves this module is typed
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_OPTIONS: Final[dict[str, object]] = {
    **REDIAL_OPTIONS,
    "log_level": 0,
    "group.id": "standpipe-push",  # the client requires one; nothing is ever committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # an offset that is gone is reported, not skipped
    "allow.auto.create.topics": False,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1000,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 256 * 1024,
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 1024,
}

_GONE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)


class RecordsLost(ServerError):
    """Kafka no longer has the next records of a stream's query: retention, or a recreated topic."""


class TopicTail:
    """One consumer. `starts`: the next offset wanted of each partition, which must exist.

    Numbers only, never "the beginning": the client takes half a second to look that up. Opening and
    closing a tail may take a moment; polling never does.
    """

    def __init__(self, kafka: Kafka, starts: Mapping[Partition, int]) -> None:
        self._kafka = kafka
        self._consumer = _kafka.Consumer({**_OPTIONS, **connection_of(kafka).librdkafka()})
        self._held: set[Partition] = set()
        places = [_kafka.TopicPartition(p.topic, p.partition, at) for p, at in starts.items()]
        self._consumer.assign(places)

    def poll(self, count: int) -> list[tuple[str, TopicRecord]]:
        """What has arrived, at most `count` records, with their topics. Raises RecordsLost."""
        found: list[tuple[str, TopicRecord]] = []
        for message in self._consumer.consume(count, 0):
            if message.error() is not None:
                self._judge(message)
                continue
            record = TopicRecord(
                message.key(),
                message.value(),
                message.timestamp()[1],
                tuple(message.headers() or ()),
                message.partition(),
                message.offset(),
            )
            found.append((message.topic(), record))
        return found

    def hold(self, wanted: Collection[Partition]) -> None:
        """Pause exactly these partitions; resume those that are no longer among them."""
        held = set(wanted)
        if held != self._held:
            self._consumer.pause(_places(held - self._held))
            self._consumer.resume(_places(self._held - held))
            self._held = held

    def close(self) -> None:
        """Close the consumer. May take a moment."""
        self._consumer.close()

    def _judge(self, message: Any) -> None:
        error = message.error()
        if error.code() in _GONE:
            raise RecordsLost(
                f"partition {message.partition()} of {message.topic()} no longer has the records"
                " that come next: retention removed them, or the topic was recreated"
            )
        if denied := refused(self._kafka, error, "Read", message.topic()):
            raise denied
        # a broker that is down, a leader that moved: the client retries by itself
        _log.debug("kafka says", topic=message.topic(), error=str(error))


def _places(partitions: Iterable[Partition]) -> list[Any]:
    return [_kafka.TopicPartition(each.topic, each.partition) for each in partitions]
