"""Clocks, each with one use. Machines never read them: time arrives in their events."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path


class Clock:
    """The machine's clocks; tests pass an object with the same methods."""

    def wall_ms(self) -> int:
        """Unix time: for records and people. It may jump."""
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Time since the machine started, sleep included: equal in all processes of a node, so
        what one process wrote down another can compare (status pages)."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def monotonic_ms(self) -> int:
        """For durations within one process."""
        return time.monotonic_ns() // 1_000_000

    def boot_id(self) -> str:
        """Another one after each start of the machine; "" where the system does not tell."""
        return _boot_id()


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
