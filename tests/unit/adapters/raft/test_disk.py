"""A replica's files: killed between any two steps, torn, bits flipped, refused by the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.control.scenarios import covers

from standpipe.adapters.raft import disk as quorum_disk
from standpipe.adapters.raft.disk import (
    COMMITTED_NAME,
    LOG_NAME,
    STATE_NAME,
    DiskOp,
    NoteCommitted,
    OpenedDisk,
    QuorumDisk,
    SaveSnapshot,
    snapshot_file,
    snapshot_state,
)
from standpipe.adapters.raft.log_file import DiskFailed, DiskRecord, scan, sealed
from standpipe.control.raft.events import (
    AppendLog,
    ElectionState,
    InstallSnapshot,
    PersistElection,
    Recovered,
    TrimLog,
    TruncateLog,
)
from standpipe.control.raft.log import Entry, LeaderChange, SnapshotInfo
from standpipe.control.raft.majority import ReplicaKey, VoterSet
from standpipe.errors import DataDirectoryRefused

ME = ReplicaKey("a", "1")
VOTERS = VoterSet((ME,))
EMPTY = SnapshotInfo(0, 0, VOTERS)


def entries(first: int, *epochs: int) -> tuple[Entry, ...]:
    return tuple(Entry(first + i, epoch, b"%d" % (first + i)) for i, epoch in enumerate(epochs))


def snapshot_of(end: int, epoch: int) -> tuple[SnapshotInfo, bytes]:
    snapshot = SnapshotInfo(end, epoch, VOTERS)
    data = snapshot_file(snapshot, b"state up to %d" % end)
    return replace(snapshot, size=len(data)), data


AT_2, DATA_2 = snapshot_of(2, 1)
AT_4, DATA_4 = snapshot_of(4, 2)
AT_9, DATA_9 = snapshot_of(9, 5)

#: the life of a replica: appends, cuts, two snapshots of its own, one from a leader
STORY: tuple[DiskOp, ...] = (
    PersistElection(ElectionState(1, None, ME)),
    AppendLog(1, (Entry(0, 1, LeaderChange("a", VOTERS, (ME,))), Entry(1, 1, VOTERS))),
    AppendLog(2, entries(2, 1, 1)),
    NoteCommitted(2),
    SaveSnapshot(AT_2, DATA_2),
    TruncateLog(3, 3),
    AppendLog(4, entries(3, 2, 2)),
    PersistElection(ElectionState(2, "b")),
    SaveSnapshot(AT_4, DATA_4),
    NoteCommitted(5),
    TrimLog(5, AT_2),
    AppendLog(6, entries(5, 2)),
    SaveSnapshot(AT_9, DATA_9),
    InstallSnapshot(7, AT_9),
    AppendLog(8, entries(9, 5)),
)


def opened(directory: Path) -> OpenedDisk:
    found = QuorumDisk.open(directory)
    found.disk.close()
    return found


def recovered(directory: Path) -> Recovered:
    return opened(directory).recovered


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    QuorumDisk.format(tmp_path, EMPTY)
    return tmp_path


def carry_out(directory: Path, ops: Sequence[DiskOp]) -> None:
    disk = QuorumDisk.open(directory).disk
    try:
        disk.carry_out(ops)
    finally:
        disk.close()


def test_a_formatted_disk_is_empty(directory: Path) -> None:
    assert QuorumDisk.is_formatted(directory)
    assert recovered(directory) == Recovered(None, EMPTY, EMPTY)
    assert not QuorumDisk.is_formatted(directory / "other")


def test_formatting_forgets_what_an_earlier_log_had_committed(directory: Path) -> None:
    """Else entries of a restored cluster, not committed yet, would count as committed."""
    carry_out(directory, [AppendLog(1, entries(0, 1, 1, 1)), NoteCommitted(3)])
    assert recovered(directory).committed == 3
    (directory / LOG_NAME).unlink()
    QuorumDisk.format(directory, EMPTY)
    carry_out(directory, [AppendLog(1, entries(0, 2, 2, 2))])
    assert recovered(directory).committed == 0


def test_the_names_of_new_directories_are_durable_before_their_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    home = tmp_path / "node" / "log"
    home.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", noting)
    QuorumDisk.format(home, EMPTY)
    log = synced.index(home / (LOG_NAME + ".new"))
    assert {home.parent, tmp_path} <= set(synced[:log])
    assert synced[-1] == home, "and the log's own name"


@covers("PE-10")
@pytest.mark.parametrize("name", [STATE_NAME, LOG_NAME, "*.snapshot"])
def test_what_a_newer_program_wrote_is_refused_by_name(directory: Path, name: str) -> None:
    """A file of another format, or a whole record that means nothing to us."""
    carry_out(directory, STORY)
    (path,) = directory.glob(name)
    whole = path.read_bytes()
    records, _ = scan(whole, path)
    newer = sealed([DiskRecord(records[0].index, b"\xc1 of a newer kind"), *records[1:]])
    for data in (b"STANDPIPE LOG 2\n" + whole[16:], newer):
        path.write_bytes(data)
        with pytest.raises(DataDirectoryRefused) as refused:
            QuorumDisk.open(directory)
        assert str(path) in refused.value.message
        assert path.read_bytes() == data, "nothing was changed"


def test_lives_are_counted(directory: Path) -> None:
    assert [opened(directory).life for _ in range(3)] == [1, 2, 3]
    carry_out(directory, [PersistElection(ElectionState(7))])
    assert opened(directory).life == 5, "an election does not forget them"


def test_the_whole_story(directory: Path) -> None:
    carry_out(directory, STORY)
    found = opened(directory)
    assert found.recovered == Recovered(ElectionState(2, "b"), AT_9, AT_9, entries(9, 5), 5)
    assert found.snapshots == {AT_9: DATA_9}
    assert snapshot_state(DATA_9, directory) == (AT_9, b"state up to 9")


def test_a_log_begins_with_the_state_of_a_backup(tmp_path: Path) -> None:
    election = ElectionState(1)
    QuorumDisk.format(tmp_path, SnapshotInfo(8, 1, VOTERS), state=b"catalog", election=election)
    found = opened(tmp_path)
    ((snapshot, data),) = found.snapshots.items()
    assert found.recovered == Recovered(election, snapshot, snapshot)
    assert snapshot_state(data, tmp_path) == (snapshot, b"catalog")
    assert (snapshot.end_offset, snapshot.size) == (8, len(data))


def test_a_state_of_many_records_comes_back(tmp_path: Path) -> None:
    state = bytes(range(256)) * 8192  # 2 MiB
    data = snapshot_file(AT_4, state)
    assert snapshot_state(data, tmp_path) == (replace(AT_4, size=len(data)), state)


# -- crashes ------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ended here."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[str]:
    """Kill the process before its n-th call to the disk; the calls that were made."""
    made: list[str] = []

    def killing(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **options: Any) -> Any:
            if len(made) == step:
                raise Killed
            made.append(name)
            return real(*args, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("write", "fsync", "ftruncate"):
        killing(os, name)
    for name in ("rename", "unlink", "write_bytes"):
        killing(Path, name)
    return made


def states(directory: Path) -> list[Recovered]:
    """What a restart finds after 0, 1, 2 … steps of the story."""
    found: list[Recovered] = []
    for count in range(len(STORY) + 1):
        copy = directory.with_name(f"whole-{count}")
        shutil.copytree(directory, copy)
        carry_out(copy, STORY[:count])
        found.append(recovered(copy))
    return found


@covers("SN-26")
def test_killed_between_any_two_steps(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for path in list(directory.glob("quorum*")):
        path.rename(home / path.name)
    expected = states(home)
    step, is_killed = 0, True
    while is_killed:
        copy = tmp_path / f"killed-{step}"
        shutil.copytree(home, copy)
        disk = QuorumDisk.open(copy).disk
        done = 0
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            try:
                for op in STORY:
                    disk.carry_out([op])
                    done += 1
                is_killed = False
            except Killed:
                pass
        disk.close()
        found = recovered(copy)
        # Everything that was reported durable is there; of the step under way all or nothing.
        # The hint may be there early or late: it is compared apart.
        around = [replace(one, committed=0) for one in expected[done : done + 2]]
        assert replace(found, committed=0) in around, (step, done, found)
        end = found.start.end_offset + len(found.entries)
        assert found.committed <= min(end, expected[-1].committed), (step, done)
        again = recovered(copy)
        assert again == found, "a second start finds the same"
        step += 1
    assert step > 40


def test_killed_while_it_is_formatted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, is_killed = 0, True
    while is_killed:
        home = tmp_path / str(step)
        home.mkdir()
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            try:
                QuorumDisk.format(home, SnapshotInfo(8, 1, VOTERS), state=b"s")
                is_killed = False
            except Killed:
                pass
        if not QuorumDisk.is_formatted(home):
            QuorumDisk.format(home, SnapshotInfo(8, 1, VOTERS), state=b"s")
        assert recovered(home).start.end_offset == 8
        step += 1
    assert step > 5


def test_appends_share_one_sync(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = QuorumDisk.open(directory).disk
    with monkeypatch.context() as patch:
        made = kill_at(patch, 100)
        disk.carry_out([AppendLog(n, entries(n, 1)) for n in range(20)])
    disk.close()
    assert made == ["write", "fsync"]
    assert len(recovered(directory).entries) == 20


def test_a_torn_append_is_cut(directory: Path) -> None:
    carry_out(directory, STORY[:3])
    log = directory / LOG_NAME
    whole = log.read_bytes()
    carry_out(directory, [AppendLog(9, entries(4, 3))])
    data = log.read_bytes()
    for length in range(len(whole), len(data)):
        log.write_bytes(data[:length])
        found = opened(directory)
        assert len(found.recovered.entries) == 4
        assert found.cut_bytes == length - len(whole)
        assert log.read_bytes() == whole


def test_a_snapshot_that_is_no_prefix_of_the_log_is_forgotten(directory: Path) -> None:
    """It was downloaded over a log that diverges, and the process died before the log was cut."""
    carry_out(directory, [*STORY[:1], AppendLog(1, entries(0, 1, 1, 1, 1, 1))])
    carry_out(directory, [SaveSnapshot(AT_4, DATA_4), SaveSnapshot(AT_9, DATA_9)])
    assert recovered(directory).snapshot == EMPTY
    assert list(directory.glob("*.snapshot")) == []


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [STATE_NAME, LOG_NAME, "*.snapshot"])
def test_every_flipped_bit_is_refused_by_name(directory: Path, name: str) -> None:
    carry_out(directory, STORY)
    (path,) = directory.glob(name)
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(DataDirectoryRefused, match=path.name):
            QuorumDisk.open(directory)
        assert path.read_bytes() == damaged, "nothing was changed"


def test_a_damaged_hint_is_none(directory: Path) -> None:
    carry_out(directory, STORY[:4])
    path = directory / COMMITTED_NAME
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert recovered(directory).committed == 0
    path.write_bytes(b"")
    assert recovered(directory).committed == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [(STATE_NAME, "voted for"), ("*.snapshot", "begins with it")],
)
def test_a_missing_file_is_refused_by_name(directory: Path, name: str, text: str) -> None:
    carry_out(directory, STORY)
    (path,) = directory.glob(name)
    path.unlink()
    with pytest.raises(DataDirectoryRefused, match=text) as refused:
        QuorumDisk.open(directory)
    assert str(path) in refused.value.message


@pytest.mark.parametrize("op", STORY, ids=lambda op: type(op).__name__)
def test_a_refusing_disk_is_final(
    directory: Path, monkeypatch: pytest.MonkeyPatch, op: DiskOp
) -> None:
    place = STORY.index(op)
    carry_out(directory, STORY[:place])
    disk = QuorumDisk.open(directory).disk

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(DiskFailed, match="Input/output error"):
            disk.carry_out([op])
    disk.close()


def test_two_processes_cannot_share_it(directory: Path) -> None:
    disk = QuorumDisk.open(directory).disk
    with pytest.raises(DataDirectoryRefused, match="another process"):
        QuorumDisk.open(directory)
    disk.close()
    assert quorum_disk.QuorumDisk.open(directory).life == 2
