"""What missing offsets leave open: when are the rows of a replica a batch's rows again?

A gap in the range of a target means that compaction took records which later ones superseded. Up to
the newest target of that moment the rows are no batch's rows. What superseded them may be *foreign*
(`data/replica/shadows.py`): until all that was in the log by then was judged, a committed row may
be missing. And a foreign tombstone may have left the topic itself, where it is old enough: then
only what was called clean in time can be trusted (`Sweep.blind` of `data/commit/repair.py` is the
writer's side of it).

Not here: what is judged, applied and shown (`data/replica/machine.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.record_batch import Fetched
from standpipe.data.replica.shadows import Shadows
from standpipe.model import Offset


class Gaps:
    """The gaps that one replica has met since it was opened.

    `gone_ms`: tombstones that were written before this instant may have left the topic.
    """

    def __init__(self, whole_at: Offset, gone_ms: int) -> None:
        #: offset from which on the rows are a whole batch again
        self.whole_at = whole_at
        self.shadows = Shadows()  # of foreign records since there was a gap
        self._gone_ms = gone_ms
        #: end of the log when a gap was met: what lies below may be why; 0: no gap was met
        self._suspect_end = Offset(0)
        self._doubt_end = Offset(0)  # only what is called clean below can be trusted

    def met(
        self, target: TargetSet, strict_from: int, committed_end: Offset, log_end: Offset
    ) -> None:
        """Records are missing in the range of a target. `strict_from`: from here on, not all of
        what is missing was called clean; the target's end: all was."""
        if strict_from < target.end and target.since_ms < self._gone_ms:
            self._doubt_end = max(self._doubt_end, target.end)
        self.whole_at = max(self.whole_at, committed_end)
        self._suspect_end = max(self._suspect_end, log_end)

    def judged(
        self, records: Sequence[Fetched], wanted: bytes, before_ms: int, *, some_are_foreign: bool
    ) -> None:
        """Records of which those of one commit count. All were written before `before_ms`."""
        if self._suspect_end and (self.shadows or some_are_foreign):
            self.shadows.judged(records, wanted, before_ms)

    def doubt(self, clean_through: Offset) -> str:
        """Why nothing that comes from this topic can make the rows whole; "": it may."""
        if self._doubt_end <= clean_through:
            return ""
        return (
            f"records below {self._doubt_end} are gone, and so may be the foreign tombstones that"
            f" took committed rows along: the topic is clean only through {clean_through}"
        )

    def outlived(self, gone_ms: int) -> str:
        """Why nothing that comes from this topic will end a shadow; "": it may."""
        record = self.shadows.outlived(self._suspect_end, gone_ms)
        if record is None:
            return ""
        return (
            f"the foreign tombstone at offset {record[0]} may have left the topic before anybody"
            " saw that it took a committed row along"
        )

    def hide_nothing(
        self, applied: TargetSet, *, judged: Offset, next_offset: Offset, clean_through: Offset
    ) -> bool:
        """Whether rows that were applied up to a target are those of a batch, nothing missing.

        `judged`: everything below was; `next_offset`: of the next record that was fetched.
        """
        end = applied.end
        if self.shadows.hide_a_row(end, self._suspect_end) or end < self.whole_at:
            return False
        if self.doubt(clean_through):
            return False
        if end >= self._suspect_end:
            return True
        # the rest that was in the log then is either committed later, or foreign: not applied here
        if judged > end or next_offset < self._suspect_end:
            return False
        if applied.committed_at_ms < self._gone_ms:  # or foreign, and a tombstone, and gone
            self._doubt_end = max(self._doubt_end, self._suspect_end)
            return False
        return True
