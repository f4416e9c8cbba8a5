"""What Kafka's refusals become. Real ones: tests/e2e/test_secured_kafka.py."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka.connection import KafkaConnection
from standpipe.adapters.kafka.refusals import (
    KafkaAccessDenied,
    LoginWatch,
    concerns_group,
    refused,
)

ADA = KafkaConnection(
    bootstrap_servers="b:1",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    username="ada",
    password="hunter2",
)


def test_a_missing_acl_names_principal_operation_and_resource() -> None:
    error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    found = refused(ADA, error, "Write", "orders")
    assert isinstance(found, KafkaAccessDenied)
    assert found.message == (
        "Kafka: User:ada has no right to Write on topic orders. Next: kafka-acls --add "
        "--allow-principal 'User:ada' --operation Write --topic 'orders'"
    )
    assert found.details == {
        "principal": "User:ada",
        "operation": "Write",
        "resource": "topic:orders",
    }


@pytest.mark.parametrize(
    ("error", "is_denied"),
    [
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), True),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), False),
        (KafkaError(KafkaError._TIMED_OUT), False),
        ("no answer", False),
        (KafkaException(), False),
    ],
)
def test_only_rights_are_refusals(error: object, is_denied: bool) -> None:
    assert (refused("b:1", error, "Create") is not None) is is_denied


def test_a_group_concerns_no_consumer_of_ours() -> None:
    assert concerns_group(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert not concerns_group(None)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"), True),
        (KafkaError(KafkaError._TRANSPORT, "SSL alert number 42"), True),
        (KafkaError(KafkaError._TRANSPORT, "Connection refused"), False),
    ],
)
def test_why_a_client_is_not_let_in(error: KafkaError, is_told: bool) -> None:
    watch = LoginWatch(ADA)
    watch(error)
    told = watch.take()
    assert ("User:ada is not let in by SASL_SSL with PLAIN" in told) is is_told
    assert "hunter2" not in told
    assert watch.take() == "", "an old reason explains no later failure"
