"""Removes what transient queries leave behind once they have ended: checkpoints, progress records.

Other queries' checkpoints are kept for a week, since an operator may put an older copy of the
metadata log back (`checkpoint_cleanup.py`), and their progress records say what is committed of a
topic that outlives them. Nobody continues a transient query, so both go at once. Its topic goes
with it (`control.metadata.topic_reconciler`).

This pipeline's catalog may be behind, so a query that it lacks may be new rather than ended. The
lease epoch decides: everything here was written under one, and a catalog that has that epoch has
the query, too, unless it has ended. Not here: stopping its run (`run/scheduler.py`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.transients import is_transient_id
from standpipe.errors import KafkaUnavailable
from standpipe.model import Progress
from standpipe.pipeline.commit.checkpoint import EPOCH, IDENTITY_FILE
from standpipe.pipeline.io.progress_log import ProgressLog

EVERY_S: Final = 3600.0
#: after the end of a query: its last batch may still be in flight
SETTLE_S: Final = 2.0
#: once more, for a run that was still starting as it was stopped
AGAIN_S: Final = 60.0
#: of a directory without a lease epoch or an identity: a start that was killed, or that went on
#: after its checkpoint was removed
STRAY_MS: Final = 3_600_000
_GONE: Final = "transient-removed-"

_logger = structlog.get_logger("transient_cleanup")


@dataclass
class TransientCleanup:
    """Of one pipeline: at its start, hourly, and after a transient query has ended."""

    checkpoints: Path
    log: ProgressLog
    _known: frozenset[str] = frozenset()
    #: on the monotonic clock
    _due_s: list[float] = field(default_factory=lambda: [0.0])
    _thread: threading.Thread | None = None

    def tend(self, catalog: Catalog, running: Collection[str]) -> None:
        """The driver's loop calls this a few times a second; it never waits. `running`: ids of the
        queries that run here."""
        now_s = time.monotonic()
        there = frozenset(catalog.transients)
        if self._known - there:
            self._due_s += [now_s + SETTLE_S, now_s + AGAIN_S]
        self._known = there
        if now_s < min(self._due_s) or (self._thread and self._thread.is_alive()):
            return
        later = [due_s for due_s in self._due_s if due_s > now_s]
        self._due_s = later or [now_s + EVERY_S]
        work = (catalog, frozenset(running))
        self._thread = threading.Thread(target=self._sweep, args=work, name="sweep", daemon=True)
        self._thread.start()

    def _sweep(self, catalog: Catalog, running: Collection[str]) -> None:
        now_ms = time.time_ns() // 10**6
        removed = remove_checkpoints(self.checkpoints, catalog, running, now_ms)
        try:
            gone = ended_records(self.log.records(), catalog, running)
            self.log.tombstone(gone)
        except KafkaUnavailable as error:
            _logger.info("progress of ended push queries stays for now", why=error.message)
            return
        if removed or gone:
            _logger.info("push queries cleaned up", checkpoints=removed, records=len(gone))


def ended_records(
    records: Iterable[Progress], catalog: Catalog, running: Collection[str]
) -> list[Progress]:
    """The progress records of transient queries that have ended, in the order of the topic."""
    return [
        each
        for each in records
        if is_transient_id(each.query_id)
        and each.query_id not in catalog.queries
        and each.query_id not in running
        and each.commit.lease_epoch <= catalog.pipeline_epoch
    ]


def remove_checkpoints(
    checkpoints: Path, catalog: Catalog, running: Collection[str], now_ms: int
) -> list[str]:
    """Remove the checkpoints of transient queries that have ended; returns their names. What cannot
    be removed is left for the next time. Several pipelines may share the directory."""
    removed: list[str] = []
    for root, query_id in _transient(checkpoints):
        with suppress(OSError):
            is_over = query_id not in catalog.queries and query_id not in running
            if is_over and _has_ended(root, catalog, now_ms):
                root.rename(checkpoints / f"{_GONE}{root.name}")
                removed.append(root.name)
    for gone in checkpoints.glob(f"{_GONE}*"):  # including those of a pipeline that has died
        shutil.rmtree(gone, ignore_errors=True)
    return removed


def _transient(checkpoints: Path) -> Iterator[tuple[Path, str]]:
    """Directories of transient queries. Their ids are random: no other service has the same."""
    for path in sorted(checkpoints.glob("transient_*-*")):
        query_id = path.name.rpartition("-")[0]
        if is_transient_id(query_id) and path.is_dir():
            yield path, query_id


def _has_ended(root: Path, catalog: Catalog, now_ms: int) -> bool:
    """Whether the catalog is new enough to know that the query has ended."""
    epochs = [path.name.removeprefix(EPOCH) for path in root.glob(f"{EPOCH}*")]
    known = [int(each) for each in epochs if each.isdecimal()]
    if known and (root / IDENTITY_FILE).exists():
        return max(known) <= catalog.pipeline_epoch
    return now_ms - root.stat().st_ctime_ns // 10**6 >= STRAY_MS
