"""The INSERT INTO … VALUES among the statements of one request.

With a session, the answer's last entity has its token:

    {"@type":"consistencyToken","consistencyToken":{"consistencyToken":"…"}}
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.errors import BadRequest
from standpipe.node.worker.request.session_writes import SessionWrites, session_to_write
from standpipe.node.worker.statements.insert_record import record_of
from standpipe.node.worker.statements.judge import JudgedStatement
from standpipe.sql.plans import InsertValuesPlan
from standpipe.sql.schemas.registry import Schemas

TOKEN_TYPE: Final = "consistencyToken"  # noqa: S105 the type of an entity


@dataclass
class Inserts:
    """Rows of one request. `writes`: None without a session."""

    producer: RowProducer
    metrics: Metrics
    writes: SessionWrites | None
    #: None: there is no schema registry
    schemas: Schemas | None = None

    async def insert(self, plan: InsertValuesPlan) -> None:
        """Returns when Kafka has acknowledged the row. Raises as `RowProducer.send` does, and
        SchemaRegistryUnavailable: a statement before this one may have made its stream."""
        if self.schemas is None:
            key, value = record_of(plan)
        else:
            key, value = await asyncio.to_thread(record_of, plan, self.schemas)
        at_ms = int(time.time() * 1000) if plan.rowtime_ms is None else plan.rowtime_ms
        row = await self.producer.send(plan.source.topic, key, value, at_ms)
        if self.writes is not None:
            self.writes.add(row)
        self.metrics.count("standpipe_inserted_rows")

    async def with_token(self, entities: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
        """The entities of the answer, at last the session's token."""
        if self.writes is None:
            return list(entities)
        token = {TOKEN_TYPE: await self.writes.token()}
        entity = {"@type": TOKEN_TYPE, TOKEN_TYPE: token}
        return [*entities, msgspec.Raw(msgspec.json.encode(entity))]


def inserts_of(
    producer: RowProducer,
    metrics: Metrics,
    properties: Mapping[str, str],
    statements: Iterable[JudgedStatement],
) -> Inserts:
    """`properties`: those of the request, before any SET. Raises TokenRefused, and BadRequest for a
    session with no row to insert, and for several: a token must not be ignored."""
    rows = [each for each in statements if isinstance(each.plan, InsertValuesPlan)]
    tokens = {session_to_write(each.session.properties) for each in rows}
    if (of_request := session_to_write(properties)) is not None:
        if not rows:
            raise BadRequest(
                "read level session is for pull queries on tables and for INSERT … VALUES, not for "
                "other statements"
            )
        tokens.add(of_request)
    if len(tokens) > 1:
        raise BadRequest(
            "the INSERTs of a request are in one session, or in none: SET it before the first, or"
            " send several requests"
        )
    token = tokens.pop() if tokens else None
    writes = None if token is None else SessionWrites(token, producer)
    return Inserts(producer, metrics, writes)
