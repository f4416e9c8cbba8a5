"""Removes what transient queries leave behind once they have ended: checkpoints, progress records.

Other queries' checkpoints are kept for a week, since an operator may put an older copy of the
metadata log back (`checkpoint_cleanup.py`), and their progress records say what is committed of a
topic that outlives them. Nobody continues a transient query, so both go at once. Its topic goes
with it (`control.metadata.topic_reconciler`).

This pipeline's catalog may be behind, so a query that it lacks may be new rather than ended. The
lease epoch decides: everything here was written under one, and a catalog that has that epoch has
the query, too, unless it has ended.

Other services may keep their checkpoints in the same directory, and number their lease epochs from
1 as well. So a checkpoint goes only if its identity names this service and the query, or if this
pipeline itself has seen the query in its catalog and then its end. What says neither is kept.
Not here: stopping its run (`run/scheduler.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.transients import is_transient_id
from standpipe.errors import KafkaUnavailable
from standpipe.model import Progress
from standpipe.pipeline.commit.checkpoint import IDENTITY_FILE, Identity, epochs_below
from standpipe.pipeline.io.checkpoint_path import (
    CheckpointPath,
    changed_ms,
    remove_tree,
    rename,
)
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.sql.context import sanitised

EVERY_S: Final = 3600.0
#: after the end of a query: its last batch may still be in flight
SETTLE_S: Final = 2.0
#: once more, for a run that was still starting as it was stopped
AGAIN_S: Final = 60.0
#: age of a checkpoint without a lease epoch: a start that was killed
STRAY_MS: Final = 3_600_000
#: how long this pipeline remembers which ends it has seen
SEEN_S: Final = 2 * EVERY_S
_GONE: Final = "transient-removed-"

_logger = structlog.get_logger("transient_cleanup")


@dataclass
class TransientCleanup:
    """Of one pipeline: at its start, hourly, and after a transient query has ended."""

    checkpoints: CheckpointPath
    service_id: str
    log: ProgressLog
    _known: frozenset[str] = frozenset()
    #: id of a query -> when this pipeline saw that it has ended, on the monotonic clock
    _seen_s: dict[str, float] = field(default_factory=dict[str, float])
    #: on the monotonic clock
    _due_s: list[float] = field(default_factory=lambda: [0.0])
    _thread: threading.Thread | None = None

    def tend(self, catalog: Catalog, running: Collection[str]) -> None:
        """The driver's loop calls this a few times a second; it never waits. `running`: ids of the
        queries that run here."""
        now_s = time.monotonic()
        there = frozenset(catalog.transients)
        if ended := self._known - there:
            self._due_s += [now_s + SETTLE_S, now_s + AGAIN_S]
            self._seen_s.update(dict.fromkeys(ended, now_s))
        self._known = there
        if now_s < min(self._due_s) or (self._thread and self._thread.is_alive()):
            return
        later = [due_s for due_s in self._due_s if due_s > now_s]
        self._due_s = later or [now_s + EVERY_S]
        self._seen_s = {each: at for each, at in self._seen_s.items() if now_s - at < SEEN_S}
        work = (catalog, frozenset(running), frozenset(self._seen_s))
        self._thread = threading.Thread(target=self._sweep, args=work, name="sweep", daemon=True)
        self._thread.start()

    def _sweep(
        self, catalog: Catalog, running: Collection[str], seen_ended: Collection[str]
    ) -> None:
        try:
            self._clean_up(catalog, running, seen_ended)
        except KafkaUnavailable as error:
            _logger.info("progress of ended push queries stays for now", why=error.message)
        except Exception:
            # such as a share that is stale: an exception that ends a thread ends the pipeline
            _logger.exception("what ended push queries left stays for now")

    def _clean_up(
        self, catalog: Catalog, running: Collection[str], seen_ended: Collection[str]
    ) -> None:
        removed = remove_checkpoints(
            self.checkpoints,
            self.service_id,
            catalog,
            running,
            seen_ended=seen_ended,
            now_ms=time.time_ns() // 10**6,
        )
        gone = ended_records(self.log.records(), catalog, running)
        self.log.tombstone(gone)
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
    checkpoints: CheckpointPath,
    service_id: str,
    catalog: Catalog,
    running: Collection[str],
    *,
    seen_ended: Collection[str],
    now_ms: int,
) -> list[str]:
    """Remove the checkpoints of transient queries that have ended; returns their names. What cannot
    be removed is left for the next time. Several pipelines may share the directory, also those of
    other services. `seen_ended`: ids of this service's queries whose end this pipeline has seen."""
    removed: list[str] = []
    for root, query_id in _transient(checkpoints.glob("transient_*-*")):
        if query_id in catalog.queries or query_id in running:
            continue
        is_seen = query_id in seen_ended
        with suppress(OSError, msgspec.MsgspecError):
            owner = _owner(root)
            is_ours = _is_transient_of(owner, service_id, query_id) if owner else is_seen
            if is_ours and (is_seen or _is_known_over(root, catalog, now_ms)):
                rename(root, checkpoints / f"{_GONE}{root.name}")
                removed.append(root.name)
    # including those of a pipeline that has died
    for gone, _ in _transient(checkpoints.glob(f"{_GONE}transient_*-*")):
        remove_tree(gone)
    return removed


def _transient(paths: Iterable[CheckpointPath]) -> Iterator[tuple[CheckpointPath, str]]:
    """The directories that are named like a transient query's checkpoint, and that query's id."""
    for path in sorted(paths):
        query_id, _, generation = path.name.removeprefix(_GONE).rpartition("-")
        if is_transient_id(query_id) and generation.isdecimal() and path.is_dir():
            yield path, query_id


def _owner(root: CheckpointPath) -> Identity | None:
    """Whose checkpoint it is; None: it does not say. Spark may have written there after it was
    removed. Raises OSError."""
    try:
        return msgspec.json.decode((root / IDENTITY_FILE).read_bytes(), type=Identity)
    except FileNotFoundError:
        return None


def _is_transient_of(owner: Identity, service_id: str, query_id: str) -> bool:
    """Whether it is that transient query of the service. Older releases accepted such an id as the
    QUERY_ID of an INSERT INTO; what that writes has an id of its own."""
    is_named = (owner.service_id, owner.query_id) == (service_id, query_id)
    return is_named and owner.table_id.startswith(f"{sanitised(query_id)}_")


def _is_known_over(root: CheckpointPath, catalog: Catalog, now_ms: int) -> bool:
    """Whether a catalog that lacks the query is new enough to know that it has ended."""
    if epochs := epochs_below(root):
        return max(epochs) <= catalog.pipeline_epoch
    return now_ms - changed_ms(root) >= STRAY_MS
