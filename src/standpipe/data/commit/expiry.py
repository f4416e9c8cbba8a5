"""When rows of a windowed table expire, in the stores and in the topic.

A store shows a window until its retention is over: ``edge + retention <= watermark + grace``, where
edge is the window's start, of a session its last event, and watermark + grace is how far event time
has come (Spark's watermark is the newest event less the grace period). The watermark of a batch is
in its progress record, so replicas that show the same batch have dropped the same windows, whatever
way they came. With ksqlDB's default, retention = size + grace, that is when the window's result is
final and Spark forgets its state. Source: ksqlDB's RETENTION; Kafka Streams' window and session
stores, which leave out what lies at or before stream time - retention.

The topic keeps what expired for a while longer, as long as tombstones: who was away for less finds
everything (`deletable_below`). Kafka cannot do it by itself: it deletes by when a record was
written, and events may be old when they come, or stop coming.

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
    """The rule of one table. `bounds`: longs of a window at the end of a key."""

    bounds: int
    grace_ms: int
    retention_ms: int

    @classmethod
    def of(cls, window: Window | None) -> Expiry | None:
        """None: its rows never expire: it has no windows, or another program writes the topic and
        only they know for how long windows are of interest."""
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
        """Edge of a record's window by its key in Kafka. Raises UnfitKey."""
        if self.bounds == 2:
            return split_session_key(raw_key)[2]
        return split_windowed_key(raw_key)[1]


def by_edge(store_key: bytes) -> bytes:
    """A row's key in a store with the edge of its window, its end, put first: in order of edges."""
    return store_key[-WINDOW_BYTES:] + store_key[:-WINDOW_BYTES]


def store_key_of(turned: bytes) -> bytes:
    """The store key that `by_edge` turned."""
    return turned[WINDOW_BYTES:] + turned[:WINDOW_BYTES]


def edges_after(edge_ms: int) -> bytes:
    """Sorts behind each turned key of a window with an edge up to `edge_ms`, before all others."""
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

    `records`: from the topic's start on, in order. Deleted is a beginning of the topic, so no older
    row of a key can come to light. What has to stay: windows that have not expired (where such a
    row lies first, it holds up what is behind it; compaction continues), what was written lately
    (`written_before_ms`: a replica that has slept for less resumes behind it), and what is not
    called clean yet. `watermark_ms`: of the newest commit.
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
        return True  # no row of the table, or one that is deleted already
    try:
        return expiry.edge_of_record_ms(record.key) <= edge_ms
    except UnfitKey:
        return True  # counted and left out by every replica
