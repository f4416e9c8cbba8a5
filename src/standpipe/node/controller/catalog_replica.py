"""The node's replica of the catalog, and what other processes see of it.

    raft_driver ─ apply, load ─► Catalog ─┬─► run/snapshot ─► workers, tailer
                                          └─► GET /log ─► pipelines

It only ever holds what is committed. No method blocks, because the event loop that answers the
node's peers calls them. Not here: writes (`node.controller.leader`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.published import SnapshotWriter
from standpipe.control.metadata import feature_levels, isolation
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog, from_bytes, to_bytes, to_snapshot
from standpipe.control.metadata.commands import LogEntry, LogPage, decode
from standpipe.control.metadata.query_status import QueryReports
from standpipe.control.raft.log import Entry
from standpipe.control.raft.majority import LogOffset
from standpipe.model import LogIndex, NodeId, QueryStatus
from standpipe.node import configuration
from standpipe.node.configuration import DataIdentity, NodeConfig
from standpipe.node.controller.fsync_watch import SyncWatch

PAGE_ENTRIES_MAX: Final = 500
PAGE_BYTES_MAX: Final = 1024 * 1024
ENTRIES_KEPT: Final = 10_000  # for GET /log; a request for older ones gets the catalog
ENTRY_BYTES_KEPT: Final = 16 << 20
PUBLISH_S: Final = 1.0  # run/snapshot is never older while the controller runs


class CatalogReplica:
    """The state machine of the quorum on one node (`raft_driver.Machine`)."""

    def __init__(self, config: NodeConfig, identity: DataIdentity, syncs: SyncWatch) -> None:
        """`syncs`: watches the disk that the log is on."""
        self.config = config
        self.identity = identity
        self._syncs = syncs
        #: feature levels that this program takes part in
        self.feature_levels = configuration.feature_levels(config)
        self.catalog: Catalog = EMPTY
        self._encoded = self.catalog, to_bytes(self.catalog)
        self.leader = NodeId("")  # empty: no leader is known
        #: newest commands, ascending; all from `_kept_from` on
        self._entries: list[LogEntry] = []
        self._kept_from = LogIndex(1)
        self._entry_bytes = 0
        self._grown = asyncio.Event()
        self._reports = QueryReports()
        self._snapshots = SnapshotWriter(config.paths.snapshot, time.time_ns() // 1_000_000)
        before = published.read_snapshot(config.paths.snapshot)
        #: a catalog older than the one published before the restart is not shown
        self._shown_index = before.log_index if before else 0
        self._is_shown = False
        #: why topics are not as the catalog wants them; only the leader knows
        self._topic_faults: tuple[str, ...] = ()

    # -- the state machine ------------------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply committed entries to the catalog and publish it.

        Raises UnknownCommand, FeatureLevelRefused, DataDirectoryRefused.
        """
        for entry in entries:
            if not isinstance(entry.payload, bytes):
                continue  # a record of Raft itself
            index = LogIndex(entry.offset)
            command = decode(entry.payload)
            self.catalog = apply(self.catalog, index, command)
            feature_levels.check(self.catalog.feature_level, self.feature_levels)
            self._entries.append(LogEntry(index=index, command=msgspec.Raw(entry.payload)))
            self._entry_bytes += len(entry.payload)
        if len(self._entries) > 2 * ENTRIES_KEPT or self._entry_bytes > 2 * ENTRY_BYTES_KEPT:
            self._trim()
        self._moved()

    def _trim(self) -> None:
        """Keep the newest entries, ENTRIES_KEPT of them and ENTRY_BYTES_KEPT at most."""
        kept, size = 0, 0
        for entry in reversed(self._entries[-ENTRIES_KEPT:]):
            size += len(bytes(entry.command))
            if size > ENTRY_BYTES_KEPT:
                break
            kept += 1
        del self._entries[: len(self._entries) - kept]
        self._entry_bytes = sum(len(bytes(entry.command)) for entry in self._entries)
        self._kept_from = (
            self._entries[0].index if self._entries else LogIndex(self.catalog.index + 1)
        )

    def load(self, state: bytes, end_offset: LogOffset) -> None:
        """Replace the catalog by that of a Raft snapshot. Raises as `apply` does."""
        self.catalog = from_bytes(state) if state else EMPTY
        feature_levels.check(self.catalog.feature_level, self.feature_levels)
        self._entries.clear()
        self._entry_bytes = 0
        self._kept_from = LogIndex(self.catalog.index + 1)
        self._moved()

    @property
    def cluster(self) -> str:
        """Id of the cluster; empty until the log names it."""
        return self.catalog.cluster_id

    def state(self) -> bytes:
        """The catalog's bytes, encoded once per version, for snapshots and GET /catalog."""
        if self._encoded[0] is not self.catalog:
            self._encoded = self.catalog, to_bytes(self.catalog)
        return self._encoded[1]

    def announce(self, leader: NodeId | None) -> None:
        """Another node leads; None: no leader is known."""
        self.leader = leader or NodeId("")
        self.publish()

    def _moved(self) -> None:
        if cluster_id := self.catalog.cluster_id:
            self.identity = configuration.join(self.config, self.identity, cluster_id)
        self.publish()
        self._grown.set()
        self._grown = asyncio.Event()

    # -- for the processes of the node ------------------------------------------------------------

    def show(self, *, is_whole: bool) -> None:
        """Publish from now on: at once if the replica has every acknowledged command (`is_whole`),
        else only a catalog that is not older than the last published one. A partial catalog would
        deny tables that exist."""
        if is_whole:
            self._shown_index = 0
        self._is_shown = self._is_shown or is_whole or bool(self.catalog.cluster_id)
        self.publish()

    def publish(self) -> None:
        """Write `run/snapshot`, unless it would show an older catalog than before."""
        if not self._is_shown or self.catalog.index < self._shown_index:
            return
        self._snapshots.publish(
            to_snapshot(
                self.catalog,
                node_id=self.config.node_id,
                leader=self.leader,
                service_id=self.config.service_id,
                query_statuses=self._reports.shown(
                    self.catalog.queries, _now_ms(), isolation.without_driver(self.catalog)
                ),
                published_boot_ms=Clock().boot_ms(),
                quorum_sync_ms=self._syncs.slowest_ms(),
                topic_faults=self._topic_faults,
            )
        )

    async def keep_published(self) -> NoReturn:
        """Publish each second, so that readers can tell a dead controller from a quiet cluster."""
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    @property
    def statuses(self) -> Mapping[str, QueryStatus]:
        """The newest reports of pipelines, by query id."""
        return self._reports.newest

    def take_statuses(self, statuses: Sequence[QueryStatus]) -> None:
        """Record a pipeline's reports and publish them."""
        self._reports.take(statuses, _now_ms())
        self.publish()

    def note_topics(self, faults: tuple[str, ...]) -> None:
        """Publish why topics are not as the catalog wants them; empty: they are, or another node
        leads and knows."""
        if faults != self._topic_faults:
            self._topic_faults = faults
            self.publish()

    # -- for pipelines, and for waiting -----------------------------------------------------------

    async def wait_for(self, index: int, timeout_s: float) -> bool:
        """Wait until the catalog has `index`, at most `timeout_s`. Returns whether it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.catalog.index < index:
                    await self._grown.wait()
        return self.catalog.index >= index

    def page(self, start: int) -> LogPage:
        """Entries from `start` on, as many as fit; the whole catalog if some were trimmed."""
        is_gone = start < self._kept_from and self._kept_from > 1
        return LogPage(
            entries=() if is_gone else self._page_entries(start),
            last_index=self.catalog.index,
            leader=self.leader,
            cluster_id=self.catalog.cluster_id,
            catalog=self.state() if is_gone else b"",
        )

    def _page_entries(self, start: int) -> tuple[LogEntry, ...]:
        found: list[LogEntry] = []
        size = 0
        first = bisect_left(self._entries, start, key=lambda entry: entry.index)
        for entry in self._entries[first : first + PAGE_ENTRIES_MAX]:
            size += len(bytes(entry.command))
            if found and size > PAGE_BYTES_MAX:
                break
            found.append(entry)
        return tuple(found)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
