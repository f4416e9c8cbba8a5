"""What a failed end-to-end test says of the machine and of its cluster's broker, for whoever reads
the report and not the machine."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil

from standpipe.local.cluster.supervisor import LocalCluster

BUSIEST = 8
#: for how long processor time is counted
LOOK_S = 0.5


def machine_report(folder: Path) -> str:
    """Load, memory, disk, and who uses the processor."""
    memory_mib = psutil.virtual_memory().available >> 20
    disk_mib = shutil.disk_usage(folder).free >> 20
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    head = f"load {load}; {memory_mib} MiB of memory and {disk_mib} MiB of disk available"
    return "\n".join([head, *(f"{share:5.0%} {what}" for share, what in _busiest())])


def _busiest() -> list[tuple[float, str]]:
    before = _cpu_s_by_process()
    time.sleep(LOOK_S)
    shares: list[tuple[float, str]] = []
    for process, used_s in _cpu_s_by_process().items():
        share = (used_s - before.get(process, used_s)) / LOOK_S
        with suppress(psutil.Error):
            shares.append((share, " ".join(process.cmdline())[-150:]))
    return sorted(shares, reverse=True)[:BUSIEST]


def _cpu_s_by_process() -> dict[psutil.Process, float]:
    used_s: dict[psutil.Process, float] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            times = process.cpu_times()
            used_s[process] = times.user + times.system
    return used_s


def broker_report(local: LocalCluster) -> str:
    """Whether the broker runs, and the end of its log if it does not."""
    broker = local.broker
    if broker is None:
        return "no broker of its own"
    if not broker.is_alive():
        return f"the broker has ended:\n{broker.tail_of_log()}"
    with suppress(psutil.Error):
        return f"the broker is {psutil.Process(broker.pid).status()}"
    return "the broker is about to end"
