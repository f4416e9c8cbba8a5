"""A topic that others write, as its consumers see it: one partition, in the hands of its owner.

It is compacted, cut off by an election that loses records, emptied from below by retention, and
made again under the same name. `prefixes` says what any of its logs held up to an offset.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

BAD = b"{"


class Written(NamedTuple):
    """A record. `number`: unique in the world; None: a deletion. `version`: in versioned worlds."""

    offset: int
    key: bytes
    number: int | None
    version: int
    is_bad: bool = False

    @property
    def value(self) -> bytes | None:
        if self.is_bad:
            return BAD
        if self.number is None:
            return None
        return b'{"N":%d,"V":%d}' % (self.number, self.version)


#: a log without compaction; None: the marker of a transaction
History = list[Written | None]


class SourceLog:
    """The log that has the name now, and those that had it before."""

    def __init__(self, tombstones_ms: int) -> None:
        self.tombstones_ms = tombstones_ms
        self.made = 0
        self.old: list[tuple[str, History]] = []
        self._begin()

    def _begin(self) -> None:
        self.made += 1
        self.topic_id = f"id-{self.made}"
        self.history: History = []
        self.kept: list[Written] = []
        self.start = 0
        #: (leader epoch, offset at which the one before was cut off)
        self.cuts: list[tuple[int, int]] = []
        self._horizon: dict[int, int] = {}  # offset of a tombstone -> when it may go
        #: records that compaction took, each with the offset of the one that superseded it
        self._taken: list[tuple[Written, int]] = []
        #: instants and ends, ascending
        self._ends: tuple[list[int], list[int]] = ([], [])

    @property
    def end(self) -> int:
        return len(self.history)

    @property
    def epoch(self) -> int:
        return len(self.cuts)

    def append(self, key: bytes, number: int | None, version: int, *, is_bad: bool = False) -> None:
        record = Written(self.end, key, number, version, is_bad)
        self.history.append(record)
        self.kept.append(record)

    def mark(self) -> None:
        """A transaction ended: its marker takes an offset that no consumer sees."""
        self.history.append(None)

    def note_end(self, now_ms: int) -> None:
        self._ends[0].append(now_ms)
        self._ends[1].append(self.end)

    def end_at(self, at_ms: int) -> int:
        """Where it ended at an instant, at least."""
        place = bisect_right(self._ends[0], at_ms)
        return self._ends[1][place - 1] if place else 0

    def read(self, offset: int, count: int) -> list[Written]:
        first = bisect_left(self.kept, offset, key=lambda record: record.offset)
        return self.kept[first : first + count]

    def compact(self, now_ms: int, chance: random.Random) -> int:
        """The cleaner, as far as it comes; the newest records are in the active segment."""
        cleanable = chance.randint(0, max(0, self.end - 1))
        last = {record.key: record.offset for record in self.kept if record.offset < cleanable}
        kept, before = list[Written](), len(self.kept)
        for record in self.kept:
            if record.offset >= cleanable or self._stays(record, last, now_ms):
                kept.append(record)
            else:
                self._taken.append((record, last[record.key]))
        self.kept = kept
        return before - len(kept)

    def _stays(self, record: Written, last: dict[bytes, int], now_ms: int) -> bool:
        if last[record.key] != record.offset:
            return False
        if record.value is not None:
            return True
        until = self._horizon.setdefault(record.offset, now_ms + self.tombstones_ms)
        return now_ms <= until

    def retain(self, start: int) -> None:
        """Retention: the log begins there."""
        self.start = max(self.start, start)
        self.kept = [record for record in self.kept if record.offset >= self.start]

    def cut_off(self, end: int) -> None:
        """An unclean election: what was acknowledged from there on is lost. The new leader never
        had it, so its own cleaner took nothing because of it."""
        self.old.append((self.topic_id, [*self.history]))
        del self.history[end:]
        back = [one for one, by in self._taken if by >= end > one.offset >= self.start]
        self._taken = [(one, by) for one, by in self._taken if by < end]
        self.kept = sorted(
            [*back, *(record for record in self.kept if record.offset < end)],
            key=lambda record: record.offset,
        )
        self._horizon = {at: until for at, until in self._horizon.items() if at < end}
        self.cuts.append((self.epoch + 1, end))
        self._ends = ([], [])

    def is_cut_below(self, position: int, epoch: int) -> bool:
        """Whether a consumer that read up to there under a leader's epoch read what is lost."""
        return any(number > epoch and end < position for number, end in self.cuts)

    def make_again(self) -> None:
        self.old.append((self.topic_id, [*self.history]))
        self._begin()

    def logs_of(self, topic_id: str) -> Iterator[History]:
        """All that a topic of this id has ever been."""
        if topic_id == self.topic_id:
            yield self.history
        yield from (history for known, history in self.old if known == topic_id)


def rows_of(
    history: History, start: int, position: int, *, is_versioned: bool
) -> dict[bytes, tuple[int, int]]:
    """{key: (number, version)} of what a log says between two offsets: the dull twin."""
    rows: dict[bytes, tuple[int, int]] = {}
    for record in history[start:position]:
        if record is None or record.is_bad:
            continue
        there = rows.get(record.key)
        if record.number is None:
            rows.pop(record.key, None)
        elif there is None or not is_versioned or record.version >= there[1]:
            rows[record.key] = (record.number, record.version)
    return rows
