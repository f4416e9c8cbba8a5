"""Reading a service's groups: what is damaged, what is gone, and what storage does not give."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.pipeline.run.group.test_groups import group_of

from standpipe.pipeline.commit.query_group import GROUP_FILE, groups_below, write_group


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"{", "torn"), (b"{}", "of another release"), (b"\xff", "no text")],
)
def test_a_damaged_group_is_left_out(tmp_path: Path, content: bytes, why: str) -> None:
    whole, damaged = group_of("A", "B"), group_of("A", "W")
    for group in (whole, damaged):
        write_group(group, tmp_path)
    (tmp_path / f"{damaged.group_id}-1" / GROUP_FILE).write_bytes(content)
    assert groups_below(tmp_path, "s_") == [whole], why


def test_a_group_that_is_removed_meanwhile_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of("A", "B")
    write_group(group, tmp_path)
    read = Path.read_bytes

    def removed(path: Path) -> bytes:
        path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", removed)
    assert groups_below(tmp_path, "s_") == []


@pytest.mark.parametrize("kind", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_storage_that_gives_no_file_says_nothing_about_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """It counted as damaged, and its members ended as CHECKPOINT_LOST."""
    write_group(group_of("A", "B"), tmp_path)

    def fails(path: Path) -> bytes:
        raise OSError(kind, "not now", str(path))

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(OSError, match="not now"):
        groups_below(tmp_path, "s_")
