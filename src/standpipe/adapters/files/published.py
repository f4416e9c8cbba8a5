"""Files that one process replaces as a whole and the other processes of its node read.

A new version is written beside the file and renamed over it, so that a reader sees the old one or
the new one, never a part. None of them is synced: after a power loss each process writes a new one
before another needs it. Files that must survive one: `adapters.files.fsync.replace_durably`.

Most hold one msgpack record: `run/snapshot` (what control knows of the cluster), `run/liveness`
and `run/lags`. The last two are separate files because they change several times a second, and the
snapshot does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from standpipe.errors import NotReady
from standpipe.model import Snapshot

T = TypeVar("T", bound=msgspec.Struct)

#: how often the log says that a file cannot be written
SAID_S: Final = 30.0

_encoder = msgspec.msgpack.Encoder()
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, without a sync. One writer per path. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(data)
    draft.rename(path)


def write(path: Path, record: msgspec.Struct) -> None:
    """Publish a record. One writer per path. Raises OSError."""
    replace(path, _encoder.encode(record))


class RecordWriter:
    """Publishes one record again and again, also while the disk refuses it.

    A full disk must not end a process that others need: what it cannot publish grows old, readers
    see how old it is, and its writer comes again. One writer per path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said_s = -SAID_S

    def write(self, record: msgspec.Struct) -> bool:
        """Publish it. False: the disk refused, and the older one stays; the log says so."""
        try:
            write(self._path, record)
        except OSError as error:
            now_s = time.monotonic()
            if now_s - self._said_s >= SAID_S:
                self._said_s = now_s
                _log.error("file cannot be written", path=str(self._path), error=str(error))
            return False
        self._said_s = -SAID_S
        return True


class RecordReader(Generic[T]):
    """One process's view of a record's file. `refresh` costs one `stat` while nothing changed."""

    def __init__(self, path: Path, type_: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.msgpack.Decoder(type_)
        #: inode, mtime and size of the file that was read last
        self._seen: tuple[int, int, int] | None = None
        self._is_readable = True
        #: the newest record that could be read; None before the first one
        self.record: T | None = None

    def refresh(self) -> bool:
        """Read the file if it has changed. True: `record` was replaced.

        A file that cannot be read, because a process of another version wrote it, is ignored.
        """
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - 3 times as fast as Path.stat on the hot path
        except FileNotFoundError:
            return False
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.record = self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, msgspec.MsgspecError) as error:
            if self._is_readable:  # once, not for each version of the file
                _log.warning("file cannot be read", path=str(self._path), error=str(error))
            self._is_readable = False
            return False
        self._is_readable = True
        return True


def read_snapshot(path: Path) -> Snapshot | None:
    """The snapshot on disk; None if there is no readable one."""
    file = RecordReader(path, Snapshot)
    file.refresh()
    return file.record


class SnapshotWriter:
    """Publishes snapshots at `path` under stamps that only grow, even across restarts.

    `now_ms` (Unix time) is the first stamp unless the file has a larger one; at a few publications
    a second, the stamps never overtake the clock.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        self._file = RecordWriter(path)
        before = read_snapshot(path)
        self._stamp = max(before.stamp if before else 0, now_ms - 1)

    def publish(self, snapshot: Snapshot) -> None:
        """Write the snapshot under the next stamp; the stamp that it carries is ignored. On a full
        disk the older one stays."""
        self._stamp += 1
        self._file.write(msgspec.structs.replace(snapshot, stamp=self._stamp))


class SnapshotReader:
    """One process's view of the snapshot. Poll `refresh` every 20 ms: it costs one `stat`."""

    def __init__(self, path: Path) -> None:
        self._file = RecordReader(path, Snapshot)
        self._snapshot: Snapshot | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Read the file if it has changed. True: `current` changed."""
        if not self._file.refresh():
            return False
        fresh, known = self._file.record, self._snapshot
        if fresh is None or (known is not None and fresh.stamp <= known.stamp):
            return False
        self._snapshot = fresh
        return True

    def current(self) -> Snapshot:
        """The newest snapshot that could be read. Raises NotReady before the first one."""
        if self._snapshot is None:
            raise NotReady("this node has no map of the cluster yet")
        return self._snapshot
