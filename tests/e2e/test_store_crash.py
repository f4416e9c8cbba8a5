"""A few kills of a store's writer and a few damages; `make store-kills` does many of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.store_kills import damage_stores, kill_writers

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(3600)
def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    assert kill_writers(tmp_path / "kills", 8) > 8


@pytest.mark.timeout(3600)
def test_a_damaged_store_is_known_or_harmless(tmp_path: Path) -> None:
    ends = damage_stores(tmp_path / "damages", 21)
    assert ends[0] > 0
    assert ends[3] > 0, "damages were noticed"
