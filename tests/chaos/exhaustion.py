"""What a node can run out of, one process or disk after another, at one node and at two of three.

    make exhaustion      the table: resource x process x nodes -> reads failed, wrong, time to heal

Each node's data directory is a small ext4 disk of its own, on a loop device. Nobody is an outcast:
reads go on entering through the nodes that it happens to, as nothing tells a client to leave them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import ClassVar, Final, cast

from tests.chaos.faults import Fault, fill
from tests.chaos.judge import KNOWN_S
from tests.hosts.cluster import HostCluster, HostNode, runs, until

from standpipe.adapters.process import Life, life_of, open_descriptors_of
from standpipe.adapters.raft.reserve import FILE_BYTES
from standpipe.node.worker.pull.route_cache import TAILER_SILENT_MS_MAX

#: of each node's disk: a node takes some 30 MB of it here
DISK_BYTES: Final = 256 << 20
DISK_INODES: Final = 2000
#: what the quorum may have given of its reserve by the time that somebody looks
GIVEN_BYTES_MAX: Final = 2 * FILE_BYTES
#: what a process may still take before its memory ends
LEFT_BYTES: Final = 1 << 20
PROCESSES: Final = ("parent", "control", "tailer", "worker", "heavy")


class Exhaustion(Fault):
    """Base of all. It happens to `count` nodes at once."""

    quick = False
    hold_s = (12.0, 6.0)
    count: ClassVar[int] = 1

    def __init__(self, cluster: HostCluster, victim: HostNode) -> None:
        super().__init__(cluster, victim)
        self.victims = [victim, *self.others][: self.count]

    def outcasts(self) -> Sequence[HostNode]:
        return []


# ------------------------------------------------------------------------------------- disks


def ext4_disks(folders: Sequence[Path]) -> None:
    """A disk of its own for each, in an image beside it; they go with this process's namespace."""
    for folder in folders:
        folder.mkdir(parents=True)
        image = folder.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        make = ["mkfs.ext4", "-q", "-m", "0", "-N", str(DISK_INODES), str(image)]
        subprocess.run(make, check=True)
        _mount(folder)


def _mount(folder: Path) -> None:
    image = folder.with_suffix(".img")
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)


class _Disks(Exhaustion):
    @property
    def folders(self) -> list[Path]:
        return [node.config.paths.data for node in self.victims]


class BlocksUsedUp(_Disks):
    def inject(self) -> None:
        for folder in self.folders:
            fill(folder / "filler")

    def is_there(self) -> bool:
        return all(shutil.disk_usage(folder).free < GIVEN_BYTES_MAX for folder in self.folders)

    def heal(self) -> None:
        for folder in self.folders:
            (folder / "filler").unlink()


class InodesUsedUp(_Disks):
    def inject(self) -> None:
        for folder in self.folders:
            fillers = folder / "fillers"
            fillers.mkdir()
            with contextlib.suppress(OSError):
                for number in range(DISK_INODES):
                    (fillers / str(number)).touch()

    def is_there(self) -> bool:
        return all(os.statvfs(folder).f_favail == 0 for folder in self.folders)

    def heal(self) -> None:
        for folder in self.folders:
            for path in (folder / "fillers").iterdir():
                path.unlink()
            (folder / "fillers").rmdir()


class ReadOnly(_Disks):
    """As after an error of the disk: ext4 takes no more writes. An operator repairs it: one node
    after the other is stopped, its disk checked and mounted again.

    The tailer cannot write its pages. So a node does not know how far behind its rows are, and
    refuses reads with a bound once it has heard nothing of the tailer for TAILER_SILENT_MS_MAX.
    Other replicas answer them, if there are any at nodes that can write.
    """

    known_s = KNOWN_S + TAILER_SILENT_MS_MAX / 1000

    def silent(self) -> Sequence[HostNode]:
        return self.victims

    def inject(self) -> None:
        for folder in self.folders:
            subprocess.run(["mount", "-o", "remount,abort", str(folder)], check=True)

    def is_there(self) -> bool:
        return not any(_takes_files(folder) for folder in self.folders)

    def heal(self) -> None:
        for node, folder in zip(self.victims, self.folders, strict=True):
            node.kill()
            until(f"{folder} is free", lambda folder=folder: _unmounted(folder))
            image = str(folder.with_suffix(".img"))
            subprocess.run(["e2fsck", "-p", image], check=False, stdout=subprocess.DEVNULL)
            _mount(folder)
            node.start()
            until(f"{node.node_id} runs again", lambda node=node: runs(node))


def _takes_files(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True


def _unmounted(folder: Path) -> bool:
    """False: somebody still has a file open there."""
    ran = subprocess.run(["umount", str(folder)], check=False, capture_output=True)
    return ran.returncode == 0


# --------------------------------------------------------------------------------- processes


class _OfProcess(Exhaustion):
    """Of one kind of process of a node, by a limit that the kernel keeps."""

    process: ClassVar[str]
    limit: ClassVar[int]

    def __init__(self, cluster: HostCluster, victim: HostNode) -> None:
        super().__init__(cluster, victim)
        #: process id -> its limits before, and during the fault
        self.before: dict[int, tuple[int, int]] = {}
        self.during: dict[int, tuple[int, int]] = {}

    def inject(self) -> None:
        for node in self.victims:
            # one that has just ended, of the fault before or of itself, is started again
            for pid in until(f"{self.process} runs", lambda node=node: self._alive(node)):
                used = self.used(pid)
                _, hard = self.before[pid] = resource.prlimit(pid, self.limit)
                self.during[pid] = (used, hard)
                resource.prlimit(pid, self.limit, self.during[pid])

    def _alive(self, node: HostNode) -> list[int]:
        """The process ids, once all of them run."""
        pids = _pids(node, self.process)
        return pids if all(life_of(pid) is Life.RUNS for pid in pids) else []

    def used(self, pid: int) -> int:
        raise NotImplementedError

    def is_there(self) -> bool:
        """The kernel keeps it; a process that has ended of it counts, too."""
        return bool(self.during) and all(
            life_of(pid) is Life.GONE or resource.prlimit(pid, self.limit) == limits
            for pid, limits in self.during.items()
        )

    def heal(self) -> None:
        for pid, limits in self.before.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, self.limit, limits)


class DescriptorsUsedUp(_OfProcess):
    limit = resource.RLIMIT_NOFILE

    def used(self, pid: int) -> int:
        return open_descriptors_of(pid) or 0


class MemoryUsedUp(_OfProcess):
    limit = resource.RLIMIT_AS

    def used(self, pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize() + LEFT_BYTES


def _pids(node: HostNode, process: str) -> list[int]:
    """Process ids of a node by kind. The parent leads the node's process group."""
    if process != "parent":
        return node.pids(process)
    (child, *_) = node.pids("tailer")
    return [os.getpgid(child)]


def _all() -> Iterator[type[Exhaustion]]:
    of_disks = (
        (BlocksUsedUp, "disk full"),
        (InodesUsedUp, "inodes used up"),
        (ReadOnly, "disk read-only"),
    )
    for (base, what), count in product(of_disks, (1, 2)):
        yield _kind(base, name=_name(what, count), count=count)
    of_processes = ((DescriptorsUsedUp, "descriptors"), (MemoryUsedUp, "memory"))
    for (base, what), process, count in product(of_processes, PROCESSES, (1, 2)):
        yield _kind(base, name=_name(f"{what} of {process}", count), count=count, process=process)


def _kind(base: type[Exhaustion], **about: object) -> type[Exhaustion]:
    return cast(type[Exhaustion], type(base.__name__, (base,), about))


def _name(what: str, count: int) -> str:
    return f"{what}, {count} of 3"


ALL: Final[tuple[type[Exhaustion], ...]] = tuple(_all())
