"""The next assignment of a catalog, by what was heard of the copies."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.control.assignment import explain
from standpipe.control.assignment.from_catalog import (
    ClusterObservation,
    MoveLimits,
    command,
    problem,
)
from standpipe.control.assignment.model import TablePartition
from standpipe.control.assignment.rebalance import MoveKind, Throttle
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.model import (
    BatchId,
    Column,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    PlacementRules,
    ReplicaState,
    Source,
)
from standpipe.model_liveness import ReplicaLag

LIMITS = MoveLimits(gone_after_ms=10_000, throttle=Throttle(warmup_count_max=2))
NOTHING = ClusterObservation()
RUNNING, BOOTSTRAP = ReplicaState.RUNNING, ReplicaState.BOOTSTRAP


def table(partitions: int) -> Source:
    return sample_table(
        columns=(Column(name="ID", type="STRING", is_key=True),),
        partitions=partitions,
        table_id="T_1",
        is_materialized=True,
    )


def info(name: str, **tags: str) -> NodeInfo:
    return NodeInfo(
        node_id=NodeId(name), public="", internal="", peer="", incarnation="", tags=tags
    )


def cluster(nodes: Iterable[str], partitions: int = 2, standbys: int = 1) -> Catalog:
    return msgspec.structs.replace(
        EMPTY,
        nodes={NodeId(name): info(name) for name in nodes},
        sources={"T": table(partitions)} if partitions else {},
        placement_rules=PlacementRules(standby_count=standbys),
    )


def at(partition: int) -> TablePartition:
    return TablePartition("T_1", 1, partition)


def lag(
    partition: int, position: int, state: ReplicaState = RUNNING, end: int = 100_000
) -> ReplicaLag:
    return ReplicaLag(
        table_id="T_1",
        generation=1,
        partition=partition,
        position=Offset(position),
        committed_end=Offset(end),
        state=state,
        batch=BatchId(1),
    )


def heard(away: dict[str, int] | None = None, **positions: dict[int, int]) -> ClusterObservation:
    """`a={0: 100_000}`: node a has partition 0 up to there. Nodes without word: not whole."""
    return ClusterObservation(
        away_ms={NodeId(node): ms for node, ms in (away or {}).items()},
        reports={
            NodeId(node): {at(p): lag(p, position) for p, position in held.items()}
            for node, held in positions.items()
        },
    )


def committed(catalog: Catalog, said: ClusterObservation = NOTHING) -> Catalog:
    """The catalog after its next assignment."""
    due = command(catalog, problem(catalog, said, LIMITS).solve())
    return apply(catalog, LogIndex(catalog.index + 1), due) if due else catalog


def replicas(catalog: Catalog) -> dict[int, str]:
    """partition -> its nodes in order, and behind + its warm-ups."""
    return {
        placement.partition: "".join(placement.replicas)
        + ("+" + "".join(placement.warmups) if placement.warmups else "")
        for placement in catalog.assignment.placements
    }


@pytest.mark.parametrize(
    ("nodes", "standbys", "copies", "why"),
    [
        ("abc", 1, 2, "one active, one standby"),
        ("abc", 0, 1, "no standby asked for"),
        ("a", 1, 1, "as far as the nodes go"),
        ("ab", 5, 2, "a node holds a partition once"),
    ],
)
def test_a_new_table_is_placed_at_once(nodes: str, standbys: int, copies: int, why: str) -> None:
    catalog = committed(cluster(nodes, standbys=standbys))
    assert catalog.assignment.epoch == 1
    assert [placement.partition for placement in catalog.assignment.placements] == [0, 1]
    for placement in catalog.assignment.placements:
        assert len(placement.replicas) == len(set(placement.replicas)) == copies, why
        assert placement.warmups == ()


@pytest.mark.parametrize(
    ("racks", "is_spread", "why"),
    [
        ("aabb", True, "no two copies in one rack"),
        ("ab-b", False, "a node without a rack: load alone decides (Kafka's rule)"),
    ],
)
@pytest.mark.parametrize("is_tag", [True, False])
def test_copies_are_spread_over_racks(racks: str, is_spread: bool, why: str, is_tag: bool) -> None:
    catalog = cluster("wxyz", partitions=12)
    rack_of = dict(zip(catalog.nodes, racks.replace("-", " "), strict=True))
    nodes = {
        node_id: msgspec.structs.replace(
            node,
            tags={"rack": rack_of[node_id]} if is_tag and rack_of[node_id] != " " else {},
            rack="" if is_tag else rack_of[node_id].strip(),
        )
        for node_id, node in catalog.nodes.items()
    }
    placed = committed(msgspec.structs.replace(catalog, nodes=nodes)).assignment.placements
    found = [{rack_of[node_id] for node_id in placement.replicas} for placement in placed]
    assert all(len(racks) == 2 for racks in found) is is_spread, why


def test_nothing_is_due_twice() -> None:
    catalog = committed(cluster("abc"))
    assert committed(catalog) is catalog


def test_an_empty_cluster_needs_no_assignment() -> None:
    catalog = cluster("abc", partitions=0)
    assert committed(catalog) is catalog


def test_a_table_that_goes_leaves_the_assignment() -> None:
    catalog = committed(cluster("abc"))
    dropped = committed(msgspec.structs.replace(catalog, sources={}))
    assert (dropped.assignment.epoch, dropped.assignment.placements) == (2, ())


def placed(catalog: Catalog, **rows: str) -> Catalog:
    """With these holders: p0="ab", the active first."""
    made = committed(catalog).assignment
    placements = tuple(
        msgspec.structs.replace(each, replicas=tuple(map(NodeId, rows[f"p{each.partition}"])))
        for each in made.placements
    )
    assignment = msgspec.structs.replace(made, placements=placements)
    return msgspec.structs.replace(catalog, assignment=assignment)


FULL = {0: 100_000, 1: 100_000}


def test_an_active_that_is_away_is_led_by_its_standby_and_nothing_moves() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="bc")
    after = committed(catalog, heard({"a": 500}, b=FULL, c=FULL))
    assert replicas(after) == {0: "ba", 1: "bc"}


def test_a_node_that_is_gone_is_replaced() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="bc")
    after = committed(catalog, heard({"a": 10_000}, b=FULL, c=FULL))
    assert "a" not in "".join(replicas(after).values())
    assert sorted(replicas(after)[0]) == ["b", "c"]


def test_owners_stay_while_nobody_has_spoken() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="bc")
    assert committed(catalog, ClusterObservation()) is catalog


def test_a_node_that_comes_is_warmed_up_before_it_takes_over() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="ba")
    empty = heard(a=FULL, b=FULL, c={})
    warming = committed(catalog, empty)
    assert any("+c" in row for row in replicas(warming).values())
    assert {row.split("+")[0] for row in replicas(warming).values()} <= {"ab", "ba"}
    half = heard(a=FULL, b=FULL, c={0: 50_000, 1: 50_000})
    assert committed(warming, half) is warming, "it has not caught up"
    done = committed(warming, heard(a=FULL, b=FULL, c=FULL))
    assert any("c" in row.split("+")[0] for row in replicas(done).values())


def test_a_copy_without_a_whole_batch_is_not_caught_up() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="ba")
    said = heard(a=FULL, b=FULL, c={})
    warming = committed(catalog, said)
    (partition,) = [p for p, row in replicas(warming).items() if "+" in row][:1]
    reports = {**said.reports, NodeId("c"): {at(partition): lag(partition, 100_000, BOOTSTRAP)}}
    assert committed(warming, ClusterObservation(reports=reports)) is warming


def test_a_young_table_keeps_its_owner() -> None:
    """Both copies have no batch yet; the standby is a moment ahead."""
    catalog = placed(cluster("ab"), p0="ab", p1="ba")
    reports = {
        NodeId(node): {at(p): lag(p, 0 if node == "a" else 10, BOOTSTRAP, 50) for p in (0, 1)}
        for node in "ab"
    }
    assert committed(catalog, ClusterObservation(reports=reports)) is catalog


def test_a_draining_node_ends_up_empty_and_serves_meanwhile() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="ba")
    catalog = msgspec.structs.replace(catalog, draining=(NodeId("a"),))
    first = committed(catalog, heard(a=FULL, b=FULL, c={}))
    assert all("a" in row for row in replicas(first).values()), "until another is ready"
    rows, said = first, heard(a=FULL, b=FULL, c=FULL)
    for _ in range(4):
        rows = committed(rows, said)
    assert "a" not in "".join(replicas(rows).values())


def test_moves_say_what_they_wait_for() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="ba")
    catalog = committed(catalog, heard(a=FULL, b=FULL, c={}))
    step = problem(catalog, heard(a=FULL, b=FULL, c={}), LIMITS).solve()
    assert {move.node for move in step.moves} == {"c"}
    assert {move.kind for move in step.moves} <= {MoveKind.PROMOTE, MoveKind.WARM_UP}


# ------------------------------------------------------------------------------- what if


def seen(catalog: Catalog, what_if: str = "") -> dict[str, object]:
    said = heard(a=FULL, b=FULL, c=FULL)
    supposed = explain.suppose(problem(catalog, said, LIMITS), what_if)
    goal = explain.destination(supposed)
    return explain.view(catalog, supposed, supposed.solve(), goal)


def test_what_if_a_node_were_removed() -> None:
    catalog = placed(cluster("abc"), p0="ab", p1="bc")
    view = seen(catalog, "remove a")
    nodes = {line["nodeId"]: line for line in view["nodes"]}  # type: ignore[attr-defined]
    assert nodes["a"]["state"] == "gone"
    assert nodes["a"]["then"] == {"actives": 0, "standbys": 0, "warmups": 0}
    assert nodes["b"]["then"]["actives"] + nodes["c"]["then"]["actives"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remove z", "there is no node z; the nodes are a, b, c"),
        ("explode a", "'explode a' is not a change"),
        ("remove", "'remove' is not a change"),
        ("add a", "a is in the cluster already"),
        ("add d zone", "tags are written tag=value"),
        ("standbys many", "'many' is not a number"),
        ("capacity a", "'' is not a number"),
    ],
)
def test_what_cannot_be_supposed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain.suppose(problem(cluster("abc"), ClusterObservation(), LIMITS), text)


def test_suppositions_add_up() -> None:
    supposed = explain.suppose(
        problem(cluster("abc"), ClusterObservation(), LIMITS),
        "add d zone=x, remove a, drain b, capacity c 3, standbys 2",
    )
    by_name = {node.node_id: node for node in supposed.cluster.nodes}
    assert sorted(by_name) == ["b", "c", "d"]
    assert (by_name[NodeId("b")].capacity, by_name[NodeId("c")].capacity) == (0, 3)
    assert by_name[NodeId("d")].tags == {"zone": "x"}
    assert supposed.standby_count == 2


def test_a_view_tells_the_spread_of_each_partition() -> None:
    catalog = cluster("ab")
    nodes = {NodeId("a"): info("a", zone="x"), NodeId("b"): info("b", zone="y")}
    rules = PlacementRules(standby_count=1, rack_aware_tags=("zone",))
    catalog = placed(
        msgspec.structs.replace(catalog, nodes=nodes, placement_rules=rules), p0="ab", p1="ba"
    )
    view = seen(catalog)
    spread = [line["spread"] for line in view["partitions"]]  # type: ignore[attr-defined]
    assert spread == [{"zone": ["x", "y"]}, {"zone": ["y", "x"]}]


def test_a_lag_that_was_told_a_while_ago_counts_by_the_copys_own_word() -> None:
    """What was written since would seem to be missing, and a busy copy never be caught up."""
    catalog = committed(cluster("ab", partitions=1))
    active, standby = (NodeId(name) for name in replicas(catalog)[0])
    said = ClusterObservation(
        reports={
            active: {at(0): lag(0, 200_000, end=200_000)},
            standby: {at(0): lag(0, 99_000, end=100_000)},
        }
    )
    assert problem(catalog, said, LIMITS).cluster.lags[at(0)][standby] == 101_000
    said = msgspec.structs.replace(said, current={standby: {at(0)}})
    assert problem(catalog, said, LIMITS).cluster.lags[at(0)][standby] == 1_000


def test_an_end_of_those_who_fell_silent_still_counts() -> None:
    """All that is left is a copy that stands still: it is no more caught up for that."""
    catalog = committed(cluster("ab", partitions=1))
    active = NodeId(replicas(catalog)[0][0])
    said = ClusterObservation(
        reports={active: {at(0): lag(0, 100, end=100)}}, ends={at(0): Offset(90_000)}
    )
    assert problem(catalog, said, LIMITS).cluster.lags[at(0)][active] == 89_900
