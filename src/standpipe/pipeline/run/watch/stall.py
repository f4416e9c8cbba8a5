"""A query without progress while its source has data: when to report it, when to restart it.

Pure: time, and the reports of Spark and Kafka, are arguments of `look`. A batch whose tasks make
progress is not stalled, however long it takes. A waiting task, a hung source, or a start that never
ends is a stall. Without this check such a query would stay RUNNING.

Not here: stopping and starting (`run/scheduler.py`); what tasks have done (`task_progress.py`);
what topics hold (`backlog.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: after how long without progress, and how often, to ask Spark what tasks have done
ASK_S: Final = 5.0
ASK_EVERY_S: Final = 1.0
REPORT_S: Final = 20.0
RESTART_S_FIRST: Final = 180.0
RESTART_S_MAX: Final = 3600.0
#: A batch may run longer than we can observe its progress, and so may the next one: a query keeps
#: its longer restart time-out for this long after its last restart.
FORGET_S: Final = 3600.0

#: identity and progress of each running stage: differs whenever a stage has advanced
Work = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What can be observed of a query. `mark` changes whenever something was committed; `work`
    whenever its tasks have advanced, None: not asked."""

    mark: tuple[int, ...]
    has_data: bool
    work: Work | None = None
    doing: str = ""


@dataclass
class StallWatch:
    """Watches one query across its restarts."""

    restarts: int = 0
    _restarted: float | None = None
    _mark: tuple[int, ...] | None = None
    _work: Work | None = None
    _since: float = 0.0
    _asked: float = 0.0

    def began(self, now: float) -> None:
        """Note that the query was started, or began to run, at `now`."""
        self._mark, self._work, self._since = None, None, now

    def restarted(self, now: float) -> None:
        """Note that it was restarted for lack of progress."""
        self.restarts, self._restarted = self.restarts + 1, now

    def wants_work(self, now: float) -> bool:
        """Whether the next `look` needs what its tasks have done, which costs some calls."""
        return now - self._since >= ASK_S and now - self._asked >= ASK_EVERY_S

    def look(self, signs: Signs, now: float) -> float:
        """Seconds without progress; 0: it has advanced, or there is nothing to do."""
        has_committed = self._mark is not None and signs.mark != self._mark
        if has_committed and (self._restarted is None or now - self._restarted >= FORGET_S):
            self.restarts = 0
        # the first look at its tasks proves nothing: they may not have advanced for a long time
        has_worked = None not in (self._work, signs.work) and signs.work != self._work
        if signs.mark != self._mark or has_worked or not signs.has_data:
            self._since = now
        if signs.mark != self._mark:
            self._work = None
        if signs.work is not None:
            self._work, self._asked = signs.work, now
        self._mark = signs.mark
        return now - self._since

    def is_reported(self, silent_s: float) -> bool:
        """Whether to report NO_PROGRESS."""
        return silent_s >= REPORT_S

    def is_restarted(self, silent_s: float) -> bool:
        """Whether to restart the query; each restart doubles the time-out."""
        return silent_s >= min(RESTART_S_MAX, RESTART_S_FIRST * 2**self.restarts)
