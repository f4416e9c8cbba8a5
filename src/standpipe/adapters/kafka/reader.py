"""Kafka as the tailer reads it: partitions from an offset, without groups and without decisions.

`PartitionReader` follows any number of partitions through one consumer, and delivers the events of
`data/replica/events.py`: records, the end of a partition, records that are gone.

Two options matter for a restore (bench/restore.py): `fetch.queue.backoff.ms` is 5 instead of 1000,
because a full local queue otherwise pauses fetching for a second, and records are taken in batches
of about 2,000. The reader waits for a topic that does not exist yet.

Not here: what progress records mean (`node/tailer/progress.py`); producing and administration
(`adapters/kafka/producer.py`, `adapters/kafka/admin.py`); where partitions end
(`adapters/kafka/ends.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import confluent_kafka
import structlog
from confluent_kafka import KafkaError

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.data.replica.events import (
    EndReached,
    FetchedColumns,
    RecordsFetched,
    RecordsGone,
)
from standpipe.model import Offset

_kafka: Any = confluent_kafka  # its type hints are partial; what leaves this module is typed
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

RECORDS_AT_ONCE: Final = 2000
LOG_EVERY_S: Final = 30.0

#: also a log that was truncated below what this reader has seen (KIP-320)
_GONE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)

#: After a network partition, an old connection stays in TCP's back-off for as long again as the
#: partition lasted; a new one is up within two seconds. The client's defaults: 60 s and 30.
REDIAL_OPTIONS: Final[dict[str, object]] = {
    "socket.timeout.ms": 5000,
    "socket.connection.setup.timeout.ms": 5000,
}
CLIENT_OPTIONS: Final[dict[str, object]] = {
    **REDIAL_OPTIONS,
    "log_level": 0,  # what matters comes through error_cb, once and as JSON
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
}
_READER_OPTIONS: Final[dict[str, object]] = {
    **CLIENT_OPTIONS,
    "group.id": "standpipe-tailer",  # the client requires one; nothing is ever committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",  # others' transactions; ours are not Kafka's
    "auto.offset.reset": "error",  # an offset that is gone is reported, not skipped
    "allow.auto.create.topics": False,
    "topic.metadata.refresh.interval.ms": 2000,  # notices topics that appear later
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32 * 1024,
}


_message: Any = _kafka.Message
#: unbound methods: no frame and no look-up for each of millions of messages
_topic, _partition, _error = _message.topic, _message.partition, _message.error
_offset, _key, _value, _headers = _message.offset, _message.key, _message.value, _message.headers
_timestamp = _message.timestamp


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic."""

    topic: str
    partition: int


#: what reading a partition yields
FetchEvent = RecordsFetched | EndReached | RecordsGone


class PartitionReader:
    """Reads partitions, each from its own offset. One thread."""

    def __init__(self, kafka: Kafka) -> None:
        #: delivered since the last `take_record_count`
        self._record_count = 0
        #: started at 0 although retention may have left nothing there
        self._at_zero: set[Partition] = set()
        #: whose records have their timestamps
        self._timed: set[Partition] = set()
        self._consumer = _kafka.Consumer(
            {
                **_READER_OPTIONS,
                **connection_of(kafka).librdkafka(),
                "error_cb": throttled_error_logger(),
            }
        )

    def start(self, of: Partition, offset: int, *, is_timed: bool = False) -> None:
        """Read from `offset`; 0 means the beginning, wherever retention has left it. `is_timed`:
        with the records' timestamps."""
        (self._timed.add if is_timed else self._timed.discard)(of)
        # by its number first: librdkafka resolves OFFSET_BEGINNING on a timer, half a second later
        self._assign(of, offset)
        if offset == 0:
            self._at_zero.add(of)

    def _assign(self, of: Partition, offset: int) -> None:
        self._consumer.incremental_assign([_kafka.TopicPartition(of.topic, of.partition, offset)])

    def stop(self, of: Partition) -> None:
        """Stop reading a partition."""
        self._at_zero.discard(of)
        self.resume(of)  # the client would still pause it after the next start
        self._unassign(of)

    def _unassign(self, of: Partition) -> None:
        self._consumer.incremental_unassign([_kafka.TopicPartition(of.topic, of.partition)])

    def pause(self, of: Partition) -> None:
        """Stop fetching a partition. What was delivered counts; the rest is fetched again."""
        self._consumer.pause([_kafka.TopicPartition(of.topic, of.partition)])

    def resume(self, of: Partition) -> None:
        """Fetch a paused partition again, after the last delivered record."""
        self._consumer.resume([_kafka.TopicPartition(of.topic, of.partition)])

    def poll(
        self, wait_s: float, count: int = RECORDS_AT_ONCE
    ) -> list[tuple[Partition, FetchEvent]]:
        """What arrived within `wait_s`, at most `count` records, in the order of each partition."""
        messages: list[Any] = self._consumer.consume(count, wait_s)
        found = fetch_events(messages, self._timed)
        fetched = [*(self._begun(found) if self._at_zero else found)]
        for _, event in fetched:
            self._record_count += len(event.records) if isinstance(event, RecordsFetched) else 0
        return fetched

    def _begun(
        self, fetched: Iterable[tuple[Partition, FetchEvent]]
    ) -> Iterator[tuple[Partition, FetchEvent]]:
        """A missing offset 0 is not an event: such a partition is read from its beginning."""
        for of, event in fetched:
            if of in self._at_zero:
                self._at_zero.discard(of)
                if isinstance(event, RecordsGone):
                    self._unassign(of)
                    self._assign(of, _kafka.OFFSET_BEGINNING)
                    continue
            yield of, event

    def take_record_count(self) -> int:
        """How many records were delivered since the last call."""
        count, self._record_count = self._record_count, 0
        return count

    def log_end(self, of: Partition) -> int:
        """End of the partition as of the last fetch, without a request; -1: not known."""
        _, end = self._consumer.get_watermark_offsets(
            _kafka.TopicPartition(of.topic, of.partition), cached=True
        )
        return int(end) if end >= 0 else -1

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def fetch_events(
    messages: Sequence[Any], timed: Container[Partition] = ()
) -> Iterator[tuple[Partition, FetchEvent]]:
    """The events in the client's messages, in order; a run of one partition becomes one event.
    `timed`: whose records have their timestamps."""
    for topic, of_topic in groupby(messages, _topic):
        for partition, each in groupby(of_topic, _partition):
            of, run = Partition(topic, partition), list(each)
            is_timed = of in timed
            if any(map(_error, run)):
                yield from _mixed_events(of, run, is_timed=is_timed)
            else:
                yield of, _records(run, is_timed=is_timed)


def _records(run: list[Any], *, is_timed: bool) -> RecordsFetched:
    first, last = _offset(run[0]), _offset(run[-1])
    # offsets ascend, so if there are as many as the range holds, none is missing
    is_whole = last - first + 1 == len(run)
    offsets = range(first, last + 1) if is_whole else [*map(_offset, run)]
    keys, values, headers = [*map(_key, run)], [*map(_value, run)], [*map(_headers, run)]
    times_ms = [at_ms for _, at_ms in map(_timestamp, run)] if is_timed else ()
    columns = FetchedColumns(offsets, keys, values, headers)
    return RecordsFetched(columns, Offset(last + 1), times_ms)


def _mixed_events(
    of: Partition, run: list[Any], *, is_timed: bool
) -> Iterator[tuple[Partition, FetchEvent]]:
    for is_error, each in groupby(run, lambda message: message.error() is not None):
        if not is_error:
            yield of, _records([*each], is_timed=is_timed)
            continue
        for message in each:
            if (event := _event_of(message.error(), of, message)) is not None:
                yield of, event


def _event_of(error: Any, of: Partition, message: Any) -> FetchEvent | None:
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        return EndReached(Offset(message.offset()))
    if code in _GONE:
        return RecordsGone()
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        _log.error("no right to Read", topic=of.topic, partition=of.partition)
    # a topic that does not exist yet, a broker that is down: the client retries by itself
    _log.debug("kafka says", topic=of.topic, partition=of.partition, error=str(error))
    return None


def throttled_error_logger() -> Callable[[Any], None]:
    """An error callback that logs each kind of error once in LOG_EVERY_S: clients repeat them."""
    said: dict[str, float] = {}

    def say(error: Any) -> None:
        now = time.monotonic()
        if now - said.get(error.name(), -LOG_EVERY_S) >= LOG_EVERY_S:
            said[error.name()] = now
            _log.warning("kafka", error=str(error))

    return say
