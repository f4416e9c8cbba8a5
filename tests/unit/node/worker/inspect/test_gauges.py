"""What a scrape finds: known numbers as they are, unknown ones not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.metrics import STATES
from standpipe.adapters.store.size import size_of
from standpipe.adapters.store.status_page import StatusWriter
from standpipe.adapters.store.writer import StoreWriter
from standpipe.config import registry
from standpipe.data.replica.positions import StoreIdentity, StoreMeta, store_directory
from standpipe.model import (
    Assignment,
    BatchId,
    Column,
    Health,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    PersistentQuery,
    Placement,
    QueryStatus,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    SparkPlan,
)
from standpipe.model_liveness import Liveness, PeerLiveness
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.peer_state import PeerStateReader
from standpipe.node.room import NodeRoom
from standpipe.node.worker.inspect.gauges import States
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker_report import WorkerEnded, WorkersReport, WorkersReportReader

ME, OTHER, THIRD = NodeId("node-1"), NodeId("node-2"), NodeId("node-3")
BOOT_MS, UNIX_MS = 50_000, 1_700_000_000_000
T = sample_table(
    columns=(Column(name="ID", type="STRING", is_key=True),),
    partitions=3,
    query_id="CTAS_T_1",
    table_id="T_1",
    is_materialized=True,
)
NEXT = msgspec.structs.replace(T, generation=2, query_id="CTAS_T_2")
PAGE = ReplicaStatus(
    state=ReplicaState.CATCHING_UP,
    position=Offset(90),
    committed_end=Offset(100),
    log_end=Offset(120),
    batch=BatchId(4),
    lease_epoch=LeaseEpoch(1),
    confirmed_boot_ms=BOOT_MS - 1500,
    source_instant_ms=UNIX_MS - 2500,
    foreign_records=6,
    rows=11,
    watermark_ms=0,
)


class Still(Clock):
    """A clock that stands."""

    def boot_ms(self) -> int:
        return BOOT_MS

    def wall_ms(self) -> int:
        return UNIX_MS


class World:
    """A node's folders, as control and tailer leave them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores, self.pages = folder / "state", folder / "status"
        self.replicas = Replicas(self.stores, self.pages)

    def publish(self, **changes: object) -> None:
        snapshot = Snapshot(
            stamp=1,
            node_id=ME,
            service_id="",
            cluster_id="",
            log_index=LogIndex(1),
            leader=ME,
            nodes=tuple(node(each) for each in (ME, OTHER, THIRD)),
            sources=(T,),
            queries=(query("CTAS_T_1"),),
            assignment=Assignment(placements=(placed(0, ME, OTHER),)),
            published_boot_ms=BOOT_MS - 700,
        )
        changed = msgspec.structs.replace(snapshot, **changes)
        published.write(self.folder / "snapshot", changed)

    def hear(self, *peers: PeerLiveness) -> None:
        liveness = Liveness(published_boot_ms=BOOT_MS, peers=peers)
        published.write(self.folder / "liveness", liveness)

    def page(self, partition: int, status: ReplicaStatus, generation: int = 1) -> None:
        StatusWriter(self.pages / f"T_1-{generation}-{partition}").write(status)

    def read(self) -> dict[str, dict[tuple[str, ...], float]]:
        clock = Still()
        found = Map(self.folder / "snapshot", self.replicas)
        board = PeerStateReader(
            self.folder / "liveness", self.folder / "lags", registry.load({}), clock
        )
        board.refresh()
        reports = WorkersReportReader(self.folder / "workers")
        room = NodeRoom(NodePaths(self.folder), os.getpid())
        states = States(ME, found, self.replicas, board, clock, reports, self.folder, room)
        return {name: dict(samples) for name, samples in states.read()}


def node(node_id: NodeId) -> NodeInfo:
    return NodeInfo(node_id=node_id, public="", internal="", peer="", incarnation="x")


def placed(partition: int, *replicas: NodeId, generation: int = 1) -> Placement:
    return Placement(table_id="T_1", generation=generation, partition=partition, replicas=replicas)


def query(query_id: str, state: Literal["RUNNING", "PAUSED"] = "RUNNING") -> PersistentQuery:
    plan = SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False)
    return PersistentQuery(
        query_id=query_id, sink="T", sources=(), statement="", plan=plan, state=state
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_without_a_map_there_is_nothing(world: World) -> None:
    found = world.read()
    assert found["standpipe_worker_ends_total"] == {}, "the parent has no map either"
    assert found["standpipe_disk_free_bytes"][()] > 0, "nor has the disk"
    assert found.keys() - {"standpipe_worker_ends_total"} == {
        name for name in STATES if name.startswith(("standpipe_disk_", "standpipe_process_"))
    }


def test_every_declared_state_is_read_with_its_labels(world: World) -> None:
    world.publish(query_statuses=(QueryStatus(query_id="CTAS_T_1", state="RUNNING", at_ms=1),))
    world.hear(PeerLiveness(node_id=OTHER, health=Health.ALIVE))
    world.page(0, PAGE)
    write_store(world, 0)
    (world.folder / "tailer.json").write_text('{"at_ms": 1, "progress_ignored": {"FORGED": 3}}')
    ended = WorkerEnded(worker=1, reason="wedged", count=2, at_boot_ms=1)
    published.write(world.folder / "workers", WorkersReport(ended=(ended,)))
    found = world.read()
    assert found["standpipe_progress_records_ignored_total"] == {("FORGED",): 3}
    assert found["standpipe_worker_ends_total"] == {("1", "wedged"): 2.0}
    assert set(found) == set(STATES)
    for name, samples in found.items():
        assert samples, name
        assert {len(labels) for labels in samples} == {len(STATES[name][0])}, name


def write_store(world: World, partition: int) -> None:
    identity = StoreIdentity(table_id="T_1", generation=1, partition=partition)
    store = StoreWriter(world.stores / store_directory(ReplicaId("T_1", 1, partition)), identity)
    store.apply([(b"k", b"v" * 9000)], [], StoreMeta(identity=identity))
    store.close()


LAGS = {
    "standpipe_replica_offset_lag_records": 10,
    "standpipe_replica_lag_seconds": 1.5,
    "standpipe_replica_source_lag_seconds": 2.5,
    "standpipe_replica_rows": 11,
    "standpipe_replica_foreign_records_total": 6,
}


@pytest.mark.parametrize(
    ("changes", "unknown", "why"),
    [
        ({}, (), "all known, in seconds"),
        ({"committed_end": -1}, ("standpipe_replica_offset_lag_records",), "no end heard of"),
        ({"confirmed_boot_ms": 0}, ("standpipe_replica_lag_seconds",), "never confirmed"),
        ({"source_instant_ms": 0}, ("standpipe_replica_source_lag_seconds",), "no batch yet"),
    ],
)
def test_an_unknown_lag_is_no_sample_and_not_0(
    world: World, changes: dict[str, int], unknown: tuple[str, ...], why: str
) -> None:
    world.publish()
    world.page(0, msgspec.structs.replace(PAGE, **changes))
    found, copy = world.read(), ("T", "1", "0")
    lags = {name: found[name][copy] for name in LAGS if copy in found[name]}
    assert lags == {name: number for name, number in LAGS.items() if name not in unknown}, why


def test_copies_of_this_node_only_warm_ups_and_successors_among_them(world: World) -> None:
    warming = Placement(
        table_id="T_1", generation=1, partition=1, replicas=(OTHER, THIRD), warmups=(ME,)
    )
    elsewhere = placed(2, OTHER, THIRD)
    gone = Placement(table_id="DROPPED_0", generation=1, partition=0, replicas=(ME,))
    beside = placed(0, ME, generation=2)
    placements = (placed(0, ME, OTHER), warming, elsewhere, gone, beside)
    world.publish(successors=(NEXT,), assignment=Assignment(placements=placements))
    world.page(0, PAGE)
    world.page(1, msgspec.structs.replace(PAGE, state=ReplicaState.BOOTSTRAP))
    found = world.read()
    assert set(found["standpipe_replica_state"]) == {
        ("T", "1", "0", "CATCHING_UP"),
        ("T", "1", "1", "BOOTSTRAP"),
        ("T", "2", "0", "ABSENT"),
    }
    assert set(found["standpipe_replica_rows"]) == {("T", "1", "0"), ("T", "1", "1")}


def test_sizes_are_those_of_the_files(world: World) -> None:
    world.publish(assignment=Assignment(placements=(placed(0, ME), placed(1, ME))))
    write_store(world, 0)
    found, size = world.read(), size_of(world.stores / store_directory(ReplicaId("T_1", 1, 0)))
    assert size is not None
    assert found["standpipe_replica_store_bytes"] == {("T", "1", "0"): size.disk_bytes}
    assert found["standpipe_replica_store_map_bytes"] == {("T", "1", "0"): size.map_bytes}


def said(state: Any, reason: str = "") -> QueryStatus:
    return QueryStatus(query_id="CTAS_T_1", state=state, reason=reason)


@pytest.mark.parametrize(
    ("wanted", "status", "state", "reason", "why"),
    [
        ("RUNNING", said("RUNNING"), "RUNNING", "", "as reported"),
        ("RUNNING", said("RUNNING", "NO_PROGRESS"), "RUNNING", "NO_PROGRESS", "a stall is named"),
        ("RUNNING", said("RETRYING", "TOPIC_MISSING"), "RETRYING", "TOPIC_MISSING", "and a wait"),
        ("RUNNING", said("FAILED", "DATA_LOSS"), "FAILED", "DATA_LOSS", "and a failure"),
        ("RUNNING", None, "UNRESPONSIVE", "", "no pipeline said anything"),
        ("RUNNING", said("UNRESPONSIVE"), "UNRESPONSIVE", "", "or does so any more"),
        ("PAUSED", said("RUNNING"), "PAUSED", "", "what is wanted counts, as in SHOW QUERIES"),
    ],
)
def test_state_of_a_query(
    world: World,
    wanted: Literal["RUNNING", "PAUSED"],
    status: QueryStatus | None,
    state: str,
    reason: str,
    why: str,
) -> None:
    statuses = (status,) if status else ()
    world.publish(queries=(query("CTAS_T_1", wanted),), query_statuses=statuses)
    assert world.read()["standpipe_query_state"] == {("CTAS_T_1", state, reason): 1}, why


def test_counts_and_age_of_a_report(world: World) -> None:
    status = QueryStatus(
        query_id="CTAS_T_1",
        state="RUNNING",
        bad_records=3,
        late_records=4,
        repaired_rows=5,
        at_ms=UNIX_MS - 2000,
    )
    ahead = msgspec.structs.replace(status, query_id="CTAS_T_2", at_ms=UNIX_MS + 50)
    paused = msgspec.structs.replace(status, query_id="CTAS_T_3", at_ms=1)
    queries = (query("CTAS_T_1"), query("CTAS_T_2"), query("CTAS_T_3", "PAUSED"))
    world.publish(queries=queries, query_statuses=(status, ahead, paused))
    found = world.read()
    assert found["standpipe_query_bad_records_total"]["CTAS_T_1",] == 3
    assert found["standpipe_query_late_records_total"]["CTAS_T_1",] == 4
    assert found["standpipe_query_repaired_rows_total"]["CTAS_T_1",] == 5
    ages = found["standpipe_query_report_age_seconds"]
    assert ages == {
        ("CTAS_T_1",): 2,
        ("CTAS_T_2",): 0,
    }, "a driver's clock may be ahead, and nobody reports what is paused"


def test_peers_and_the_map(world: World) -> None:
    world.publish(nodes=tuple(node(each) for each in (ME, OTHER, THIRD, NodeId("node-4"))))
    world.hear(
        PeerLiveness(node_id=OTHER, health=Health.ALIVE),
        PeerLiveness(node_id=THIRD, health=Health.DOWN),
        PeerLiveness(node_id=NodeId("node-4"), health=Health.UNKNOWN),
        PeerLiveness(node_id=NodeId("removed"), health=Health.DOWN),
    )
    found = world.read()
    assert found["standpipe_peer_up"] == {("node-2",): 1, ("node-3",): 0}
    assert found["standpipe_snapshot_age_seconds"] == {(): 0.7}


def test_the_quorum(world: World) -> None:
    world.publish(quorum_sync_ms=1250, log_index=LogIndex(7))
    found = world.read()
    assert found["standpipe_quorum_has_leader"] == {(): 1}
    assert found["standpipe_quorum_applied_index"] == {(): 7}
    assert found["standpipe_quorum_sync_seconds"] == {(): 1.25}


def test_a_quorum_without_a_leader(world: World) -> None:
    world.publish(leader=NodeId(""))
    assert world.read()["standpipe_quorum_has_leader"] == {(): 0}


def test_what_control_does_not_say_any_more_is_no_sample(world: World) -> None:
    """The map of an earlier life would tell of a leader while there is none."""
    world.publish(quorum_sync_ms=9, published_boot_ms=BOOT_MS - 5001)
    found = world.read()
    assert {found[name] == {} for name in found if name.startswith("standpipe_quorum")} == {True}


def test_no_verdicts_are_no_peers_that_are_down(world: World) -> None:
    world.publish()
    assert world.read()["standpipe_peer_up"] == {}
