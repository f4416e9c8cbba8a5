"""A query that does nothing while its source has data: when to say so, and when to start it anew.

Pure: time and what Spark says arrive in `look`. A long batch is no stall by itself, and the first
restart is late, but a query that is wedged (a task that waits for ever, a source that hangs) would
otherwise be RUNNING for ever. Not here: stopping and starting (`queries.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REPORT_S: Final = 20.0
RESTART_S_FIRST: Final = 180.0
RESTART_S_MAX: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What can be seen of a running query. `mark` differs whenever it got somewhere."""

    mark: tuple[int, ...]
    has_data: bool
    doing: str = ""


@dataclass
class StallWatch:
    """Of one query, over its restarts."""

    restarts: int = 0
    _mark: tuple[int, ...] | None = None
    _since: float = 0.0

    def began(self, now: float) -> None:
        """The query runs (again) from `now` on."""
        self._mark, self._since = None, now

    def look(self, signs: Signs, now: float) -> float:
        """Seconds without progress; 0: it got somewhere, or there is nothing to do."""
        if signs.mark != self._mark or not signs.has_data:
            if self._mark is not None and signs.mark != self._mark:
                self.restarts = 0
            self._mark, self._since = signs.mark, now
        return now - self._since

    def is_reported(self, silent_s: float) -> bool:
        return silent_s >= REPORT_S

    def is_restarted(self, silent_s: float) -> bool:
        return silent_s >= min(RESTART_S_MAX, RESTART_S_FIRST * 2**self.restarts)
