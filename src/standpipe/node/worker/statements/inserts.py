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
from standpipe.node.worker.request.session_writes import SessionWrites, session_writes
from standpipe.node.worker.statements.insert_record import record_of
from standpipe.sql.plans import InsertValuesPlan, Plan
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
    producer: RowProducer, metrics: Metrics, properties: Mapping[str, str], plans: Iterable[Plan]
) -> Inserts:
    """Raises TokenRefused, and BadRequest for a session with no row to insert: a token must not be
    ignored."""
    writes = session_writes(properties, producer)
    if writes is not None and not any(isinstance(plan, InsertValuesPlan) for plan in plans):
        raise BadRequest(
            "read level session is for pull queries on tables and for INSERT … VALUES, not for "
            "other statements"
        )
    return Inserts(producer, metrics, writes)
