"""Status pages between processes: the last whole page is read, whatever its writer is doing."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from standpipe.adapters.store.status_page import StatusReader, StatusWriter, page_path
from standpipe.data.replica.positions import STATUS_BYTES, blank_status
from standpipe.model import ReplicaId, ReplicaState, ReplicaStatus

RUNNING = blank_status(ReplicaState.RUNNING)


def status(number: int) -> ReplicaStatus:
    """All its numbers are the same, and its text says it, so that a mixture would show."""
    names = [name for name in ReplicaStatus.__struct_fields__ if name != "state"]
    fields = {**dict.fromkeys(names, number), "progress_topic_id": str(number)}
    return msgspec.structs.replace(RUNNING, **fields)


def numbers(page: ReplicaStatus) -> set[object]:
    fields = msgspec.structs.asdict(page).items()
    return {int(value) for name, value in fields if name != "state"}


def test_a_page_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = page_path(tmp_path, ReplicaId("t1", 2, 3))
    assert path == tmp_path / "status" / "t1-2-3"
    reader = StatusReader(path)
    assert reader.read() is None, "there is none yet"
    writer = StatusWriter(path)
    assert reader.read() is None, "made, but never written"
    for number in range(3):
        writer.write(status(number))
        assert reader.read() == status(number)
    assert reader.read() is reader.read(), "not decoded again while it has not changed"


def test_a_new_writer_goes_on_in_the_same_page(tmp_path: Path) -> None:
    path = tmp_path / "page"
    writer, reader = StatusWriter(path), StatusReader(path)
    writer.write(status(1))
    assert reader.read() == status(1)
    writer.close(unlink=False)
    StatusWriter(path).write(status(2))
    assert reader.read() == status(2)


@pytest.mark.parametrize("bytes_before", [None, 7, 100_000])
def test_a_page_has_its_blocks_before_it_is_written(
    tmp_path: Path, bytes_before: int | None
) -> None:
    """On a full disk, a write to a map without blocks kills the process (SIGBUS)."""
    path = tmp_path / "page"
    if bytes_before is not None:
        path.touch()
        os.truncate(path, bytes_before)  # without blocks, as earlier versions made it
    StatusWriter(path)
    assert path.stat().st_blocks > 0
    assert StatusReader(path).read() is None


def test_a_page_without_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space"):
        StatusWriter(tmp_path / "page")


@pytest.mark.parametrize("torn_bytes", [1, 50, STATUS_BYTES])
def test_a_writer_that_stops_half_way_leaves_the_last_status(
    tmp_path: Path, torn_bytes: int
) -> None:
    """Found by the demo: a tailer that lost its core inside a write made its replica ABSENT."""
    path = tmp_path / "page"
    writer, reader = StatusWriter(path), StatusReader(path)
    writer.write(status(1))
    writer.write(status(2))
    data = bytearray(path.read_bytes())
    other_slot = len(data) - STATUS_BYTES  # 2 lies in the first slot, so 3 would go here
    data[other_slot : other_slot + torn_bytes] = b"\xff" * torn_bytes
    path.write_bytes(data)
    assert reader.read() == status(2)
    assert StatusReader(path).read() == status(2), "a new reader too"
    StatusWriter(path).write(status(3))
    assert reader.read() == status(3), "the next writer mends it"


def test_a_page_that_is_gone_and_made_anew_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page"
    writer, reader = StatusWriter(path), StatusReader(path)
    writer.write(status(1))
    assert reader.read() == status(1)
    writer.write(blank_status(ReplicaState.ABSENT))
    writer.close(unlink=True)
    last = reader.read()
    assert last is not None
    assert last.state is ReplicaState.ABSENT
    assert reader.read() is None
    StatusWriter(path).write(status(2))
    assert reader.read() == status(2)


def test_as_long_as_a_page_begins_so_it_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "page"
    reader = StatusReader(path)
    assert reader.settled() is None
    assert reader.read() is None
    assert reader.settled() is None, "there is none"
    writer = StatusWriter(path)
    assert reader.read() is None
    assert reader.settled() is None, "it says nothing yet"
    for number in range(3):
        writer.write(status(number))
        assert reader.read() == status(number)
        pages, front = reader.settled() or (b"", b"")
        assert len(front) > 0
        assert pages[: len(front)] == front
        assert reader.read() == status(number)
        writer.write(status(number + 9))
        assert pages[: len(front)] != front, "before it is read again"
    reader.close()
    assert reader.settled() is None
    writer.write(blank_status(ReplicaState.ABSENT))
    assert reader.read() is not None
    assert reader.settled() is None, "its file may be gone"


@pytest.mark.parametrize("length", [0, 7, 1000])
def test_a_file_of_another_length_is_no_page(tmp_path: Path, length: int) -> None:
    path = tmp_path / "page"
    path.write_bytes(bytes(length))
    assert StatusReader(path).read() is None


def write_for_ever(path: Path) -> None:
    writer, number = StatusWriter(path), 0
    while True:
        number += 1
        writer.write(status(number))


def test_no_reader_ever_sees_a_mixture(tmp_path: Path) -> None:
    path = tmp_path / "page"
    writer = os.fork()
    if writer == 0:
        try:
            write_for_ever(path)
        finally:
            os._exit(1)
    try:
        reader, seen = StatusReader(path), set[object]()
        deadline = time.monotonic() + 20
        while len(seen) < 300 and time.monotonic() < deadline:
            page = reader.read()
            if page is not None:
                assert len(numbers(page)) == 1
                seen |= numbers(page)
        assert len(seen) >= 300
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
