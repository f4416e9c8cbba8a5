"""Placement as the sources describe it, example by example, and each wish on its own.

Sources: KIP-708 ("Example of the ideal task distribution", "Rejected Alternatives", and the
comparison with Elasticsearch, Hadoop and Redis); Kafka's HighAvailabilityTaskAssignorTest.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from standpipe.control.assignment.model import PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.plan import Goal, Plan, assign, place_stateless, plan
from standpipe.control.assignment.readiness import BadReport
from standpipe.model import NodeId

GRID = PlanRules(rack_aware_tags=("zone", "cluster"))
ZONES = PlanRules(rack_aware_tags=("zone",))


def node(node_id: str, capacity: int = 1, **tags: str) -> PlanNode:
    return PlanNode(NodeId(node_id), tags, capacity)


def grid(clusters: int, zones: int) -> list[PlanNode]:
    """KIP-708's nodes: 1, 2, 3 are zones a, b, c of cluster 1; 4, 5, 6 of cluster 2; and so on."""
    return [
        node(str(c * zones + z + 1), cluster=f"K8s_Cluster{c + 1}", zone=f"eu-central-1{'abc'[z]}")
        for c in range(clusters)
        for z in range(zones)
    ]


def table(count: int, name: str = "T") -> list[TablePartition]:
    return [TablePartition(name, 1, p) for p in range(count)]


def standbys_of(goal: Plan, partition: TablePartition) -> set[str]:
    return set(goal.replicas[partition][1:])


# ------------------------------------------------------------------------- the sources' examples


@pytest.mark.parametrize(
    ("active", "ideal"),
    [
        ("1", [{"5", "9"}, {"6", "8"}]),
        ("2", [{"4", "9"}, {"6", "7"}]),
        ("3", [{"4", "8"}, {"5", "7"}]),
        ("5", [{"1", "9"}, {"3", "7"}]),
        ("9", [{"1", "5"}, {"2", "4"}]),
    ],
)
def test_kip_708_ideal_distribution(active: str, ideal: list[set[str]]) -> None:
    """Three clusters in three zones, two standbys: every copy differs in both tags."""
    (partition,) = partitions = table(1)
    actives = {partition: NodeId(active)}
    goal = plan(grid(3, 3), partitions, {}, 2, rules=GRID, actives=actives)
    assert standbys_of(goal, partition) in ideal
    assert goal.unmet == ()


def test_kip_708_two_clusters_in_three_zones() -> None:
    """Active on node 1 → node 5 or 6, never 2, 3 (same cluster) or 4 (same zone)."""
    (partition,) = partitions = table(1)
    goal = plan(grid(2, 3), partitions, {}, 1, rules=GRID, actives={partition: NodeId("1")})
    assert standbys_of(goal, partition) in ({"5"}, {"6"})


def test_elasticsearch_forced_awareness() -> None:
    """Two zones declared, one up: five actives and no standbys, until the other zone comes."""
    rules = PlanRules(rack_aware_tags=("zone",), forced={"zone": ("zone1", "zone2")})
    one_zone = [node("a", zone="zone1"), node("b", zone="zone1")]
    goal = plan(one_zone, table(5), {}, 1, rules=rules)
    assert [len(row) for row in goal.replicas.values()] == [1] * 5
    assert Counter(unmet.wish for unmet in goal.unmet)[Goal.FORCED] == 5

    both = [*one_zone, node("c", zone="zone2"), node("d", zone="zone2")]
    goal = plan(both, table(5), goal.replicas, 1, rules=rules)
    zones = {n.node_id: n.tags["zone"] for n in both}
    assert [{zones[n] for n in row} for row in goal.replicas.values()] == [{"zone1", "zone2"}] * 5
    assert not [unmet for unmet in goal.unmet if unmet.wish is Goal.FORCED]


def test_without_forced_awareness_the_rest_is_used() -> None:
    """KIP-708: "by default, if one location fails" the copies go to the remaining ones."""
    goal = plan([node("a", zone="z1"), node("b", zone="z1")], table(5), {}, 1, rules=ZONES)
    assert [len(row) for row in goal.replicas.values()] == [2] * 5


@pytest.mark.parametrize("racks", ["aabb", "aaab", "aabbcc", "aaaaab", "aaabc"])
@pytest.mark.parametrize("standbys", [1, 2])
def test_hadoop_two_per_rack(racks: str, standbys: int) -> None:
    """At most one copy per node and two per rack, while racks allow. (Its third rule, fewer racks
    than replicas, is not adopted: it costs safety.)"""
    nodes = [node(f"n{i}", zone=rack) for i, rack in enumerate(racks)]
    rack_of = {n.node_id: n.tags["zone"] for n in nodes}
    for row in plan(nodes, table(12), {}, standbys, rules=ZONES).replicas.values():
        assert len(set(row)) == 1 + standbys
        assert max(Counter(rack_of[n] for n in row).values()) <= 2


def test_redis_rack_zone() -> None:
    """When a rack fails, copies in the other racks are promoted: no active starts from nothing."""
    nodes = [node(f"{rack}{i}", zone=rack) for rack in "abc" for i in range(2)]
    before = plan(nodes, table(12), {}, 1, rules=ZONES).replicas
    survivors = [n for n in nodes if n.tags["zone"] != "a"]
    lags = {
        p: {n: (0 if place else BadReport.SERVING) for place, n in enumerate(row)}
        for p, row in before.items()
    }
    after = plan(survivors, table(12), before, 1, rules=ZONES, lags=lags).replicas
    for partition, row in before.items():
        assert after[partition][0] in row, "the new active had a copy"
        if row[0][0] != "a":
            assert after[partition][0] == row[0], "an active that was not hit stays"


# ------------------------------------------------------------------------- wishes


@pytest.mark.parametrize(
    ("capacities", "partitions", "counts", "why"),
    [
        ([1, 1, 1], 9, [3, 3, 3], "even"),
        ([1, 1], 9, [5, 4], "the odd one goes to one of them"),
        ([1, 2, 3], 6, [1, 2, 3], "by capacity"),
        ([6, 3], 9, [6, 3], "by capacity"),
        ([5, 5, 5], 4, [2, 1, 1], "equal capacities: as even as counts allow, not within 5"),
        ([1, 0, 1], 4, [2, 0, 2], "a draining node gets no active"),
        ([0, 0], 4, [0, 0], "no node may hold one: an empty placement, not an error"),
    ],
)
def test_balance_of_actives(
    capacities: list[int], partitions: int, counts: list[int], why: str
) -> None:
    nodes = [node(f"n{i}", capacity) for i, capacity in enumerate(capacities)]
    rows = assign(nodes, table(partitions), {}, 0).values()
    led = Counter(row[0] for row in rows if row)
    assert [led[n.node_id] for n in nodes] == counts, why


@pytest.mark.parametrize(
    ("racks", "standbys", "per_value", "why"),
    [
        ("abababab", 3, [2, 2], "2+2, never 3+1"),
        ("ababab", 2, [1, 2], "2+1"),
        ("abcabcabc", 4, [1, 2, 2], "2+2+1"),
        ("aaaaaaaabc", 2, [1, 1, 1], "spread before balance: lone nodes hold a copy of each"),
        ("aaaaab", 1, [1, 1], "the only node of zone b backs up all of zone a"),
    ],
)
def test_spread_over_values(racks: str, standbys: int, per_value: list[int], why: str) -> None:
    nodes = [node(f"n{i}", zone=rack) for i, rack in enumerate(racks)]
    rack_of = {n.node_id: n.tags["zone"] for n in nodes}
    for row in plan(nodes, table(24), {}, standbys, rules=ZONES).replicas.values():
        assert sorted(Counter(rack_of[n] for n in row).values()) == per_value, why


def test_look_ahead_avoids_the_greedy_trap() -> None:
    """First fit takes (c2, b), and then nothing differs on both tags."""
    nodes = [
        node("1", cluster="c1", zone="a"),
        node("2", cluster="c2", zone="b"),
        node("3", cluster="c2", zone="c"),
        node("4", cluster="c3", zone="b"),
    ]
    (partition,) = partitions = table(1)
    goal = plan(nodes, partitions, {}, 2, rules=GRID, actives={partition: NodeId("1")})
    assert standbys_of(goal, partition) == {"3", "4"}


def test_a_new_node_takes_its_share_and_nothing_else_moves() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    before = assign(nodes[:3], table(24), {}, 1)
    after = assign(nodes, table(24), before, 1)
    moved = [p for p in before if before[p][0] != after[p][0]]
    assert Counter(after[p][0] for p in moved) == {"n3": 6}
    made = [n for p in before for n in after[p] if n not in before[p]]
    assert Counter(made)["n3"] == 12
    assert len(made) <= 14, "at most one exchange, so that no node inherits too much of another"


def test_ids_that_sort_first_change_nothing() -> None:
    """Kafka's first step is round-robin over sorted ids, so a new first id reshuffles all."""
    before = assign([node("m1"), node("m2")], table(8), {}, 0)
    after = assign([node("a1"), node("m1"), node("m2")], table(8), before, 0)
    assert sum(before[p] != after[p] for p in before) == 2


def test_each_table_is_spread_over_the_nodes() -> None:
    nodes, partitions = [node(f"n{i}") for i in range(3)], [*table(3, "A"), *table(3, "B")]
    before = {p: (NodeId(f"n{p.partition}"),) for p in partitions}
    before |= {
        TablePartition("A", 1, 1): (NodeId("n0"),),
        TablePartition("B", 1, 0): (NodeId("n1"),),
    }  # balanced in total; n0 holds two of A, n1 two of B
    after = assign(nodes, partitions, before, 0)
    for name in "AB":
        assert {row[0] for p, row in after.items() if p.table_id == name} == {"n0", "n1", "n2"}


@pytest.mark.parametrize("node_count", [3, 4, 6])
@pytest.mark.parametrize("standbys", [1, 2])
def test_takeover_is_spread(node_count: int, standbys: int) -> None:
    """After the loss of any one node its actives fall on the others evenly."""
    nodes = [node(f"n{i}") for i in range(node_count)]
    rows = assign(nodes, table(30), {}, standbys).values()
    for lost in nodes:
        successors = Counter(row[1] for row in rows if row[0] == lost.node_id)
        counts = [successors[n.node_id] for n in nodes if n is not lost]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("nodes", "standbys", "rules", "wishes", "why"),
    [
        ([node("a")], 1, PlanRules(), {Goal.COPIES}, "nowhere to put the standby"),
        ([node("a", zone="x"), node("b", zone="x")], 1, ZONES, {Goal.SPREAD}, "one zone only"),
        ([node("a", zone="x"), node("b")], 1, ZONES, {Goal.SPREAD}, "unknown is not distinct"),
        ([node("a", zone="x"), node("b", zone="y")], 1, ZONES, set(), "all wishes met"),
    ],
)
def test_unmet_wishes_are_said(
    nodes: list[PlanNode], standbys: int, rules: PlanRules, wishes: set[Goal], why: str
) -> None:
    assert {
        unmet.wish for unmet in plan(nodes, table(4), {}, standbys, rules=rules).unmet
    } == wishes, why


def test_stateless_work_fills_up_what_actives_leave() -> None:
    nodes = [node("a"), node("b")]
    work = [TablePartition("L", 1, p, stateful=False) for p in range(3)]
    placed = place_stateless(nodes, work, {}, serving=[NodeId("a")] * 4)
    assert set(placed.values()) == {("b",)}


def test_equal_input_in_any_order_gives_an_equal_plan() -> None:
    nodes, partitions = grid(2, 2), table(6)
    previous = {p: (NodeId("1"),) for p in partitions}
    plans = {
        repr(sorted(plan(ns, ps, dict(reversed(previous.items())), 1, rules=GRID).replicas.items()))
        for ns in itertools.permutations(nodes)
        for ps in (partitions, partitions[::-1])
    }
    assert len(plans) == 1
