"""The end of a partition, asked of Kafka until a broker leads it."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# What a client is told of a topic that was just made, and of a partition whose leader changes:
# metadata names a leader before that broker knows that it is the leader.
LEADERLESS = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)


def end_offset(consumer: Consumer, place: TopicPartition, timeout_s: float = 30.0) -> int:
    """The end of a partition; `KafkaException` if no broker has led it in all that time."""
    return offsets(consumer, place, timeout_s)[1]


def offsets(consumer: Consumer, place: TopicPartition, timeout_s: float = 30.0) -> tuple[int, int]:
    """The first offset and the end of a partition, as `end_offset`."""
    give_up_s = time.monotonic() + timeout_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=timeout_s)
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or time.monotonic() > give_up_s:
                raise
            time.sleep(0.05)  # no request tells when a broker has become the leader
        else:
            return low, high
