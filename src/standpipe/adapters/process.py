"""Functions for every process of a node: exit with the parent, pid files, memory, /proc.

Crash-only: when the parent dies, the kernel kills its children, and the next start recovers as
after a power loss. SIGTERM stops a process in order (`StopSignal`). Not here: logs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
LARGE_BLOCK_BYTES: Final = 1 << 20
FREED_BYTES_KEPT: Final = 8 << 20
_AUTOGROUP_TRIES: Final = 40
_AUTOGROUP_S: Final = 0.1
_libc: Final = ctypes.CDLL(None, use_errno=True)


def signal_at_parent_death(number: signal.Signals) -> None:
    """Let the kernel send `number` to this process when the thread that forked it ends.

    Linux; elsewhere nothing happens. One system call and no lock, so it may be the `preexec_fn` of
    a child. Raises OSError. Source: prctl(2), PR_SET_PDEATHSIG.
    """
    if not sys.platform.startswith("linux"):
        return
    if _libc.prctl(_PR_SET_PDEATHSIG, number) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def die_with_parent() -> None:
    """SIGKILL for this process as soon as its parent ends (Linux; elsewhere nothing happens)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    signal_at_parent_death(signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        os.kill(os.getpid(), signal.SIGKILL)


def name_process(name: str) -> None:
    """How `ps -o comm`, `top` and `pgrep` name this process: `sp-<name>`, cut to 15 characters."""
    if sys.platform.startswith("linux"):
        _libc.prctl(_PR_SET_NAME, f"sp-{name}"[:15].encode(), 0, 0, 0)


def make_way(nice: int) -> None:
    """Lower the priority of this process by `nice`, against those of other nodes of the host, too.

    Where Linux groups processes by their session (sched_autogroup_enabled), a priority counts
    within the group only, and groups share the processor equally. So this process gets a session of
    its own, with a lower priority. A signal to the process group of its parent no longer reaches
    it; it still dies with its parent. Source: sched(7), "The autogroup feature".
    """
    os.nice(nice)
    try:
        os.setsid()
    except PermissionError:  # it leads its process group: somebody started it by hand
        return
    for _ in range(_AUTOGROUP_TRIES):
        try:
            Path("/proc/self/autogroup").write_text(f"{nice}\n")
        except BlockingIOError:  # without privileges, one process of the host a tenth of a second
            time.sleep(_AUTOGROUP_S * (1 + os.getpid() % 7 / 10))
        except OSError:  # absent: not grouped
            return
        else:
            return


def raise_file_limit() -> int:
    """Raise the limit on open files to the maximum and return it: a store takes two files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def give_back_freed_memory() -> None:
    """The C library keeps memory that was freed between blocks in use, most of it after a large
    piece of work, until `malloc_trim` is called. Only glibc has that. Takes milliseconds."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_little_freed_memory() -> None:
    """From now on, the C library gives large blocks back when they are freed, and keeps at most
    FREED_BYTES_KEPT of the others; only glibc can be told that.

    By itself it takes ever larger blocks from its heaps, of which each thread has one, and gives
    back only what is free at their ends: a worker kept ten times what its largest rows took.
    Source: mallopt(3).
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_KEPT)
        mallopt(_M_ARENA_MAX, 2)


def write_pid(path: Path) -> None:
    """Write the id of this process, by which the node knows its workers."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(f"{os.getpid()}\n")


def read_pid(path: Path) -> int | None:
    """None where there is no file or no number in it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class Life(Enum):
    """What the kernel says about a process."""

    RUNS = auto()
    STOPPED = auto()  # SIGSTOP, a debugger: its sockets take connections that it does not serve
    GONE = auto()  # a zombie too


def life_of(pid: int | None) -> Life:
    """Linux; elsewhere a process with a known pid counts as running."""
    if not sys.platform.startswith("linux"):
        return Life.RUNS if pid else Life.GONE
    try:
        stat = Path(f"/proc/{pid or 0}/stat").read_text()
    except OSError:
        return Life.GONE
    letter = stat.rpartition(")")[2].split()[0]
    return _LIVES.get(letter, Life.RUNS)


_LIVES: Final = {"T": Life.STOPPED, "t": Life.STOPPED, "Z": Life.GONE, "X": Life.GONE}


_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def state_and_time_of(pid: int) -> tuple[str, float] | None:
    """State (a letter of proc(5)) of a process's main thread, and the processor time in ms of all
    its threads; None: it is gone.

    Linux; elsewhere None.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], 1000 * (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    except (OSError, ValueError, IndexError):
        return None


def has_running_thread(pid: int) -> bool:
    """Whether a thread of the process runs, or waits for a processor. Takes 0.03 ms a thread."""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if file.read_text().rpartition(")")[2].split()[0] == "R":
                return True
        except (OSError, IndexError):
            continue  # it has ended
    return False


def own_bytes(pid: int | None = None) -> int | None:
    """Memory of a process that no file backs (RssAnon); None: it is gone, or not Linux.

    `pid`: None is this process. Mapped stores do not count: the kernel takes them back at will.
    """
    try:
        text = Path(f"/proc/{pid or 'self'}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return None


def processor_ticks() -> tuple[int, int] | None:
    """(idle, in all) of this machine's processors since its start; None: not Linux.

    Idle is what is left, so time that a hypervisor gave to others is not.
    """
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, waiting, *others = map(int, fields)
    except (OSError, ValueError):
        return None
    return idle + waiting, user + nice + system + idle + waiting + sum(others)


def open_descriptors_of(pid: int) -> int | None:
    """How many file descriptors a process has open; None: it is gone, another user's, or not Linux.

    Linux 6.2 and later say so as the size of a directory; earlier ones have it counted.
    """
    folder = Path(f"/proc/{pid}/fd")
    try:
        return folder.stat().st_size or len(os.listdir(folder))  # noqa: PTH208 - no path is needed
    except OSError:
        return None


def descriptors_max_of(pid: int) -> int | None:
    """The soft limit of a process's file descriptors; None: as for `open_descriptors_of`, or there
    is no limit."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        row = next(line for line in lines if line.startswith("Max open files"))
        return int(row.split()[3])
    except (OSError, ValueError, IndexError, StopIteration):
        return None


class StopSignal:
    """SIGTERM and SIGINT set `is_set`; the loop that polls it ends by itself."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
