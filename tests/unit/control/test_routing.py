"""Order, reasons and bounds of routing. Sources: KLIP-12 "Lag-aware routing"; DESIGN 3, 4."""

from __future__ import annotations

import pytest

from standpipe.control.routing import LAG_UNBOUNDED, Bounds, no_replica, placements, route
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    LeaseEpoch,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaState,
    ReplicaStatus,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
PLACEMENT = Placement(table_id="T_1", generation=1, partition=0, replicas=(A, B, C))
RUNNING, CATCHING_UP = ReplicaState.RUNNING, ReplicaState.CATCHING_UP


def info(node_id: NodeId) -> NodeInfo:
    return NodeInfo(node_id=node_id, public="p", internal="i", peer="r", incarnation="x")


NODES = {node_id: info(node_id) for node_id in (A, B, C)}


def status(
    state: ReplicaState = RUNNING, position: int = 100, committed_end: int = 100
) -> ReplicaStatus:
    return ReplicaStatus(
        state=state,
        position=Offset(position),
        committed_end=Offset(committed_end),
        log_end=Offset(committed_end),
        batch=BatchId(1),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=0,
        source_instant_ms=0,
        foreign_records=0,
        rows=0,
        watermark_ms=0,
    )


@pytest.mark.parametrize(
    ("local", "lags", "suspects", "order", "why"),
    [
        (A, {}, (), "abc", "the active first, also when it is this node"),
        (B, {}, (), "abc", "the active first, although this node has a copy (KLIP-12)"),
        (A, {C: 5}, (), "acb", "a known lag goes before an unknown one"),
        (A, {C: 5, B: 5}, (), "abc", "equal lags keep the assignment's order"),
        (A, {C: 5, B: 6}, (), "acb", "standbys by lag, the least first"),
        (A, {A: 9, B: 0}, (), "abc", "a lag does not demote the active"),
        (B, {}, (A,), "bca", "the active's path failed: it is tried last"),
        (C, {}, (A,), "cba", "this node knows its own lag, the peer's is unknown"),
        (A, {}, (A, B), "cab", "among suspects the active is first again"),
        (A, {}, (A, B, C), "abc", "all are suspect: somebody has to be asked"),
    ],
)
def test_order(
    local: NodeId, lags: dict[NodeId, int], suspects: tuple[NodeId, ...], order: str, why: str
) -> None:
    verdicts = route(
        PLACEMENT, NODES, local=local, local_status=status(), lags=lags, suspects=set(suspects)
    )
    assert all(verdict.ok for verdict in verdicts), why
    assert "".join(verdict.node_id for verdict in verdicts) == order, why


@pytest.mark.parametrize(
    ("local_status", "lag_max", "ok", "reason"),
    [
        (status(), LAG_UNBOUNDED, True, "In reach."),
        (status(CATCHING_UP, 1), LAG_UNBOUNDED, True, "In reach."),
        (None, LAG_UNBOUNDED, False, "Replica is ABSENT on this host."),
        (status(ReplicaState.BOOTSTRAP), LAG_UNBOUNDED, False, "Replica is BOOTSTRAP."),
        (status(ReplicaState.DATA_LOSS), LAG_UNBOUNDED, False, "Replica is DATA_LOSS."),
        (status(ReplicaState.FAILED), LAG_UNBOUNDED, False, "Replica is FAILED."),
        (status(position=90), 10, True, "In reach."),
        (
            status(position=89),
            10,
            False,
            "Host excluded because lag 11 exceeds maximum allowed lag 10.",
        ),
        (status(position=100), 0, True, "In reach."),
        (status(committed_end=-1), 10, False, "Lag information is not present for host."),
        (status(committed_end=-1), LAG_UNBOUNDED, True, "In reach."),
    ],
)
def test_local_replica(
    local_status: ReplicaStatus | None, lag_max: int, ok: bool, reason: str
) -> None:
    verdicts = route(
        PLACEMENT,
        NODES,
        local=A,
        local_status=local_status,
        bounds=Bounds(lag_records_max=lag_max),
    )
    local = next(verdict for verdict in verdicts if verdict.is_local)
    assert (local.ok, local.why) == (ok, reason)


@pytest.mark.parametrize(
    ("lag", "ok", "why"),
    [
        (10, True, "the bound itself is allowed (KLIP-12's sketch says less)"),
        (11, False, "beyond the bound"),
        (None, True, "unknown: the peer enforces the bound with its own numbers"),
    ],
)
def test_lag_of_a_peer(lag: int | None, ok: bool, why: str) -> None:
    lags = {} if lag is None else {B: lag}
    verdicts = route(
        PLACEMENT,
        NODES,
        local=A,
        local_status=status(),
        lags=lags,
        bounds=Bounds(lag_records_max=10),
    )
    assert next(verdict.ok for verdict in verdicts if verdict.node_id == B) is ok, why


def test_standby_reads_off_means_the_active_only() -> None:
    verdicts = route(
        PLACEMENT, NODES, local=B, local_status=status(), bounds=Bounds(standby_reads=False)
    )
    assert [(verdict.node_id, verdict.ok) for verdict in verdicts] == [
        (A, True),
        (B, False),
        (C, False),
    ]
    assert verdicts[1].why == "Host is not the active host for this partition."


def test_a_node_that_left_is_refused() -> None:
    verdicts = route(PLACEMENT, {A: info(A)}, local=A, local_status=status())
    assert [(verdict.node_id, verdict.ok) for verdict in verdicts] == [
        (A, True),
        (B, False),
        (C, False),
    ]


def test_error_names_every_replica() -> None:
    verdicts = route(PLACEMENT, {}, local=A)
    error = no_replica("SELECT * FROM T WHERE ID = 1;", 0, verdicts)
    assert error.message.startswith(
        "Unable to execute pull query SELECT * FROM T WHERE ID = 1;. "
        "All nodes are dead or exceed max allowed lag."
    )
    assert error.status == 503
    for node_id in (A, B, C):
        assert f"{node_id} (" in error.message
    assert [one["node"] for one in error.details["verdicts"]] == [A, B, C]  # type: ignore[index,attr-defined]


def test_error_without_any_replica_says_so() -> None:
    assert "no replica is assigned" in no_replica("SELECT 1;", 3, []).message


def test_placements_are_indexed_by_table_generation_and_partition() -> None:
    assignment = Assignment(epoch=AssignmentEpoch(1), placements=(PLACEMENT,))
    assert placements(assignment) == {("T_1", 1, 0): PLACEMENT}
