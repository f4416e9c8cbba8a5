"""The log on disk under torn writes, flipped bits, and disks that refuse."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.unit.control.scenarios import covers

from standpipe.adapters.files.fsync import replace_durably
from standpipe.adapters.raft import log_file
from standpipe.adapters.raft.log_file import MAGIC, DiskFailed, DiskRecord, LogFile
from standpipe.adapters.raft.reserve import Reserve
from standpipe.errors import DataDirectoryRefused

LOG_NAME = "commands.log"
RESERVE = Reserve(Path(), count=0)
RECORDS = [DiskRecord(1, b"one"), DiskRecord(2, b"two" * 40), DiskRecord(3, b"")]
LAST = DiskRecord(4, b"the last one, with a zero at its end\x00")


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """A closed log of RECORDS and LAST."""
    log = LogFile.open(tmp_path / LOG_NAME, RESERVE).log
    log.append(RECORDS)
    log.append([LAST])
    log.close()
    return tmp_path / LOG_NAME


def reopened(directory: Path) -> tuple[list[DiskRecord], int]:
    opened = LogFile.open(directory / LOG_NAME, RESERVE)
    opened.log.close()
    return opened.records, opened.cut_bytes


def ends(data: bytes) -> list[int]:
    """Offsets behind each record."""
    offsets, offset = [], len(MAGIC)
    for record in [*RECORDS, LAST]:
        offset += 20 + len(record.payload) + 1
        offsets.append(offset)
    assert offsets[-1] == len(data)
    return offsets


def test_what_was_appended_is_there_again(log_path: Path) -> None:
    assert reopened(log_path.parent) == ([*RECORDS, LAST], 0)


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    assert reopened(tmp_path) == ([], 0)
    assert (tmp_path / LOG_NAME).read_bytes() == MAGIC


def test_appending_goes_on_after_a_restart(log_path: Path) -> None:
    log = LogFile.open(log_path, RESERVE).log
    log.append([DiskRecord(5, b"more")])
    log.close()
    assert reopened(log_path.parent)[0][-1] == DiskRecord(5, b"more")


def test_every_truncation_of_the_last_record_is_a_torn_tail(log_path: Path) -> None:
    data = log_path.read_bytes()
    whole = ends(data)[-2]
    for length in range(whole, len(data)):
        log_path.write_bytes(data[:length])
        assert reopened(log_path.parent) == (RECORDS, length - whole), length
        assert log_path.stat().st_size == whole, "the tail is cut on disk too"


def test_zeros_in_place_of_the_last_write_are_a_torn_tail(log_path: Path) -> None:
    """The file grew, its bytes did not arrive before the power went."""
    data = log_path.read_bytes()
    whole = ends(data)[-2]
    for kept in range(whole, len(data) - 1):
        log_path.write_bytes(data[:kept] + bytes(len(data) - kept))
        if kept == len(data) - 2:  # the payload ends with a zero: nothing but END is missing
            assert reopened(log_path.parent)[0] == RECORDS
        else:
            assert reopened(log_path.parent) == (RECORDS, len(data) - whole), kept


def test_every_flipped_bit_before_the_tail_is_refused_by_name(log_path: Path) -> None:
    data = log_path.read_bytes()
    offsets = ends(data)
    for position in range(len(MAGIC), offsets[-2]):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            record = next(number for number, end in enumerate(offsets) if position < end)
            start = offsets[record - 1] if record else len(MAGIC)
            with pytest.raises(DataDirectoryRefused) as refused:
                log_file.scan(bytes(damaged), log_path)
            assert f"{log_path} is damaged at byte {start}" in refused.value.message
            name = str(record + 1) if record else "one"
            assert f"record {name} fails its checksum" in refused.value.message


def test_every_flipped_bit_of_the_last_record_is_refused(log_path: Path) -> None:
    """It was acknowledged: cutting it away would lose it in silence."""
    data = log_path.read_bytes()
    for position in range(ends(data)[-2], len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        log_path.write_bytes(damaged)
        with pytest.raises(DataDirectoryRefused, match="record 4"):
            LogFile.open(log_path, RESERVE)
        assert log_path.read_bytes() == damaged, "nothing was changed"


def test_a_flipped_bit_before_a_torn_tail_is_refused(log_path: Path) -> None:
    data = log_path.read_bytes()
    for tail in (data[ends(data)[-2] :][:10], bytes(50)):
        damaged = bytearray(data[: ends(data)[-2]] + tail)
        damaged[ends(data)[0] + 30] ^= 1
        log_path.write_bytes(damaged)
        with pytest.raises(DataDirectoryRefused, match="record 2"):
            LogFile.open(log_path, RESERVE)


@pytest.mark.parametrize("position", range(len(MAGIC)))
def test_a_file_of_something_else_is_refused(log_path: Path, position: int) -> None:
    damaged = bytearray(log_path.read_bytes())
    damaged[position] ^= 1
    log_path.write_bytes(damaged)
    with pytest.raises(DataDirectoryRefused, match="damaged at byte 0"):
        LogFile.open(log_path, RESERVE)


def test_a_record_of_another_log_is_refused(log_path: Path) -> None:
    data = log_path.read_bytes()
    log_path.write_bytes(data + data[len(MAGIC) : ends(data)[0]])
    with pytest.raises(DataDirectoryRefused, match="found index 1, expected 5"):
        LogFile.open(log_path, RESERVE)


@pytest.mark.parametrize("index", [3, 4, 6])
def test_indexes_are_consecutive(log_path: Path, index: int) -> None:
    log = LogFile.open(log_path, RESERVE).log
    with pytest.raises(ValueError, match=f"index {index} after 4"):
        log.append([DiskRecord(index, b"")])
    log.close()


def test_one_process_at_a_time(log_path: Path) -> None:
    log = LogFile.open(log_path, RESERVE).log
    with pytest.raises(DataDirectoryRefused, match="open in another process"):
        LogFile.open(log_path, RESERVE)
    log.close()
    assert len(reopened(log_path.parent)[0]) == 4


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_refusing_disk_is_final(
    log_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = LogFile.open(log_path, RESERVE).log

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(DiskFailed, match="Input/output error"):
            log.append([DiskRecord(5, b"x")])
    assert log.last_index == 4
    with pytest.raises(DiskFailed, match="Input/output error"):  # the disk is well again: too late
        log.append([DiskRecord(5, b"x")])
    log.close()


def test_appending_syncs_before_it_returns(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *a: (calls.append("write"), write(*a))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd))[1])
    log = LogFile.open(log_path, RESERVE).log
    log.append([DiskRecord(5, b"x"), DiskRecord(6, b"y")])
    assert calls == ["write", "fsync"], "one of each for the whole batch"
    log.close()


def test_short_writes_are_continued(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    log = LogFile.open(log_path, RESERVE).log
    log.append([DiskRecord(5, b"z" * 100)])
    log.close()
    assert reopened(log_path.parent)[0][-1] == DiskRecord(5, b"z" * 100)


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_replaced_file_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "meta.json"
    replace_durably(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, refuse)
        with pytest.raises(OSError, match="No space"):
            replace_durably(path, b"new")
    assert path.read_bytes() == b"old"
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new"


@covers("PE-21")
def test_a_rename_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(log_file.os, "fsync", noting)
    replace_durably(tmp_path / "x", b"")
    assert synced == [str(tmp_path / "x.new"), str(tmp_path)]


@pytest.mark.parametrize(
    ("last_index", "kept"),
    [(4, 4), (9, 4), (3, 3), (1, 1), (0, 0)],
)
def test_truncation_is_durable_and_appending_goes_on(
    log_path: Path, monkeypatch: pytest.MonkeyPatch, last_index: int, kept: int
) -> None:
    log = LogFile.open(log_path, RESERVE).log
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(log_path.stat().st_size), fsync(fd)))
    log.truncate(last_index)
    assert synced == ([] if kept == 4 else [log_path.stat().st_size]), "synced after the cut"
    assert log.last_index == kept
    log.append([DiskRecord(kept + 1, b"new")])
    log.close()
    assert reopened(log_path.parent)[0] == [*[*RECORDS, LAST][:kept], DiskRecord(kept + 1, b"new")]


def test_a_log_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    log = LogFile.create(path, [DiskRecord(7, b"seven")], RESERVE)
    log.append([DiskRecord(8, b"eight")])
    log.close()
    assert [record.index for record in LogFile.open(path, RESERVE).records] == [7, 8]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_file_that_was_replaced_whole_has_no_torn_tail(tmp_path: Path, cut: int) -> None:
    data = log_file.sealed(RECORDS)
    assert log_file.unsealed(data, tmp_path) == RECORDS
    with pytest.raises(DataDirectoryRefused, match="a part of it is missing"):
        log_file.unsealed(data[:-cut], tmp_path)
