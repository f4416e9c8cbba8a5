"""Order, reasons and bounds of routing. Sources: KLIP-12 "Lag-aware routing"; docs/sources.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from standpipe.control.routing.bounds import LAG_UNBOUNDED, Bounds
from standpipe.control.routing.route import (
    PeerReports,
    Verdict,
    placements,
    route,
)
from standpipe.model import (
    NO_BATCH,
    Assignment,
    AssignmentEpoch,
    BatchId,
    Health,
    LeaseEpoch,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaState,
    ReplicaStatus,
)
from standpipe.model_liveness import KnownLag, PeerLiveness, ReplicaLag

A, B, C, D = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("d")
PLACEMENT = Placement(table_id="T_1", generation=1, partition=0, replicas=(A, B, C))
RUNNING, CATCHING_UP = ReplicaState.RUNNING, ReplicaState.CATCHING_UP


def info(node_id: NodeId) -> NodeInfo:
    return NodeInfo(node_id=node_id, public="p", internal="i", peer="r", incarnation="x")


NODES = {node_id: info(node_id) for node_id in (A, B, C)}


def status(
    state: ReplicaState = RUNNING,
    position: int = 100,
    committed_end: int = 100,
    batch: BatchId = BatchId(1),  # noqa: B008
) -> ReplicaStatus:
    return ReplicaStatus(
        state=state,
        position=Offset(position),
        committed_end=Offset(committed_end),
        log_end=Offset(committed_end),
        batch=batch,
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=0,
        source_instant_ms=0,
        foreign_records=0,
        rows=0,
        watermark_ms=0,
    )


END = 100


def heard(
    lags: dict[NodeId, int] | None = None,
    *,
    down: str = "",
    unknown: str = "",
    hung: str = "",
    leaving: str = "",
    held_down: str = "",
    state: ReplicaState = RUNNING,
    between: str = "",
) -> PeerReports:
    """What was reported: lags in records below END; health of nodes, alive if not named.

    `between`: nodes whose replica is between two batches.
    """
    return PeerReports(
        committed_end=Offset(END) if lags else Offset(-1),
        lags={
            node_id: KnownLag(
                node_id=node_id,
                at_boot_ms=700,
                reported_boot_ms=700,
                lag=ReplicaLag(
                    table_id="T_1",
                    generation=1,
                    partition=0,
                    position=Offset(END - lag),
                    committed_end=Offset(END),
                    state=state,
                    batch=NO_BATCH if node_id in between else BatchId(1),
                ),
            )
            for node_id, lag in (lags or {}).items()
        },
        liveness={
            node_id: PeerLiveness(
                node_id=node_id,
                health=Health.DOWN
                if node_id in down + held_down
                else Health.UNKNOWN
                if node_id in unknown
                else Health.ALIVE,
                is_held_down=node_id in held_down,
                beat_boot_ms=500,
                workers_ok=node_id not in hung,
                is_leaving=node_id in leaving,
            )
            for node_id in NODES
        },
    )


def order_of(verdicts: list[Verdict]) -> str:
    """Usable ones, then a bar, then the refused."""
    usable = "".join(verdict.node_id for verdict in verdicts if verdict.ok)
    refused = "".join(verdict.node_id for verdict in verdicts if not verdict.ok)
    return usable + ("|" + refused if refused else "")


@pytest.mark.parametrize(
    ("local", "lags", "suspects", "order", "why"),
    [
        (A, {}, (), "abc", "the active first, also when it is this node"),
        (B, {}, (), "abc", "the active first, although this node has a copy (KLIP-12)"),
        (A, {C: 5}, (), "acb", "a known lag goes before an unknown one"),
        (A, {C: 5, B: 5}, (), "abc", "equal lags keep the assignment's order"),
        (A, {C: 5, B: 6}, (), "acb", "standbys by lag, the least first"),
        (C, {A: 9, B: 0}, (), "abc", "a lag does not demote the active"),
        (B, {}, (A,), "bca", "the active's path failed: it is tried last"),
        (C, {}, (A,), "cba", "this node knows its own lag, the peer's is unknown"),
        (C, {}, (A, B), "cab", "among suspects the active is first again"),
        (D, {}, (A, B, C), "abc", "all are suspect: somebody has to be asked"),
    ],
)
def test_order(
    local: NodeId, lags: dict[NodeId, int], suspects: tuple[NodeId, ...], order: str, why: str
) -> None:
    verdicts = route(
        PLACEMENT,
        NODES,
        local=local,
        local_status=status(),
        heard=heard(lags),
        suspects=set(suspects),
    )
    assert order_of(verdicts) == order, why


@pytest.mark.parametrize(
    ("local", "told", "suspects", "order", "why"),
    [
        (C, heard(), "", "acb", "all alive; the own lag is known"),
        (C, heard(down="a"), "", "cba", "KLIP-12: the active is down, its standbys by lag"),
        (C, heard({A: 0, B: 0}, down="a"), "", "bca", "equal lags keep the assignment's order"),
        (B, heard({C: 1}, down="a"), "", "bca", "this node is the most caught up"),
        (A, heard({B: 7, C: 1}), "a", "acb", "this node's own path cannot fail"),
        (C, heard({A: 0, B: 3}, down="ab"), "", "cab", "no beats alone is no proof: tried late"),
        (C, heard(down="a"), "a", "cb|a", "neither beats nor answers: dead"),
        (C, heard(down="ab"), "ab", "c|ab", "everything but this replica is lost"),
        (C, heard(unknown="a"), "", "cba", "unknown is not alive, and not dead"),
        (C, heard(unknown="a", down="b"), "", "cab", "unknown before down"),
        (C, heard(down="a"), "b", "cab", "a failed path is worse than missing beats"),
        (C, heard(leaving="a"), "", "cba", "the active is about to stop: it is read last"),
        (C, heard(leaving="ab"), "", "cab", "both leave: the active first again"),
        (
            D,
            heard(leaving="a", unknown="bc"),
            "",
            "abc",
            "who leaves still answers, who knows else",
        ),
        (C, heard(hung="a"), "", "cba", "control beats, and says that its workers hang"),
        (C, heard({A: 0}, state=ReplicaState.BOOTSTRAP), "", "cba", "cannot answer, it said"),
        (C, heard(held_down="a"), "", "cba", "it flaps: late, though it beats"),
        (C, heard(held_down="a", down="b"), "", "cab", "who beats before who does not"),
        (C, heard(held_down="a"), "a", "cba", "it beats: not dead, whatever its path did"),
        (D, heard(held_down="b", hung="a"), "ab", "cba", "two paths failed: who hangs is last"),
        (C, PeerReports(), "", "acb", "heartbeats off: all count as alive (ksqlDB)"),
    ],
)
def test_order_by_what_was_heard(
    local: NodeId, told: PeerReports, suspects: str, order: str, why: str
) -> None:
    failed = {NodeId(node) for node in suspects}
    verdicts = route(
        PLACEMENT, NODES, local=local, local_status=status(), heard=told, suspects=failed
    )
    assert order_of(verdicts) == order, why


@pytest.mark.parametrize(
    ("told", "lag_max", "order", "why"),
    [
        (heard({A: 0, B: 5}), 10, "acb", "all known and within: as ever"),
        (heard({B: 5}), 10, "cba", "the active's lag is unknown: after those within the bound"),
        (heard({A: 11, B: 5}), 10, "cb|a", "the active is bounded too"),
        (heard({A: 10, B: 10}), 10, "acb", "lag = bound is allowed; C itself trails by 0"),
        (heard({A: 1, B: 1}), 0, "c|ab", "bound 0: only who has everything"),
        (heard({A: 5, B: 5}, down="a"), 4, "c|ba", "only this one"),
        (heard({A: 0, B: 5}, between="a"), 10, "cba", "the active was between batches: tried late"),
        (heard({A: 0, B: 5}, between="a"), LAG_UNBOUNDED, "acb", "which no unbounded read minds"),
    ],
)
def test_order_within_a_bound(told: PeerReports, lag_max: int, order: str, why: str) -> None:
    bounds = Bounds(lag_records_max=lag_max)
    verdicts = route(PLACEMENT, NODES, local=C, local_status=status(), heard=told, bounds=bounds)
    assert order_of(verdicts) == order, why


@pytest.mark.parametrize(
    ("lags", "lag_max", "order", "why"),
    [
        ({A: 11, B: 5}, 10, "cba", "at the most 11 when it was told: it judges itself, later"),
        ({B: 11}, 10, "cab", "the unknown one before the one that exceeded"),
        ({A: 11, B: 12}, 10, "cab", "both exceeded then: the active first again"),
        ({A: 5, B: 5}, 10, "acb", "within then is within"),
    ],
)
def test_a_lag_of_a_while_ago_refuses_nobody(
    lags: dict[NodeId, int], lag_max: int, order: str, why: str
) -> None:
    told = replace(heard(lags), fresh_since_ms=701)
    bounds = Bounds(lag_records_max=lag_max)
    verdicts = route(PLACEMENT, NODES, local=C, local_status=status(), heard=told, bounds=bounds)
    assert order_of(verdicts) == order, why
    for verdict in verdicts:
        is_beyond = (verdict.lag_records or 0) > lag_max
        assert ("as of the last report; tried late" in verdict.why) is is_beyond


def test_klip_12_most_caught_up_standby() -> None:
    """The active is dead; of its standbys the one with the least lag answers."""
    told = heard({B: 7000, C: 70}, down="a")
    told = PeerReports(liveness=told.liveness, lags=told.lags, committed_end=Offset(107_000))
    lone = NodeInfo(node_id=NodeId("r"), public="p", internal="i", peer="r", incarnation="x")
    verdicts = route(PLACEMENT, {**NODES, lone.node_id: lone}, local=lone.node_id, heard=told)
    assert [verdict.node_id for verdict in verdicts] == [C, B, A]


def test_the_own_lag_counts_against_what_others_know() -> None:
    """This node's tailer stopped: its own page says that nothing is missing."""
    told = PeerReports(committed_end=Offset(300))
    bounds = Bounds(lag_records_max=100)
    (verdict, *_) = [
        one
        for one in route(
            PLACEMENT, NODES, local=A, local_status=status(), heard=told, bounds=bounds
        )
        if one.is_local
    ]
    assert verdict.lag_records == 200
    assert verdict.why == "Host excluded because lag 200 exceeds maximum allowed lag 100."


@pytest.mark.parametrize(
    ("lags", "own_end", "lag_max", "order", "lag", "why"),
    [
        (
            {A: 0, B: 0},
            5000,
            10,
            "cab",
            4900,
            "this node's replica heard of a batch: it goes first",
        ),
        ({A: 0, B: 0}, 100, 10, "abc", 0, "it knows no more than they told"),
        ({A: 0, B: 0}, 90, 10, "abc", 0, "it knows less"),
        ({A: 11, B: 0}, 5000, 10, "cb|a", 4911, "beyond by its own word: refused, as ever"),
        ({A: 0, B: 0}, 5000, LAG_UNBOUNDED, "acb", 4900, "no bound: the active first"),
    ],
)
def test_a_peers_lag_counts_against_what_this_node_knows(
    lags: dict[NodeId, int], own_end: int, lag_max: int, order: str, lag: int, why: str
) -> None:
    """Its position is of its last beat, and the own end of now: an upper bound refuses nobody."""
    verdicts = route(
        PLACEMENT,
        NODES,
        local=C,
        local_status=status(position=own_end, committed_end=own_end),
        heard=heard(lags),
        bounds=Bounds(lag_records_max=lag_max),
    )
    assert order_of(verdicts) == order, why
    active = next(one for one in verdicts if one.node_id == A)
    assert active.lag_records == lag, why
    assert ("at most" in active.why) is (active.ok and lag > lag_max)


RACKS = {
    node_id: NodeInfo(
        node_id=node_id,
        public="p",
        internal="i",
        peer="r",
        incarnation="x",
        tags={"zone": zone, "cluster": "k1"},
    )
    for node_id, zone in ((A, "z1"), (B, "z2"), (C, "z1"), (NodeId("r"), "z2"))
}


@pytest.mark.parametrize(
    ("policy", "local", "first", "why"),
    [
        ("active-first", C, "a", "wherever it is"),
        ("balanced", C, "c", "the own one costs no hop"),
        ("nearest", C, "c", "nothing is nearer"),
        ("nearest", NodeId("r"), "b", "the same zone before the active in another"),
    ],
)
def test_policies(policy: str, local: NodeId, first: str, why: str) -> None:
    own = status() if local != "r" else None
    verdicts = route(PLACEMENT, RACKS, local=local, local_status=own, policy=policy)
    assert verdicts[0].node_id == first, why


def test_balanced_spreads_what_has_no_own_replica() -> None:
    first = [
        route(
            Placement(table_id="T_1", generation=1, partition=number, replicas=(A, B, C)),
            RACKS,
            local=NodeId("r"),
            policy="balanced",
        )[0].node_id
        for number in range(300)
    ]
    assert all(60 < first.count(node) < 140 for node in (A, B, C))


@pytest.mark.parametrize("policy", ["balanced", "nearest"])
def test_no_policy_prefers_a_doubtful_replica(policy: str) -> None:
    told = heard(down="c")
    verdicts = route(PLACEMENT, RACKS, local=NodeId("r"), heard=told, policy=policy)
    assert verdicts[-1].node_id == C


BETWEEN = (
    "Replica is between two batches: its rows may be further behind than its lag in records says."
)


@pytest.mark.parametrize(
    ("local_status", "lag_max", "ok", "reason"),
    [
        (status(), LAG_UNBOUNDED, True, "Usable."),
        (status(CATCHING_UP, 1), LAG_UNBOUNDED, True, "Usable."),
        (None, LAG_UNBOUNDED, False, "Replica is ABSENT on this host."),
        (status(ReplicaState.BOOTSTRAP), LAG_UNBOUNDED, False, "Replica is BOOTSTRAP."),
        (status(ReplicaState.DATA_LOSS), LAG_UNBOUNDED, False, "Replica is DATA_LOSS."),
        (status(ReplicaState.FAILED), LAG_UNBOUNDED, False, "Replica is FAILED."),
        (status(position=90), 10, True, "Usable."),
        (
            status(position=89),
            10,
            False,
            "Host excluded because lag 11 exceeds maximum allowed lag 10.",
        ),
        (status(position=100), 0, True, "Usable."),
        (status(committed_end=-1), 10, False, "Lag information is not present for host."),
        (status(committed_end=-1), LAG_UNBOUNDED, True, "Usable."),
        (status(CATCHING_UP, 97, batch=NO_BATCH), LAG_UNBOUNDED, True, "Usable."),
        (status(CATCHING_UP, 97, batch=NO_BATCH), 3, False, BETWEEN),
        (status(CATCHING_UP, 97, batch=NO_BATCH), LAG_UNBOUNDED - 1, False, BETWEEN),
        (status(CATCHING_UP, 97), 3, True, "Usable."),
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
        heard=heard(lags),
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


def test_placements_are_indexed_by_table_generation_and_partition() -> None:
    assignment = Assignment(epoch=AssignmentEpoch(1), placements=(PLACEMENT,))
    assert placements(assignment) == {("T_1", 1, 0): PLACEMENT}


def test_a_verdict_says_what_it_was_judged_on() -> None:
    told = heard({A: 11, B: 3}, down="a")
    verdicts = route(
        PLACEMENT, NODES, local=C, heard=told, suspects={A}, bounds=Bounds(lag_records_max=10)
    )
    (dead,) = [v.describe(1000) for v in verdicts if v.node_id == A]
    assert dead == {
        "node": "a",
        "host": "p",
        "role": "ACTIVE",
        "usable": False,
        "why": "Host is not alive: no heartbeats, and its path failed.",
        "alive": "DOWN",
        "beat_age_ms": 500,
        "state": "RUNNING",
        "lag_records": 11,
        "lag_records_max": 10,
        "lag_age_ms": 300,
    }
    (absent,) = [v.describe(1000) for v in verdicts if v.node_id == C]
    assert (absent["state"], absent["lag_records"], absent["lag_age_ms"]) == (None, None, None)
