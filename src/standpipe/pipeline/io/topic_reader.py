"""Reads a table topic for the pipeline: records with their timestamps, and the end offsets.

Follows partitions from given offsets, or reads one of them once from its beginning. Not here: the
meaning of the records (`data/commit/repair.py`); the tailer's reader (`adapters/kafka/reader.py`),
which needs no timestamps and must be faster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.refusals import refused
from standpipe.data.commit.repair import SweptRecord
from standpipe.errors import KafkaUnavailable
from standpipe.model import Offset

SILENCE_S_MAX: Final = 30.0
RECORDS_AT_ONCE: Final = 2000

_kafka: Any = confluent_kafka

#: (partition, records, offset below which there are no other records)
ReadPortion = tuple[int, list[SweptRecord], Offset]


class TopicReader:
    """One consumer, one thread."""

    def __init__(self, kafka: Kafka, topic: str, starts: Mapping[int, int]) -> None:
        self._kafka, self._topic = kafka, topic
        self._consumer: Any = _kafka.Consumer(
            {
                **connection_of(kafka).librdkafka(),
                "group.id": "standpipe-janitor",  # the client requires one; no offset is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 50,
                "queued.max.messages.kbytes": 8 * 1024,
                "log_level": 2,  # do not log every failed connection; callers report
            }
        )
        self._consumer.assign(
            [_kafka.TopicPartition(topic, partition, start) for partition, start in starts.items()]
        )

    def poll(self, wait_s: float) -> list[ReadPortion]:
        """What arrived within `wait_s`, in the order of each partition."""
        found: dict[int, list[SweptRecord]] = {}
        ends: dict[int, int] = {}
        for message in self._consumer.consume(RECORDS_AT_ONCE, wait_s):
            partition, error = message.partition(), message.error()
            if error is None:
                found.setdefault(partition, []).append(_record(message))
                ends[partition] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[partition] = message.offset()
            elif denied := refused(self._kafka, error, "Read", self._topic):
                raise denied
        return [
            (partition, found.get(partition, []), Offset(end)) for partition, end in ends.items()
        ]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_once(kafka: Kafka, topic: str, partition: int, end: Offset) -> Iterator[list[SweptRecord]]:
    """A partition from its beginning up to `end`. Raises KafkaUnavailable."""
    return read_between(kafka, topic, partition, 0, end)


def read_between(
    kafka: Kafka, topic: str, partition: int, start: int, end: Offset
) -> Iterator[list[SweptRecord]]:
    """A partition from `start` up to `end`, and possibly further. Raises KafkaUnavailable."""
    reader = TopicReader(kafka, topic, {partition: start})
    try:
        deadline = time.monotonic() + SILENCE_S_MAX
        while True:
            for _, records, reached in reader.poll(0.5):
                yield records
                if reached >= end:
                    return
                deadline = time.monotonic() + SILENCE_S_MAX
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"Kafka: no answer while reading {topic}")
    finally:
        reader.close()


def _record(message: Any) -> SweptRecord:
    _, written_ms = message.timestamp()
    return SweptRecord(
        message.offset(), message.key(), message.value(), message.headers(), written_ms
    )
