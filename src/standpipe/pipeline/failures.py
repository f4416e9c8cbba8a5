"""Why a query cannot go on: failures that have a name, and how Spark's are recognised.

A named failure ends in QueryStatus FAILED and is not retried: trying again could only lose data or
repeat it. Everything else is tried again with back-off (`queries.py`). Other queries go on.
"""

from __future__ import annotations

from typing import Final

#: parts of a message of Spark or Kafka -> our reason; the first that fits counts
_KNOWN: Final = (
    ("KAFKA_DATA_LOSS", "DATA_LOSS"),
    ("Some data may have been lost", "DATA_LOSS"),
    ("Partitions were changed", "TOPIC_CHANGED"),
    ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", "PLAN_CHANGED"),
    ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", "PLAN_CHANGED"),
    ("CANNOT_LOAD_STATE_STORE", "STATE_DAMAGED"),
)


class QueryFailed(Exception):
    """A failure with a stable name; `message` says what to do about it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotYet(Exception):
    """Something that the query needs is about to appear, such as its topic."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Fenced(Exception):
    """A newer pipeline has started: this one must stop all its queries and end."""


def reason_of(message: str) -> str | None:
    """Our name for a failure of Spark; None: it may pass by itself."""
    return next((reason for part, reason in _KNOWN if part in message), None)
