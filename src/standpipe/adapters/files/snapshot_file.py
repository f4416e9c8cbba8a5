"""`run/snapshot`: what control tells the workers and the tailer of its node, in one file.

Written to a temporary file and renamed, so that a reader sees the old one or the new one. It is not
synced: after a power loss control writes a new one from the log before anybody needs it, and a
file that cannot be decoded is passed over.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import structlog

from standpipe.errors import NotReady
from standpipe.model import Snapshot

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def write(path: Path, snapshot: Snapshot) -> None:
    """Publish a snapshot. One writer per path."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(_encoder.encode(snapshot))
    temporary.rename(path)


def read(path: Path) -> Snapshot | None:
    """The snapshot on disk; None if there is none that can be read."""
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("snapshot cannot be read", path=str(path), error=str(error))
        return None


class SnapshotWriter:
    """Publishes snapshots at `path` under stamps that only grow, also over restarts.

    `now_ms` (Unix time) is the first stamp where no file says better; a few
    publications a second never run ahead of it.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path = path
        before = read(path)
        self._stamp = max(before.stamp if before else 0, now_ms - 1)

    def publish(self, snapshot: Snapshot) -> None:
        """Write the snapshot under the next stamp; the one that it carries is not looked at."""
        self._stamp += 1
        write(self._path, msgspec.structs.replace(snapshot, stamp=self._stamp))


class SnapshotReader:
    """A process's view of the snapshot. Poll `refresh` every 20 ms: it costs one `stat`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: inode, mtime and size of the file that was read last
        self._seen: tuple[int, int, int] | None = None
        self._snapshot: Snapshot | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Read the file if it is another one than before. True: `current` changed."""
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - 3 times as fast as Path.stat on the hot path
        except FileNotFoundError:
            return False
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        fresh = read(self._path)
        if fresh is None or (self._snapshot is not None and fresh.stamp <= self._snapshot.stamp):
            return False
        self._snapshot = fresh
        return True

    def current(self) -> Snapshot:
        """The newest snapshot that could be read. Raises NotReady before the first one."""
        if self._snapshot is None:
            raise NotReady("this node has no map of the cluster yet")
        return self._snapshot
