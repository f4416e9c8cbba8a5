"""A name becomes a path below its root, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.adapters.files.named_paths import NAME_BYTES_MAX, UnsafePath, folder_below
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.status_page import page_path
from standpipe.model import ReplicaId


@pytest.mark.parametrize(
    "name", ["CTAS_T_4-1", "a", "_x", "x" * NAME_BYTES_MAX, "INSERTQUERY_7-1", "T_4-1.retired-3"]
)
def test_names_that_are_paths(tmp_path: Path, name: str) -> None:
    path = folder_below(tmp_path, name, "0")
    assert path == tmp_path / name / "0"
    assert not path.exists(), "nothing is made"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/elsewhere/x-1", "absolute: the root would be dropped"),
        ("..", "the parent"),
        ("../x", "a sibling"),
        ("a/../../x", "out by a detour"),
        ("a/b", "two components"),
        (".", "the root itself"),
        ("", "the root itself"),
        (".hidden", "what programs keep beside folders"),
        ("-rf", "an option of a command"),
        ("a\0b", "the end of a name, for C"),
        ("a\nb", "two lines of a log"),
        ("a\u202eb", "shown from right to left"),
        ("ä", "normalized differently by file systems"),
        ("a\\b", "a separator elsewhere"),
        ("x" * (NAME_BYTES_MAX + 1), "too long, with what programs append"),
    ],
)
def test_names_that_are_none(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UnsafePath, match="cannot be the name of a folder") as refused:
        folder_below(tmp_path, name)
    assert refused.value.message.isprintable(), why
    with pytest.raises(UnsafePath):
        folder_below(tmp_path, "good", name)


def test_a_link_that_leads_out_is_no_way(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "Q-1").symlink_to(tmp_path)
    with pytest.raises(UnsafePath, match="symbolic link"):
        folder_below(root, "Q-1")
    linked = tmp_path / "link"
    linked.symlink_to(root)
    assert folder_below(linked, "Q-2") == linked / "Q-2", "the root itself may be a link"


def test_places_of_a_replica_stay_in_the_folders_of_the_node(tmp_path: Path) -> None:
    """A peer names the replica of which it wants a digest or a copy."""
    fine, bad = ReplicaId("T_4", 1, 0), ReplicaId("../../etc", 1, 0)
    assert store_path(tmp_path, fine) == tmp_path / "T_4-1" / "0"
    assert page_path(tmp_path, fine) == tmp_path / "status" / "T_4-1-0"
    for place in (store_path, page_path):
        with pytest.raises(UnsafePath):
            place(tmp_path, bad)
