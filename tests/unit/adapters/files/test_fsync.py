"""Syncing a file, and the directory that names it; that it lasts only a power cut can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.adapters.files.fsync import sync


def test_files_and_directories_are_synced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    for path in (file, tmp_path):
        sync(path)


def test_what_is_not_there_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nothing")
