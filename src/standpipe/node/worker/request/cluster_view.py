"""What a worker knows without a call: the map that the controller publishes, and the replicas of
its own node.

A `ClusterView` is one snapshot in the form that reads need; it is replaced whole, never changed, so
a request that began with one ends with it. `Replicas` outlives views: it keeps stores and status
pages open and closes the least recently used first.

Not here: which replica answers (`control.routing.route`), the reads themselves
(`node.worker.pull.slow_path`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from standpipe.adapters.files.named_paths import folder_below
from standpipe.adapters.files.published import SnapshotReader
from standpipe.adapters.store import folders
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.status_page import StatusReader
from standpipe.control.routing.route import placements
from standpipe.errors import NotReady, StandpipeError
from standpipe.model import NodeId, NodeInfo, Placement, ReplicaId, ReplicaStatus, Snapshot, Source
from standpipe.node.covered_files import CoveredFiles
from standpipe.sql.lookup.plan_cache import PlanCache

#: Each open store costs a memory map and two file descriptors.
OPEN_STORES_MAX = 512

#: a node that applies a command more than this after another node has other problems
MOVING_SECONDS_MAX: Final = 2.0
#: how long to wait for the map to have what was just logged
CATCH_UP_S_MAX: Final = 10.0
#: between two looks meanwhile: for a moment often, then no more than the worker looks anyway
LOOK_S_MIN: Final = 0.005
LOOK_S_MAX: Final = 0.02
SOON_S: Final = 0.2


@dataclass(frozen=True)
class ClusterView:
    """One snapshot, indexed for reads."""

    snapshot: Snapshot
    plans: PlanCache
    sources: dict[str, Source]
    nodes: dict[NodeId, NodeInfo]
    placements: dict[ReplicaId, Placement]

    @classmethod
    def of(cls, snapshot: Snapshot, before: ClusterView | None = None) -> ClusterView:
        """The view of a snapshot. Plans are kept while the sources are the same, placements while
        the assignment epoch is: control publishes once a second, and mostly nothing changed."""
        sources = {source.name: source for source in snapshot.sources}
        plans = placed = None
        if before is not None and before.snapshot.sources == snapshot.sources:
            plans = before.plans
        if before is not None and before.snapshot.assignment.epoch == snapshot.assignment.epoch:
            placed = before.placements
        return cls(
            snapshot=snapshot,
            plans=PlanCache(sources) if plans is None else plans,
            sources=sources,
            nodes={node.node_id: node for node in snapshot.nodes},
            placements=placements(snapshot.assignment) if placed is None else placed,
        )

    def tables(self) -> dict[tuple[str, int], Source]:
        """By table id and generation, including those that are being built."""
        snapshot = self.snapshot
        return {
            (s.table_id or "", s.generation): s for s in (*snapshot.sources, *snapshot.successors)
        }

    def replicas_of(self, node_id: NodeId) -> list[ReplicaId]:
        """Replicas that are assigned to a node, in the assignment's order; no warm-ups."""
        return [each for each, placed in self.placements.items() if node_id in placed.replicas]

    def copies_of(self, node_id: NodeId) -> list[tuple[ReplicaId, Source, Placement]]:
        """All copies that a node keeps, warm-ups among them, of tables in the catalog."""
        tables = self.tables()
        return [
            (replica_id, table, placement)
            for replica_id, placement in self.placements.items()
            if node_id in placement.holders and (table := tables.get(replica_id[:2]))
        ]


#: By path, those that anything refers to, closed ones among them. A scan that waits for its turn
#: opens its own again, and LMDB refuses to open a store a second time in one process.
Stores = WeakValueDictionary[Path, StoreReader]


@dataclass
class LocalReplica:
    """The node's own copy of a table partition, if it has one; opened when it is first read."""

    store_path: Path
    status_path: Path
    _stores: Stores
    _store: StoreReader | None = None
    _status: StatusReader | None = None

    @property
    def store(self) -> StoreReader:
        """Its store, opened lazily; reads raise NotReady while there is none."""
        if self._store is None:
            self._store = self._stores.get(self.store_path) or StoreReader(self.store_path)
            self._stores[self.store_path] = self._store
        return self._store

    def status(self) -> ReplicaStatus | None:
        """What the tailer says about it now; None: there is no such replica here."""
        return self.page.read()

    @property
    def page(self) -> StatusReader:
        """Where the tailer says it."""
        if self._status is None:
            self._status = StatusReader(self.status_path)
        return self._status

    @property
    def is_read(self) -> bool:
        """Whether a scan holds a view of it."""
        return self._store is not None and self._store.is_held

    def close(self) -> None:
        """Close store and status page."""
        if self._store is not None:
            self._store.close()
        if self._status is not None:
            self._status.close()


@dataclass
class Replicas:
    """Replicas of this node by id, at most `open_max` of them open."""

    state: Path
    status: Path
    open_max: int = OPEN_STORES_MAX
    _open: OrderedDict[ReplicaId, LocalReplica] = field(
        default_factory=OrderedDict[ReplicaId, LocalReplica]
    )
    _stores: Stores = field(default_factory=WeakValueDictionary[Path, StoreReader])

    def __post_init__(self) -> None:
        #: which source offsets the rows of its tables cover
        self.covered = CoveredFiles(self.status)

    def get(self, replica_id: ReplicaId) -> LocalReplica:
        """The replica of an id, whether or not there is one on this node's disk."""
        found = self._open.get(replica_id)
        if found is not None:
            self._open.move_to_end(replica_id)
            return found
        found = self._open[replica_id] = self._at(replica_id)
        if len(self._open) > self.open_max:
            self._close_one(found)
        return found

    def _close_one(self, kept: LocalReplica) -> None:
        """The least recently used one that no scan reads; all stay open if each is read."""
        for replica_id, replica in self._open.items():
            if replica is not kept and not replica.is_read:
                self._open.pop(replica_id).close()
                return

    def keep(self, wanted: set[tuple[str, int]]) -> None:
        """Close what belongs to tables that are gone: (table id, generation) not in `wanted`."""
        self._close_others(wanted)
        self.covered.keep(wanted)

    def close(self) -> None:
        """Close all that are open."""
        self._close_others(set())

    def _close_others(self, wanted: set[tuple[str, int]]) -> None:
        for replica_id in [r for r in self._open if r[:2] not in wanted]:
            self._open.pop(replica_id).close()

    def _at(self, replica_id: ReplicaId) -> LocalReplica:
        status = folder_below(self.status, str(replica_id))
        return LocalReplica(folders.store_path(self.state, replica_id), status, self._stores)


def _moved(before: Mapping[str, Source], now: Mapping[str, Source]) -> list[str]:
    return [
        name
        for name, source in now.items()
        if name in before and before[name].generation != source.generation
    ]


class Map:
    """The newest view. `refresh` is called every 20 ms and costs one `stat`."""

    def __init__(self, path: Path, replicas: Replicas) -> None:
        self._reader = SnapshotReader(path)
        self._replicas = replicas
        #: as `view`, without a call; None: control has published none yet
        self.newest: ClusterView | None = None
        #: table -> when its reads moved to another generation, of the monotonic clock
        self._moved_s: dict[str, float] = {}
        self._take()

    @property
    def view(self) -> ClusterView:
        """Raises NotReady before control has published a first map."""
        if self.newest is None:
            raise NotReady("this node has no map of the cluster yet")
        return self.newest

    def moving_tables(self) -> set[str]:
        """The tables of which nodes may not agree yet on the generation that answers."""
        since_s = time.monotonic() - MOVING_SECONDS_MAX
        recent = {name for name, moved_s in self._moved_s.items() if moved_s > since_s}
        return recent.union(successor.name for successor in self.view.snapshot.successors)

    def refresh(self) -> bool:
        """Adopt a newer snapshot, if there is one. A request that may name something new calls it
        first: another worker may have acknowledged its CREATE less than 20 ms ago."""
        return self._reader.refresh() and self._take()

    async def has(self, index: int, late: StandpipeError, wait_s: float | None = None) -> None:
        """Wait until this node's map has a log index. After `wait_s` (CATCH_UP_S_MAX), raises
        `late`: what it means depends on what was logged there."""
        began_s = time.monotonic()
        wait_s = CATCH_UP_S_MAX if wait_s is None else wait_s
        while self.view.snapshot.log_index < index:
            waited_s = time.monotonic() - began_s
            if waited_s > wait_s:
                raise late
            await asyncio.sleep(LOOK_S_MIN if waited_s < SOON_S else LOOK_S_MAX)
            self.refresh()

    def _take(self) -> bool:
        try:
            snapshot = self._reader.current()
        except NotReady:
            return False
        before, self.newest = self.newest, ClusterView.of(snapshot, self.newest)
        if before is not None:
            moved = _moved(before.sources, self.newest.sources)
            self._moved_s.update(dict.fromkeys(moved, time.monotonic()))
        kept = (*snapshot.sources, *snapshot.successors)
        tables = {(s.table_id or "", s.generation) for s in kept if s.is_materialized}
        self._replicas.keep(tables)
        return True
