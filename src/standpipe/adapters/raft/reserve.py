"""Disk space reserved for the quorum, so that a node with a full disk can still vote.

    reserve-0, reserve-1, …    files whose blocks are allocated; they hold nothing

If the write of a vote, an entry or a snapshot finds no space, the node removes one of these files,
which frees blocks and an inode, and repeats the write. It removes one file at a time, only when it
is needed, because other programs could fill all that is freed. It allocates the files again once
the disk has space for twice as much.

So a node whose disk is full still votes and follows. Its other processes can use up the freed
space: the reserve gives time, and /healthcheck reports earlier that the disk is nearly full
(`node.room`).

Not here: which writes may be tried again (`disk`, `log_file`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

COUNT: Final = 8
FILE_BYTES: Final = 1 << 20
#: a refill needs so many times its bytes to be free
REFILL_FREE_TIMES: Final = 2
#: what the kernel says where blocks, inodes or a quota are used up
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """The reserve in one directory. One process at a time."""

    def __init__(self, directory: Path, count: int = COUNT) -> None:
        self._paths = [directory / f"reserve-{number}" for number in range(count)]
        self._kept = [path for path in self._paths if _is_whole(path)]
        self.refill()

    def with_room(self, write: Callable[[], None]) -> None:
        """Call `write`, and again after each file that was removed because it found no room.

        `write` leaves things as they were when it raises. Raises what the last call raised.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in NO_ROOM or not self._give():
                    raise

    def refill(self) -> None:
        """Make the missing files, if the disk has room for them twice; else later. Cheap if none
        is missing."""
        missing = [path for path in self._paths if path not in self._kept]
        if not missing:
            return
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._paths[0].parent)
            if disk.f_bavail * disk.f_frsize < REFILL_FREE_TIMES * len(missing) * FILE_BYTES:
                return
            for path in missing:
                _allocate(path)
                self._kept.append(path)

    def _give(self) -> bool:
        """False: there is nothing left to give."""
        while self._kept:
            with contextlib.suppress(OSError):
                self._kept.pop().unlink()
                return True
        return False


def _is_whole(path: Path) -> bool:
    try:
        return path.stat().st_size == FILE_BYTES
    except OSError:
        return False


def _allocate(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)
