"""Log lines that a stranger can cause: few at once, then few, with the number of those left out.

A process keeps its newest log only (`node.supervisor.child`). Anyone who reaches a port between
nodes can be refused there thousands of times a second, and would wash out all that a person needs
to find out why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

#: lines at once, and then one in so many seconds
AT_ONCE: Final = 20
EVERY_S: Final = 5.0


class PacedLog:
    """Warnings of one place in the code, in one process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        self._now_s = now_s
        self._left = float(AT_ONCE)
        self._at_s = now_s()
        self._untold = 0

    def warning(self, event: str, **facts: object) -> None:
        """Log it, if it is its turn."""
        now_s = self._now_s()
        self._left = min(AT_ONCE, self._left + (now_s - self._at_s) / EVERY_S)
        self._at_s = now_s
        if self._left < 1:
            self._untold += 1
            return
        self._left -= 1
        if self._untold:
            facts["untold"] = self._untold
        self._untold = 0
        self._log.warning(event, **facts)
