"""A query without progress while its source has data: when to report it, when to restart it.

Pure: time, and the reports of Spark and Kafka, arrive in `look`. A batch whose tasks make progress
is no stall, however long it takes. A task that waits, a source that hangs, or a start that does not
end is one. Without this check such a query would stay RUNNING.

Not here: stopping and starting (`query_run.py`); what tasks have done (`task_progress.py`); what
topics hold (`backlog.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: what tasks have done is asked of Spark after this, and so often
ASK_S: Final = 5.0
ASK_EVERY_S: Final = 1.0
REPORT_S: Final = 20.0
RESTART_S_FIRST: Final = 180.0
RESTART_S_MAX: Final = 3600.0
#: A batch may need longer than we can see it work, and so may the next one: what was learned of a
#: query's patience is kept for so long after its last restart.
FORGET_S: Final = 3600.0

#: {of each stage that runs: who it is, and how far}: differs whenever one got somewhere
Work = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What can be seen of a query. `mark` differs whenever something was committed; `work`
    whenever its tasks got somewhere, None: not asked."""

    mark: tuple[int, ...]
    has_data: bool
    work: Work | None = None
    doing: str = ""


@dataclass
class StallWatch:
    """Of one query, over its restarts."""

    restarts: int = 0
    _restarted: float | None = None
    _mark: tuple[int, ...] | None = None
    _work: Work | None = None
    _since: float = 0.0
    _asked: float = 0.0

    def began(self, now: float) -> None:
        """The query starts, or runs, (again) from `now` on."""
        self._mark, self._work, self._since = None, None, now

    def restarted(self, now: float) -> None:
        """It made no progress, and is restarted."""
        self.restarts, self._restarted = self.restarts + 1, now

    def wants_work(self, now: float) -> bool:
        """Whether the next look should say what its tasks have done: it costs some calls."""
        return now - self._since >= ASK_S and now - self._asked >= ASK_EVERY_S

    def look(self, signs: Signs, now: float) -> float:
        """Seconds without progress; 0: it got somewhere, or there is nothing to do."""
        has_committed = self._mark is not None and signs.mark != self._mark
        if has_committed and (self._restarted is None or now - self._restarted >= FORGET_S):
            self.restarts = 0
        # the first sight of its tasks says nothing yet: they may have stood like that all the time
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
        """Whether to restart the query; each restart doubles the patience."""
        return silent_s >= min(RESTART_S_MAX, RESTART_S_FIRST * 2**self.restarts)
