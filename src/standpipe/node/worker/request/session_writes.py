"""What the inserts of one request write, for the token of their session.

The answer's token covers the one that came with the request, and each row that Kafka has
acknowledged, by the id of its topic: a topic that is created again under the same name is another
one.

Not here: what a token looks like (`session_token.py`), who waits for what it says
(`node.worker.pull.session_read`).
"""

from __future__ import annotations

from collections.abc import Mapping

from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.errors import BadRequest, KafkaUnavailable
from standpipe.node.worker.request.body import session_of
from standpipe.session_token import (
    LEVEL_PROPERTY,
    LINEARIZABLE,
    SNAPSHOT,
    SessionToken,
    TopicKey,
)


class SessionWrites:
    """One request. Raises TokenRefused for a text that is no token."""

    def __init__(self, token: str, producer: RowProducer) -> None:
        self._before, self._producer = SessionToken.parse(token), producer
        self._ends: dict[str, dict[int, int]] = {}

    def add(self, row: WrittenRow) -> None:
        """Kafka has acknowledged it. Raises KafkaUnavailable if it did not say where the row is."""
        if row.offset < 0:
            raise KafkaUnavailable(
                f"the row is written to {row.topic}, but Kafka did not say at which offset, so no "
                "session token can cover it: read without a session until it is there"
            )
        ends = self._ends.setdefault(row.topic, {})
        ends[row.partition] = max(ends.get(row.partition, 0), row.offset + 1)

    async def token(self) -> str:
        """Covers all that was added."""
        ids = await self._producer.topic_ids(tuple(self._ends))
        writes = {TopicKey(topic, ids.get(topic, "")): ends for topic, ends in self._ends.items()}
        return self._before.merged(SessionToken(writes=writes)).text()


def session_to_write(properties: Mapping[str, str]) -> str | None:
    """The token of the session that an INSERT under these properties is part of; "": it has none
    yet; None: there is no session. Raises BadRequest."""
    token = session_of(properties)
    level = properties.get(LEVEL_PROPERTY)
    if level in (SNAPSHOT, LINEARIZABLE):
        raise BadRequest(
            f"read level {level} is for pull queries on tables, not for INSERT and other statements"
        )
    return token


def session_writes(properties: Mapping[str, str], producer: RowProducer) -> SessionWrites | None:
    """Of a request with these properties; None: it has no session. Raises BadRequest and
    TokenRefused."""
    token = session_to_write(properties)
    return None if token is None else SessionWrites(token, producer)
