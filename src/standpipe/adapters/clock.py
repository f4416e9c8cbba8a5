"""Clocks, each with one use. Machines never read them: time arrives in their events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import structlog

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


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
        """Changes with each boot of the machine; "" where the system has none."""
        return _boot_id()


class Every:
    """Tells a loop when a periodic task is due again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_ms: dict[object, int] = {}

    def is_due(self, what: object, every_ms: int) -> bool:
        """True on the first call, then at most once per `every_ms`."""
        if self._clock.monotonic_ms() < self._due_ms.get(what, 0):
            return False
        self.put_off(what, every_ms)
        return True

    def put_off(self, what: object, delay_ms: int) -> None:
        """`what` is not due before `delay_ms` from now."""
        self._due_ms[what] = self._clock.monotonic_ms() + delay_ms


async def steadily(every_ms: int, work: Callable[[], object], what: str) -> NoReturn:
    """Call `work` at a steady pace; calls missed while the process was stalled are not made up for.
    Exceptions of `work` are logged under the name `what`."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        try:
            work()
        except Exception:
            _log.exception(f"{what}: tried again at the next turn")
        due = max(due + every_ms / 1000, loop.time())
        await asyncio.sleep(due - loop.time())


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
