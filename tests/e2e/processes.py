"""What other processes do, though they may end while they are asked: a JVM forks children that live
for milliseconds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def is_dead(process: psutil.Process) -> bool:
    """It has gone, or nobody has reaped it."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def command_line(process: psutil.Process) -> str:
    """Empty if it is dead."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def descendants(pid: int, name: str | None = None) -> list[psutil.Process]:
    """Those of this name, such as ``java``; all without one. Empty if the process has gone."""
    with suppress(psutil.NoSuchProcess):
        every = psutil.Process(pid).children(recursive=True)
        return [each for each in every if name is None or _name(each) == name]
    return []


def thread_names(pid: int) -> list[str]:
    """Of its threads, those that have ended meanwhile left out. Empty if the process has gone."""
    names: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(task.read_text().strip())
    return names


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""
