"""The map of a worker, where reads move from one generation of a table to the next."""

from __future__ import annotations

import gc
from pathlib import Path

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import after, generation_of, stream, table_as

from standpipe.adapters.files import published
from standpipe.adapters.store import folders
from standpipe.adapters.store.writer import StoreWriter
from standpipe.control.metadata.catalog import Catalog, to_snapshot
from standpipe.control.metadata.commands import CreateSource, SwitchTable
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import NodeId, Offset, ReplicaId
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


def _with_stores(folder: Path, count: int) -> tuple[Replicas, list[ReplicaId]]:
    """Replicas of which one may be open, and those with a batch."""
    replica_ids = [ReplicaId("u", 1, number) for number in range(count)]
    for replica_id in replica_ids:
        identity = StoreIdentity(**replica_id._asdict())
        writer = StoreWriter(folders.store_path(folder, replica_id), identity)
        writer.apply([(b"k", b"v")], [], StoreMeta(identity=identity, position=Offset(1)))
        writer.close()
    return Replicas(folder, folder, open_max=1), replica_ids


def test_a_replica_that_a_scan_reads_stays_open(tmp_path: Path) -> None:
    replicas, (scanned, *others) = _with_stores(tmp_path, 3)
    view = replicas.get(scanned).store.instant()
    for other in others:
        assert replicas.get(other).store.get(b"k") == b"v"
    assert not view.is_over
    assert [replicas.get(each).is_read for each in (scanned, others[1])] == [True, False]
    assert len(replicas._open) == 2, "the other one was closed"
    view.close()
    replicas.get(others[0])
    replicas.get(others[1])
    assert scanned not in replicas._open
    replicas.close()


def test_a_store_is_open_once_though_a_scan_opens_it_again(tmp_path: Path) -> None:
    """A lookup was refused with NotReady while a scan, which had waited for its turn, read on."""
    replicas, (one, other) = _with_stores(tmp_path, 2)
    waiting = replicas.get(one).store
    assert waiting.get(b"k") == b"v"
    assert replicas.get(other).store.get(b"k") == b"v"
    assert one not in replicas._open
    with waiting.view() as view:
        assert view.get(b"k") == b"v"
        assert replicas.get(one).store.get(b"k") == b"v"
    del waiting, view
    replicas.close()
    gc.collect()
    assert not replicas._stores, "nothing refers to them"
