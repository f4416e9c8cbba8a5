"""Free resources of a node: bytes and inodes of its disk, file descriptors of its processes.

    room.disk().complaint     "the disk of … is nearly full: 52 of 768 MiB are free."; None: enough
    room.descriptors()        of each process of the node

Each call reads the current values. A node whose disk is full continues to serve its rows, but its
replicas fall behind, so an operator needs an early warning.

Not here: what is kept free for the quorum (`adapters.raft.reserve`); memory
(`node.supervisor.worker_watch`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standpipe.adapters.process import descriptors_max_of, open_descriptors_of, read_pid
from standpipe.node.configuration import NodePaths

#: less than both is too little: of a large disk, a tenth would be a lot
FREE_PART_MIN: Final = 0.1
FREE_BYTES_MIN: Final = 1 << 30
FREE_INODES_MIN: Final = 10_000
DESCRIPTORS_PART_MAX: Final = 0.9


@dataclass(frozen=True)
class DiskRoom:
    """A disk as a process without privileges sees it. `inodes` 0: as many as there is room for."""

    folder: Path
    size_bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int

    @property
    def complaint(self) -> str | None:
        """What is nearly used up; None: nothing."""
        if self.free_bytes < min(FREE_PART_MIN * self.size_bytes, FREE_BYTES_MIN):
            free, size = self.free_bytes >> 20, self.size_bytes >> 20
            return self._nearly_full(f"{free} of {size} MiB are free")
        if self.free_inodes < min(FREE_PART_MIN * self.inodes, FREE_INODES_MIN):
            left = f"{self.free_inodes} of {self.inodes} inodes are free"
            return self._nearly_full(left)
        return None

    def _nearly_full(self, left: str) -> str:
        return (
            f"the disk of {self.folder} is nearly full: {left}. Remove files there, or enlarge it:"
            " what could not be written is then written by itself"
        )


@dataclass(frozen=True)
class DescriptorRoom:
    """The file descriptors of one process. `name`: parent, control, tailer, worker-0, …"""

    name: str
    open: int
    max: int

    @property
    def complaint(self) -> str | None:
        """None: there are enough."""
        if self.open < DESCRIPTORS_PART_MAX * self.max:
            return None
        return f"{self.name} has {self.open} of {self.max} file descriptors open"


@dataclass(frozen=True)
class NodeRoom:
    """Of one node. `parent_pid`: of its parent process, which has no pid file."""

    paths: NodePaths
    parent_pid: int

    def disk(self) -> DiskRoom:
        """The disk that the data directory is on. Raises OSError."""
        found = os.statvfs(self.paths.data)
        return DiskRoom(
            folder=self.paths.data,
            size_bytes=found.f_blocks * found.f_frsize,
            free_bytes=found.f_bavail * found.f_frsize,
            inodes=found.f_files,
            free_inodes=found.f_favail,
        )

    def descriptors(self) -> Iterator[DescriptorRoom]:
        """Of each process that runs. Linux; elsewhere none.

        Raises OSError where this process has none left to look with.
        """
        files = sorted(self.paths.run.glob("*.pid"))
        pids = {"parent": self.parent_pid, **{path.stem: read_pid(path) for path in files}}
        for name, pid in pids.items():
            found = None if pid is None else (open_descriptors_of(pid), descriptors_max_of(pid))
            match found:
                case (int(is_open), int(most)):
                    yield DescriptorRoom(name=name, open=is_open, max=most)
                case _:
                    pass  # it has just ended
