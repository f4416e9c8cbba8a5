"""The announcement that a node is about to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.node.leaving import Leaving


def test_leaving_is_known_to_all_processes_of_the_node(tmp_path: Path) -> None:
    one, other = Leaving(tmp_path / "leaving"), Leaving(tmp_path / "leaving")
    one.begin()
    assert (one.is_set, other.is_set) == (True, True)
    one.end()
    assert (one.is_set, other.is_set) == (False, False)


def test_leaving_needs_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeats of a draining node stopped, and at SIGTERM its parent ended."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    leaving = Leaving(tmp_path / "leaving")
    monkeypatch.setattr(Path, "touch", refuse)
    leaving.begin()
    assert leaving.is_set
    monkeypatch.setattr(Path, "unlink", refuse)
    leaving.end()
    assert not leaving.is_set
