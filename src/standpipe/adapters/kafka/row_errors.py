"""The errors of rows that Kafka has not acknowledged.

| what is known of the row | error |
|---|---|
| a right is missing | KafkaAccessDenied: 403 |
| Kafka refuses such a row for its topic | BadRequest: 400 |
| its client had failed before it came: it is not written | KafkaUnavailable: 503, try again |
| its client failed while it had it: it may be written | OutcomeUnknown: 503, look first |
| anything else, as that Kafka did not answer in time | KafkaUnavailable: 503 |

A client fails by a fatal error of an idempotent producer: it has no right to get a producer id, or
its sequence numbers and those of the broker no longer fit. Source: librdkafka's introduction,
"Idempotent Producer"; KIP-679.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.refusals import KafkaAccessDenied, cause_of, denied
from standpipe.errors import BadRequest, KafkaUnavailable, OutcomeUnknown, StandpipeError

#: what rows are answered with when their client has failed, or was told to forget them
_OF_FAILED_CLIENT: Final = frozenset(
    {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
)
_TOO_LARGE: Final = (
    "make the row smaller, or raise the topic's max.message.bytes. A node sends 1,000,000 bytes at "
    "most, and rows that are sent together count together"
)
#: Kafka's answer that a later try would meet again -> the next step
_REFUSED: Final[Mapping[int, str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP: "give a ROWTIME that the topic's message.timestamp.… allow",
    KafkaError.INVALID_RECORD: "give the row a key, if the topic is compacted",
    KafkaError.POLICY_VIOLATION: "ask who runs the brokers for their policy on the topic's records",
}


@dataclass(frozen=True)
class RowErrors:
    """Of rows for one topic, from one client. `fatal`: why the client takes no more rows, a
    KafkaError; None: it takes them, or nobody has heard of it yet. Each `error` is a KafkaError, or
    an exception of the client."""

    kafka: Kafka
    topic: str
    fatal: Any = None

    def not_taken(self, error: object) -> StandpipeError:
        """Of a row that the client did not take: it was never sent."""
        if not self._is_of_failed_client(error):
            return self._failed(error)
        why = f"Kafka's client failed, and the row is not written to topic {self.topic}"
        fault = self.fatal or error
        return self._denied(fault) or KafkaUnavailable(f"{why}: {_text(fault)}")

    def lost(self, error: object, *, has_written: bool) -> StandpipeError:
        """Of a row that the client took. `has_written`: whether Kafka has acknowledged any row of
        this client. If not, a right that is missing is that to a producer id, without which no row
        is sent."""
        if not self._is_of_failed_client(error):
            return self._failed(error)
        found = self._refused(error)
        if found is None and not has_written:
            found = self._denied(self.fatal)
        return found or OutcomeUnknown(
            f"Kafka's client failed, and the row may have been written to topic {self.topic}: "
            f"{_text(self.fatal or error)}. Next: look whether it is there before you send it again"
        )

    def _is_of_failed_client(self, error: object) -> bool:
        cause = cause_of(error)
        return self.fatal is not None or (cause is not None and cause.code() in _OF_FAILED_CLIENT)

    def _failed(self, error: object) -> StandpipeError:
        text = f"cannot write to topic {self.topic}: {error}"
        return self._refused(error) or KafkaUnavailable(text)

    def _refused(self, error: object) -> StandpipeError | None:
        """What the broker has answered to the row itself; None: it may take it another time."""
        cause = cause_of(error)
        step = None if cause is None else _REFUSED.get(cause.code())
        if step is None:
            return self._denied(error)
        why = f"Kafka refuses the row for topic {self.topic}: {_text(error)}"
        return BadRequest(f"{why}. Next: {step}")

    def _denied(self, error: object) -> KafkaAccessDenied | None:
        """Brokers from 2.8 on give a producer id to a principal that may Write to any topic at all
        (KIP-679), older ones to one that may IdempotentWrite on the cluster."""
        cause = cause_of(error)
        code = None if cause is None else cause.code()
        if code not in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return None
        found = denied(connection_of(self.kafka), "Write", "topic", self.topic)
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return found
        older = "; brokers older than 2.8 also want --operation IdempotentWrite --cluster"
        return KafkaAccessDenied(found.message + older, **found.details)


def _text(error: object) -> str:
    cause = cause_of(error)
    return str(error if cause is None else cause.str())
