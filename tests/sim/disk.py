"""A disk that forgets what was not synced, tears what was under way, and flips bits.

What `adapters/raft/disk.py` holds: the election file, the log, snapshots.  Orders wait in a
queue; a sync makes all that wait durable after a while.  A crash keeps a random number of the
waiting ones, in order, and may tear the next.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from standpipe.control.raft.events import (
    AppendLog,
    DiskOrder,
    ElectionState,
    InstallSnapshot,
    PersistElection,
    Recovered,
    TrimLog,
    TruncateLog,
)
from standpipe.control.raft.log import Entry, SnapshotId, SnapshotInfo

from .scheduler import Scheduler


class DamagedDisk(Exception):
    """A record that had been synced does not pass its checksum: the replica must not start."""


@dataclass(frozen=True)
class SaveSnapshot:
    """The state machine's own snapshot, on its way to the disk."""

    id: SnapshotId
    data: bytes


@dataclass(frozen=True)
class NoteCommitted:
    """The hint of what is committed, as `adapters.raft.disk` leaves it."""

    end_offset: int


Op = DiskOrder | SaveSnapshot | NoteCommitted


@dataclass
class SimDisk:
    scheduler: Scheduler
    start: SnapshotInfo
    sync_ms_max: float = 2.0
    election: ElectionState | None = None
    entries: list[Entry] = field(default_factory=list)
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)
    known: dict[SnapshotId, SnapshotInfo] = field(default_factory=dict)
    committed: int = 0
    damaged: set[int] = field(default_factory=set)
    """Offsets of synced entries whose bits have flipped."""
    _waiting: list[tuple[Op, bytes, Callable[[], None]]] = field(default_factory=list)
    _syncing: int = 0
    _life: int = 0

    def submit(self, op: Op, done: Callable[[], None], data: bytes = b"") -> None:
        self._waiting.append((op, data, done))
        if not self._syncing:
            self._begin_sync()

    def _begin_sync(self) -> None:
        self._syncing = len(self._waiting)
        life = self._life
        delay_us = 100 + self.scheduler.random.random() * self.sync_ms_max * 1000
        self.scheduler.after(delay_us, lambda: self._end_sync(life))

    def _end_sync(self, life: int) -> None:
        if life != self._life:
            return  # the process died meanwhile
        batch, self._waiting = self._waiting[: self._syncing], self._waiting[self._syncing :]
        self._syncing = 0
        for op, data, _ in batch:
            self._apply(op, data)
        if self._waiting:
            self._begin_sync()
        for _, _, done in batch:
            if life == self._life:
                done()

    def _apply(self, op: Op, data: bytes) -> None:
        match op:
            case PersistElection():
                self.election = op.state
            case AppendLog():
                self.entries.extend(op.entries)
            case TruncateLog():
                del self.entries[op.end_offset - self.start.end_offset :]
                self.damaged = {offset for offset in self.damaged if offset < op.end_offset}
            case TrimLog():
                del self.entries[: op.start.end_offset - self.start.end_offset]
                self.start = op.start
                self.known[op.start.id] = op.start
                kept = {key for key in self.snapshots if key.end_offset >= op.start.end_offset}
                self.snapshots = {key: self.snapshots[key] for key in sorted(kept)}
            case InstallSnapshot():
                self.entries.clear()
                self.damaged.clear()
                self.start = op.snapshot
                self.known[op.snapshot.id] = op.snapshot
                self.snapshots = {op.snapshot.id: data}
            case SaveSnapshot():
                self.snapshots[op.id] = op.data
            case NoteCommitted():
                self.committed = op.end_offset
            case _:
                raise AssertionError(op)

    def crash(self) -> Iterator[str]:
        """Lose what was not synced, or keep some of it; names the faults that this was."""
        self._life += 1
        random = self.scheduler.random
        waiting, self._waiting, self._syncing = self._waiting, [], 0
        if not waiting:
            return
        kept = random.randint(0, len(waiting)) if random.random() < 0.5 else 0
        for op, data, _ in waiting[:kept]:
            self._apply(op, data)
        if kept == len(waiting):
            return
        yield "unsynced writes lost"
        op = waiting[kept][0]
        if isinstance(op, AppendLog) and random.random() < 0.7:
            # The tail of a torn append fails its checksum and is cut; whole entries before it stay.
            yield "writes torn"
            self.entries.extend(op.entries[: random.randrange(len(op.entries))])

    def end_offset(self) -> int:
        return self.start.end_offset + len(self.entries)

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is durable here, in the log or covered by a snapshot."""
        index = entry.offset - self.start.end_offset
        if index < 0:
            return True
        return index < len(self.entries) and self.entries[index].epoch == entry.epoch

    def recover(self) -> Recovered:
        """What a process finds at its start.  Raises DamagedDisk."""
        if self.damaged:
            raise DamagedDisk(sorted(self.damaged))
        newest = max(
            (one for one in self.known.values() if one.id in self.snapshots),
            key=lambda one: one.end_offset,
            default=self.start,
        )
        if newest.end_offset < self.start.end_offset or newest.end_offset > self.end_offset():
            newest = self.start
        committed = min(self.committed, self.end_offset())
        return Recovered(self.election, self.start, newest, tuple(self.entries), committed)
