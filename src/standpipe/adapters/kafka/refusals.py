"""Errors for a refusal by Kafka: a failed login, or a missing ACL, with the command that grants it.

Kafka's own text is only "Topic authorization failed"; the caller knows the principal, the operation
and the topic.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka.connection import Kafka, KafkaConnection, connection_of
from standpipe.errors import KafkaUnavailable

#: Kafka's answer -> the kind of resource that it concerns
_DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_LOGIN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
)


class KafkaAccessDenied(KafkaUnavailable):
    """An ACL of Kafka is missing; the message names principal, operation and resource. See
    docs/operations/kafka.md."""

    status = 403
    code = 40301
    retry_after_s = None


def refused(kafka: Kafka, error: object, operation: str, name: str = "") -> KafkaUnavailable | None:
    """The error for an answer of Kafka to `operation` on the topic `name`; None: it is not
    about rights. `error`: a KafkaError, or an exception around one."""
    cause = cause_of(error)
    kind = _DENIED.get(cause.code()) if cause is not None else None
    return denied(connection_of(kafka), operation, kind, name) if kind else None


def denied(
    connection: KafkaConnection, operation: str, kind: str, name: str = ""
) -> KafkaAccessDenied:
    """`kind` is topic, group or cluster; `operation` as `kafka-acls` spells it (Read, Write, …)."""
    who = connection.principal
    of = "the cluster" if kind == "cluster" else f"{kind} {name}"
    option = "--cluster" if kind == "cluster" else f"--{kind} '{name}'"
    grant = f"kafka-acls --add --allow-principal '{who}' --operation {operation} {option}"
    return KafkaAccessDenied(
        f"Kafka: {who} has no right to {operation} on {of}. Next: {grant}",
        principal=who,
        operation=operation,
        resource=f"{kind}:{name}" if name else kind,
    )


def cause_of(error: object) -> KafkaError | None:
    """The KafkaError in what a client raised or passed on; None: there is none."""
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args else None
    return error if isinstance(error, KafkaError) else None


def concerns_group(error: object) -> bool:
    """Whether an error of a consumer is about its group. librdkafka wants each consumer to have
    one and looks for its coordinator. Ours commit nothing and take part in no group, so they need
    no rights on it."""
    cause = cause_of(error)
    return cause is not None and cause.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


class LoginWatch:
    """An `error_cb` that remembers why brokers do not let the client in: its requests only time
    out."""

    def __init__(self, kafka: Kafka) -> None:
        self._connection = connection_of(kafka)
        self._lock = threading.Lock()
        self._why = ""

    def __call__(self, error: Any) -> None:
        """librdkafka's callback."""
        text = str(error.str())
        if error.code() in _LOGIN or (error.code() == KafkaError._TRANSPORT and "SSL" in text):
            with self._lock:
                self._why = text

    def take(self) -> str:
        """Text to add to the error of a request that failed since the last call; "": nothing."""
        with self._lock:
            why, self._why = self._why, ""
        if not why:
            return ""
        connection = self._connection
        how = connection.sasl_mechanism or "a certificate"
        return (
            f" ({connection.principal} is not let in by {connection.security_protocol} with {how}: "
            f"{why})"
        )
