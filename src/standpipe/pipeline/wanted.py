"""A query that a pipeline should run, as the catalog describes it, and the identity of its run.

`commit` needs it to check topics, `run` to start and stop queries; it is below both, so that the
three layers import one way (run > commit > io). Not here: which queries a pipeline wants
(`run/reconcile.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from standpipe.model import LeaseEpoch, PersistentQuery, Record, Source, SparkPlan
from standpipe.pipeline.failures import resolved_by


@dataclass(frozen=True, kw_only=True)
class WantedQuery:
    """A query that should run here, and the table that it fills."""

    query: PersistentQuery
    table: Source
    lease_epoch: LeaseEpoch
    #: {topic that the query reads: id of the Standpipe query that writes it}
    writers: Mapping[str, str] = field(default_factory=dict[str, str])
    #: {topic that the query reads: number of partitions in its declaration}
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])
    #: its table is built beside the one that serves reads
    is_successor: bool = False
    #: it commits nothing, until reads have moved to the table's next generation
    is_held: bool = False
    #: measure each row before it is written, because Kafka has refused one; local to this pipeline
    measures_rows: bool = False

    @property
    def query_id(self) -> str:
        """The id of the query, e.g. `CTAS_DELAYS_3`."""
        return self.query.query_id

    @property
    def identity(self) -> tuple[object, ...]:
        """What cannot change under a running query: another table, plan or lease, another writer
        of a topic that it reads, or another topic to which its rows are published."""
        plan = plan_digest(self.query.plan)
        table = (self.table.table_id, self.table.generation)
        writers = tuple(sorted(self.writers.items()))
        return (*table, plan, self.lease_epoch, writers, self.published_topic, self.is_held)

    @property
    def published_topic(self) -> str | None:
        """The topic to which the table's rows are also written, for other programs; None: no such
        topic, or the table does not serve reads yet."""
        return None if self.is_successor else self.table.public_topic

    def resolution(self, reason: str) -> str:
        """What resolves a failure of this query; "" for a reason without such a text."""
        return resolved_by(
            reason,
            query_id=self.query_id,
            kind=self.table.kind,
            name=self.table.name,
            statement=self.query.statement,
        )


def plan_digest(plan: SparkPlan) -> str:
    """SHA-256 of a plan, as hexadecimal text. Unset fields do not count: when the record gains an
    optional field, existing checkpoints must still match."""
    return digest_of(plan)


def digest_of(record: Record) -> str:
    """SHA-256 of a record without its unset fields, as hexadecimal text."""
    fields = _without_unset(msgspec.to_builtins(record))
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _without_unset(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _without_unset(part) for name, part in items if part is not None}
    if isinstance(value, list | tuple):
        return [_without_unset(part) for part in cast("list[Any]", value)]
    return value
