"""Publishing and reading `run/snapshot`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from standpipe.adapters.files import published
from standpipe.adapters.files.published import SnapshotReader, SnapshotWriter
from standpipe.errors import NotReady
from standpipe.model import Assignment, LogIndex, NodeId, Snapshot


def snapshot(index: int = 0, stamp: int = 0) -> Snapshot:
    return Snapshot(
        stamp=stamp,
        node_id=NodeId("a"),
        service_id="default_",
        cluster_id="c",
        log_index=LogIndex(index),
        leader=NodeId("a"),
        nodes=(),
        sources=(),
        queries=(),
        assignment=Assignment(),
    )


def test_before_the_first_snapshot_nothing_is_ready(tmp_path: Path) -> None:
    reader = SnapshotReader(tmp_path / "snapshot")
    assert not reader.refresh()
    with pytest.raises(NotReady, match="no map"):
        reader.current()


def test_a_reader_sees_each_new_snapshot_once(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    writer = SnapshotWriter(path, now_ms=1000)
    reader = SnapshotReader(path)
    writer.publish(snapshot(1))
    assert reader.refresh()
    assert not reader.refresh()
    assert (reader.current().log_index, reader.current().stamp) == (1, 1000)
    writer.publish(snapshot(2))
    assert reader.refresh()
    assert (reader.current().log_index, reader.current().stamp) == (2, 1001)


@pytest.mark.parametrize(
    ("before", "now_ms", "stamp", "why"),
    [
        (None, 5000, 5000, "the first one ever, or the file was lost"),
        (7000, 5000, 7001, "the clock went back"),
        (4000, 5000, 5000, "the clock went on"),
    ],
)
def test_stamps_grow_over_restarts(
    tmp_path: Path, before: int | None, now_ms: int, stamp: int, why: str
) -> None:
    path = tmp_path / "snapshot"
    if before is not None:
        published.write(path, snapshot(stamp=before))
    SnapshotWriter(path, now_ms).publish(snapshot())
    written = published.read_snapshot(path)
    assert written is not None
    assert written.stamp == stamp, why


@pytest.mark.parametrize("garbage", [b"", b"\x00" * 100, b"not a snapshot"])
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "snapshot"
    published.write(path, snapshot(1, stamp=1))
    reader = SnapshotReader(path)
    path.write_bytes(garbage)
    assert not reader.refresh()
    assert reader.current().log_index == 1
    published.write(path, snapshot(2, stamp=2))
    assert reader.refresh()


def test_a_full_disk_costs_a_version_and_not_the_writer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control published its map on a full disk, and ended."""
    path = tmp_path / "snapshot"
    writer, reader = SnapshotWriter(path, now_ms=1000), SnapshotReader(path)
    writer.publish(snapshot(1))
    (tmp_path / "snapshot.new").mkdir()  # OSError, as ENOSPC is one
    for index in (2, 3):
        writer.publish(snapshot(index))
    reader.refresh()
    assert reader.current().log_index == 1
    assert capsys.readouterr().out.count("file cannot be written") == 1, "said once, not each time"
    (tmp_path / "snapshot.new").rmdir()
    writer.publish(snapshot(4))
    assert reader.refresh()
    assert reader.current().log_index == 4


def test_an_older_stamp_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    published.write(path, snapshot(9, stamp=9))
    reader = SnapshotReader(path)
    published.write(path, snapshot(8, stamp=8))
    assert not reader.refresh()
    assert reader.current().log_index == 9


def test_fields_of_a_newer_writer_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(msgspec.msgpack.encode({**msgspec.to_builtins(snapshot(3)), "new": 1}))
    assert SnapshotReader(path).current().log_index == 3
