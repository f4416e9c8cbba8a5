"""Asks Kafka for end offsets and first offsets of partitions: `ask` without a wait, in a thread.

A consumer asks, not an admin client: while a request of an admin client is for a broker that is
gone, librdkafka dials that broker without a pause, which takes two cores until the request is given
up. It forgets `reconnect.backoff.ms` each time that any broker's state changes, which each attempt
does (`rd_kafka_broker_get_async`, librdkafka 2.16).

Not here: comparing them (`control.liveness.end_checks`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.reader import (
    CLIENT_OPTIONS,
    Partition,
    throttled_error_logger,
)
from standpipe.errors import KafkaUnavailable

_kafka: Any = confluent_kafka  # its type hints are partial; what leaves this module is typed

PROBE_TIMEOUT_S: Final = 2.0
REFRESH_TIMEOUT_S: Final = 0.2
#: how long a topic that was just made, or whose leader changes, may have none
LEADER_S_MAX: Final = 5.0
LEADER_LOOK_S: Final = 0.1

_OPTIONS: Final[dict[str, object]] = {
    **CLIENT_OPTIONS,
    "group.id": "standpipe-ends",  # the client requires one; nothing is ever committed to it
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
}
#: by which Kafka's protocol means the end and the beginning, where it else takes an instant
LATEST: Final = -1
EARLIEST: Final = -2
_UNKNOWN: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._NOENT,
    }
)
#: another broker leads a partition than was asked, or none does yet, or the client does not know it
_OUTDATED: Final = _UNKNOWN | {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}
#: nobody answered in time
_LATE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_Answer = TypeVar("_Answer")
Ends = dict[Partition, int | None]
#: {partition: its leader's id, -1 if it has none}; None: Kafka said nothing of the topic
Leaders = Mapping[int, int] | None


class EndsReader:
    """One client, which connects when it is first used. For any thread.

    `is_stable`: where the records end that a consumer may read, the last stable offset.
    """

    def __init__(self, kafka: Kafka, *, is_stable: bool = False) -> None:
        self._kafka = connection_of(kafka)
        self._isolation = "read_committed" if is_stable else "read_uncommitted"
        self._lock = threading.Lock()
        self._consumer: Any = None
        #: a broker did not answer. A request fails as a whole then, so each broker gets one of its
        #: own until all have answered
        self._is_apart = False

    def ask(self, partitions: Iterable[Partition]) -> Future[Ends]:
        """The end of each partition that Kafka tells; None: it does not know the partition.

        The future fails with KafkaUnavailable if it tells none.
        """
        wanted = tuple(partitions)
        return _in_thread(lambda: self.read(wanted))

    def read(self, wanted: Collection[Partition]) -> Ends:
        """As `ask`, and wait for it. Raises KafkaUnavailable."""
        told, failed = Ends(), list[KafkaException]()
        if not self._is_apart:
            try:
                told = self.request(wanted)
            except KafkaException as error:
                if _is_late(error):
                    self._is_apart = True
                    raise KafkaUnavailable(_failure([error])) from error
        if missing := [one for one in wanted if told.get(one) is None]:
            found, failed = self._read_apart(missing)
            told |= found
        self._is_apart = any(map(_is_late, failed))
        if not told:
            raise KafkaUnavailable(_failure(failed))
        return told

    def _read_apart(self, wanted: Collection[Partition]) -> tuple[Ends, list[KafkaException]]:
        """With fresh leaders, and a request for each of them, side by side; and what failed."""
        leaders = {topic: self.look(topic) for topic in {one.topic for one in wanted}}
        told, failed = Ends(), list[KafkaException]()
        led_by = defaultdict[int, list[Partition]](list)
        for one in wanted:
            known = leaders[one.topic]
            if known is None:
                continue
            if one.partition not in known:
                told[one] = None
            elif known[one.partition] >= 0:
                led_by[known[one.partition]].append(one)
        for answer in [_in_thread(partial(self._told_by_one, led)) for led in led_by.values()]:
            found, errors = answer.result()
            told |= found
            failed += errors
        return told, failed

    def _told_by_one(self, led: list[Partition]) -> tuple[Ends, list[KafkaException]]:
        """By one broker. An error of one partition fails a whole request: halves are asked then."""
        try:
            return self.request(led), []
        except KafkaException as error:
            if len(led) == 1 or _is_late(error):
                return Ends(), [error]
        half = len(led) // 2
        (told, failed), (more, others) = map(self._told_by_one, (led[:half], led[half:]))
        return told | more, failed + others

    def request(
        self,
        wanted: Iterable[Partition],
        which: int = LATEST,
        timeout_s: float = PROBE_TIMEOUT_S,
    ) -> Ends:
        """Their first offsets, or their ends, with one call; without those of which the client
        knows no leader. Raises KafkaException if one of the brokers does not answer."""
        asked = [_kafka.TopicPartition(one.topic, one.partition, which) for one in wanted]
        told = Ends()
        if not asked:  # which the client refuses
            return told
        for place in self._client().offsets_for_times(asked, timeout=timeout_s):
            if place.error is None:
                told[Partition(place.topic, place.partition)] = int(place.offset)
            elif place.error.code() in _UNKNOWN:
                told[Partition(place.topic, place.partition)] = None
        return told

    def offsets(self, topic: str, partitions: int, which: int, timeout_s: float) -> dict[int, int]:
        """As `request`, of all partitions of a topic. One that was just made, or whose leader
        changes, may have none for a while. Raises KafkaException if any is missing."""
        until_s = time.monotonic() + LEADER_S_MAX
        while True:
            try:
                return self._all_of(topic, partitions, which, timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _OUTDATED or time.monotonic() > until_s:
                    if _is_late(error):  # another broker may lead by now
                        self.look(topic)
                    raise
            time.sleep(LEADER_LOOK_S)
            self.look(topic, timeout_s)  # else the client keeps to the leader it knows

    def _all_of(self, topic: str, partitions: int, which: int, timeout_s: float) -> dict[int, int]:
        wanted = [Partition(topic, number) for number in range(partitions)]
        told = self.request(wanted, which, timeout_s)
        found = {of.partition: offset for of, offset in told.items() if offset is not None}
        if len(found) < partitions:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return found

    def look(self, topic: str, timeout_s: float = REFRESH_TIMEOUT_S) -> Leaders:
        """Who leads the topic's partitions, as any broker knows it. The client goes by it from now
        on; else it may go by what it knows for minutes."""
        with contextlib.suppress(KafkaException):
            found = self._client().list_topics(topic, timeout=timeout_s).topics[topic]
            if found.error is None or found.error.code() in _UNKNOWN:
                return {number: each.leader for number, each in found.partitions.items()}
        return None

    def _client(self) -> Any:
        with self._lock:
            if self._consumer is None:
                self._consumer = _kafka.Consumer(
                    {
                        **_OPTIONS,
                        "isolation.level": self._isolation,
                        **self._kafka.librdkafka(),
                        "error_cb": throttled_error_logger(),
                    }
                )
        self._consumer.poll(0)  # serves error_cb
        return self._consumer


class EndProbe:
    """Asks for the end of a partition, one request at a time, and never waits for an answer."""

    def __init__(self, kafka: Kafka, of: Partition) -> None:
        self._reader, self._of = EndsReader(kafka), of
        self._answer: Future[Ends] | None = None
        self._asked_ms = 0

    def tick(self, now_ms: int, every_ms: int) -> tuple[int, int] | None:
        """(instant of the request, end) when an answer has arrived since the last call."""
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            if answer.exception() is None and (end := answer.result().get(self._of)) is not None:
                return self._asked_ms, end
        if self._answer is None and now_ms - self._asked_ms >= every_ms:
            self._asked_ms = now_ms
            self._answer = self._reader.ask([self._of])
        return None


def _in_thread(call: Callable[[], _Answer]) -> Future[_Answer]:
    """A thread that does not hold up the end of the process, as those of an executor do."""
    answer: Future[_Answer] = Future()

    def run(of: Future[_Answer]) -> None:
        try:
            of.set_result(call())
        except BaseException as error:
            of.set_exception(error)
        finally:
            del of  # its error has this frame: a cycle, and a tailer collects none

    threading.Thread(target=run, args=(answer,), daemon=True).start()
    return answer


def _is_late(error: KafkaException) -> bool:
    """Whether nobody answered; else Kafka did, with an error."""
    return error.args[0].code() in _LATE


def _failure(errors: Iterable[KafkaException]) -> str:
    said = "; ".join(sorted({str(error.args[0]) for error in errors})) or "no leader is known"
    return f"Kafka does not tell where topics end: {said}"
