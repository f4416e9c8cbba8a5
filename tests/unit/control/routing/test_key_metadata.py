"""Active, standbys and partition of a key. Source: KIP-535."""

from __future__ import annotations

from standpipe.control.routing.key_metadata import metadata_for_key, query_metadata_for_key
from standpipe.model import NodeId, NodeInfo, Placement

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
PLACEMENT = Placement(table_id="T_1", generation=1, partition=0, replicas=(A, B, C))
NODES = {
    node_id: NodeInfo(node_id=node_id, public="p", internal="i", peer="r", incarnation="x")
    for node_id in (A, B, C)
}


def test_kip_535_key_metadata() -> None:
    found = query_metadata_for_key(PLACEMENT, NODES, 0)
    assert (found.active, found.standbys, found.partition) == (NODES[A], (NODES[B], NODES[C]), 0)
    assert metadata_for_key(PLACEMENT, NODES, 0) == NODES[A]
    nobody = query_metadata_for_key(None, NODES, 3)
    assert (nobody.active, nobody.standbys, nobody.partition) == (None, (), 3)


def test_a_node_that_left_is_in_no_answer() -> None:
    remaining = {C: NODES[C]}
    found = query_metadata_for_key(PLACEMENT, remaining, 0)
    assert (found.active, found.standbys) == (None, (NODES[C],))
    assert metadata_for_key(PLACEMENT, remaining, 0) is None
