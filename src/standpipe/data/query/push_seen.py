"""Whether the client of a push query has the row that a repair wrote again. Pure.

A repair appends the committed row of a key again, since foreign records came after it
(`data/commit/repair.py`). To a client who has that row it is no change: it would be shown twice,
and it is older than what was shown since. But a client who lacks it must get it, as Kafka may have
compacted the first one away, and nothing else may follow for a long time. So a repaired record says
which record it repeats, and where and when the first foreign one came (`Repeated`):

    was a foreign record perhaps shown?                        ─► show it again: it sets that right
    this query met every record since the one that is repeated ─► leave it out
    the foreign record is younger than what Kafka compacts     ─► leave it out: who has read as
                                                                  far has read the first one
    else                                                       ─► show it again, to be safe

Two offsets of each partition are all that is kept. `whole_from`: from there on this query met every
record; it moves behind each hole. `exact_from`: from there on it showed no foreign record; it moves
behind each record that counts by its order alone (`Committed.is_by_order`). The third rule is for
what was shown before a token, by another node. Records that count by order there are older than
that: progress records stay for an hour (`KEEP_MS`).

Rejected: rows or their hashes, to compare with (as many as the table has keys). The commit alone (a
load, and a replay of the newest batch, have commits of the same form, and their rows may be news).
Every row of a repair left out (of a topic that was compacted, a client may get only these).
"""

from __future__ import annotations

from collections.abc import Mapping

from standpipe.data.commit.repair import Repeated
from standpipe.data.query.push_start import CHANGES_KEPT_MS


class Seen:
    """Of one push query. `starts`: partition -> the first offset that it reads."""

    def __init__(self, starts: Mapping[int, int]) -> None:
        self._whole_from = dict(starts)
        self._exact_from = dict.fromkeys(starts, 0)

    def missed(self, partition: int, before: int) -> None:
        """There is no record right before this offset, or none any more."""
        self._whole_from[partition] = before

    def perhaps_foreign(self, partition: int, offset: int) -> None:
        """The record at this offset was shown, and may be foreign."""
        self._exact_from[partition] = offset + 1

    def has(self, partition: int, repeated: Repeated, now_ms: int) -> bool:
        """Whether the client has the row. In doubt it has not. `now_ms`: of the wall clock."""
        if repeated.foreign_from < self._exact_from[partition]:
            return False
        is_young = repeated.foreign_ms >= now_ms - CHANGES_KEPT_MS
        return is_young or repeated.offset >= self._whole_from[partition]
