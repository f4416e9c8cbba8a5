"""The errors of reads that no replica answered."""

from __future__ import annotations

from standpipe.control.routing import Verdict
from standpipe.model import NodeId
from standpipe.node.rest_refusals import no_replica

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def verdict(node_id: NodeId, why: str = "Host is not a member of the cluster.") -> Verdict:
    return Verdict(node_id=node_id, role="STANDBY", ok=False, why=why)


def test_error_names_every_replica() -> None:
    verdicts = [verdict(A), verdict(B), verdict(C)]
    error = no_replica("SELECT * FROM T WHERE ID = 1;", 0, verdicts, now_boot_ms=1)
    assert error.message.startswith(
        "Unable to execute pull query SELECT * FROM T WHERE ID = 1;. "
        "All nodes are dead or exceed max allowed lag."
    )
    assert error.status == 503
    for node_id in (A, B, C):
        assert f"{node_id} (" in error.message
    assert [one["node"] for one in error.details["verdicts"]] == [A, B, C]  # type: ignore[index,attr-defined]


def test_error_without_any_replica_says_so() -> None:
    assert "no replica is assigned" in no_replica("SELECT 1;", 3, [], 1).message
