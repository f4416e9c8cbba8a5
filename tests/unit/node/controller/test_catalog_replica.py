"""The entries that a node keeps for GET /log are bounded in bytes, too: statements may be large."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.node.in_process import configs_of, control, run

from standpipe.control.metadata.catalog import from_bytes
from standpipe.control.metadata.commands import LogPage
from standpipe.node.controller import catalog_replica


@pytest.mark.parametrize("bytes_kept", [10, 1500])
def test_old_entries_give_way_to_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_kept: int
) -> None:
    """With 10, not even the newest entry fits."""
    monkeypatch.setattr(catalog_replica, "ENTRY_BYTES_KEPT", bytes_kept)

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            for number in range(20):
                sql = f"CREATE TYPE /*{'x' * 300}*/ T{number} AS INTEGER;"
                assert (await node.execute(sql, f"r{number}")).status == 200
            last = node.copy.catalog.index
            whole = (await node.get("/log", **{"from": 1})).msgpack(LogPage)
            assert from_bytes(whole.catalog).types.keys() == {f"T{n}" for n in range(20)}
            assert (whole.entries, whole.last_index) == ((), last)
            waiting = node.get("/log", **{"from": last + 1}, wait_ms=1)
            rest = (await waiting).msgpack(LogPage)
            assert (rest.entries, rest.catalog) == ((), b"")
            kept = node.copy.page(last - 1)
            sizes = [len(bytes(entry.command)) for entry in kept.entries]
            assert sum(sizes) <= 2 * bytes_kept
            assert bool(sizes) is (bytes_kept > 1000)

    run(story)
