"""What a node reports about itself: how far its replicas are, and whether its processes live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from standpipe.adapters.process import Life, life_of, read_pid
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.size import disk_bytes
from standpipe.adapters.store.status_page import StatusReader, page_path
from standpipe.control.metadata.catalog import Catalog
from standpipe.model import NodeId, ReplicaId
from standpipe.model_liveness import ReplicaLag
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.wire import lag_of
from standpipe.node.worker_report import WorkersReportReader

#: How often the size of a store is read: it only shows what a move would cost.
SIZES_MS: Final = 10_000


@dataclass
class LocalReplicas:
    """What this node reports about itself: its replicas and its other processes."""

    node_id: NodeId
    paths: NodePaths
    #: whether workers have served (`first_answer.py`)
    serves: Callable[[], bool] = lambda: True
    _pages: dict[ReplicaId, StatusReader] = field(default_factory=dict[ReplicaId, StatusReader])
    _seen: Catalog | None = None
    _sizes: dict[ReplicaId, tuple[int, int]] = field(
        default_factory=dict[ReplicaId, tuple[int, int]]
    )

    def __post_init__(self) -> None:
        self._reports = WorkersReportReader(self.paths.workers)

    def lags(self, catalog: Catalog, now_boot_ms: int) -> list[ReplicaLag]:
        """Lags of every replica that is assigned here and has a status from the tailer; none
        before workers serve, since nobody could read them."""
        if not self.serves():
            return []
        if catalog is not self._seen:
            self._seen = catalog
            self._follow(catalog)
        read = ((replica, page.read()) for replica, page in self._pages.items())
        return [
            lag_of(replica, status, now_boot_ms, self._size(replica, now_boot_ms))
            for replica, status in read
            if status
        ]

    def _follow(self, catalog: Catalog) -> None:
        mine = {
            placement.replica_id
            for placement in catalog.assignment.placements
            if self.node_id in placement.holders
        }
        for gone in self._pages.keys() - mine:
            self._pages.pop(gone).close()
            self._sizes.pop(gone, None)
        for new in mine - self._pages.keys():
            self._pages[new] = StatusReader(page_path(self.paths.run, new))

    def _size(self, replica: ReplicaId, now_boot_ms: int) -> int:
        """Bytes of a store on disk, at most SIZES_MS old."""
        at_ms, size = self._sizes.get(replica, (-SIZES_MS, 0))
        if now_boot_ms - at_ms >= SIZES_MS:
            size = disk_bytes(store_path(self.paths.state, replica))
            self._sizes[replica] = (now_boot_ms, size)
        return size

    @property
    def workers_ok(self) -> bool:
        """One runs, none is stopped and none makes no turns. A dead worker does no harm: the others
        share its port. Heavy ones do not count: lookups do not wait for them."""
        self._reports.refresh()
        lives = {life_of(read_pid(file)) for file in self.paths.run.glob("worker-*.pid")}
        is_held_up = self._reports.report.are_lookups_held_up()
        return Life.RUNS in lives and Life.STOPPED not in lives and not is_held_up

    @property
    def tailer_ok(self) -> bool:
        """Whether the tailer runs and is not stopped."""
        return life_of(read_pid(self.paths.run / "tailer.pid")) is Life.RUNS
