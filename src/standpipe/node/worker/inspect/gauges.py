"""Gauges, read at each scrape: this node's copies, all queries, its peers, its map.

Each scrape reads status pages, the snapshot, the files that the controller publishes and the sizes
of files. An unknown value has no sample.

    for name, samples in States(…).read(): …          # names and labels: adapters.metrics.STATES

Not here: Prometheus's text format (`adapters.metrics`); judgements (`control`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.metrics import Sample, State
from standpipe.adapters.store.size import size_of
from standpipe.errors import NotReady
from standpipe.freshness import Freshness
from standpipe.model import (
    Health,
    NodeId,
    PersistentQuery,
    QueryStatus,
    Record,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
)
from standpipe.node.liveness.peer_state import PeerState, PeerStateReader
from standpipe.node.room import NodeRoom
from standpipe.node.worker.inspect.info import MAP_AGE_MS_MAX
from standpipe.node.worker.request.answer import freshness_of
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas
from standpipe.node.worker_report import WorkersReport, WorkersReportReader


@dataclass(frozen=True)
class Copy:
    """A copy on this node. `fresh`: how far it is; both None: its tailer reports nothing."""

    #: table, generation, partition
    labels: tuple[str, str, str]
    status: ReplicaStatus | None
    fresh: Freshness | None
    store: Path


_Of = Callable[[ReplicaStatus, Freshness], float | None]

#: of each copy with a status
_OF_COPIES: Final[Mapping[str, _Of]] = {
    "standpipe_replica_offset_lag_records": lambda _, fresh: fresh.offset_lag,
    "standpipe_replica_lag_seconds": lambda _, fresh: _seconds(fresh.replica_lag_ms),
    "standpipe_replica_source_lag_seconds": lambda _, fresh: _seconds(fresh.source_lag_ms),
    "standpipe_replica_rows": lambda status, _: status.rows,
    "standpipe_replica_foreign_records_total": lambda status, _: status.foreign_records,
}


@dataclass(frozen=True)
class States:
    """The states of one node, as any of its workers reads them."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    peers: PeerStateReader
    clock: Clock
    workers: WorkersReportReader
    #: folder of the files that the node's processes publish
    run: Path
    room: NodeRoom

    def read(self) -> Iterator[State]:
        """All of one instant, except sizes, which take longest and are read when consumed.

        Before there is a map: only the disk, the processes, and what the parent says of workers.
        """
        self.workers.refresh()
        yield from of_room(self.room)
        yield "standpipe_worker_ends_total", list(of_workers(self.workers.report))
        try:
            view = self.map.view
        except NotReady:
            return
        boot_ms, unix_ms = self.clock.boot_ms(), self.clock.wall_ms()
        copies, state = self._copies(view, boot_ms, unix_ms), self.peers.state
        published_ms = view.snapshot.published_boot_ms
        age_s = max(0, boot_ms - published_ms) / 1000
        yield "standpipe_snapshot_age_seconds", [((), age_s)] if published_ms else []
        is_told = age_s * 1000 <= MAP_AGE_MS_MAX
        yield from of_quorum(view.snapshot if is_told else None)
        yield from of_copies(copies)
        yield from of_queries(view.snapshot, unix_ms)
        yield "standpipe_peer_up", list(of_peers(view, state))
        yield "standpipe_progress_records_ignored_total", list(of_progress(self.run))
        yield "standpipe_lag_reports_refused_total", [((), state.refused_count)]

    def _copies(self, view: ClusterView, boot_ms: int, unix_ms: int) -> list[Copy]:
        return [
            self._copy(replica_id, table, boot_ms, unix_ms)
            for replica_id, table, _ in view.copies_of(self.node_id)
        ]

    def _copy(self, replica_id: ReplicaId, table: Source, boot_ms: int, unix_ms: int) -> Copy:
        _, generation, partition = replica_id
        replica = self.replicas.get(replica_id)
        status = replica.status()
        fresh = status and freshness_of(
            status,
            reported_end=self.peers.state.end_of(replica_id),
            served_by=self.node_id,
            role="",
            boot_ms=boot_ms,
            unix_ms=unix_ms,
        )
        labels = (table.name, str(generation), str(partition))
        return Copy(labels=labels, status=status, fresh=fresh, store=replica.store_path)


def of_room(room: NodeRoom) -> Iterator[State]:
    """Of the node's disk and its processes, as far as they can be read."""
    with suppress(OSError):
        disk = room.disk()
        yield "standpipe_disk_size_bytes", [((), disk.size_bytes)]
        yield "standpipe_disk_free_bytes", [((), disk.free_bytes)]
        yield "standpipe_disk_free_inodes", [((), disk.free_inodes)] if disk.inodes else []
        found = list(room.descriptors())
        yield "standpipe_process_open_fds", [((each.name,), each.open) for each in found]
        yield "standpipe_process_max_fds", [((each.name,), each.max) for each in found]


def of_quorum(said: Snapshot | None) -> Iterator[State]:
    """What control says about the metadata quorum; None: it no longer says anything."""
    yield "standpipe_quorum_has_leader", [((), float(bool(said.leader)))] if said else []
    yield "standpipe_quorum_applied_index", [((), said.log_index)] if said else []
    yield "standpipe_quorum_sync_seconds", [((), said.quorum_sync_ms / 1000)] if said else []
    leader = said if said is not None and said.leader == said.node_id else None
    yield "standpipe_topics_failing", [((), float(bool(leader.topic_faults)))] if leader else []


def of_copies(copies: Sequence[Copy]) -> Iterator[State]:
    """States, lags, rows and sizes of copies."""
    absent = ReplicaState.ABSENT
    states = (each.status.state if each.status else absent for each in copies)
    named = zip(copies, states, strict=True)
    yield (
        "standpipe_replica_state",
        [((*each.labels, state.name), 1.0) for each, state in named],
    )
    for name, of in _OF_COPIES.items():
        known = (
            (each.labels, of(each.status, each.fresh))
            for each in copies
            if each.status is not None and each.fresh is not None
        )
        yield name, [(labels, number) for labels, number in known if number is not None]
    sized = [(each.labels, size) for each in copies if (size := size_of(each.store))]
    yield "standpipe_replica_store_bytes", [(labels, size.disk_bytes) for labels, size in sized]
    yield (
        "standpipe_replica_store_map_bytes",
        [(labels, size.map_bytes) for labels, size in sized if size.map_bytes is not None],
    )


def of_queries(snapshot: Snapshot, unix_ms: int) -> Iterator[State]:
    """What pipelines report about queries; a paused one is PAUSED, whatever is reported."""
    reported = {status.query_id: status for status in snapshot.query_statuses}
    lasting = [query for query in snapshot.queries if not query.served_by]
    shown = [(query, reported.get(query.query_id)) for query in lasting]
    yield "standpipe_query_state", [(_state(query, status), 1.0) for query, status in shown]
    reports = [status for _, status in shown if status]
    # no pipeline reports a paused one: its age would only look like a dead pipeline
    running = {query.query_id for query, _ in shown if query.state == "RUNNING"}
    aged = [status for status in reports if status.at_ms and status.query_id in running]
    yield (
        "standpipe_query_report_age_seconds",
        [((status.query_id,), max(0, unix_ms - status.at_ms) / 1000) for status in aged],
    )
    yield "standpipe_query_bad_records_total", [((s.query_id,), s.bad_records) for s in reports]
    yield "standpipe_query_late_records_total", [((s.query_id,), s.late_records) for s in reports]
    yield "standpipe_query_repaired_rows_total", [((s.query_id,), s.repaired_rows) for s in reports]


def _state(query: PersistentQuery, status: QueryStatus | None) -> tuple[str, str, str]:
    if query.state == "PAUSED":
        return query.query_id, "PAUSED", ""
    if status is None:
        return query.query_id, "UNRESPONSIVE", ""
    return query.query_id, status.state, status.reason


def of_peers(view: ClusterView, state: PeerState) -> Iterator[Sample]:
    """Verdicts on members; none on a peer that is newly known, or if no heartbeats are sent."""
    for node, peer in state.liveness.items():
        if node in view.nodes and peer.health is not Health.UNKNOWN:
            yield (node,), float(peer.health is Health.ALIVE)


class _TailerMetrics(Record, frozen=True, kw_only=True):
    """What is read here of `run/tailer.json`."""

    progress_ignored: dict[str, int] = msgspec.field(default_factory=dict[str, int])


def of_progress(run: Path) -> Iterator[Sample]:
    """Progress records that the tailer ignores; none before it has written its metrics."""
    with suppress(OSError, msgspec.MsgspecError):
        said = msgspec.json.decode((run / "tailer.json").read_bytes(), type=_TailerMetrics)
        for reason, count in said.progress_ignored.items():
            yield (reason,), count


def of_workers(report: WorkersReport) -> Iterator[Sample]:
    """How often the parent had to end a worker, by reason."""
    for ended in report.ended:
        yield (str(ended.worker), ended.reason), float(ended.count)


def _seconds(lag_ms: int | None) -> float | None:
    return None if lag_ms is None else lag_ms / 1000
