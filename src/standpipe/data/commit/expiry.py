"""When rows of a windowed table expire, in the stores and in the topic.

A store shows a window until its retention is over: ``edge + retention <= watermark + grace``, where
edge is the window's start (for a session, its last event), and watermark + grace is how far event
time has advanced (Spark's watermark is the newest event less the grace period). The watermark of a
batch is in its progress record, so replicas that show the same batch have dropped the same windows,
however they got there. With ksqlDB's default, retention = size + grace, that is when the window's
result is final and Spark drops its state. Source: ksqlDB's RETENTION; Kafka Streams' window and
session stores, which leave out what lies at or before stream time - retention.

The topic keeps expired rows a while longer, as long as tombstones: a replica that was down for less
finds everything (`deletable_below`). Kafka cannot do this: it deletes by the time a record was
written, and events may be old when they arrive, or stop arriving.

Not here: the index by which a store finds what expired (`adapters/store/window_index.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from standpipe.data.commit.repair import SweptRecord
from standpipe.data.encoding.kafka_keys import (
    WINDOW_BYTES,
    bounds_of,
    split_session_key,
    split_windowed_key,
)
from standpipe.data.encoding.store_keys import UnfitKey, ordered_longs
from standpipe.model import Offset, Window

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Expiry:
    """The rule for one table. `bounds`: longs that a window takes at the end of a key."""

    bounds: int
    grace_ms: int
    retention_ms: int

    @classmethod
    def of(cls, window: Window | None) -> Expiry | None:
        """None: rows never expire. The table has no windows, or another program writes the topic
        and only that program knows how long windows matter."""
        if window is None or not window.retention_ms:
            return None
        return cls(bounds_of(window), window.grace_ms, window.retention_ms)

    def newest_expired_ms(self, watermark_ms: int) -> int | None:
        """Windows with an edge up to here have expired, Unix ms; None: there is no watermark."""
        if watermark_ms <= 0:
            return None
        edge_ms = watermark_ms + self.grace_ms - self.retention_ms
        return max(_LONG_MIN, min(edge_ms, _LONG_MAX - 1))

    def edge_of_record_ms(self, raw_key: bytes) -> int:
        """Edge of a record's window, from its key in Kafka. Raises UnfitKey."""
        if self.bounds == 2:
            return split_session_key(raw_key)[2]
        return split_windowed_key(raw_key)[1]


def by_edge(store_key: bytes) -> bytes:
    """A row's store key with the edge of its window moved to the front: sorts by edge."""
    return store_key[-WINDOW_BYTES:] + store_key[:-WINDOW_BYTES]


def store_key_of(turned: bytes) -> bytes:
    """The store key from which `by_edge` made this: its inverse."""
    return turned[WINDOW_BYTES:] + turned[:WINDOW_BYTES]


def edges_after(edge_ms: int) -> bytes:
    """Sorts after every `by_edge` key with an edge up to `edge_ms`, and before all others."""
    return ordered_longs((edge_ms + 1,))


def deletable_below(
    expiry: Expiry,
    records: Iterable[SweptRecord],
    *,
    clean_through: Offset,
    watermark_ms: int,
    written_before_ms: int,
) -> Offset:
    """Offset below which a table topic holds nothing that a reader needs; 0: unknown.

    `records`: from the topic's start on, in order. Only a prefix of the topic is deleted, so no
    older row of a key can reappear. What must stay: windows that have not expired (such a row holds
    up all records after it; compaction continues), recent records (`written_before_ms`: a replica
    that was down for less time resumes after it), and ranges not declared clean yet.
    `watermark_ms`: of the newest commit.
    """
    edge_ms = expiry.newest_expired_ms(watermark_ms)
    below = Offset(0)
    if edge_ms is None:
        return below
    for record in records:
        is_due = record.offset < clean_through and record.written_ms < written_before_ms
        if not is_due or not _is_expired(expiry, record, edge_ms):
            break
        below = Offset(record.offset + 1)
    return below


def _is_expired(expiry: Expiry, record: SweptRecord, edge_ms: int) -> bool:
    if record.key is None or record.value is None:
        return True  # not a row of the table, or already deleted
    try:
        return expiry.edge_of_record_ms(record.key) <= edge_ms
    except UnfitKey:
        return True  # counted and left out by every replica
