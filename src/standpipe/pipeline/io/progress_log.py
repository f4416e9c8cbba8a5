"""The pipeline's own writing to Kafka: progress records, fences, samples of bad records.

One producer, one admin client and one consumer for all queries; all are safe to use from several
threads.
Every write is confirmed by all in-sync replicas before the call returns. Topics and formats:
docs/INTERFACES.md, "Kafka topics".
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import structlog

from standpipe import topics
from standpipe.adapters.kafka import topic_ids
from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.ends import EARLIEST, LATEST, Ends, EndsReader
from standpipe.adapters.kafka.read_once import FROM_THE_BEGINNING
from standpipe.adapters.kafka.reader import Partition
from standpipe.adapters.kafka.refusals import concerns_group, refused
from standpipe.data.commit import progress as records
from standpipe.data.commit.seal import Headers, Left, ProgressReader, ProgressSeal, left_of, said
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch, Offset, Progress

WRITE_S_MAX = 30.0
REQUEST_S_MAX = 10.0
#: of the request that wakes idle queries: a broker that hangs must not hold up those of others
ENDS_S_MAX = 2.0
#: larger than any record we write (`config.keys.RECORD_BYTES_MAX` is at most 64 MiB)
REQUEST_BYTES_MAX = 65 * 1024 * 1024

#: confluent_kafka's type hints are partial; what leaves this module is typed
_kafka: Any = confluent_kafka
_admin: Any = confluent_kafka.admin


_logger = structlog.get_logger("progress_log")

_NOT_ALLOWED = (
    _kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    _kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

#: (key, value, headers)
_Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class ProgressLog:
    """Kafka client for the progress topic, the processing log and the offsets of table topics."""

    def __init__(self, kafka: Kafka, service_id: str, secret: str = "") -> None:
        self._kafka = kafka
        self.topic = topics.progress_topic(service_id)
        self._seal = ProgressSeal(secret, self.topic)
        self._processing_log = topics.processing_log_topic(service_id)
        # do not log every failed connection of every client: the caller reports a failure once
        self._common = {**connection_of(kafka).librdkafka(), "log_level": 2}
        self._producer: Any = _kafka.Producer(
            {
                **self._common,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                # a repaired row may be as large as its topic allows, not only 1 MB
                "message.max.bytes": REQUEST_BYTES_MAX,
            }
        )
        self._client: Any = _admin.AdminClient(self._common)
        self._ends = EndsReader(kafka)
        #: end of the progress topic after our own newest record; 0: we have written none
        self._written_end = 0

    def ask_topics(self, topics: Collection[str]) -> Callable[[], dict[str, TopicSeen]]:
        """Ask which of these topics exist. The returned function waits for the answer.

        Both calls raise KafkaUnavailable.
        """
        return topic_ids.ask(self._client, topics, REQUEST_S_MAX, self._kafka)

    def ask_each(
        self, topics: Collection[str], wait_s: float = REQUEST_S_MAX
    ) -> tuple[dict[str, TopicSeen], set[str]]:
        """Those of the topics that exist, with one request; and those about which Kafka says
        nothing, for instance because we have no right to see them. Raises KafkaUnavailable."""
        try:
            seen, faults = topic_ids.ask_each(self._client, topics, wait_s, self._kafka)
        except _kafka.KafkaException as error:
            raise KafkaUnavailable(f"Kafka: {error}") from error
        return seen, {*faults}

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic; 0: no such topic. Raises KafkaUnavailable."""
        try:
            found = self._client.list_topics(topic, timeout=REQUEST_S_MAX).topics
        except _kafka.KafkaException as error:
            raise self._failed(error, "Describe", topic) from error
        return len(found[topic].partitions) if topic in found else 0

    def message_bytes_max(self, topic: str) -> int | None:
        """`max.message.bytes` of a topic; None: this client is not allowed to read it. Raises
        KafkaUnavailable."""
        resource = _admin.ConfigResource(_admin.ConfigResource.Type.TOPIC, topic)
        try:
            asked = self._client.describe_configs([resource], request_timeout=REQUEST_S_MAX)
            found = asked[resource].result()
        except _kafka.KafkaException as error:
            if error.args[0].code() in _NOT_ALLOWED:
                return None
            raise KafkaUnavailable(f"Kafka: {error}") from error
        return int(found["max.message.bytes"].value)

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """End offset of each partition, with one request. Raises KafkaUnavailable."""
        return self._offsets(topic, partitions, LATEST)

    def start_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """First offset of each partition that retention has left. Raises KafkaUnavailable."""
        return self._offsets(topic, partitions, EARLIEST)

    def _offsets(self, topic: str, partitions: int, which: int) -> dict[int, int]:
        try:
            return self._ends.offsets(topic, partitions, which, REQUEST_S_MAX)
        except _kafka.KafkaException as error:
            raise self._failed(error, "Describe", topic) from error

    def ends_of(self, counts: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """End offsets of several topics, given their numbers of partitions, with one request. A
        topic with a partition of which Kafka tells nothing is left out. Raises KafkaUnavailable."""
        told: Ends = {}
        try:
            told = self._ends.read([Partition(t, p) for t, n in counts.items() for p in range(n)])
        except KafkaUnavailable:
            if all(self._ends.look(topic, ENDS_S_MAX) is None for topic in counts):
                raise
        found: dict[str, dict[int, int]] = {}
        for of, end in told.items():
            if end is not None:
                found.setdefault(of.topic, {})[of.partition] = end
        return {topic: ends for topic, ends in found.items() if len(ends) == counts[topic]}

    def delete_below(self, topic: str, offsets: Mapping[int, Offset]) -> None:
        """Delete records below these offsets, which `cleanup.policy` must allow. Raises
        KafkaUnavailable."""
        asked = [_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        try:
            for answer in self._client.delete_records(
                asked, request_timeout=REQUEST_S_MAX, operation_timeout=REQUEST_S_MAX
            ).values():
                answer.result()
        except _kafka.KafkaException as error:
            raise self._failed(error, "Delete", topic) from error

    def append(self, progress: Progress) -> int:
        """Commit a batch. Returns the record's offset once all replicas have it.

        Raises KafkaUnavailable; then it is unknown whether it was written, and the batch is
        replayed under another attempt.
        """
        key, value = records.serialise(progress)
        (offset,) = self._write(self.topic, [(key, value, self._seal.headers(key, value))])
        self._written_end = max(self._written_end, offset + 1)
        return offset

    def end(self) -> int:
        """End offset of the progress topic, which covers all that was appended here: a broker that
        was deposed may answer less. Raises KafkaUnavailable."""
        return max(self._written_end, self.end_offsets(self.topic, 1)[0])

    def reader(self) -> ProgressReader:
        """A new reader of the progress topic, for its records from the beginning."""
        return ProgressReader(self._seal)

    def fence(self, query_id: str, lease_epoch: LeaseEpoch) -> int:
        """Take a query over: from the returned offset on, records of older epochs are void."""
        now_ms, nonce = time.time_ns() // 1_000_000, secrets.randbits(64)
        return self.append(records.fence(query_id, lease_epoch, nonce=nonce, now_ms=now_ms))

    def write_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]],
    ) -> None:
        """Append (key, value, headers) to a table topic. Raises KafkaUnavailable."""
        self._write(topic, rows, partition)

    def tombstone(self, gone: Sequence[Progress]) -> None:
        """Write tombstones for these progress records, in this order. Raises KafkaUnavailable."""
        for record in gone:
            self._write(self.topic, [(records.progress_key(record), None, [])])

    def tombstone_ignored(self, keys: Sequence[bytes]) -> None:
        """Write tombstones for records that readers ignore. Raises KafkaUnavailable."""
        self._write(self.topic, [(key, None, []) for key in keys])

    def records(self) -> list[Progress]:
        """All progress records that no tombstone has deleted. Raises KafkaUnavailable."""
        return self.left().records

    def left(self) -> Left:
        """The same, and the keys of those that readers ignore. Raises KafkaUnavailable."""
        end = self.end()
        return left_of(self._rows_until(end - 1) if end else [], self.reader())

    def report(self, samples: Sequence[bytes]) -> None:
        """Append JSON records to the processing log. Raises KafkaUnavailable."""
        if samples:
            self._write(self._processing_log, [(None, sample, []) for sample in samples])

    def tell(self, samples: Sequence[bytes]) -> None:
        """Like `report`, for callers that must not wait: samples that Kafka rejects are lost."""
        for sample in samples:
            with suppress(BufferError, _kafka.KafkaException):
                self._producer.produce(self._processing_log, sample, None, partition=0)

    def records_until(self, fence_offset: int) -> Iterator[Progress]:
        """Progress records up to and including `fence_offset`. Raises KafkaUnavailable."""
        reader = self.reader()
        for key, value, headers in self._rows_until(fence_offset):
            if value is not None and (record := reader.read(key, value, headers)) is not None:
                yield record
        if reader.ignored:
            _logger.error("progress records are ignored", counts=said(reader.ignored))

    def _rows_until(self, last_offset: int) -> Iterator[tuple[bytes, bytes | None, Headers]]:
        """(key, value, headers) of the records up to and including `last_offset`."""
        consumer: Any = _kafka.Consumer(
            {**self._common, **FROM_THE_BEGINNING, "group.id": "unused"}
        )
        try:
            consumer.assign([_kafka.TopicPartition(self.topic, 0, 0)])
            deadline = time.monotonic() + WRITE_S_MAX
            while True:
                for message in consumer.consume(num_messages=2000, timeout=0.2):
                    if concerns_group(message.error()):
                        continue
                    if message.error() is not None:
                        raise self._failed(message.error(), "Read", self.topic)
                    yield message.key() or b"", message.value(), message.headers() or []
                    if message.offset() >= last_offset:
                        return
                    deadline = time.monotonic() + WRITE_S_MAX
                if time.monotonic() > deadline:
                    raise KafkaUnavailable(f"Kafka: no answer while reading {self.topic}")
        finally:
            consumer.close()

    def _write(self, topic: str, rows: Sequence[_Row], partition: int = 0) -> list[int]:
        """Offsets of the records, all acknowledged."""
        offsets: list[int] = []
        errors: list[object] = []

        def acknowledged(error: object | None, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                errors.append(error)

        for key, value, headers in rows:
            self._produce(
                topic, value, key, partition=partition, headers=headers, on_delivery=acknowledged
            )
        deadline = time.monotonic() + WRITE_S_MAX
        while len(offsets) + len(errors) < len(rows) and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if len(offsets) < len(rows):
            raise self._failed(errors[0] if errors else "no answer", "Write", topic)
        return offsets

    def _failed(self, error: object, operation: str, topic: str) -> KafkaUnavailable:
        denied = refused(self._kafka, error, operation, topic)
        return denied or KafkaUnavailable(f"Kafka: {topic}: {error}")

    def _produce(self, *record: Any, **how: Any) -> None:
        """Give a record to the client, waiting while its queue is full."""
        deadline = time.monotonic() + WRITE_S_MAX
        while True:
            try:
                self._producer.produce(*record, **how)
                return
            except BufferError as error:  # 100,000 records are queued: librdkafka's limit
                if time.monotonic() > deadline:
                    raise KafkaUnavailable("Kafka: it accepts no records") from error
                self._producer.poll(0.05)
            except _kafka.KafkaException as error:
                raise KafkaUnavailable(f"Kafka: {record[0]}: {error}") from error
