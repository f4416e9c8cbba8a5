"""What a node holds, from its map."""

from __future__ import annotations

import msgspec
from tests.unit.data.rows import table

from standpipe.data.replica.holdings import holdings
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    LogIndex,
    NodeId,
    Placement,
    ReplicaId,
    Snapshot,
)

NODES = tuple(NodeId(f"node-{n}") for n in (1, 2, 3))


def snapshot(*placements: Placement) -> Snapshot:
    return Snapshot(
        stamp=1,
        node_id=NODES[0],
        service_id="s",
        cluster_id="c",
        log_index=LogIndex(1),
        leader=NODES[0],
        nodes=(),
        sources=(table(), msgspec.structs.replace(table(), query_id=None, table_id="foreign")),
        queries=(),
        assignment=Assignment(epoch=AssignmentEpoch(1), placements=placements),
    )


def place(table_id: str, partition: int, *replicas: NodeId, generation: int = 1) -> Placement:
    return Placement(
        table_id=table_id, generation=generation, partition=partition, replicas=replicas
    )


def test_own_placements_of_known_tables() -> None:
    found = holdings(
        snapshot(
            place("t", 0, NODES[0], NODES[1]),
            place("t", 1, NODES[1], NODES[0]),  # a standby is held like an active
            place("t", 2, NODES[1], NODES[2]),  # somebody else's
            place("t", 3, NODES[0], generation=2),  # a generation that the catalog does not have
            place("gone", 0, NODES[0]),
            place("foreign", 0, NODES[0]),  # no query writes it: it has no progress
        )
    )
    assert [*found] == [ReplicaId("t", 1, p) for p in (0, 1)]
    assert [(each.partition, each.query_id) for each in found.values()] == [(0, "Q"), (1, "Q")]
