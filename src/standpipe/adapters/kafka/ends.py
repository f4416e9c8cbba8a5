"""Requests the end offsets of many partitions in a thread, so that the caller never waits.

Not here: comparing them (`control.liveness.end_checks`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.reader import (
    CLIENT_OPTIONS,
    METADATA_OUTDATED,
    PROBE_TIMEOUT_S,
    REFRESH_TIMEOUT_S,
    Partition,
    throttled_error_logger,
)
from standpipe.errors import KafkaUnavailable

_kafka: Any = confluent_kafka  # its type hints are partial; what leaves this module is typed
_admin: Any = confluent_kafka.admin

_UNKNOWN: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._NOENT,
    }
)

Ends = dict[Partition, int | None]


class EndsReader:
    """One admin client. Connects when it is first used; one request at a time.

    `is_stable`: where the records end that a consumer may read, the last stable offset.
    """

    def __init__(self, kafka: Kafka, *, is_stable: bool = False) -> None:
        self._kafka = connection_of(kafka)
        self._options: dict[str, object] = {"request_timeout": PROBE_TIMEOUT_S}
        if is_stable:
            self._options["isolation_level"] = _kafka.IsolationLevel.READ_COMMITTED
        self._admin: Any = None

    def ask(self, partitions: Iterable[Partition]) -> Future[Ends]:
        """The end of each partition that Kafka tells; None: it does not know the partition.

        The future fails with KafkaUnavailable if it tells none.
        """
        answer: Future[Ends] = Future()
        wanted = tuple(partitions)
        threading.Thread(target=self._answer, args=(wanted, answer), daemon=True).start()
        return answer

    def _answer(self, wanted: tuple[Partition, ...], answer: Future[Ends]) -> None:
        try:
            answer.set_result(self._read(wanted))
        except BaseException as error:
            answer.set_exception(error)

    def _read(self, wanted: tuple[Partition, ...]) -> Ends:
        names = {_kafka.TopicPartition(one.topic, one.partition): one for one in wanted}
        latest = {name: _admin.OffsetSpec.latest() for name in names}
        told, errors = Ends(), set[str]()
        outdated = set[str]()
        try:
            asked = self._client().list_offsets(latest, **self._options)
            for name, future in asked.items():
                try:
                    told[names[name]] = int(future.result().offset)
                except KafkaException as failed:
                    code = failed.args[0].code()
                    errors.add(str(failed.args[0]))
                    if code in _UNKNOWN:
                        told[names[name]] = None
                    if code in METADATA_OUTDATED:
                        outdated.add(name.topic)
        except KafkaException as failed:
            errors.add(str(failed))
        for topic in outdated:  # else the client keeps to what it knows for minutes
            with contextlib.suppress(KafkaException):
                self._client().list_topics(topic, timeout=REFRESH_TIMEOUT_S)
        if not told:
            raise KafkaUnavailable(f"Kafka does not tell where topics end: {'; '.join(errors)}")
        return told

    def _client(self) -> Any:
        if self._admin is None:
            self._admin = _admin.AdminClient(
                {
                    **CLIENT_OPTIONS,
                    **self._kafka.librdkafka(),
                    "error_cb": throttled_error_logger(),
                }
            )
        self._admin.poll(0)  # serves error_cb
        return self._admin
