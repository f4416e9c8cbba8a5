"""The way to the plan: warm-ups, promotion, throttle, hysteresis. Source: KIP-441."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from standpipe.control.assignment.model import HeldCopies, PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.readiness import BadReport, Lag
from standpipe.control.assignment.rebalance import Cluster, MoveKind, Throttle, advance, rebalance
from standpipe.model import NodeId

A, B, C, D = (NodeId(name) for name in "abcd")
NOTHING, SERVING, UNKNOWN = BadReport.NOTHING, BadReport.SERVING, BadReport.UNKNOWN
RULES = PlanRules(rack_aware_tags=("zone",), acceptable_lag_records=100)
T0, T1, T2 = (TablePartition("T", 1, p) for p in range(3))


def cluster(
    lags: Mapping[TablePartition, Mapping[NodeId, Lag]] | None,
    nodes: str = "abcd",
    draining: str = "",
    **sizes_bytes: int,
) -> Cluster:
    """Nodes a and b are in zone x, c and d in zone y."""
    return Cluster(
        nodes=tuple(
            PlanNode(NodeId(n), {"zone": "x" if n in "ab" else "y"}, 0 if n in draining else 1)
            for n in nodes
        ),
        partitions=(T0, T1, T2),
        lags=lags,
        sizes_bytes={TablePartition("T", 1, int(k[1:])): v for k, v in sizes_bytes.items()},
    )


def held(text: str) -> HeldCopies:
    """`ab+c`: active a, standby b, warm-up c."""
    replicas, _, warmups = text.partition("+")
    return HeldCopies(tuple(map(NodeId, replicas)), tuple(map(NodeId, warmups)))


@pytest.mark.parametrize(
    ("now", "goal", "lags", "after", "why"),
    [
        ("a", "b", {A: SERVING}, "a+b", "the old owner serves while the new one warms up"),
        ("a+b", "b", {A: SERVING, B: 101}, "a+b", "one record over the limit: not yet"),
        (
            "a+b",
            "b",
            {A: SERVING, B: 100},
            "b",
            "the limit is inclusive: promoted, old one dropped",
        ),
        ("a+b", "b", {A: SERVING, B: UNKNOWN}, "a+b", "unknown is never caught up"),
        ("ab", "ba", {A: SERVING, B: 0}, "ba", "a caught-up standby swaps places at once"),
        ("ab", "ba", {A: SERVING, B: 500}, "ab", "... one that is behind does not"),
        ("ac", "ad", {A: SERVING, C: 0}, "ac+d", "a standby is made before the old one is dropped"),
        ("ac+d", "ad", {A: SERVING, C: 0, D: 0}, "ad", "... and dropped after"),
        ("ac", "ad", {A: SERVING, C: NOTHING}, "ad", "nothing to keep: replaced at once"),
        ("ac+d", "ad", {A: SERVING, C: UNKNOWN, D: UNKNOWN}, "ac+d", "c is silent: it stays"),
        ("ac", "ad", {A: SERVING, C: UNKNOWN}, "ac+d", "... also while d has nothing yet"),
        ("ac+d", "ad", {A: SERVING, C: UNKNOWN, D: 100}, "ad", "... until d has caught up"),
        ("a", "ac", {A: SERVING}, "ac", "a missing copy is no warm-up and needs no budget"),
        ("zc", "ca", {C: 0}, "ca", "owner gone, its standby is ready and planned"),
        ("zc", "ac", {C: 50, A: NOTHING}, "ca", "ready but not planned: active, a stands by"),
        ("zc", "ac", {C: 500, A: 900}, "ca", "nobody ready: the least lag is the active"),
        ("zc", "ac", {C: UNKNOWN, A: 900}, "ac", "... and unknown is not least"),
        ("zc", "ac", {}, "ac", "no data anywhere: start as planned"),
        ("a", "a", {A: 5_000, B: 0}, "b+a", "an owner far behind yields to a ready copy"),
        ("", "ac", {D: 10}, "da+c", "a left-over disk that is ready stands in until the plan is"),
    ],
)
def test_one_step(now: str, goal: str, lags: dict[NodeId, Lag], after: str, why: str) -> None:
    step = advance(
        cluster({T0: lags}),
        {T0: held(now)} if now else {},
        {T0: held(goal).replicas},
        RULES,
        Throttle(leaving_lag_records=200),
    )
    assert step.holdings[T0] == held(after), why
    assert step.wants_followup is (step.holdings[T0] != held(goal)), "follow up until it is reached"


@pytest.mark.parametrize(
    ("lag", "leader", "why"),
    [
        (100, A, "within the limit"),
        (101, A, "over the limit, within the band: a lag that swings does not swap actives"),
        (200, A, "at the end of the band"),
        (201, B, "beyond it"),
    ],
)
def test_hysteresis(lag: int, leader: NodeId, why: str) -> None:
    throttle = Throttle(leaving_lag_records=200)
    step = advance(cluster({T0: {A: lag, B: 0}}), {T0: held("ab")}, {T0: (A, B)}, RULES, throttle)
    assert step.holdings[T0].active == leader, why


@pytest.mark.parametrize(
    ("throttle", "warmed", "why"),
    [
        (Throttle(warmup_count_max=0), [], "no warm-ups at all"),
        (Throttle(warmup_count_max=1), [T0], "by count, in order of partition"),
        (Throttle(warmup_count_max=3), [T0, T1, T2], "all"),
        (Throttle(warmup_count_max=3, warmup_bytes_max=30), [T0, T2], "by bytes: T1 is too large"),
        (Throttle(warmup_count_max=3, warmup_bytes_max=1), [T0], "one is always let through"),
    ],
)
def test_throttle(throttle: Throttle, warmed: list[TablePartition], why: str) -> None:
    three = (T0, T1, T2)
    step = advance(
        cluster({p: {A: SERVING} for p in three}, t0=10, t1=40, t2=10),
        {p: held("a") for p in three},
        dict.fromkeys(three, (B,)),
        RULES,
        throttle,
    )
    assert [p for p in three if step.holdings[p].warmups] == warmed, why
    waiting = [move.partition for move in step.moves if move.kind is MoveKind.WAIT]
    assert waiting == [p for p in three if p not in warmed], "the others are told to wait"


def test_warm_ups_that_have_begun_go_on() -> None:
    step = advance(
        cluster({T0: {A: SERVING}, T1: {A: SERVING, B: 5_000}}),
        {T0: held("a"), T1: held("a+b")},
        {T0: (B,), T1: (B,)},
        RULES,
        Throttle(warmup_count_max=1),
    )
    assert step.holdings == {T0: held("a"), T1: held("a+b")}


def test_copies_do_not_come_closer_on_the_way() -> None:
    """a (zone x) is active, planned are b (x) and c (y): the first copy goes to the other zone."""
    step = advance(cluster({T0: {A: SERVING}}), {T0: held("a")}, {T0: (B, C)}, RULES, Throttle(0))
    assert step.holdings[T0] == held("ac")


@pytest.mark.parametrize(
    ("now", "lags", "leader", "why"),
    [
        ("ac", {A: SERVING, C: 0}, C, "a ready copy takes over at once"),
        ("ac", {A: SERVING, C: 500}, A, "nobody is ready: it serves on"),
    ],
)
def test_draining_owner(now: str, lags: dict[NodeId, Lag], leader: NodeId, why: str) -> None:
    drained = cluster({T0: lags}, nodes="acd", draining="a")
    step = advance(drained, {T0: held(now)}, {T0: (C, D)}, RULES, Throttle())
    assert step.holdings[T0].active == leader, why


def test_without_lags_owners_stay() -> None:
    step = rebalance(cluster(None), {T0: held("a"), T1: held("a"), T2: held("zb")}, 0)
    assert step.holdings == {T0: held("a"), T1: held("a"), T2: held("b")}
    assert step.wants_followup


def test_a_move_from_start_to_end() -> None:
    """One table on a; b joins. Each round ends when the warm-up has caught up: no timer."""
    two = cluster({p: {A: SERVING} for p in (T0, T1, T2)}, nodes="ab")
    first = rebalance(two, {p: held("a") for p in (T0, T1, T2)}, 0, RULES, Throttle())
    (move,) = first.moves
    assert (move.kind, move.node) == (MoveKind.PROMOTE, B)
    assert first.holdings[move.partition] == held("a+b")

    lags = {p: {A: SERVING} for p in (T0, T1, T2)} | {move.partition: {A: SERVING, B: 0}}
    second = rebalance(cluster(lags, nodes="ab"), first.holdings, 0, RULES, Throttle())
    assert second.holdings[move.partition] == held("b")
    assert not second.wants_followup


@pytest.mark.parametrize("node_count", [4, 6])
def test_the_first_standby_becomes_active_when_the_active_falls_silent(node_count: int) -> None:
    """The plan spreads the turns of first standbys; the step took the lowest node id instead."""
    nodes = tuple(PlanNode(NodeId(f"n{i}"), {}) for i in range(node_count))
    partitions = tuple(TablePartition("T", 1, p) for p in range(30))
    lags = {p: {node.node_id: SERVING for node in nodes} for p in partitions}
    before = rebalance(Cluster(nodes, partitions, lags), {}, 2, PlanRules())
    for lost in nodes:
        silent = {p: {**row, lost.node_id: UNKNOWN} for p, row in lags.items()}
        after = rebalance(Cluster(nodes, partitions, silent), before.holdings, 2, PlanRules())
        led = [p for p in partitions if before.holdings[p].active == lost.node_id]
        assert led
        assert [after.holdings[p].active for p in led] == [
            before.holdings[p].replicas[1] for p in led
        ]
