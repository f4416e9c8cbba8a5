"""Removes checkpoints that no pipeline will read again: of dropped queries and of old leases.

A query id and a generation are never reused, so the checkpoint of a query that the catalog does not
have is useless, and with a window's state it may be gigabytes. It is kept for a week after a
pipeline first missed the query: an operator may have installed an older copy of the metadata log,
and may still put the right one back. Only directories with our service's `standpipe.json` are
considered.

Several pipelines share the directories, so two may clean up at once: a rename decides which one
removes. Not here: who owns a checkpoint, and which of its epochs continues (`checkpoint.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
import structlog

from standpipe.pipeline.commit.checkpoint import DRAFT, EPOCH, IDENTITY_FILE, UNFIT, Identity
from standpipe.pipeline.io.checkpoint_path import (
    CheckpointPath,
    changed_ms,
    remove_tree,
    rename,
    write_whole,
)

KEPT_MS: Final = 7 * 24 * 3_600_000
EVERY_S: Final = 3600.0
#: Unix ms at which a pipeline first missed the query
UNWANTED_FILE: Final = "unwanted-since"
_GONE: Final = "standpipe-removed-"

_logger = structlog.get_logger("checkpoint_cleanup")


class CheckpointCleanup:
    """Runs at the first call and then hourly, in a thread, because shared storage may be slow."""

    def __init__(self, checkpoints: CheckpointPath, service_id: str) -> None:
        self._checkpoints, self._service_id = checkpoints, service_id
        self._thread: threading.Thread | None = None
        self._due_s = 0.0

    def tend(self, query_ids: Collection[str]) -> None:
        """`query_ids`: all of the catalog's queries, in any state. The driver's loop calls this a
        few times a second; it never waits."""
        if time.monotonic() < self._due_s or (self._thread and self._thread.is_alive()):
            return
        self._due_s = time.monotonic() + EVERY_S
        work = (self._checkpoints, self._service_id, frozenset(query_ids), time.time_ns() // 10**6)
        self._thread = threading.Thread(target=_try, args=work, name="cleanup", daemon=True)
        self._thread.start()


def _try(
    checkpoints: CheckpointPath, service_id: str, query_ids: Collection[str], now_ms: int
) -> None:
    """An exception that ends a thread ends the pipeline, and a share may be stale."""
    try:
        clean_up(checkpoints, service_id, query_ids, now_ms)
    except OSError as error:
        _logger.warning("checkpoints of dropped queries stay for now", why=str(error))


def clean_up(
    checkpoints: CheckpointPath, service_id: str, query_ids: Collection[str], now_ms: int
) -> list[str]:
    """Returns the names of the removed checkpoints. What cannot be removed is left for the next
    time: no query fails because of it. Raises OSError if the directory cannot be listed."""
    removed: list[str] = []
    for root, query_id in _ours(checkpoints, service_id):
        with contextlib.suppress(OSError):
            if query_id in query_ids:
                (root / UNWANTED_FILE).unlink(missing_ok=True)
                _remove_left_by_takeovers(root, now_ms)
            elif now_ms - _unwanted_since_ms(root, now_ms) >= KEPT_MS:
                rename(root, checkpoints / f"{_GONE}{root.name}")
                removed.append(root.name)
                _logger.info("removed the checkpoint of a dropped query", name=root.name)
    for gone in checkpoints.glob(f"{_GONE}*"):  # including those of a pipeline that has died
        remove_tree(gone)
    return removed


def _ours(checkpoints: CheckpointPath, service_id: str) -> Iterator[tuple[CheckpointPath, str]]:
    """Directories and the queries that they belong to."""
    for path in sorted(checkpoints.glob(f"*/{IDENTITY_FILE}")):
        try:
            identity = msgspec.json.decode(path.read_bytes(), type=Identity)
        except (OSError, msgspec.MsgspecError):
            continue
        if identity.service_id == service_id and not path.parent.name.startswith(_GONE):
            yield path.parent, identity.query_id


def _unwanted_since_ms(root: CheckpointPath, now_ms: int) -> int:
    """The instant that the first pipeline to notice has noted; an unreadable note is rewritten."""
    note = root / UNWANTED_FILE
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(note.read_text())
    # not in place: a crash would leave part of the number, a much earlier instant
    write_whole(note, str(now_ms).encode())
    return now_ms


def _remove_left_by_takeovers(root: CheckpointPath, now_ms: int) -> None:
    """Directories that were set aside, and copies that a crash left unfinished."""
    for path in (*root.glob(f"{UNFIT}{EPOCH}*"), *root.glob(f"{DRAFT}{EPOCH}*")):
        if now_ms - changed_ms(path) >= KEPT_MS:
            remove_tree(path)
