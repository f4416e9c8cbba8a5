"""A wall clock of its own for a host, which jumps at run time; its other clocks are the machine's.

    library = build(folder)
    clock = WallClock(folder / "shift", library)
    subprocess.Popen(clock.command(["python", …]))   # and all that it starts
    clock.shift(3_600_000)                            # an hour ahead, from now on, in all of them

The library (`wall_clock.c`) is preloaded. It is ours because Debian's libfaketime 0.9.10 will not
do, though with FAKETIME_DONT_FAKE_MONOTONIC it leaves CLOCK_MONOTONIC and CLOCK_BOOTTIME alone:

- sleeps until an instant of the monotonic clock end at once with EINVAL, which is what
  `time.sleep` does since Python 3.11: a node under it fails without any jump;
- waits of `cnd_timedwait` (librdkafka's) do not follow its clock at all;
- an offset that is read anew at each look (FAKETIME_NO_CACHE) costs 20 us, and one that is cached
  reaches the processes of a node at different times. Ours costs nothing that can be measured.

Not faked: what the kernel stamps itself (files, packets).
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_SHIFT = struct.Struct("=q")


def why_not() -> str:
    """Why this machine cannot build the library; "": it can."""
    if shutil.which("gcc") is None:
        return "a wall clock of their own for the nodes needs gcc"
    return ""


def build(folder: Path) -> Path:
    """The library, compiled into `folder`."""
    library = folder / "wall_clock.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", library, SOURCE, "-ldl", "-pthread"], check=True)
    return library


@dataclass(frozen=True)
class WallClock:
    """The clock of those processes that `command` starts. `file`: its shift, which they map."""

    file: Path
    library: Path

    def __post_init__(self) -> None:
        self.file.write_bytes(_SHIFT.pack(0))

    def command(self, command: Sequence[str]) -> list[str]:
        """The same process id runs the command, by this clock."""
        names = [f"LD_PRELOAD={self.library}", f"WALL_CLOCK_SHIFT={self.file}"]
        return ["env", *names, *command]

    def shift(self, ms: int) -> None:
        """From now on it is so much ahead of the machine's."""
        with self.file.open("r+b", buffering=0) as file:  # the file that they map, in one write
            file.write(_SHIFT.pack(ms * 1_000_000))

    def is_of(self, pid: int) -> bool:
        """Whether a process goes by it: it maps the library, and this clock's shift."""
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text()
        except OSError:  # it ended in between
            return False
        return all(str(path) in mapped for path in (self.file, self.library))


def group(leader: int) -> list[int]:
    """All processes of a process group."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _group_of(pid) == leader]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:  # it ended in between
        return None
