"""Keys of a replica of which a row may be missing, because a foreign record wrote them.

Compaction keeps the last record of a key, whoever wrote it. Where a replica met a gap and then a
foreign record, the committed row before it may have been in the gap. Three things end that doubt:
a committed record of the key, one that is called clean, and a `clean_through` behind which the
foreign record itself is the last: there any record is right in its order (`data/commit/repair.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from standpipe.data.encoding.record_batch import Fetched
from standpipe.data.encoding.store_keys import HEADER_COMMIT
from standpipe.model import Offset

_NEVER: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class _Shadow:
    """`first`: offset of the first foreign record. `ended`: of the record that ended the doubt,
    which may lie beyond what is applied. `last`: the newest foreign one, no younger than
    `before_ms`."""

    first: int
    last: Fetched
    before_ms: int
    ended: int = _NEVER


class Shadows:
    """A fold over what was judged since there was a gap."""

    def __init__(self) -> None:
        self._by_key: dict[bytes | None, _Shadow] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def judged(self, records: Sequence[Fetched], wanted: bytes, before_ms: int) -> None:
        """Records of which those of one commit count. All were written before `before_ms`."""
        mark = (HEADER_COMMIT, wanted)
        for record in records:
            if mark in (record[3] or ()):
                self._end(record)
            else:
                first = self._by_key[record[1]].first if record[1] in self._by_key else record[0]
                self._by_key[record[1]] = _Shadow(first, record, before_ms)

    def clean(self, records: Sequence[Fetched]) -> None:
        """Records of which all count. What shadowed their keys was judged when less was clean."""
        if self._by_key:
            for record in records:
                self._end(record)

    def _end(self, record: Fetched) -> None:
        shadow = self._by_key.get(record[1])
        if shadow is not None and shadow.ended == _NEVER:
            self._by_key[record[1]] = replace(shadow, ended=record[0])

    def hide_a_row(self, end: Offset, suspect_end: Offset) -> bool:
        """Whether, applied up to `end`, a row may be missing that was in the topic when a gap was
        met, up to `suspect_end`."""
        self._by_key = {key: one for key, one in self._by_key.items() if one.ended >= end}
        return any(one.first < suspect_end for one in self._by_key.values())

    def outlived(self, suspect_end: Offset, gone_ms: int) -> Fetched | None:
        """A foreign tombstone that hides a row, and may have left the topic: then no pipeline finds
        it, and nobody repairs the row. `gone_ms`: it was written before."""
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
        """Foreign records that are their keys' last below `clean_through`, so they are right; taken
        out. Only when all below was applied.

        Repair leaves such: a tombstone of a row that never was, and it vanishes in time, so nothing
        that comes would end the doubt.
        """
        right = [
            one.last
            for one in self._by_key.values()
            if one.ended == _NEVER and one.last[0] < clean_through
        ]
        for record in right:
            del self._by_key[record[1]]
        return right
