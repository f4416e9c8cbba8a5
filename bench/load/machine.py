"""The machine of a benchmark: its cores, free ports, processor time, and who else uses it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from standpipe.local.cluster.dependent_child import DependentChild

SERVER_CORE, LOAD_CORE = "0", "1"
#: a benchmark itself keeps two cores busy; more before it or beside it is somebody else
LOAD_QUIET_MAX = 2.5
#: cores that others used during the runs
OTHERS_QUIET_MAX = 0.15
LEAST_PRIORITY = 19
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


def start_behind_load(start: Callable[[], object]) -> None:
    """Call it; what it starts runs on the core of the load, with the least priority there."""

    def call() -> None:
        thread = threading.get_native_id()
        os.sched_setaffinity(thread, {int(LOAD_CORE)})
        os.setpriority(os.PRIO_PROCESS, thread, LEAST_PRIORITY)
        start()

    # both are of a thread, and inherited; they could not be taken back without privileges
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def least_priority(process: int) -> None:
    """Of a process with a session of its own: Linux weighs sessions first, where it groups them."""
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(LEAST_PRIORITY))


def processor_seconds(*processes: int) -> float:
    """Processor time of processes, their children and those that they waited for, until now."""
    return Spent.now().of(*processes)


class Spent(NamedTuple):
    """Processor time of each process until an instant. When a child ends, its time moves to the
    parent that waited for it, so sums only grow."""

    at_s: float
    stolen_s: float  # by the host, of all cores
    ticks: dict[int, int]
    children: dict[int, list[int]]

    @classmethod
    def now(cls) -> Spent:
        """Read now."""
        children: dict[int, list[int]] = {}
        ticks: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            process = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(process)
            ticks[process] = sum(map(int, fields[11:15]))  # own, and of those it waited for
        stolen = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
        return cls(time.monotonic(), stolen / _TICKS_PER_S, ticks, children)

    def of(self, *processes: int) -> float:
        """s of these and all below them."""
        left, found = list(processes), 0
        while left:
            process = left.pop()
            found += self.ticks.get(process, 0)
            left += self.children.get(process, ())
        return found / _TICKS_PER_S

    def of_others(self) -> float:
        """s of all that are not below this process, and of the host."""
        return self.stolen_s + sum(self.ticks.values()) / _TICKS_PER_S - self.of(os.getpid())


def others_cores(since: Spent) -> float:
    """How many cores others have used since then, on average."""
    now = Spent.now()
    used = max(0.0, now.of_others() - since.of_others())
    return round(used / (now.at_s - since.at_s), 3)


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
