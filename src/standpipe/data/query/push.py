"""A push query over one topic: which records are shown, in which order, and how far it has got.

    records as Kafka sends them ─► waiting, per partition ─► committed? ─► row ─► shown
    progress records ────────────────────────────────────────┘

If one of our queries writes the topic, a record waits until a progress record names it or passes
over it (`data/commit/committed.py`); otherwise it is shown at once. What a repair wrote again is
not shown to a client who has it (`data/query/push_seen.py`). Nothing here grows without bound: a
partition with WAITING_MAX records is to be paused (`held`), and `take` is called only when the
client has room.

`positions` after a `take` cover what has been handled: a query that begins there shows exactly what
comes next, so they are the token with which a client continues at another node.

Not here: reading (`adapters/kafka/tail.py`), layout of an answer (`node/worker/push/encoding.py`).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.repair import Repeated
from standpipe.data.encoding.cells import cell_json
from standpipe.data.query.push_seen import Seen
from standpipe.data.query.record_rows import (
    FullRow,
    RecordRows,
    Share,
    TopicRecord,
    schema_ids_of,
    topic_of,
)
from standpipe.errors import BadRequest, NotComputable
from standpipe.model import Progress, Record, Source
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.lookup import exploded
from standpipe.sql.plans import PushPlan
from standpipe.sql.schemas.registry import Schemas
from standpipe.sql.types.types import parse_type

#: uncommitted records of a partition that may wait; then reading it pauses
WAITING_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class PushedRow:
    """One JSON array of cells. `is_tombstone`: the table's row of that key was deleted."""

    columns: bytes
    is_tombstone: bool = False


class PushQuery:
    """One push query. `starts`: partition -> first offset wanted; `committed` None: show all;
    `schemas`: the schema registry."""

    def __init__(
        self,
        plan: PushPlan,
        starts: Mapping[int, int],
        committed: Committed | None,
        schemas: Schemas | None = None,
    ) -> None:
        self.positions = dict(starts)
        self._seen = Seen(starts)
        self._plan = plan
        self._rows = RecordRows(plan.source, schemas)
        self._types = [parse_type(name) for name in plan.column_types]
        self._committed = committed
        self._waiting: dict[int, deque[TopicRecord]] = {p: deque() for p in starts}
        self._left: int | None = plan.limit

    @property
    def is_over(self) -> bool:
        """Whether as many rows were shown as LIMIT allows."""
        return self._left == 0

    @property
    def held(self) -> set[int]:
        """Partitions to pause until something is taken."""
        return {p for p, waiting in self._waiting.items() if len(waiting) >= WAITING_MAX}

    @property
    def is_ready(self) -> bool:
        """Whether `take` would handle a record now."""
        return not self.is_over and any(map(self._is_ready, self._waiting))

    def schema_ids(self, count: int) -> set[int]:
        """Ids of the schemas of the next `count` records of each partition."""
        source = self._plan.source
        following = (islice(waiting, count) for waiting in self._waiting.values())
        ids = (schema_ids_of(source, each) for records in following for each in records)
        return {each for found in ids for each in found}

    def progress(self, record: Progress) -> None:
        """The next record of the progress topic."""
        if self._committed is not None:
            self._committed.take(record)
            self._committed.forget(self.positions)

    def heard(self, record: TopicRecord) -> None:
        """The next record of its partition. A record that was already received is skipped."""
        waiting = self._waiting[record.partition]
        known = waiting[-1].offset + 1 if waiting else self.positions[record.partition]
        if record.offset >= known:
            waiting.append(record)

    def take(self, share: Share, now_ms: int) -> list[PushedRow]:
        """Handle a share of the ready records -> the rows to show. `now_ms`: of the wall clock."""
        shown: list[PushedRow] = []
        for partition in self._waiting:
            for record in self._next(partition, share):
                if record.offset > self.positions[partition]:
                    self._seen.missed(partition, record.offset)
                self.positions[partition] = record.offset + 1
                rows = self._shown(record, now_ms)
                share.size -= sum(len(row.columns) for row in rows)
                shown += rows if self._left is None else rows[: self._left]
                self._left = None if self._left is None else max(0, self._left - len(rows))
        return shown

    def _next(self, partition: int, share: Share) -> Iterator[TopicRecord]:
        drawn = share.draw(self._waiting[partition])
        while not self.is_over and self._is_ready(partition):
            record = next(drawn, None)
            if record is None:
                return
            yield record

    def _is_ready(self, partition: int) -> bool:
        waiting, committed = self._waiting[partition], self._committed
        return bool(waiting) and (committed is None or waiting[0].offset < committed.end(partition))

    def _shown(self, record: TopicRecord, now_ms: int) -> list[PushedRow]:
        if not self._is_news(record, now_ms):
            return []
        row = self._rows.row(record)
        if row is None:
            return []
        where = self._plan.where
        if not row.is_deletion and (where is None or where(row.cells)):
            return list(self._rows_of(row))
        tombstone = self._tombstone(row) if row.is_deletion or self._plan.is_left else None
        return [] if tombstone is None else [tombstone]

    def _is_news(self, record: TopicRecord, now_ms: int) -> bool:
        """Whether it is committed, and not what the client has."""
        committed, partition = self._committed, record.partition
        if committed is None:
            return True
        if not committed.shows(partition, record.offset, record.headers):
            return False
        if committed.is_by_order(partition, record.offset):
            self._seen.perhaps_foreign(partition, record.offset)
            return True
        repeated = Repeated.of(record.headers)
        return repeated is None or not self._seen.has(partition, repeated, now_ms)

    def _rows_of(self, row: FullRow) -> Iterator[PushedRow]:
        """One row, or with EXPLODE any number. Raises NotComputable if they are too large."""
        size = 0
        for each in exploded.rows(row.cells, self._plan.arrays):
            columns = self._laid_out([cell(each) for cell in self._plan.cells])
            size += len(columns)
            if self._plan.arrays and size > WORK_MAX:
                raise NotComputable(
                    f"EXPLODE would make more than {WORK_MAX} bytes of one record: select fewer"
                    " columns beside it."
                )
            yield PushedRow(columns)

    def _tombstone(self, row: FullRow) -> PushedRow | None:
        """Key columns that are shown keep their values, all others are NULL (ksqlDB).

        None if WHERE reads only the key and excludes it: such a row was never shown.
        """
        plan = self._plan
        if plan.where is not None and not plan.is_left and not plan.where(row.cells):
            return None
        pairs = zip(plan.cells, plan.key_cells, strict=True)
        cells = [cell(row.cells) if is_key else None for cell, is_key in pairs]
        return PushedRow(self._laid_out(cells), is_tombstone=True)

    def _laid_out(self, cells: list[Any]) -> bytes:
        return b"[%b]" % b",".join(map(cell_json, cells, self._types))


# ------------------------------------------------------------------------- where to continue


class Token(Record, frozen=True, kw_only=True):
    """A push query's position. `of`: identity of the topic; a recreated topic has another."""

    of: str
    positions: dict[int, int]
    version: int = 0


def identity_of(source: Source, cluster_id: str) -> str:
    """What a token belongs to: a cluster's topic, and the table or stream over it at the time."""
    return f"{cluster_id}/{topic_of(source)}/{source.table_id or ''}-{source.generation}"


def token_text(token: Token) -> str:
    """The client's form: base64url of JSON, opaque to the client."""
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def parse_token(text: str, of: str, partitions: int) -> Mapping[int, int]:
    """The positions of a token. Raises BadRequest if it is invalid, or of something else."""
    try:
        token = msgspec.json.decode(urlsafe_b64decode(text.encode()), type=Token)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest(f"the continuation token cannot be read: {error}") from error
    if token.of != of:
        raise BadRequest(f"the continuation token belongs to {token.of}, not to {of}")
    if any(p not in range(partitions) or offset < 0 for p, offset in token.positions.items()):
        raise BadRequest("the continuation token names partitions that the topic does not have")
    return token.positions
