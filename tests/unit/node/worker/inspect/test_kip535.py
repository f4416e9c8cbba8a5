"""KIP-535's API: keys, nodes, own lags, and which stores may be read."""

from __future__ import annotations

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.data.encoding.store_keys import partition_of
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    Column,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Window,
)
from standpipe.node.liveness.wire import LagInfo
from standpipe.node.worker.inspect.kip535 import InvalidStateStore, Metadata
from standpipe.node.worker.request.cluster_view import ClusterView

STORE = "CTAS_T_1#Aggregate-Aggregate-Materialize"
TABLE = sample_table(
    columns=(Column(name="ID", type="STRING", is_key=True), Column(name="N", type="BIGINT")),
    partitions=2,
    query_id="CTAS_T_1",
    table_id="T_1",
    is_materialized=True,
)
WINDOWED = msgspec.structs.replace(
    TABLE,
    name="W",
    topic="W",
    query_id="CTAS_W_2",
    table_id="W_2",
    window=Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=1),
)
A, B = NodeId("a"), NodeId("b")


def node(name: NodeId) -> NodeInfo:
    return NodeInfo(node_id=name, public=name, internal="", peer="", incarnation="")


def placed(table: str, partition: int, *replicas: NodeId) -> Placement:
    return Placement(table_id=table, generation=1, partition=partition, replicas=replicas)


SNAPSHOT = Snapshot(
    stamp=1,
    node_id=A,
    service_id="default_",
    cluster_id="c",
    log_index=LogIndex(1),
    leader=A,
    nodes=(node(A), node(B)),
    sources=(TABLE, WINDOWED),
    queries=(),
    assignment=Assignment(
        epoch=AssignmentEpoch(1),
        placements=(
            placed("T_1", 0, A, B),
            placed("T_1", 1, B, A),
            placed("W_2", 0, B),
            placed("W_2", 1, B),
        ),
    ),
)


def status(state: ReplicaState, position: int = 90, end: int = 100) -> ReplicaStatus:
    return ReplicaStatus(
        state=state,
        position=Offset(position),
        committed_end=Offset(end),
        log_end=Offset(end),
        batch=BatchId(1),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=0,
        source_instant_ms=0,
        foreign_records=0,
        rows=0,
        watermark_ms=0,
    )


def view(**states: ReplicaStatus) -> Metadata:
    """`p0=status(…)`: of this node's copies of T."""
    statuses = {("T_1", 1, int(name[1:])): one for name, one in states.items()}
    return Metadata(ClusterView.of(SNAPSHOT), statuses)


def test_query_metadata_for_key() -> None:
    for key in ("ada", "bob", "eve"):
        found = view().query_metadata_for_key("T", (key,))
        assert found.partition == partition_of(key.encode(), 2)
        holders = [found.active, *found.standbys]
        assert [one and one.node_id for one in holders] == ([A, B], [B, A])[found.partition]
    assert view().query_metadata_for_key(STORE, ("ada",)) == view().query_metadata_for_key(
        "T", ("ada",)
    ), "a store has two names"


def test_with_a_serializer_and_with_a_partitioner() -> None:
    upper = view().query_metadata_for_key(
        "T", ("ada",), serializer=lambda key: str(key[0]).upper().encode()
    )
    assert upper.partition == partition_of(b"ADA", 2)
    last = view().query_metadata_for_key("T", ("ada",), partitioner=lambda _, count: count - 1)
    assert last.partition == 1


def test_metadata_for_key_is_deprecated_from_birth() -> None:
    with pytest.warns(DeprecationWarning, match="use query_metadata_for_key"):
        active = view().metadata_for_key("T", ("ada",))
    assert active == view().query_metadata_for_key("T", ("ada",)).active


def test_all_metadata() -> None:
    first, second = view().all_metadata()
    assert (first.host.node_id, second.host.node_id) == (A, B)
    assert first.topic_partitions == {("T", 0)}
    assert first.standby_topic_partitions == {("T", 1)}
    assert first.state_store_names == first.standby_state_store_names == {STORE}
    assert second.topic_partitions == {("T", 1), ("W", 0), ("W", 1)}
    assert second.standby_topic_partitions == {("T", 0)}


def test_all_local_store_partition_lags() -> None:
    running, unknown = status(ReplicaState.RUNNING), status(ReplicaState.BOOTSTRAP, end=-1)
    assert view(p0=running, p1=unknown).all_local_store_partition_lags() == {
        STORE: {0: LagInfo(currentOffsetPosition=90, endOffsetPosition=100, offsetLag=10)}
    }


@pytest.mark.parametrize(
    ("states", "stale", "partitions", "why"),
    [
        ({"p0": "RUNNING", "p1": "RUNNING"}, False, [0], "standbys are stale stores"),
        ({"p0": "RUNNING", "p1": "RUNNING"}, True, [0, 1], "asked for"),
        ({"p0": "CATCHING_UP", "p1": "RUNNING"}, True, [0, 1], "a restoring one has whole rows"),
        ({"p0": "BOOTSTRAP", "p1": "RUNNING"}, True, [1], "half a batch is never read"),
    ],
)
def test_store(states: dict[str, str], stale: bool, partitions: list[int], why: str) -> None:
    metadata = view(**{name: status(ReplicaState[state]) for name, state in states.items()})
    found = metadata.store("T", "key-value", include_stale_stores=stale)
    assert sorted(found.partitions) == partitions, why


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("NOBODY", "key-value", "there is no store NOBODY"),
        ("W", "key-value", "W is a window store, not a key-value store"),
        ("T", "session", "T is a key-value store, not a session store"),
        ("T", "key-value", "no copy of T on this node can be read yet; stale stores were not"),
        ("W", "window", "no copy of W on this node"),
    ],
)
def test_no_such_store(name: str, type_: str, message: str) -> None:
    metadata = view(p0=status(ReplicaState.CATCHING_UP), p1=status(ReplicaState.RUNNING))
    with pytest.raises(InvalidStateStore, match=message):
        metadata.store(name, type_)  # type: ignore[arg-type]
