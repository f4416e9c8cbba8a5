"""A replica's disk: election state, log, snapshots. What `control.raft.events`' disk orders mean.

    quorum-state               life (starts of this process so far) and ElectionState
    quorum.log                 boundary record, then entries             (`log_file.LogFile`)
    <end>-<epoch>.snapshot     header, then the state machine's bytes
    quorum-committed           a hint: everything below it was committed and is in the log
    reserve-<number>           room for all of these on a full disk (`reserve.Reserve`)

Record i of the log is entry i - 1. The first record is the boundary: the snapshot that covers what
was cut away, or SnapshotInfo(0, 0, voters) if the log begins with the cluster. Each file but the
log is replaced whole; the log is replaced whole when its start moves. So every step is one rename,
one append or one cut, and a crash leaves the state before or after a step:

* a snapshot is saved before the log's start moves to it, older ones are deleted afterwards;
* a downloaded snapshot that is not the log's start yet is deleted at the next start, unless its
  epoch shows that it is a prefix of the log;
* the hint is not synced. It can only be too small, and a damaged one is ignored.

All methods block; `node.controller.raft_driver` calls them in one thread, in order. An error is
final (DiskFailed), as in `log_file`, but for a want of room that the reserve can meet, and for that
of a trim or a hint, which may be left out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from standpipe.adapters.files import published
from standpipe.adapters.files.fsync import DRAFT_SUFFIX, replace_durably, sync
from standpipe.adapters.raft.log_file import (
    DiskFailed,
    DiskRecord,
    LogFile,
    scan,
    sealed,
    unsealed,
)
from standpipe.adapters.raft.reserve import NO_ROOM, Reserve
from standpipe.control.raft import codec
from standpipe.control.raft.events import (
    AppendLog,
    ElectionState,
    InstallSnapshot,
    PersistElection,
    Recovered,
    TrimLog,
    TruncateLog,
)
from standpipe.control.raft.log import Entry, SnapshotInfo
from standpipe.control.raft.majority import NO_OFFSET, LogOffset
from standpipe.errors import DataDirectoryRefused

STATE_NAME: Final = "quorum-state"
LOG_NAME: Final = "quorum.log"
COMMITTED_NAME: Final = "quorum-committed"
SNAPSHOT_SUFFIX: Final = ".snapshot"
CHUNK_BYTES: Final = 1 << 20  # of a snapshot's state, per record


@dataclass(frozen=True)
class SaveSnapshot:
    """Write a snapshot's file under its name. `data` is the whole file."""

    snapshot: SnapshotInfo
    data: bytes


@dataclass(frozen=True)
class NoteCommitted:
    """Everything below this end is committed, and is in the log by now."""

    end_offset: LogOffset


DiskOp = (
    PersistElection
    | AppendLog
    | TruncateLog
    | TrimLog
    | InstallSnapshot
    | SaveSnapshot
    | NoteCommitted
)


class OpenedDisk(NamedTuple):
    """What a start found."""

    disk: QuorumDisk
    recovered: Recovered
    #: snapshots on the disk, as whole files
    snapshots: dict[SnapshotInfo, bytes]
    #: how often this replica was started, this time included
    life: int
    #: bytes of a torn last write that were cut away
    cut_bytes: int


class QuorumDisk:
    """The files of one replica in one directory. One process at a time."""

    def __init__(
        self, directory: Path, log: LogFile, start: SnapshotInfo, life: int, reserve: Reserve
    ) -> None:
        self._directory = directory
        self._reserve = reserve
        self._log = log
        self._start: SnapshotInfo = start
        self._life = life

    # -- opening ----------------------------------------------------------------------------------

    @staticmethod
    def is_formatted(directory: Path) -> bool:
        """Whether `format` was completed here."""
        return (directory / LOG_NAME).exists()

    @staticmethod
    def format(
        directory: Path,
        start: SnapshotInfo,
        *,
        state: bytes = b"",
        election: ElectionState | None = None,
    ) -> None:
        """Make the files of a replica whose log begins at `start`, with the state that it covers.

        The log comes last: a crash before leaves a directory that is not formatted.
        """
        for path in directory.glob("*" + SNAPSHOT_SUFFIX):
            path.unlink()
        # It belongs to an earlier log: it says nothing about what this one will hold.
        (directory / COMMITTED_NAME).unlink(missing_ok=True)
        # The directories may be new too: until their names are durable, no file in them is.
        for parent in (directory.parent, directory.parent.parent):
            sync(parent)
        if start.end_offset > 0:
            data = snapshot_file(start, state)
            start = replace(start, size=len(data))
            replace_durably(_snapshot_path(directory, start), data)
        replace_durably(directory / STATE_NAME, _state_file(0, election))
        LogFile.create(directory / LOG_NAME, [_boundary(start)], Reserve(directory)).close()

    @classmethod
    def open(cls, directory: Path) -> OpenedDisk:
        """Read and check everything, cut a torn tail, count this start.

        Raises DataDirectoryRefused that names what is damaged or missing.
        """
        path = directory / LOG_NAME
        reserve = Reserve(directory)
        log, records, cut_bytes = LogFile.open(path, reserve)
        try:
            for draft in directory.glob("*" + DRAFT_SUFFIX):  # of a crash, which take room
                with suppress(OSError):
                    draft.unlink()
            start, entries = _read_log(records, path)
            life, election = _read_state(directory)
            snapshots = _read_snapshots(directory, start, entries)
            newest = max(snapshots, key=lambda one: one.end_offset, default=start)
            end = LogOffset(start.end_offset + len(entries))
            committed = min(_read_committed(directory), end)
            recovered = Recovered(election, start, newest, entries, LogOffset(committed))
            disk = cls(directory, log, start, life + 1, reserve)
            disk._save_state(election)
        except BaseException:
            log.close()
            raise
        return OpenedDisk(disk, recovered, snapshots, life + 1, cut_bytes)

    # -- orders -----------------------------------------------------------------------------------

    def carry_out(self, ops: Sequence[DiskOp]) -> None:
        """Carry out `ops` in order; all are durable when this returns (except the hint).

        Consecutive appends share one sync. Raises DiskFailed.
        """
        for kind, group in groupby(ops, type):
            if kind is AppendLog:
                appends = [op for op in group if isinstance(op, AppendLog)]
                self._log.append([_record(entry) for op in appends for entry in op.entries])
                continue
            for op in group:
                self._carry_out(op)
        self._reserve.refill()

    def _carry_out(self, op: DiskOp) -> None:
        try:
            match op:
                case PersistElection(state=state):
                    self._save_state(state)
                case TruncateLog(end_offset=end_offset):
                    self._log.truncate(end_offset)
                case SaveSnapshot(snapshot=snapshot, data=data):
                    self._replace(_snapshot_path(self._directory, snapshot).name, data)
                case TrimLog(start=start):
                    self._trim(start)
                case InstallSnapshot(snapshot=snapshot):
                    self._restart_log(snapshot)
                case NoteCommitted(end_offset=end_offset):
                    self._note(end_offset)
                case AppendLog():
                    raise AssertionError("appends are grouped")
        except OSError as error:
            raise DiskFailed(f"{self._directory} could not be written: {error}") from error

    def close(self) -> None:
        """Release the log's file and its lock."""
        self._log.close()

    def _save_state(self, election: ElectionState | None) -> None:
        """Write what this replica voted for, beside the number of its life. Raises OSError."""
        self._replace(STATE_NAME, _state_file(self._life, election))

    def _replace(self, name: str, data: bytes) -> None:
        self._reserve.with_room(lambda: replace_durably(self._directory / name, data))

    def _trim(self, start: SnapshotInfo) -> None:
        """Without room for a second log it is left for the next time: the whole log is true, too,
        and the reserve is for votes and entries."""
        if start.id == self._start.id:
            return
        path, records = self._directory / LOG_NAME, [_boundary(start)]
        records += self._entries_from(start.end_offset)
        try:
            LogFile.write(path, records)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._drop_snapshots(self._start.end_offset + 1, start.end_offset)  # none piles up
            return
        self._log.close()
        self._begin_at(start, LogFile.of(path, records, self._reserve))

    def _restart_log(self, start: SnapshotInfo) -> None:
        """Let an empty log begin at a snapshot of the leader."""
        if start.id == self._start.id:
            return
        self._log.close()
        path = self._directory / LOG_NAME
        self._begin_at(start, LogFile.create(path, [_boundary(start)], self._reserve))

    def _begin_at(self, start: SnapshotInfo, log: LogFile) -> None:
        """Go on with a log that begins at a saved snapshot; then delete older snapshots."""
        self._log, self._start = log, start
        self._drop_snapshots(0, start.end_offset)

    def _drop_snapshots(self, first: int, end: int) -> None:
        """Delete those that end at `first` or later, and before `end`."""
        for path in self._directory.glob("*" + SNAPSHOT_SUFFIX):
            if first <= _end_of(path) < end:
                path.unlink()

    def _entries_from(self, offset: LogOffset) -> list[DiskRecord]:
        path = self._directory / LOG_NAME
        records, _ = scan(path.read_bytes(), path)
        return [record for record in records if record.index > offset]

    def _note(self, end_offset: LogOffset) -> None:
        """Without room it is left out, and needs no reserve: an older hint is true, too."""
        data = sealed([DiskRecord(end_offset, b"")])
        try:
            published.replace(self._directory / COMMITTED_NAME, data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise


# ------------------------------------------------------------------------------------- the files


def snapshot_file(snapshot: SnapshotInfo, state: bytes) -> bytes:
    """Bytes of a snapshot's file, which are also what FetchSnapshot carries."""
    header = codec.encode_snapshot(replace(snapshot, size=0))
    pieces = [state[at : at + CHUNK_BYTES] for at in range(0, len(state), CHUNK_BYTES)]
    return sealed([DiskRecord(number, piece) for number, piece in enumerate([header, *pieces])])


def snapshot_state(data: bytes, path: Path) -> tuple[SnapshotInfo, bytes]:
    """Inverse of `snapshot_file`. Raises DataDirectoryRefused that names `path`."""
    header, *pieces = unsealed(data, path)
    with _naming(path):
        snapshot = codec.decode_snapshot(header.payload)
    return replace(snapshot, size=len(data)), b"".join(piece.payload for piece in pieces)


def _snapshot_path(directory: Path, snapshot: SnapshotInfo) -> Path:
    name = f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SNAPSHOT_SUFFIX}"
    return directory / name


def _end_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _boundary(start: SnapshotInfo) -> DiskRecord:
    return DiskRecord(start.end_offset, codec.encode_snapshot(start))


def _record(entry: Entry) -> DiskRecord:
    return DiskRecord(entry.offset + 1, codec.encode_entry(entry))


def _state_file(life: int, election: ElectionState | None) -> bytes:
    return sealed([DiskRecord(life, codec.encode_election(election))])


def _read_log(records: Sequence[DiskRecord], path: Path) -> tuple[SnapshotInfo, tuple[Entry, ...]]:
    if not records:
        raise _refused(path, "it has no first record")
    with _naming(path):
        start = codec.decode_snapshot(records[0].payload)
        entries = tuple(codec.decode_entry(record.payload) for record in records[1:])
    offsets = [entry.offset for entry in entries]
    if offsets != list(range(start.end_offset, start.end_offset + len(entries))):
        raise _refused(path, "its entries do not follow its first record")
    return start, entries


def _read_state(directory: Path) -> tuple[int, ElectionState | None]:
    path = directory / STATE_NAME
    try:
        record = unsealed(path.read_bytes(), path)[0]
    except FileNotFoundError:
        raise _refused(path, "there is a log, but not what this replica voted for") from None
    with _naming(path):
        return record.index, codec.decode_election(record.payload)


def _read_snapshots(
    directory: Path, start: SnapshotInfo, entries: Sequence[Entry]
) -> dict[SnapshotInfo, bytes]:
    """The snapshots that are a prefix of the log, `start` among them; others are deleted."""
    found: dict[SnapshotInfo, bytes] = {}
    for path in sorted(directory.glob("*" + SNAPSHOT_SUFFIX)):
        data = path.read_bytes()
        snapshot, _ = snapshot_state(data, path)
        last = snapshot.end_offset - start.end_offset - 1  # the entry that it ends with
        is_start = snapshot.id == start.id
        if is_start or (0 <= last < len(entries) and entries[last].epoch == snapshot.epoch):
            found[snapshot] = data
        else:
            path.unlink()
    sync(directory)
    if start.end_offset > 0 and start.id not in {snapshot.id for snapshot in found}:
        raise _refused(_snapshot_path(directory, start), "the log begins with it, and it is gone")
    return found


def _read_committed(directory: Path) -> LogOffset:
    path = directory / COMMITTED_NAME
    try:
        return LogOffset(unsealed(path.read_bytes(), path)[0].index)
    except (OSError, DataDirectoryRefused):
        return NO_OFFSET


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Intact bytes that cannot be decoded come from a newer program: refuse, and name the file."""
    try:
        yield
    except codec.Unreadable as error:
        raise DataDirectoryRefused(
            f"{path}: {error}",
            next_step="start the version of Standpipe that wrote it, or a newer one",
        ) from error


def _refused(path: Path, why: str) -> DataDirectoryRefused:
    return DataDirectoryRefused(
        f"{path}: {why}",
        next_step="`standpipe quorum remove-voter` this node, move its log/ away, start it, "
        "`add-voter` it again; or `standpipe quorum restore` a backup",
    )
