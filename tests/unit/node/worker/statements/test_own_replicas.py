"""Which pages of replicas a statement reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from tests.unit.node.worker.statements.test_show import SNAPSHOT

from standpipe.config.registry import load
from standpipe.model import NodeId, ReplicaId, Snapshot
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.statements import describe, show
from standpipe.node.worker.statements.execute import Statements


class Pages:
    """The replicas of a node; `read`: those whose page was read."""

    def __init__(self) -> None:
        self.read: list[ReplicaId] = []

    def get(self, replica_id: ReplicaId) -> Any:
        self.read.append(replica_id)
        return SimpleNamespace(status=lambda: None)


def scene_of(snapshot: Snapshot, pages: Pages) -> show.Scene:
    """As `Statements` makes it."""
    ends = SimpleNamespace(reported_end=lambda _: -1)
    statements: Any = SimpleNamespace(
        map=SimpleNamespace(view=ClusterView.of(snapshot)),
        replicas=pages,
        routes=SimpleNamespace(route_cache=ends),
        settings=load({}),
    )
    return Statements._scene(statements)


def test_pages_are_read_only_of_what_is_shown() -> None:
    """SHOW read those of all replicas, and so closed the stores that lookups use."""
    (first, *_) = SNAPSHOT.assignment.placements
    other = msgspec.structs.replace(first, table_id="T9")
    theirs = msgspec.structs.replace(first, partition=7, replicas=(NodeId("node-9"),))
    placements = (*SNAPSHOT.assignment.placements, other, theirs)
    assignment = msgspec.structs.replace(SNAPSHOT.assignment, placements=placements)
    snapshot = msgspec.structs.replace(SNAPSHOT, assignment=assignment)
    pages = Pages()
    scene = scene_of(snapshot, pages)
    show.tables(scene, "SHOW TABLES;")
    show.queries(scene, "SHOW QUERIES;")
    assert pages.read == []
    for _ in range(2):
        assert list(describe.each_described(scene, "TABLE"))
    assert pages.read == [first.replica_id]
    assert set(scene.replicas) == {first.replica_id, other.replica_id}
    assert len(scene.replicas) == 2
    assert theirs.replica_id not in scene.replicas
