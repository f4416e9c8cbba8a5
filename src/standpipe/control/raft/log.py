"""One replica's view of the replicated log: entries, epochs, voter sets, snapshots, what is safe.

    start               high_watermark        flushed_end      end
      |   committed, may be applied  |  uncommitted  |  not on disk yet
      '- the boundary: a snapshot (or the empty beginning) covers everything below it

Four rules live here and nowhere else:
* a log is appended only at its end, and truncated only above the high watermark (KIP-595);
* two logs that hold the same (epoch, end offset) are equal below it, so divergence is found by
  comparing the ends of epochs, not entries (KIP-595 "Truncation detection", as KIP-101/KIP-320);
* the newest voters record is in force as soon as it is appended; when it is truncated, the
  previous one is in force again (KIP-853);
* written is not durable: `flushed_end` moves only when the disk confirms it, and a flush that was
  ordered before a truncation confirms nothing above the cut.

Not here: the disk (`adapters/raft/disk.py`), and who may append (`core.py`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, VoterSet
from standpipe.model import NodeId


class LogViolation(Exception):
    """An operation would break one of the log's rules; the process must end."""


class EpochEnd(NamedTuple):
    """Where an epoch ends in some log: the offset after its last entry."""

    epoch: LeaderEpoch
    end_offset: LogOffset


class SnapshotId(NamedTuple):
    """Which prefix of the log a snapshot covers."""

    end_offset: LogOffset
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot's metadata, without its bytes."""

    end_offset: LogOffset
    """First offset that it does not cover."""
    epoch: LeaderEpoch
    """Epoch of the last entry that it covers."""
    voters: VoterSet
    """The voter set in force at its end (KIP-853 puts it into the snapshot's header)."""
    size: int = 0
    """Unit: bytes."""

    @property
    def id(self) -> SnapshotId:
        """Its name on the wire and on disk."""
        return SnapshotId(self.end_offset, self.epoch)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first entry of each epoch: committing it commits everything before it (KIP-595)."""

    leader: NodeId
    voters: VoterSet
    granted: tuple[ReplicaKey, ...]
    """Who elected it, ascending."""


Payload = bytes | LeaderChange | VoterSet
"""A command of the state machine, or one of the two control records."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the log; (offset, epoch) is permanently unique."""

    offset: LogOffset
    epoch: LeaderEpoch
    payload: Payload


@dataclass(frozen=True, slots=True)
class Diverges:
    """A fetcher's log is not a prefix of ours: it must truncate to at most this end."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """A fetcher's position can no longer be served from the log."""

    snapshot: SnapshotInfo


class LogView:
    """The log of one replica, in memory, from the boundary to the end."""

    def __init__(
        self, start: SnapshotInfo, snapshot: SnapshotInfo, entries: Sequence[Entry] = ()
    ) -> None:
        """Everything given is durable; `snapshot` is the newest one, at or above `start`."""
        self.start = start
        self.snapshot = snapshot
        #: entry i has offset start.end_offset + i
        self._entries: list[Entry] = []
        #: first offset of each epoch that the entries hold, both columns ascending
        self._epochs: list[EpochEnd] = []
        #: voters records among the entries: [(offset, set)], ascending
        self._voters: list[tuple[LogOffset, VoterSet]] = []
        #: writes that the disk has not confirmed: [(number, end offset that it confirms)]
        self._writes: deque[tuple[int, LogOffset]] = deque()
        self.write_last = 0
        self.high_watermark = snapshot.end_offset
        self.append(entries)
        self.flushed_end = self.end

    # -- what it holds ----------------------------------------------------------------------------

    @property
    def end(self) -> LogOffset:
        """The offset that the next entry will get."""
        return LogOffset(self.start.end_offset + len(self._entries))

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last entry, or that of the boundary when there is none."""
        return self._entries[-1].epoch if self._entries else self.start.epoch

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the newest in the log, committed or not (KIP-853)."""
        return self._voters[-1][1] if self._voters else self.start.voters

    @property
    def voters_offset(self) -> LogOffset | None:
        """Where the set in force was recorded; None when it comes from the boundary."""
        return self._voters[-1][0] if self._voters else None

    def may_be_candidate(self, key: ReplicaKey) -> bool:
        """Whether a replica may still be needed as a candidate: it is a voter, or was one until a
        record that is not known to be committed.

        A leader that removes itself and loses its quorum before the removal commits may hold
        entries that the remaining voters lack, so that only it can win (Raft dissertation 4.2.2).
        """
        recorded = self.voters_offset
        if key in self.voters or recorded is None:
            return key in self.voters
        return recorded >= self.high_watermark and key in self.voters_at(recorded)

    def voters_at(self, end_offset: LogOffset) -> VoterSet:
        """The set that the log prescribes below an end offset."""
        sets = [voters for offset, voters in self._voters if offset < end_offset]
        return sets[-1] if sets else self.start.voters

    def epoch_before(self, end_offset: LogOffset) -> LeaderEpoch | None:
        """The epoch of the last entry below an end offset; None outside the log."""
        if end_offset == self.start.end_offset:
            return self.start.epoch
        if self.start.end_offset < end_offset <= self.end:
            return self._entries[end_offset - self.start.end_offset - 1].epoch
        return None

    def read(
        self, offset: LogOffset, limit: LogOffset, *, count_max: int | None = None
    ) -> list[Entry]:
        """The entries from an offset up to a limit (exclusive), at most `count_max` of them."""
        low = offset - self.start.end_offset
        assert low >= 0, f"{offset} lies below the log's start {self.start.end_offset}"
        high = limit - self.start.end_offset
        return self._entries[low : high if count_max is None else min(high, low + count_max)]

    # -- comparing logs ---------------------------------------------------------------------------

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """The largest epoch of this log not above the given one, and where it ends."""
        index = bisect_right(self._epochs, epoch, key=lambda known: known.epoch)
        if index == 0:
            return EpochEnd(self.start.epoch, self.start.end_offset)
        end = self._epochs[index].end_offset if index < len(self._epochs) else self.end
        return EpochEnd(self._epochs[index - 1].epoch, end)

    def check_fetch(
        self, offset: LogOffset, last_epoch: LeaderEpoch
    ) -> Diverges | NeedsSnapshot | None:
        """Whether a replica whose log ends at (last epoch, offset) can continue from this log.

        None: its log is a prefix of ours.  Source: KIP-595 Fetch, KIP-630 FetchSnapshot.
        """
        start = self.start.end_offset
        # A fresh replica takes the newest snapshot even if the log still reaches back: cheaper.
        if offset < start or (offset == 0 and self.snapshot.end_offset > 0):
            return NeedsSnapshot(self.snapshot)
        if last_epoch < self.start.epoch or (offset == start and last_epoch != self.start.epoch):
            # Its history below our start can no longer be compared.
            if start > 0:
                return NeedsSnapshot(self.snapshot)
            return Diverges(EpochEnd(self.start.epoch, self.start.end_offset))
        end = self.end_of_epoch(last_epoch)
        if end.epoch != last_epoch or end.end_offset < offset:
            return Diverges(end)
        return None

    def truncation_for(self, leader_end: EpochEnd) -> LogOffset:
        """Where to cut this log, given where the epoch that the leader named ends in its log."""
        mine = self.end_of_epoch(leader_end.epoch)
        if mine.epoch == leader_end.epoch:
            return min(mine.end_offset, leader_end.end_offset)
        return mine.end_offset

    # -- changing it ------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries.  Raises LogViolation unless offsets are consecutive and epochs ascend."""
        for entry in entries:
            if entry.offset != self.end or entry.epoch < self.last_epoch:
                msg = f"({entry.offset}, {entry.epoch}) after ({self.end}, {self.last_epoch})"
                raise LogViolation(msg)
            if not self._epochs or self._epochs[-1].epoch != entry.epoch:
                self._epochs.append(EpochEnd(entry.epoch, entry.offset))
            if isinstance(entry.payload, VoterSet):
                self._voters.append((entry.offset, entry.payload))
            self._entries.append(entry)

    def truncate(self, end_offset: LogOffset) -> None:
        """Remove everything from an offset on.  Raises LogViolation below the high watermark."""
        if end_offset < self.high_watermark:
            msg = f"truncation to {end_offset} below the high watermark {self.high_watermark}"
            raise LogViolation(msg)
        del self._entries[end_offset - self.start.end_offset :]
        while self._epochs and self._epochs[-1].end_offset >= end_offset:
            self._epochs.pop()
        while self._voters and self._voters[-1][0] >= end_offset:
            self._voters.pop()
        # A flush ordered before the cut proves nothing about what will be written in its place.
        self.flushed_end = min(self.flushed_end, end_offset)
        self._writes = deque((number, min(end, end_offset)) for number, end in self._writes)

    def commit(self, offset: LogOffset) -> bool:
        """Raise the high watermark to an offset, at most to the end; it never goes back."""
        target = min(offset, self.end)
        if target <= self.high_watermark:
            return False
        self.high_watermark = target
        return True

    # -- what is on disk --------------------------------------------------------------------------

    def wrote(self) -> int:
        """Number the write that brings the log's current end to disk; 1-based, ascending."""
        self.write_last += 1
        self._writes.append((self.write_last, self.end))
        return self.write_last

    def flushed(self, number: int) -> None:
        """Every write up to this number is durable."""
        while self._writes and self._writes[0][0] <= number:
            self.flushed_end = max(self.flushed_end, self._writes.popleft()[1])

    @property
    def is_flushed(self) -> bool:
        """Whether no write is in flight to the disk."""
        return not self._writes

    # -- snapshots --------------------------------------------------------------------------------

    def refuses_snapshot(self, end_offset: LogOffset, epoch: LeaderEpoch) -> str | None:
        """Why a snapshot of the state machine may not have this id, or None.  Source: KIP-630."""
        if end_offset > self.high_watermark:
            return f"end {end_offset} is above the high watermark {self.high_watermark}"
        if self.epoch_before(end_offset) != epoch:
            return f"epoch at {end_offset} is {self.epoch_before(end_offset)}, not {epoch}"
        return None

    def snapshot_taken(self, taken: SnapshotId, size: int) -> None:
        """Adopt a snapshot of `size` bytes that our state machine wrote.  Raises ValueError."""
        if (why := self.refuses_snapshot(*taken)) is not None:
            msg = f"snapshot {taken}: {why}"
            raise ValueError(msg)
        self.keep_snapshot(SnapshotInfo(*taken, self.voters_at(taken.end_offset), size))

    def keep_snapshot(self, snapshot: SnapshotInfo) -> None:
        """Adopt a newer snapshot of our own state; the log is cut at the *previous* one.

        One generation of log stays below the newest snapshot, so that a replica that is slightly
        behind fetches entries instead of downloading the whole state again.
        """
        self._start_at(self.snapshot)
        self.snapshot = snapshot

    def _start_at(self, start: SnapshotInfo) -> None:
        count = start.end_offset - self.start.end_offset
        if count <= 0:
            return
        del self._entries[:count]
        end_offset = start.end_offset
        # The epoch that spans the cut now starts at the cut; older ones are forgotten.
        spanning = self.end_of_epoch(start.epoch)
        later = [known for known in self._epochs if known.end_offset >= end_offset]
        self.start = start
        self._voters = [known for known in self._voters if known[0] >= end_offset]
        self._epochs = later
        if self._entries and (not later or later[0].end_offset > end_offset):
            self._epochs = [EpochEnd(spanning.epoch, end_offset), *later]

    def install(self, snapshot: SnapshotInfo) -> None:
        """Replace all by a leader's snapshot.  Raises LogViolation if that loses commits."""
        if snapshot.end_offset < self.high_watermark:
            msg = f"snapshot {snapshot.id} below the high watermark {self.high_watermark}"
            raise LogViolation(msg)
        self._entries.clear()
        self._epochs.clear()
        self._voters.clear()
        self.start = self.snapshot = snapshot
        self.high_watermark = snapshot.end_offset
        self.flushed_end = LogOffset(0)
        self._writes = deque((number, LogOffset(0)) for number, _ in self._writes)
