"""The map of a worker, where reads move from one generation of a table to the next."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import after, generation_of, stream, table_as

from standpipe.adapters.files import published
from standpipe.control.metadata.catalog import Catalog, to_snapshot
from standpipe.control.metadata.commands import CreateSource, SwitchTable
from standpipe.model import NodeId
from standpipe.node.worker.request import cluster_view
from standpipe.node.worker.request.cluster_view import Map, Replicas

ONE = after(CreateSource(source=stream("R")), table_as("U", "R", 23))
BOTH = after(generation_of("U", 2, 24), start=ONE)
TWO = after(SwitchTable(name="U", generation=2), start=BOTH)


def publish(path: Path, catalog: Catalog) -> None:
    node = NodeId("a")
    shown = to_snapshot(
        catalog,
        node_id=node,
        leader=node,
        service_id="s",
        query_statuses=(),
        published_boot_ms=1,
        quorum_sync_ms=0,
    )
    published.write(path, msgspec.structs.replace(shown, stamp=catalog.index))


def test_nodes_may_disagree_while_reads_move_and_shortly_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = tmp_path / "snapshot", [100.0]
    monkeypatch.setattr(cluster_view.time, "monotonic", lambda: now_s[0])
    seen: list[set[str]] = []
    publish(path, ONE)
    found = Map(path, Replicas(tmp_path, tmp_path))
    for catalog in (ONE, BOTH, TWO):
        publish(path, catalog)
        found.refresh()
        seen.append(found.moving_tables())
    now_s[0] += cluster_view.MOVING_SECONDS_MAX
    assert [*seen, found.moving_tables()] == [set(), {"U"}, {"U"}, set()]
