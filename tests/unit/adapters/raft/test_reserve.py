"""Room kept for the quorum: who gets it, when it is made again, and that nothing is half written.

On a disk that is really full: tests/e2e/test_quorum_disk.py.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from standpipe.adapters.raft.disk import (
    COMMITTED_NAME,
    STATE_NAME,
    DiskOp,
    NoteCommitted,
    QuorumDisk,
    SaveSnapshot,
    snapshot_file,
)
from standpipe.adapters.raft.log_file import DiskFailed, LogFile
from standpipe.adapters.raft.reserve import COUNT, FILE_BYTES, Reserve
from standpipe.control.raft.events import (
    AppendLog,
    ElectionState,
    InstallSnapshot,
    PersistElection,
    TrimLog,
)
from standpipe.control.raft.log import Entry, SnapshotInfo
from standpipe.control.raft.majority import ReplicaKey, VoterSet

VOTERS = VoterSet((ReplicaKey("a", "1"),))
SNAPSHOT = SnapshotInfo(1, 1, VOTERS)
OPS: list[list[DiskOp]] = [
    [PersistElection(ElectionState(3))],
    [AppendLog(1, (Entry(1, 1, b"one"), Entry(2, 1, b"two")))],
    [SaveSnapshot(SNAPSHOT, snapshot_file(SNAPSHOT, b"state")), InstallSnapshot(2, SNAPSHOT)],
]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("reserve-*"))


class FullDisk:
    """Of `os.write`: a write gets `room` bytes in all, and more for each file of the reserve that
    is gone. What does not fit is refused after a part of it was written, as a kernel does."""

    def __init__(self, directory: Path, error: int = errno.ENOSPC) -> None:
        self._directory, self._error, self._write = directory, error, os.write
        self._count = len(files(directory))
        self.refused = 0

    def write(self, descriptor: int, data: Any) -> int:
        left = len(files(self._directory))
        if left < self._count:
            self._count = left
            return self._write(descriptor, data)
        if len(data) > 7:
            return self._write(descriptor, data[:7])
        self.refused += 1
        raise OSError(self._error, os.strerror(self._error))


@pytest.fixture
def disk(tmp_path: Path) -> QuorumDisk:
    directory = tmp_path / "log"
    directory.mkdir()
    QuorumDisk.format(directory, SnapshotInfo(0, 0, VOTERS))
    opened = QuorumDisk.open(directory).disk
    opened.carry_out([AppendLog(1, (Entry(0, 1, b"zero"),))])
    return opened


def test_a_trim_takes_nothing_from_the_reserve_and_is_left_without_room(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote the log a second time, over the room for votes, and then the voter ended."""
    directory = tmp_path / "log"
    disk.carry_out([SaveSnapshot(SNAPSHOT, snapshot_file(SNAPSHOT, b"state"))])
    full = FullDisk(directory)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full.write)
        disk.carry_out([TrimLog(2, SNAPSHOT)])
    assert full.refused == 1
    assert len(files(directory)) == COUNT
    assert not [*directory.glob("*.new")]
    disk.carry_out([AppendLog(3, (Entry(1, 1, b"one"),))])
    disk.close()
    opened = QuorumDisk.open(directory)
    assert [entry.offset for entry in opened.recovered.entries] == [0, 1]
    opened.disk.carry_out([TrimLog(4, SNAPSHOT)])
    opened.disk.close()
    assert [entry.offset for entry in QuorumDisk.open(directory).recovered.entries] == [1]


def test_snapshots_do_not_pile_up_while_no_trim_has_room(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took from the reserve what the next vote may need."""
    disk.carry_out([AppendLog(2, tuple(Entry(number, 1, b"x") for number in range(1, 5)))])

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LogFile, "write", refuse)
    for end in range(1, 5):
        snapshot = SnapshotInfo(end, 1, VOTERS)
        disk.carry_out([SaveSnapshot(snapshot, snapshot_file(snapshot, b"state"))])
        disk.carry_out([TrimLog(9, snapshot)])
        assert [path.name for path in (tmp_path / "log").glob("*.snapshot")] == [
            f"{end:020d}-0000000001.snapshot"
        ]
    disk.close()
    assert QuorumDisk.open(tmp_path / "log").recovered.snapshot.end_offset == 4


def test_what_a_crash_left_gives_its_room_to_the_reserve(tmp_path: Path, disk: QuorumDisk) -> None:
    draft = tmp_path / "log" / "quorum.log.new"
    draft.write_bytes(b"half")
    disk.close()
    QuorumDisk.open(tmp_path / "log").disk.close()
    assert not draft.exists()


@pytest.mark.parametrize("ops", OPS)
def test_a_write_without_room_takes_it_from_the_reserve(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch, ops: list[DiskOp]
) -> None:
    directory = tmp_path / "log"
    full = FullDisk(directory)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full.write)
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=1))
        disk.carry_out(ops)
    assert full.refused > 0
    assert len(files(directory)) == COUNT - full.refused, "one file for each refusal"
    disk.carry_out([NoteCommitted(1)])
    assert len(files(directory)) == COUNT, "made again once there is room"
    disk.close()
    found = QuorumDisk.open(directory).recovered
    if isinstance(ops[0], PersistElection):
        assert found.election == ops[0].state
    if isinstance(ops[0], AppendLog):
        assert [entry.payload for entry in found.entries] == [b"zero", b"one", b"two"]
    if isinstance(ops[0], SaveSnapshot):
        assert (found.start.id, found.entries) == (SNAPSHOT.id, ())


def test_without_any_reserve_it_is_final_and_nothing_is_half_written(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    for path in directory.glob("reserve-*"):
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(directory).write)
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=1))
        with pytest.raises(DiskFailed, match="No space left"):
            disk.carry_out([AppendLog(1, (Entry(1, 1, b"one"),))])
    disk.close()
    opened = QuorumDisk.open(directory)
    assert [entry.payload for entry in opened.recovered.entries] == [b"zero"]
    assert opened.cut_bytes == 0


def test_other_errors_take_nothing(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(directory, errno.EIO).write)
        with pytest.raises(DiskFailed, match="Input/output error"):
            disk.carry_out(OPS[1])
    assert len(files(directory)) == COUNT


def test_a_hint_that_finds_no_room_is_left(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.carry_out([NoteCommitted(1)])
    before = (tmp_path / "log" / COMMITTED_NAME).read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", refuse)
        disk.carry_out([NoteCommitted(2)])
    assert (tmp_path / "log" / COMMITTED_NAME).read_bytes() == before
    disk.carry_out(OPS[1])


@pytest.mark.parametrize(("free_bytes", "made"), [(2 * FILE_BYTES * COUNT, COUNT), (1 << 20, 0)])
def test_it_is_made_where_there_is_room_for_twice_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, made: int
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_bytes, f_frsize=1))
    Reserve(tmp_path)
    assert len(files(tmp_path)) == made


def test_blocks_are_allocated_and_a_partial_file_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "reserve-3").write_bytes(b"cut off by a crash")
    Reserve(tmp_path)
    assert len(files(tmp_path)) == COUNT
    stats = [path.stat() for path in tmp_path.iterdir()]
    assert [(s.st_size, s.st_blocks * 512 >= FILE_BYTES) for s in stats] == [
        (FILE_BYTES, True)
    ] * COUNT


def test_the_next_start_needs_room_too(
    tmp_path: Path, disk: QuorumDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.close()
    full = FullDisk(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full.write)
        assert QuorumDisk.open(tmp_path / "log").life == 2
    assert full.refused == 1
    assert (tmp_path / "log" / STATE_NAME).exists()
