"""What holds for every cluster, against brute force where that is possible.

The twins here are dull on purpose: they enumerate.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.assignor import clusters
from tests.examples import examples

from standpipe.control.assignment.model import (
    HeldCopies,
    PlanNode,
    PlanRules,
    Replicas,
    TablePartition,
)
from standpipe.control.assignment.plan import plan
from standpipe.control.assignment.readiness import BadReport, Lag
from standpipe.control.assignment.rebalance import Cluster, Throttle, rebalance
from standpipe.model import NodeId

TAGS = ("zone", "cluster")
RULES = PlanRules(rack_aware_tags=TAGS, acceptable_lag_records=100)


@st.composite
def node_lists(draw: st.DrawFn, size_max: int = 6) -> list[PlanNode]:
    count = draw(st.integers(1, size_max))
    return [
        PlanNode(
            NodeId(f"n{i}"),
            {
                tag: value
                for tag in TAGS
                if (value := draw(st.sampled_from(["a", "b", "c", None]))) is not None
            },
            capacity=draw(st.sampled_from([1, 1, 1, 2, 3])),
        )
        for i in range(count)
    ]


def table(count: int) -> list[TablePartition]:
    return [TablePartition("T", 1, p) for p in range(count)]


@st.composite
def previous_placements(draw: st.DrawFn, nodes: list[PlanNode], count: int) -> Replicas:
    ids = [n.node_id for n in nodes] + [NodeId("gone")]
    row = st.lists(st.sampled_from(ids), unique=True, max_size=3)
    return {p: tuple(draw(row)) for p in table(count)}


def distinct(nodes: list[PlanNode], row: tuple[NodeId, ...]) -> int:
    tags = [n.tags for n in nodes if n.node_id in row]
    return sum(len({t[tag] for t in tags if tag in t}) for tag in TAGS)


@given(st.data(), st.integers(0, 3), st.integers(1, 8))
@settings(max_examples=examples(50), deadline=None)
def test_spread_agrees_with_brute_force(data: st.DataObject, standbys: int, count: int) -> None:
    nodes = data.draw(node_lists())
    previous = data.draw(previous_placements(nodes, count))
    for row in plan(nodes, table(count), previous, standbys, rules=RULES).replicas.values():
        assert len(set(row)) == len(row) == min(len(nodes), 1 + standbys)
        others = [n.node_id for n in nodes if n.node_id != row[0]]
        sets = itertools.combinations(others, len(row) - 1)
        best = max(distinct(nodes, (row[0], *chosen)) for chosen in sets)
        assert distinct(nodes, row) == best


def stable_counts(nodes: list[PlanNode], total: int) -> list[tuple[int, ...]]:
    """All divisions of actives that no single move improves."""
    capacities = [n.capacity for n in nodes]
    return [
        counts
        for counts in itertools.product(range(total + 1), repeat=len(nodes))
        if sum(counts) == total
        and max(n / c for n, c in zip(counts, capacities, strict=True))
        <= min((n + 1) / c for n, c in zip(counts, capacities, strict=True)) + 1e-9
    ]


@given(st.data(), st.integers(1, 6))
@settings(max_examples=examples(35), deadline=None)
def test_actives_are_balanced_with_the_fewest_moves(data: st.DataObject, count: int) -> None:
    """Against every balanced division. One table: evenness within it may cost further moves."""
    nodes = data.draw(node_lists(size_max=4))
    ids = [n.node_id for n in nodes]
    previous = {p: (data.draw(st.sampled_from(ids)),) for p in table(count)}
    after = plan(nodes, table(count), previous, 0, rules=RULES).replicas
    led = Counter(row[0] for row in after.values())
    divisions = stable_counts(nodes, count)
    assert tuple(led[n] for n in ids) in divisions
    before = Counter(row[0] for row in previous.values())
    fewest = min(
        sum(max(0, before[n] - c) for n, c in zip(ids, counts, strict=True)) for counts in divisions
    )
    assert sum(previous[p] != after[p] for p in previous) == fewest


@given(st.data(), st.integers(0, 2), st.integers(1, 6))
@settings(max_examples=examples(30), deadline=None)
def test_input_order_makes_no_difference(data: st.DataObject, standbys: int, count: int) -> None:
    nodes = data.draw(node_lists())
    previous = data.draw(previous_placements(nodes, count))
    shuffled = dict(data.draw(st.permutations(list(previous.items()))))
    mixed_nodes = data.draw(st.permutations(nodes))
    mixed_table = data.draw(st.permutations(table(count)))
    assert plan(mixed_nodes, mixed_table, shuffled, standbys, rules=RULES) == plan(
        nodes, table(count), previous, standbys, rules=RULES
    )


@given(st.data(), st.integers(0, 2), st.integers(1, 6))
@settings(max_examples=examples(30), deadline=None)
def test_a_plan_is_its_own_plan(data: st.DataObject, standbys: int, count: int) -> None:
    nodes = data.draw(node_lists())
    previous = data.draw(previous_placements(nodes, count))
    once = plan(nodes, table(count), previous, standbys, rules=RULES).replicas
    assert plan(nodes, table(count), once, standbys, rules=RULES).replicas == once


LAGS = st.sampled_from([0, 50, 100, 101, 5_000, BadReport.UNKNOWN, BadReport.NOTHING])


@given(st.data(), st.integers(0, 2), st.integers(1, 5))
@settings(max_examples=examples(30), deadline=None)
def test_one_step_serves_from_the_readiest(data: st.DataObject, standbys: int, count: int) -> None:
    """The active is a ready copy if there is one; the throttle holds; no node has a copy twice."""
    nodes = data.draw(node_lists())
    previous = data.draw(previous_placements(nodes, count))
    lags: dict[TablePartition, dict[NodeId, Lag]] = {
        p: {n.node_id: data.draw(LAGS) for n in nodes} for p in table(count)
    }
    step = rebalance(
        Cluster(tuple(nodes), tuple(table(count)), lags),
        {p: HeldCopies(replicas=row) for p, row in previous.items()},
        standbys,
        RULES,
        Throttle(warmup_count_max=2, leaving_lag_records=100),
    )
    assert sum(len(held.warmups) for held in step.holdings.values()) <= 2
    for partition, held in step.holdings.items():
        assert len(set(held.nodes)) == len(held.nodes)
        ready = [n for n, lag in lags[partition].items() if isinstance(lag, int) and lag <= 100]
        assert not ready or held.active in ready


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (5271429, "two actives of a table could go to one node, and their warm-ups took turns"),
        (5006293, "what was exchanged for the sake of a table was given back as surplus"),
    ],
)
def test_clusters_that_did_not_converge(seed: int, why: str) -> None:
    assert clusters.run(seed).broken == [], why


@given(st.integers(10**6, 10**7))
@settings(max_examples=examples(20), deadline=None, derandomize=True)
def test_random_clusters_converge(seed: int) -> None:
    """One cluster through random events; `make assignor-clusters` runs 20,000 others."""
    world = clusters.run(seed)
    assert world.broken == [], world.history
