"""Where checkpoints may be. What file systems must do: tests/e2e/test_checkpoint_paths.py."""

from __future__ import annotations

import errno
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from standpipe.errors import SetupError
from standpipe.pipeline.io import checkpoint_path
from standpipe.pipeline.io.hadoop_path import HadoopPath


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/mnt/checkpoints", "/mnt/checkpoints"),
        ("file:///mnt/checkpoints", "/mnt/checkpoints"),
        ("file:/mnt/checkpoints", "/mnt/checkpoints"),
        ("checkpoints", f"{Path.cwd()}/checkpoints"),
    ],
)
def test_a_path_of_this_machine(text: str, path: str) -> None:
    checkpoint_path.check_place(text)
    assert checkpoint_path.scheme_of(text) == ""
    assert checkpoint_path.local_path(text) == Path(path)
    assert checkpoint_path.spark_path(Path(path)) == f"file://{path}"


@pytest.mark.parametrize("text", ["s3a://bucket/x", "s3://bucket/x", "gs://bucket/x", "http://h/x"])
def test_where_a_rename_is_not_one_step(text: str) -> None:
    with pytest.raises(SetupError, match="a rename is not one step") as refused:
        checkpoint_path.check_place(text)
    assert "hdfs://" in refused.value.next_step


def test_a_copy_is_links(tmp_path: Path) -> None:
    (tmp_path / "old" / "state").mkdir(parents=True)
    checkpoint_path.write_whole(tmp_path / "old" / "state" / "1", b"rows")
    before = checkpoint_path.copied(tmp_path)
    checkpoint_path.copy_tree(tmp_path / "old", tmp_path / "new")
    assert checkpoint_path.copied(tmp_path) == before + 1
    assert (tmp_path / "new" / "state" / "1").stat().st_nlink == 2
    checkpoint_path.write_whole(tmp_path / "old" / "state" / "1", b"others")
    assert (tmp_path / "new" / "state" / "1").read_bytes() == b"rows"


def test_a_file_that_cannot_be_written_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk. The draft counted as a file of another query's checkpoint."""

    def fills_up(path: Path, content: bytes) -> int:
        with path.open("wb") as draft:
            draft.write(content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    checkpoint_path.write_whole(tmp_path / "standpipe.json", b"old")
    monkeypatch.setattr(Path, "write_bytes", fills_up)
    with pytest.raises(OSError, match="No space left"):
        checkpoint_path.write_whole(tmp_path / "standpipe.json", b"new")
    (only,) = tmp_path.iterdir()
    assert (only.name, only.read_bytes()) == ("standpipe.json", b"old")


def test_names_of_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a process that was killed stays."""
    monkeypatch.setattr(Path, "replace", lambda _draft, _path: None)
    checkpoint_path.write_whole(tmp_path / "standpipe.json", b"new")
    (draft,) = tmp_path.iterdir()
    names = checkpoint_path.draft_names("standpipe.json")
    assert names == {draft.name, ".standpipe.json.tmp"}, "of Hadoop: HadoopFiles.write"


def test_hadoop_says_how_much_it_has_copied() -> None:
    files = SimpleNamespace(copied=lambda: 2**40)
    path = HadoopPath(files, "hdfs://n:8020", PurePosixPath("/checkpoints"))
    assert checkpoint_path.copied(path) == 2**40
