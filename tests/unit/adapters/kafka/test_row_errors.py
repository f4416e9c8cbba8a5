"""What is said of a row that Kafka has not acknowledged."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka.connection import KafkaConnection
from standpipe.adapters.kafka.refusals import KafkaAccessDenied
from standpipe.adapters.kafka.row_errors import RowErrors
from standpipe.errors import BadRequest, KafkaUnavailable, OutcomeUnknown

ADA = KafkaConnection(
    bootstrap_servers="b:1",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    username="ada",
    password="hunter2",
)
NO_WRITE = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
NO_ID = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no producer id", fatal=True)
OUT_OF_ORDER = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
ENDED = KafkaException(KafkaError(KafkaError._FATAL))


@pytest.mark.parametrize(
    ("fatal", "error", "has_written", "kind", "why"),
    [
        (None, TIMED_OUT, True, KafkaUnavailable, "as ever"),
        (None, NO_WRITE, True, KafkaAccessDenied, ""),
        (None, NO_ID, True, KafkaAccessDenied, "an old broker says it of the row itself"),
        (OUT_OF_ORDER, PURGED, True, OutcomeUnknown, "it may have been on its way"),
        (OUT_OF_ORDER, PURGED, False, OutcomeUnknown, "so may the first one"),
        (OUT_OF_ORDER, OUT_OF_ORDER, True, OutcomeUnknown, "an earlier try of the same row"),
        (OUT_OF_ORDER, NO_WRITE, True, KafkaAccessDenied, "the broker has answered"),
        (OUT_OF_ORDER, TOO_LARGE, True, BadRequest, "the broker has answered"),
        (NO_ID, PURGED, False, KafkaAccessDenied, "nothing is sent without an id"),
        (NO_ID, PURGED, True, OutcomeUnknown, "it had an id before"),
        (None, PURGED, True, OutcomeUnknown, "before the poll that hears of the fatal error"),
    ],
)
def test_a_row_that_was_taken(
    fatal: object, error: object, has_written: bool, kind: type[Exception], why: str
) -> None:
    found = RowErrors(ADA, "t", fatal).lost(error, has_written=has_written)
    assert type(found) is kind, why


@pytest.mark.parametrize(
    ("fatal", "error", "kind", "text"),
    [
        (None, BufferError("full"), KafkaUnavailable, "cannot write to topic t: full"),
        (None, ENDED, KafkaUnavailable, "failed, and the row is not written to topic t"),
        (OUT_OF_ORDER, ENDED, KafkaUnavailable, "is not written to topic t: out of order"),
        (NO_ID, ENDED, KafkaAccessDenied, "no right to Write on topic t"),
    ],
)
def test_a_row_that_was_not_taken(
    fatal: object, error: object, kind: type[Exception], text: str
) -> None:
    found = RowErrors(ADA, "t", fatal).not_taken(error)
    assert type(found) is kind
    assert text in found.message


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "smaller, or raise the topic's max.message.bytes."),
        (KafkaError.RECORD_LIST_TOO_LARGE, "Next: make the row smaller"),
        (KafkaError.INVALID_TIMESTAMP, "Next: give a ROWTIME that the topic's message.timest"),
        (KafkaError.INVALID_RECORD, "Next: give the row a key"),
        (KafkaError.POLICY_VIOLATION, "Broker: Policy violation. Next: ask who runs the brokers"),
    ],
)
def test_a_row_that_kafka_refuses_for_its_topic_is_the_clients_fault(code: int, text: str) -> None:
    """It was answered with 503 and Retry-After, by which a client sends it again for ever."""
    errors, error = RowErrors(ADA, "t"), KafkaError(code)
    for found in (errors.lost(error, has_written=True), errors.not_taken(KafkaException(error))):
        assert isinstance(found, BadRequest)
        assert found.message.startswith(f"Kafka refuses the row for topic t: {error.str()}")
        assert text in found.message


def test_a_row_beside_one_that_is_refused_may_be_sent_again() -> None:
    error = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)
    assert type(RowErrors(ADA, "t").lost(error, has_written=True)) is KafkaUnavailable


def test_who_gets_no_producer_id_is_told_both_rights_that_brokers_want() -> None:
    found = RowErrors(ADA, "t", NO_ID).lost(PURGED, has_written=False)
    assert found.message == (
        "Kafka: User:ada has no right to Write on topic t. Next: kafka-acls --add "
        "--allow-principal 'User:ada' --operation Write --topic 't'; brokers older than 2.8 also "
        "want --operation IdempotentWrite --cluster"
    )
    assert found.details == {"principal": "User:ada", "operation": "Write", "resource": "topic:t"}


def test_a_row_that_may_be_written_is_not_to_be_sent_again_at_once() -> None:
    found = RowErrors(ADA, "t", OUT_OF_ORDER).lost(PURGED, has_written=True)
    assert found.message == (
        "Kafka's client failed, and the row may have been written to topic t: out of order. Next: "
        "look whether it is there before you send it again"
    )
    assert found.retry_after_s is None
