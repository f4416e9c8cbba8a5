"""A small file that one process publishes and others poll: one record, msgpack.

As `run/snapshot` (`adapters.files.snapshot_file`): written aside and renamed, so that a reader sees
the old one or the new one; never synced, because it is worth nothing after a power loss.
`run/liveness` and `run/lags` change several times a second, the snapshot does not: hence files of
their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()


def write(path: Path, record: msgspec.Struct) -> None:
    """Publish a record. One writer per path."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(_encoder.encode(record))
    temporary.rename(path)


class RecordReader(Generic[T]):
    """A process's view of the file. `refresh` costs one `stat` while nothing changed."""

    def __init__(self, path: Path, type_: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.msgpack.Decoder(type_)
        #: inode, mtime and size of the file that was read last
        self._seen: tuple[int, int, int] | None = None
        self.record: T | None = None

    def refresh(self) -> bool:
        """Read the file if it is another one than before. True: `record` changed."""
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - 3 times as fast as Path.stat
        except FileNotFoundError:
            return False
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.record = self._decoder.decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return False  # of another version: what was read before grows old
        return True
