"""Where a push query begins that goes on from a session's token. Pure.

    push query before it   its position in each partition, exactly
    reads before it        the end of the batch that they have shown
    both                   whichever is further

Nothing of before is shown again, and nothing after it is left out. So a token is refused if it is
ahead of the end, or if what follows it is gone, or may be: records that retention has removed; of a
table or stream that a query of ours writes, those whose progress records are gone; of a table also
those that Kafka may have compacted by now. Kafka does so by time, whether or not a pipeline runs
that removes progress records. What a load or a repair has added to the batch that a read has shown
comes after that batch, whether the read had it or not.

A query from the beginning is a *scan* until it comes to where each change is there. Before that it
shows what compaction has left, in order, and goes on within `SCAN_MS_MAX`: rows that it has shown
and that were deleted since still have their tombstones.

Not here: whether a token fits the table at all (`control/routing/session.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.covered_offsets import TopicOffsets
from standpipe.data.commit.written_offsets import why_never
from standpipe.errors import TokenRefused
from standpipe.session_scan import PushScan
from standpipe.session_token import (
    ANEW,
    FORGED_OR_LOST,
    FollowedTable,
    SessionToken,
    TopicKey,
)

HOUR_MS: Final = 3_600_000
#: Records of a table's topic that are younger were not compacted. The topics' min.compaction.lag.ms
#: is an hour (`control/metadata/topic_reconciler.py`); the rest is for clocks that differ.
CHANGES_KEPT_MS: Final = 50 * 60_000
#: since a scan began: less than the topics' delete.retention.ms, which is 7 days
SCAN_MS_MAX: Final = 6 * 24 * HOUR_MS


@dataclass(frozen=True)
class TopicRange:
    """What there is of a topic, as Kafka told after the request had arrived. `topic_id` "": not
    known. `starts`: the first offset of each partition; `ends`: the one after the last that a push
    query may show. `committed`: of the query of ours that writes it; None: there is none.
    `is_compacted`: it is the topic of a table of that query. `now_ms`: of the wall clock."""

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str = ""
    committed: Committed | None = None
    is_compacted: bool = False
    now_ms: int = field(kw_only=True)

    def check(self, positions: Mapping[int, int], scan: PushScan | None = None) -> None:
        """Raises TokenRefused if a push query cannot begin there. `scan`: that is there."""
        is_scan = scan is not None and self.now_ms - scan.hour * HOUR_MS < SCAN_MS_MAX
        ends = TopicOffsets(offsets={**self.ends})
        for partition, at in positions.items():
            never = why_never(TopicKey(self.topic), partition, at, ends)
            if never:
                raise TokenRefused(f"{FORGED_OR_LOST} {never}")
            is_kept = is_scan or self._is_kept(partition, at)
            if at < self.starts.get(partition, 0) or not is_kept:
                raise gone(f"{self.topic}, partition {partition}, from offset {at} on")

    def _is_kept(self, partition: int, at: int) -> bool:
        """Whether all changes from that offset on are there. In doubt they are not."""
        committed = self.committed
        if committed is None:
            return True
        if self.is_compacted:
            return has_each_change(committed, {partition: at}, self.now_ms)
        return committed.is_exact(partition, at)


def has_each_change(committed: Committed, positions: Mapping[int, int], now_ms: int) -> bool:
    """Whether a table's topic has all of its changes from these positions on."""
    kept_ms = now_ms - CHANGES_KEPT_MS
    return all(
        committed.is_younger(each, at, kept_ms) and committed.is_exact(each, at)
        for each, at in positions.items()
    )


def gone(wanted: str) -> TokenRefused:
    """The error for a token after which records are missing."""
    return TokenRefused(
        f"wanted {wanted}. Retention or compaction has removed what comes there: {ANEW}"
    )


def scan_of(followed: FollowedTable) -> PushScan | None:
    """The scan that goes on; None: none does. What a read has shown was never a scan's."""
    return followed.scan if followed.whole is None else None


def starts_of_table(followed: FollowedTable, there: TopicRange) -> dict[int, int]:
    """Where a push query on a table begins. `there`: with `committed`. Raises TokenRefused."""
    committed, positions = there.committed, followed.positions
    assert committed is not None
    shown: Mapping[int, int] = {}
    if followed.whole is not None:
        _, batch, epoch = followed.whole
        ends = committed.ends_of(batch, epoch)
        if ends is not None:
            shown = ends
        elif not there.ends.keys() <= positions.keys():
            raise gone(f"{there.topic} from the end of batch {batch} (lease epoch {epoch}) on")
    found = {**shown, **positions}
    found |= {each: max(found[each], end) for each, end in shown.items()}
    there.check(found, scan_of(followed))
    return {each: found.get(each, first) for each, first in there.starts.items()}


def starts_of_topic(token: SessionToken, there: TopicRange) -> dict[int, int] | None:
    """Where a push query on a topic begins; None: the session has not seen it. A partition that the
    token does not name was added since. Raises TokenRefused."""
    keys = [key for key in token.streamed if key.topic == there.topic]
    if not keys:
        return None
    positions: dict[int, int] = {}
    ends = TopicOffsets(topic_id=there.topic_id, offsets={**there.ends})
    for key in keys:
        for partition, at in token.streamed[key].items():
            never = why_never(key, partition, at, ends)
            if never:
                raise TokenRefused(f"{FORGED_OR_LOST} {never}")
            positions[partition] = max(at, positions.get(partition, 0))
    there.check(positions)
    return {each: positions.get(each, first) for each, first in there.starts.items()}


def names_topic(token: SessionToken, topic: str) -> bool:
    """Whether the session has followed a topic of that name."""
    return any(key.topic == topic for key in token.streamed)
