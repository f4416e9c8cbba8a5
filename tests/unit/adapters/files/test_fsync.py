"""Syncing a file, and the directory that names it; that it lasts only a power cut can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.adapters.files import fsync
from standpipe.adapters.files.fsync import replace_durably, sync, write_all


def test_files_and_directories_are_synced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    for path in (file, tmp_path):
        sync(path)


def test_what_is_not_there_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nothing")


def test_a_file_that_cannot_be_written_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft kept what a full disk had left."""
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def write(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fsync, "write_all", write)
    with pytest.raises(OSError, match="No space"):
        replace_durably(path, b"new one")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"
