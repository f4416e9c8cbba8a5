"""Kafka as far as the data path can tell: one partition that appends, answers ends, and compacts.

Compaction is the broker's: of what is older than `min.compaction.lag.ms` the last record of a key
stays, and a tombstone goes `delete.retention.ms` after the first cleaning that it survived.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.data.commit.repair import SweptRecord

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Retention:
    compaction_lag_ms: int
    tombstones_ms: int


class SimLog:
    """A partition. Offsets are places in `history`, which forgets nothing; clients see `kept`."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self.history: list[SweptRecord] = []
        self.kept: list[SweptRecord] = []
        self.start = 0  # below it, reads are out of range
        self._horizon: dict[int, int] = {}  # offset of a tombstone -> when it may go

    @property
    def end(self) -> int:
        return len(self.history)

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, now_ms: int) -> int:
        record = SweptRecord(self.end, key, value, headers, now_ms)
        self.history.append(record)
        self.kept.append(record)
        return record.offset

    def read(self, offset: int, count: int) -> tuple[list[SweptRecord], int]:
        """Records from `offset` on, and the offset below which there are no others."""
        first = bisect_left(self.kept, offset, key=lambda record: record.offset)
        found = self.kept[first : first + count]
        if first + count >= len(self.kept):
            return found, self.end
        return found, found[-1].offset + 1 if found else offset

    def delete_below(self, offset: int) -> int:
        """DeleteRecords: how many went."""
        before = len(self.kept)
        self.start = max(self.start, offset)
        self.kept = [record for record in self.kept if record.offset >= offset]
        return before - len(self.kept)

    def compact(self, now_ms: int, chance: random.Random | None = None) -> int:
        """How many records went. `chance`: how far the cleaner comes; None: all the way."""
        old = now_ms - self.retention.compaction_lag_ms
        cleanable = next((r.offset for r in self.history if r.written_ms > old), self.end)
        if chance is not None:
            cleanable = chance.randint(0, cleanable)
        last = {record.key: record.offset for record in self.kept if record.offset < cleanable}
        before = len(self.kept)
        self.kept = [r for r in self.kept if r.offset >= cleanable or self._stays(r, last, now_ms)]
        return before - len(self.kept)

    def _stays(self, record: SweptRecord, last: dict[bytes | None, int], now_ms: int) -> bool:
        if last[record.key] != record.offset:
            return False
        if record.value is not None:
            return True
        until = self._horizon.setdefault(record.offset, now_ms + self.retention.tombstones_ms)
        return now_ms <= until
