"""What a row's acknowledgement says, from a scripted client. The real one:
tests/e2e/test_serve_inserts.py."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest

from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.errors import KafkaUnavailable


class Client:
    """Acknowledges each record at once."""

    def __init__(self, error: object, message: object) -> None:
        self.says = error, message

    def produce(self, *_record: object, on_delivery: Any, **_how: object) -> None:
        on_delivery(*self.says)


def posted(error: object, message: object) -> WrittenRow:
    async def post() -> WrittenRow:
        producer = RowProducer("b", Client(error, message))
        return await producer.post("t", b"k", None, 5)

    return asyncio.run(post())


@pytest.mark.parametrize("value", [b"v", b"", None])
def test_where_a_row_is(value: bytes | None) -> None:
    """A message without a value counts as false in Python."""
    message = confluent_kafka.Message(topic="t", partition=2, offset=41, value=value)
    assert posted(None, message) == WrittenRow("t", 2, 41)


def test_a_row_that_is_not_acknowledged() -> None:
    with pytest.raises(KafkaUnavailable, match="cannot write to topic t"):
        posted(confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT), None)


def test_an_acknowledgement_that_does_not_say_where() -> None:
    assert posted(None, confluent_kafka.Message(topic="t", partition=2)) == WrittenRow("t", 2, -1)
    assert posted(None, None) == WrittenRow("t", -1, -1)
