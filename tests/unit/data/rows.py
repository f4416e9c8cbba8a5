"""A small table for the tests of data/: one STRING key, one BIGINT column, one partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.samples import COLUMNS, sample_table

from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
    store_key,
)
from standpipe.data.encoding.stored_rows import unpack_row
from standpipe.data.replica.events import ApplyBatch, Fetched, FetchedColumns
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.data.replica.stage import RowCodec
from standpipe.model import BatchId, Column, Commit, LeaseEpoch, Source, Window

HOUR_MS = 3_600_000


def key_columns(*types: str) -> tuple[Column, ...]:
    """Key columns A, B, … of these types."""
    return tuple(
        Column(name=name, type=type_, is_key=True)
        for name, type_ in zip("ABCDEF", types, strict=False)
    )


def table(*, partitions: int = 1, window: Window | None = None) -> Source:
    return sample_table(
        columns=COLUMNS,
        partitions=partitions,
        window=window,
        query_id="Q",
        table_id="t",
        is_materialized=True,
    )


def tumbling(size_ms: int = HOUR_MS) -> Window:
    return Window(
        kind="TUMBLING", size_ms=size_ms, advance_ms=size_ms, grace_ms=0, retention_ms=24 * HOUR_MS
    )


def session(gap_ms: int) -> Window:
    return Window(kind="SESSION", size_ms=gap_ms, advance_ms=0, grace_ms=0, retention_ms=HOUR_MS)


CODEC = RowCodec.of(table(), 0)
IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
EMPTY = StoreMeta(identity=IDENTITY)


def commit(lease_epoch: int, batch: int, attempt: int = 7) -> Commit:
    return Commit(lease_epoch=LeaseEpoch(lease_epoch), batch=BatchId(batch), attempt=attempt)


def record(offset: int, key: str | None, number: int | None, by: Commit | None) -> Fetched:
    """`number` None: a tombstone; `by` None: a record without headers."""
    headers = [] if by is None else [(HEADER_COMMIT, commit_header(by))]
    value = None if number is None else b'{"N":%d}' % number
    raw = None if key is None else key.encode()
    return (offset, raw, value, [*headers, (HEADER_ROWTIME, rowtime_header(offset))])


def key_of(key: str) -> bytes:
    return store_key((key,), ("STRING",))


class DictStore:
    """A store in memory: rows as {store key: stored value}."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.meta = EMPTY

    def apply(self, order: ApplyBatch) -> None:
        for key in order.deletes:
            self.rows.pop(key, None)
        self.rows |= dict(order.puts)
        self.meta = order.meta

    def numbers(self) -> dict[bytes, bytes]:
        return numbers(self.rows)


def numbers(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Stored rows as {store key: JSON array}."""
    return {key: unpack_row(data).value_json for key, data in rows.items()}


def in_columns(records: Sequence[Fetched]) -> FetchedColumns:
    """The same records as the tailer's reader hands them on."""
    columns = [[record[n] for record in records] for n in range(4)]
    return FetchedColumns(*columns)  # type: ignore[arg-type]
