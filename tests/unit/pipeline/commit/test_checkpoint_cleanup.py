from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from standpipe.model import LeaseEpoch
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.commit.checkpoint_cleanup import (
    KEPT_MS,
    UNWANTED_FILE,
    CheckpointCleanup,
    clean_up,
)

MINE = "default_"
NOW_MS = 1_795_490_000_000


def checkpoint(checkpoints: Path, query_id: str, *, service_id: str = MINE) -> Path:
    """One that has run: with files of Spark's in the directory of a lease epoch."""
    root = checkpoints / f"{query_id}-1"
    Checkpoint(root, LeaseEpoch(3)).claim(
        Identity(
            service_id=service_id, query_id=query_id, table_id="t", generation=1, plan_sha256="ab"
        )
    )
    (root / "epoch-3" / "offsets").mkdir(parents=True)
    (root / "epoch-3" / "offsets" / "0").write_text("v1")
    return root


def test_a_dropped_querys_checkpoint_is_removed_after_a_week(tmp_path: Path) -> None:
    dropped, wanted = checkpoint(tmp_path, "CTAS_A_1"), checkpoint(tmp_path, "CTAS_B_2")
    for age_ms in (0, KEPT_MS // 2, KEPT_MS - 1):
        assert clean_up(tmp_path, MINE, {"CTAS_B_2"}, NOW_MS + age_ms) == []
        assert (dropped / "epoch-3" / "offsets" / "0").exists()
    assert clean_up(tmp_path, MINE, {"CTAS_B_2"}, NOW_MS + KEPT_MS) == ["CTAS_A_1-1"]
    assert [*tmp_path.iterdir()] == [wanted]
    assert not (wanted / UNWANTED_FILE).exists()


def test_a_query_that_is_back_in_the_catalog_has_its_week_anew(tmp_path: Path) -> None:
    """The metadata log was an old copy for a day, say."""
    root = checkpoint(tmp_path, "CTAS_A_1")
    clean_up(tmp_path, MINE, (), NOW_MS)
    clean_up(tmp_path, MINE, {"CTAS_A_1"}, NOW_MS + 1)
    assert clean_up(tmp_path, MINE, (), NOW_MS + KEPT_MS) == []
    assert clean_up(tmp_path, MINE, (), NOW_MS + 2 * KEPT_MS) == [root.name]


def test_what_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    """Another service's checkpoints may lie in the same directory, and anything else."""
    checkpoint(tmp_path, "CTAS_A_1", service_id="other_")
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "offsets").write_text("v1")
    torn = checkpoint(tmp_path, "CTAS_C_3")
    (torn / "standpipe.json").write_text("{")
    before = sorted(tmp_path.rglob("*"))
    for age_ms in (0, 2 * KEPT_MS):
        assert clean_up(tmp_path, MINE, (), NOW_MS + age_ms) == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("note", ["", "soon"])
def test_a_note_that_cannot_be_read_does_not_remove_early(tmp_path: Path, note: str) -> None:
    root = checkpoint(tmp_path, "CTAS_A_1")
    (root / UNWANTED_FILE).write_text(note)
    assert clean_up(tmp_path, MINE, (), NOW_MS) == []


def test_what_a_pipeline_that_died_had_begun_to_remove(tmp_path: Path) -> None:
    root = checkpoint(tmp_path, "CTAS_A_1")
    root.rename(tmp_path / f"standpipe-removed-{root.name}")
    assert clean_up(tmp_path, MINE, {"CTAS_A_1"}, NOW_MS) == []
    assert [*tmp_path.iterdir()] == []


def test_two_pipelines_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's rename comes between our look and ours."""
    root = checkpoint(tmp_path, "CTAS_A_1")
    clean_up(tmp_path, MINE, (), NOW_MS)
    rename = Path.rename

    def both(self: Path, target: Path) -> Path:
        rename(self, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", both)
    assert clean_up(tmp_path, MINE, (), NOW_MS + KEPT_MS) == []
    assert not root.exists()
    assert [*tmp_path.iterdir()] == []


def test_what_takeovers_left_is_removed_after_a_week(tmp_path: Path) -> None:
    root = checkpoint(tmp_path, "CTAS_A_1")
    for name in ("unfit-epoch-2-1795490000000000000", "new-epoch-3"):
        (root / name / "offsets").mkdir(parents=True)
    now_ms = time.time_ns() // 10**6
    clean_up(tmp_path, MINE, {"CTAS_A_1"}, now_ms + KEPT_MS - 60_000)
    assert len([*root.iterdir()]) == 4
    clean_up(tmp_path, MINE, {"CTAS_A_1"}, now_ms + KEPT_MS + 60_000)
    assert sorted(path.name for path in root.iterdir()) == ["epoch-3", "standpipe.json"]


def test_storage_that_is_away_is_no_failure(tmp_path: Path) -> None:
    assert clean_up(tmp_path / "nowhere", MINE, (), NOW_MS) == []


def test_a_read_only_checkpoint_is_left_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path, "CTAS_A_1")

    def refuse(_self: Path, _text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert clean_up(tmp_path, MINE, (), NOW_MS) == []


def test_it_looks_at_once_and_then_once_an_hour(tmp_path: Path) -> None:
    root = checkpoint(tmp_path, "CTAS_A_1")
    (root / UNWANTED_FILE).write_text("1")
    cleanup = CheckpointCleanup(tmp_path, MINE)
    for _ in range(3):
        cleanup.tend({})
    while root.exists():
        time.sleep(0.01)
    again = checkpoint(tmp_path, "CTAS_B_2")
    (again / UNWANTED_FILE).write_text("1")
    cleanup.tend({})
    assert again.exists()


def test_a_share_that_cannot_be_listed_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again; what is gone by then is removed."""

    def stale(path: Path, pattern: str) -> list[Path]:
        raise OSError(116, "Stale file handle")

    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    cleanup = CheckpointCleanup(tmp_path, "s")
    with monkeypatch.context() as away:
        away.setattr(Path, "glob", stale)
        cleanup.tend({})
        assert cleanup._thread is not None
        cleanup._thread.join()
    assert raised == []
    gone = tmp_path / "standpipe-removed-1"
    gone.mkdir()
    cleanup._due_s = 0.0
    cleanup.tend({})
    cleanup._thread.join()
    assert not gone.exists()
