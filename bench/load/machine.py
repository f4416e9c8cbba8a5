"""The machine of a benchmark: its cores, free ports, processor time, and who else uses it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from standpipe.local.cluster.dependent_child import DependentChild

SERVER_CORE, LOAD_CORE = "0", "1"
#: a benchmark itself keeps two cores busy; more before it or beside it is somebody else
LOAD_QUIET_MAX = 2.5
#: cores that others used during the runs
OTHERS_QUIET_MAX = 0.15
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def capture(command: Sequence[str], **options: Any) -> str:
    """Standard output of a command, which must succeed; what it said is in the error if not."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if ran.returncode != 0:
        said = f"{ran.stdout[-1000:]}\n{ran.stderr[-2000:]}".strip()
        raise RuntimeError(f"{Path(command[0]).name} ended with {ran.returncode}:\n{said}")
    return ran.stdout


def on_load_core(command: Sequence[str], **options: Any) -> str:
    """`capture`, on the core of the load."""
    return capture(["taskset", "-c", LOAD_CORE, *command], **options)


# ------------------------------------------------------------------------------------- ports


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_of(address: str) -> int:
    """That of `host:port`."""
    return int(address.rpartition(":")[2])


def wait_for_port(port: int, seconds: float = 30) -> None:
    """Until somebody listens there. Raises OSError if nobody does in time."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


# --------------------------------------------------------------------------------- processes


@contextmanager
def server(command: list[str], log: Path, *, core: str = SERVER_CORE) -> Iterator[DependentChild]:
    """A server on one core, which ends with the body, and with this process whatever ends it.

    A server that has ended before the body is an error.
    """
    child = DependentChild(["taskset", "-c", core, *command], output=log)
    try:
        yield child
        if not child.is_alive():
            raise RuntimeError(f"{command[0]} ended by itself:\n{log.read_text()[-3000:]}")
    finally:
        child.end(10)


@contextmanager
def core_of_children(core: str) -> Iterator[None]:
    """What is started meanwhile by this thread runs on that core."""
    mine = os.sched_getaffinity(threading.get_native_id())
    os.sched_setaffinity(threading.get_native_id(), {int(core)})
    try:
        yield
    finally:
        os.sched_setaffinity(threading.get_native_id(), mine)


def processor_seconds(*processes: int) -> float:
    """Processor time of processes, their children and those that they waited for, until now."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended: its parent has waited for it
        process = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        spent[process] = sum(map(int, fields[11:15]))  # own, and of those it waited for
    left, ticks = list(processes), 0
    while left:
        process = left.pop()
        ticks += spent.get(process, 0)
        left += children.get(process, ())
    return ticks / _TICKS_PER_S


def memory_kib(process: int) -> dict[str, int]:
    """PSS of a process: whole, and without the mapped stores."""
    whole, stores, is_store = 0, 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-", line):
            is_store = line.endswith("data.mdb")
        elif line.startswith("Pss:"):
            size = int(line.split()[1])
            whole += size
            stores += size if is_store else 0
    return {"pss": whole, "pss_without_stores": whole - stores}


# ------------------------------------------------------------------------------------ others


class Instant(NamedTuple):
    """Processor time since the start of the machine, in s: by everybody, stolen, and by us."""

    at: float
    all: float
    stolen: float
    ours: float

    @classmethod
    def now(cls) -> Instant:
        """Read now. Interrupts are in neither: they belong to no process."""
        first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        user, nice, system, _idle, _wait, _irq, _soft, stolen = map(int, first[:8])
        busy = (user + nice + system) / _TICKS_PER_S
        mine = processor_seconds(os.getpid())
        return cls(time.monotonic(), busy, stolen / _TICKS_PER_S, mine)


def others_cores(since: Instant) -> float:
    """How many cores the host and processes that are not ours have used since then, on average."""
    now = Instant.now()
    others = (now.all - since.all) - (now.ours - since.ours) + (now.stolen - since.stolen)
    return round(max(0.0, others) / (now.at - since.at), 3)
