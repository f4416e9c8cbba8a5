"""Missing offsets: when are the rows of a replica the rows of one batch again?

Problem. A replica applies the whole range of each committed batch, so its rows are always those of
some batch. Compaction breaks that. It removes records that later ones superseded. If a range lacks
such records, the rows after that range belong to no batch: some keys are absent until their newer
records, at higher offsets, have been applied.

Obstacles.
1. What superseded a missing record may be *foreign*: written by a failed attempt or by a writer
   that lost its lease. It is never applied, so a committed row may be absent from the topic itself
   until the lease holder appends it again (`data/commit/repair.py`).
2. The superseding record may lie anywhere below the end of the log at that moment, including
   beyond the newest committed batch, where nothing has been judged yet.
3. A foreign tombstone may have removed a row, and then have left the topic too, once it was older
   than the retention of tombstones. After that, the topic has no trace of it.

Sketch. When a gap is met, remember three offsets and watch the keys of later foreign records:

    whole_at       newest committed end at that moment; below it, the rows belong to no batch
    _suspect_end   end of the log at that moment; what superseded the missing records is below it
    _doubt_end     obstacle 3: below it, only ranges that were declared clean can be trusted

The rows are those of a batch (`are_rows_whole`) when a target at or beyond `whole_at` is applied,
no watched key may still lack a row, everything below `_suspect_end` was judged, and the clean range
(`clean_through`) reaches `_doubt_end`.

`Shadows` watches the keys of foreign records. Three things end the doubt about such a key: a
committed record of it, a record of it in a clean range, and a `clean_through` beyond the foreign
record while that is still the key's last, since below `clean_through` every record counts.

Not here: what is judged, applied and shown (`data/replica/machine.py`); the writer's side of
obstacle 3 (`Sweep.blind` in `data/commit/repair.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.store_keys import HEADER_COMMIT
from standpipe.data.replica.events import Fetched
from standpipe.model import Offset

_NEVER: Final = 1 << 63


class Gaps:
    """The gaps that one replica has met since it was opened.

    `gone_ms`: tombstones that were written before this instant may have left the topic.
    """

    def __init__(self, whole_at: Offset, gone_ms: int) -> None:
        #: offset at which the rows are those of a whole batch again
        self.whole_at = whole_at
        self.shadows = Shadows()  # of foreign records since the first gap
        self._gone_ms = gone_ms
        #: end of the log when a gap was met; 0: no gap was met
        self._suspect_end = Offset(0)
        self._doubt_end = Offset(0)  # below it, only what is declared clean can be trusted

    def met(
        self, target: TargetSet, strict_from: int, committed_end: Offset, log_end: Offset
    ) -> None:
        """Records are missing in the range of a target.

        `strict_from`: from this offset on, some missing records were not declared clean; if it is
        the target's end, all were. `committed_end`, `log_end`: as known now.
        """
        if strict_from < target.end and target.since_ms < self._gone_ms:
            self._doubt_end = max(self._doubt_end, target.end)
        self.whole_at = max(self.whole_at, committed_end)
        self._suspect_end = max(self._suspect_end, log_end)

    def judged(
        self, records: Sequence[Fetched], wanted: bytes, before_ms: int, *, some_are_foreign: bool
    ) -> None:
        """Note judged records, of which those under the commit header `wanted` count.

        All were written before `before_ms` (Unix ms).
        """
        if self._suspect_end and (self.shadows or some_are_foreign):
            self.shadows.judged(records, wanted, before_ms)

    def doubt(self, clean_through: Offset) -> str:
        """Why no later record of this topic can make the rows whole; "" if one still may."""
        if self._doubt_end <= clean_through:
            return ""
        return (
            f"records below {self._doubt_end} are gone, and foreign tombstones that superseded"
            f" committed rows may be gone too: the topic is clean only through {clean_through}"
        )

    def outlived(self, gone_ms: int) -> str:
        """Why no later record of this topic will end the doubt about a key; "" if one still may."""
        record = self.shadows.outlived(self._suspect_end, gone_ms)
        if record is None:
            return ""
        return (
            f"the foreign tombstone at offset {record[0]} may have left the topic before the"
            " pipeline repaired the committed row that it superseded"
        )

    def are_rows_whole(
        self, applied: TargetSet, *, judged: Offset, next_offset: Offset, clean_through: Offset
    ) -> bool:
        """Whether the rows applied up to a target are those of a batch, with nothing missing.

        `judged`: everything below it was judged; `next_offset`: of the next fetched record.
        """
        end = applied.end
        if self.shadows.hide_a_row(end, self._suspect_end) or end < self.whole_at:
            return False
        if self.doubt(clean_through):
            return False
        if end >= self._suspect_end:
            return True
        # the rest of the log at that time is either committed later, or foreign: not applied here
        if judged > end or next_offset < self._suspect_end:
            return False
        # or it is a foreign tombstone that has left the topic
        if applied.committed_at_ms < self._gone_ms:
            self._doubt_end = max(self._doubt_end, self._suspect_end)
            return False
        return True


@dataclass(frozen=True, slots=True)
class _ShadowedKey:
    """A key that a foreign record wrote.

    `first`: offset of the first foreign record. `last`: the newest one, written before `before_ms`.
    `ended`: offset of the record that ended the doubt, which may lie beyond what is applied.
    """

    first: int
    last: Fetched
    before_ms: int
    ended: int = _NEVER


class Shadows:
    """Keys whose committed row may be missing: a fold over the records judged since a gap."""

    def __init__(self) -> None:
        self._by_key: dict[bytes | None, _ShadowedKey] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def judged(self, records: Sequence[Fetched], wanted: bytes, before_ms: int) -> None:
        """Note judged records, of which those under the commit header `wanted` count.

        All were written before `before_ms` (Unix ms).
        """
        mark = (HEADER_COMMIT, wanted)
        for record in records:
            if mark in (record[3] or ()):
                self._end(record)
            else:
                first = self._by_key[record[1]].first if record[1] in self._by_key else record[0]
                self._by_key[record[1]] = _ShadowedKey(first, record, before_ms)

    def clean(self, records: Sequence[Fetched]) -> None:
        """Note records of a clean range, all of which count.

        Shadows of their keys may be known from when less was declared clean.
        """
        if self._by_key:
            for record in records:
                self._end(record)

    def _end(self, record: Fetched) -> None:
        shadow = self._by_key.get(record[1])
        if shadow is not None and shadow.ended == _NEVER:
            self._by_key[record[1]] = replace(shadow, ended=record[0])

    def hide_a_row(self, end: Offset, suspect_end: Offset) -> bool:
        """Whether a row may be missing once everything up to `end` is applied.

        That is a row that was in the topic when a gap was met and the log ended at `suspect_end`.
        """
        self._by_key = {key: one for key, one in self._by_key.items() if one.ended >= end}
        return any(one.first < suspect_end for one in self._by_key.values())

    def outlived(self, suspect_end: Offset, gone_ms: int) -> Fetched | None:
        """A foreign tombstone that hides a row and may have left the topic, or None.

        Without the tombstone no pipeline detects that row, so none repairs it. `gone_ms`: a
        tombstone written before this instant may be gone.
        """
        hiding = (one for one in self._by_key.values() if one.first < suspect_end)
        return next(
            (
                one.last
                for one in hiding
                if one.ended == _NEVER and one.last[2] is None and one.before_ms < gone_ms
            ),
            None,
        )

    def settled(self, clean_through: Offset) -> list[Fetched]:
        """Remove and return the foreign records that are their keys' last below `clean_through`.

        Those count, and only they end the doubt: repair does not replace the tombstone of a row
        that was never committed, and that tombstone eventually leaves the topic. Call it only when
        everything below `clean_through` was applied.
        """
        right = [
            one.last
            for one in self._by_key.values()
            if one.ended == _NEVER and one.last[0] < clean_through
        ]
        for record in right:
            del self._by_key[record[1]]
        return right
