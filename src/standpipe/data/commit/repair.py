"""Repair: which keys of a table topic show the wrong row to readers that rely on offset order.

Compaction keeps the last record of a key, regardless of its writer. If that is a *foreign* record
(from a straggler, a zombie or a failed attempt), it *shadows* the committed row, which compaction
removes once the foreign record is older than `min.compaction.lag.ms`. Long before that, the lease
holder appends the committed row again, in a separate commit: the newest batch under a new attempt.
Below `clean_through` no key is shadowed, so offset order is enough there: a replica is restored
from what compaction left, and progress records entirely below it may be removed
(`data.commit.progress.removable`).

`Sweep` follows one partition behind the commits and tracks the shadows; `Finder` reads the
committed rows from the topic itself. A row that it found stays right while its shadow is the same,
since a committed row in between would have ended the shadow.

A repaired record says which record it repeats, and since when that is shadowed (`Repeated`).
To a replica this means nothing, as the row is the same; a push query need not show it again
(`data/query/push_seen.py`).

Why the lease holder sweeps, and not the tailers: only the holder knows that no
commit lies between finding a row and writing it (a tailer might report a stale row), and
the absence of reports would not prove a range clean.

Not here: reading and writing Kafka (`pipeline/commit/janitor.py`); what replicas show
(`data/replica/machine.py`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from standpipe.data.commit.packed_records import Headers, PackedRecord, PackedRecords
from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_REPAIR, commit_header
from standpipe.model import Offset

_REPEATED: Final = struct.Struct(">qqq")


class SweptRecord(NamedTuple):
    """A record of a table topic as the sweep reads it. `written_ms`: Kafka's timestamp."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    written_ms: int


@dataclass(frozen=True, slots=True)
class Shadow:
    """The last record of a key is foreign, as are all its records since `first_offset`."""

    first_offset: Offset
    first_ms: int  # when it was written: some time later compaction may remove the committed row


class Sweep:
    """One partition, swept from an offset below which no key is shadowed. A fold, no orders.

    `gone_ms`: tombstones that were written before this instant may have left the topic.
    """

    def __init__(self, clean_through: Offset, gone_ms: int = 0) -> None:
        #: whole targets up to here were swept
        self.position = clean_through
        self.clean_through = clean_through
        #: {raw key: its shadow}, as of `position`
        self.shadows: dict[bytes, Shadow] = {}
        self.foreign = 0
        #: why nothing more can be declared clean: records are gone from a range, and so may be the
        #: foreign tombstones that superseded its rows; "": it can
        self.blind = ""
        self._gone_ms = gone_ms
        self._fetched = clean_through
        self._waiting = PackedRecords()
        self._targets: deque[TargetSet] = deque()
        self._newest: tuple[int, int, int] | None = None

    @property
    def fetched(self) -> Offset:
        """Records below were handed in, or do not exist."""
        return self._fetched

    @property
    def is_behind(self) -> bool:
        """Whether some known targets were not swept yet."""
        return bool(self._targets)

    def target(self, target: TargetSet) -> None:
        """Targets arrive in order, each at least once."""
        if self._newest is None or target.rank > self._newest:
            self._newest = target.rank
            if target.end >= self.position:
                self._targets.append(target)
                self._advance()

    def records(self, records: Iterable[SweptRecord], next_offset: Offset) -> None:
        """Offsets ascend; below `next_offset` there are no others."""
        self._waiting.extend([record for record in records if record.offset >= self._fetched])
        self._fetched = max(self._fetched, next_offset)
        self._advance()

    def all_shadows(self) -> dict[bytes, Shadow]:
        """All shadows, including those beyond the newest target. Call it only while no batch is in
        flight, since a batch's records are not committed yet."""
        shadows = dict(self.shadows)
        for record in self._waiting:
            _cast(shadows, record)
        return shadows

    def is_news(self, published: Offset) -> bool:
        """Whether to publish `clean_through` to readers that know `published`, although no batch
        follows: a replica that met a gap may wait for it, and much later only ranges that were
        declared clean in time can be trusted."""
        return published < self.clean_through

    def _advance(self) -> None:
        while self._targets and self._fetched >= self._targets[0].end:
            target = self._targets.popleft()
            mark = commit_header(target.commit)
            missing = target.end - self.position
            if not self.shadows:  # none to end: their keys do not matter
                missing -= self._waiting.skip_below(target.end, mark)
            for record in self._waiting.take_below(target.end):
                missing -= 1
                if mark in record.commits:
                    if record.key is not None:
                        self.shadows.pop(record.key, None)
                else:
                    self.foreign += 1
                    _cast(self.shadows, record)
            if missing > 0 and target.since_ms < self._gone_ms:
                self.blind = f"records between {self.position} and {target.end} are gone"
            self.position = target.end
            if not self.shadows and not self.blind:
                self.clean_through = target.end


def _cast(shadows: dict[bytes, Shadow], record: PackedRecord) -> None:
    if record.key is not None:  # a record without a key is not a row and is never compacted
        shadows.setdefault(record.key, Shadow(Offset(record.offset), record.written_ms))


class Finder:
    """Reads one partition from its beginning for the committed rows under some shadows.

    `targets`: the valid ones from the beginning of the progress topic. They do not matter below
    `clean_through`, where every record counts, in order.
    """

    def __init__(
        self,
        shadows: Mapping[bytes, Shadow],
        targets: Sequence[TargetSet],
        clean_through: Offset,
    ) -> None:
        self.shadows = dict(shadows)
        self.end = max((shadow.first_offset for shadow in shadows.values()), default=Offset(0))
        self.found: dict[bytes, SweptRecord] = {}
        self._clean_through = clean_through
        self._ends = [target.end for target in targets]
        self._marks = [(HEADER_COMMIT, commit_header(target.commit)) for target in targets]

    def records(self, records: Iterable[SweptRecord]) -> None:
        """Records in order; those from `end` on do not matter."""
        for record in records:
            if record.key is None or (shadow := self.shadows.get(record.key)) is None:
                continue
            if record.offset < shadow.first_offset and self._is_committed(record):
                self.found[record.key] = record

    def _is_committed(self, record: SweptRecord) -> bool:
        if record.offset < self._clean_through:
            return True
        place = bisect_right(self._ends, record.offset)  # the first target that ends after it
        return place < len(self._marks) and self._marks[place] in (record.headers or ())


class Repair(NamedTuple):
    """A record to append again under the repairer's commit. `value` None: a tombstone."""

    key: bytes
    value: bytes | None
    headers: Headers  # those of the committed record, and `Repeated`; the commit is replaced


class Repeated(NamedTuple):
    """What a repaired record repeats: the committed one at `offset`. Between the two, records of
    its key are foreign, and the first of these is at `foreign_from`, written at `foreign_ms`. A key
    without a committed record has `foreign_from` as `offset`, too."""

    offset: int
    foreign_from: int
    foreign_ms: int

    @staticmethod
    def of(headers: Headers) -> Repeated | None:
        """What a committed record says; None: no repair wrote it, or one of an older release."""
        for name, data in headers or ():
            if name == HEADER_REPAIR and data is not None and len(data) == _REPEATED.size:
                return Repeated(*_REPEATED.unpack(data))
        return None

    @property
    def header(self) -> tuple[str, bytes]:
        """Its header."""
        return (HEADER_REPAIR, _REPEATED.pack(*self))


@dataclass(frozen=True)
class Repairs:
    """What can be repaired in a partition now, and what cannot."""

    records: tuple[Repair, ...]
    #: keys that were shadowed again since their rows were searched for: search again
    unknown: tuple[bytes, ...]
    #: keys whose committed row compaction may have removed: the topic cannot tell
    too_late: tuple[bytes, ...]


def repairs(
    shadows: Mapping[bytes, Shadow],
    finder: Finder,
    *,
    now_ms: int,
    compaction_lag_ms: int,
    is_blind: bool = False,
    replica_rows: Mapping[bytes, Repair] | None = None,
) -> Repairs:
    """`shadows`: as they are now, while no batch is in flight and everything was swept.

    A key without a committed row becomes a tombstone, but only while compaction cannot yet have
    removed the row. `compaction_lag_ms`: for how long the topic keeps superseded records.
    `is_blind` (`Sweep.blind`): an older shadow may have superseded the row and then left the topic.
    `replica_rows`: all rows of a replica that shows the newest commit, if one could be asked.
    """
    known: list[Repair] = []
    unknown: list[bytes] = []
    too_late: list[bytes] = []
    for key, shadow in shadows.items():
        row, beginning = finder.found.get(key), (shadow.first_offset, shadow.first_ms)
        if finder.shadows.get(key) != shadow:
            unknown.append(key)
        elif row is not None:
            headers = _headers_with(Repeated(row.offset, *beginning), row.headers)
            known.append(Repair(key, row.value, headers))
        elif not is_blind and now_ms - shadow.first_ms < compaction_lag_ms:
            headers = _headers_with(Repeated(shadow.first_offset, *beginning), ())
            known.append(Repair(key, None, headers))
        elif replica_rows is not None:
            known.append(replica_rows.get(key, Repair(key, None, ())))
        else:
            too_late.append(key)
    return Repairs(tuple(known), tuple(unknown), tuple(too_late))


def _headers_with(repeated: Repeated, headers: Headers) -> Headers:
    """The record that is repeated may have been repaired itself."""
    return [repeated.header, *(each for each in headers or () if each[0] != HEADER_REPAIR)]


def headers_under(headers: Headers, commit: tuple[str, bytes]) -> list[tuple[str, bytes | None]]:
    """The headers of a repaired record: its own, but with the repairer's commit."""
    kept = [each for each in headers or () if each[0] != HEADER_COMMIT]
    return [commit, *kept]
