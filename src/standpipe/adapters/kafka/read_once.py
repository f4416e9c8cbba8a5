"""A topic from its first record to its current end: what a pull query on a stream reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import confluent_kafka

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.ends import EARLIEST, LATEST, EndsReader
from standpipe.adapters.kafka.refusals import concerns_group, refused
from standpipe.data.query.record_rows import TopicRecord
from standpipe.errors import KafkaUnavailable

_kafka: Any = confluent_kafka  # its type hints are partial; what leaves this module is typed

REQUEST_S_MAX: Final = 10.0
RECORDS_AT_ONCE: Final = 1000

#: for a consumer that is assigned offset 0: if retention has removed that, the first one left.
#: OFFSET_BEGINNING would do the same half a second later: librdkafka resolves it on a timer, but
#: requests a number at once
FROM_THE_BEGINNING: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
#: of records that were fetched and not taken yet, for a reader that waits for its client
QUEUED_KIB_MAX: Final = 8 * 1024


def read_topic(
    kafka: Kafka,
    topic: str,
    partitions: int,
    deadline: float,
    waiting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Iterator[TopicRecord]:
    """Records of all partitions up to their ends. Raises KafkaUnavailable after `deadline`
    (`time.monotonic`), or where Kafka does not answer. `waiting`: around each wait for Kafka."""
    common = {**connection_of(kafka).librdkafka(), "log_level": 0}
    with waiting():
        ends = log_ends(kafka, topic, partitions)
    left = {partition for partition, end in ends.items() if end > 0}
    if not left:
        return
    consumer: Any = _kafka.Consumer(
        {
            **common,
            **FROM_THE_BEGINNING,
            "group.id": "unused",
            "queued.max.messages.kbytes": QUEUED_KIB_MAX,
        }
    )
    try:
        consumer.assign([_kafka.TopicPartition(topic, p, 0) for p in sorted(left)])
        while left:
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"{topic} could not be read in time")
            with waiting():
                messages = consumer.consume(RECORDS_AT_ONCE, 0.1)
            for message in messages:
                if concerns_group(message.error()):
                    continue
                if message.error() is not None:
                    denied = refused(kafka, message.error(), "Read", topic)
                    raise denied or KafkaUnavailable(f"Kafka: {message.error()}")
                partition, offset = message.partition(), message.offset()
                if offset < ends[partition]:
                    yield TopicRecord(
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        tuple(message.headers() or ()),
                        partition,
                        offset,
                    )
            # positions, not records: the last offsets may hold none (compaction, transactions)
            for place in consumer.position(consumer.assignment()):
                if place.offset >= ends[place.partition]:
                    left.discard(place.partition)
    finally:
        consumer.close()


def log_ends(kafka: Kafka, topic: str, partitions: int) -> dict[int, int]:
    """Where each partition ends now. Raises KafkaUnavailable."""
    return _asked(kafka, topic, partitions, LATEST)


def log_starts(kafka: Kafka, topic: str, partitions: int) -> dict[int, int]:
    """The first offset that each partition still has. Raises KafkaUnavailable."""
    return _asked(kafka, topic, partitions, EARLIEST)


def _asked(kafka: Kafka, topic: str, partitions: int, which: int) -> dict[int, int]:
    try:
        return EndsReader(kafka).offsets(topic, partitions, which, REQUEST_S_MAX)
    except _kafka.KafkaException as error:
        denied = refused(kafka, error, "Describe", topic)
        raise denied or KafkaUnavailable(f"Kafka: {error}") from error
