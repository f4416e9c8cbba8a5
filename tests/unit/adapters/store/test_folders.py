"""Stores that no placement asks for are moved aside, then deleted."""

from __future__ import annotations

from pathlib import Path

from standpipe.adapters.store.folders import Strays, retire


def test_strays_are_moved_aside_and_then_deleted(tmp_path: Path) -> None:
    wanted, stray = tmp_path / "t-1" / "0", tmp_path / "t-1" / "1"
    for path in (wanted, stray):
        path.mkdir(parents=True)
    strays = Strays(tmp_path, delay_ms=100)
    strays.clear(set(), 0)
    strays.clear(set(), 1000)
    assert stray.exists(), "an empty map takes nothing away"
    strays.clear({wanted}, 1000)
    strays.clear({wanted}, 1100)
    assert stray.exists(), "100 ms: the boundary"
    strays.clear({wanted}, 1101)
    assert [path.name for path in (tmp_path / "t-1").iterdir() if path != wanted] == [
        "1.retired-1101"
    ]
    strays.clear({wanted}, 1202)
    strays.clear({wanted}, 1301)
    assert len([*(tmp_path / "t-1").iterdir()]) == 2, "seen aside since 1202"
    strays.clear({wanted}, 1302)
    assert [*(tmp_path / "t-1").iterdir()] == [wanted]


def test_a_wall_clock_that_was_set_deletes_nothing_early_and_keeps_nothing_for_ever(
    tmp_path: Path,
) -> None:
    wanted, path = tmp_path / "t-1" / "0", tmp_path / "t-1" / "1"
    for unix_ms in (0, 10**15):  # long ago, and in a time to come
        path.mkdir(parents=True)
        retire(path, unix_ms)
        strays = Strays(tmp_path, delay_ms=100)
        strays.clear({wanted}, 1000)
        assert [*tmp_path.glob("*/*")], "its readers have had no time to let go of it"
        strays.clear({wanted}, 1100)
        assert not [*tmp_path.glob("*/*")]
