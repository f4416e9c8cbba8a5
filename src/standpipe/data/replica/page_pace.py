"""When a tailer publishes the status pages of its replicas. Pure: the caller says what time it is.

All pages are published each ALL_MS. The page of a batch is published at once by the replica that
applies it. What is left is a linearizable read that waits for its barrier, which changes no rows:
when the tailer has read a barrier, the pages that it moves are published early. There is one such
round each EARLY_MS at most, and all rounds take a share of the tailer's time.

Not here: which pages a barrier moves (`data.replica.applied_progress`), who waits for them
(`data.replica.barrier`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

ALL_MS: Final = 50
EARLY_MS: Final = 5
#: Of the tailer's time, early rounds take 1/_SHARE at most. A round is long if there are many
#: replicas: the time that is left is for applying their batches.
_SHARE: Final = 10


class Round(Enum):
    """The pages to publish now."""

    NONE = "none"
    #: those that a read may wait for
    AWAITED = "awaited"
    ALL = "all"


class PagePace:
    """Of one tailer. All instants are on one clock, which never goes back."""

    def __init__(self) -> None:
        self._all_ms = self._early_ms = 0
        #: every page that answers reads says this of progress, or more
        self._told = 0

    def next(self, now_ms: int, barrier_end: int) -> Round:
        """`barrier_end`: behind the newest barrier that was read; 0: none was."""
        if now_ms >= self._all_ms:
            return Round.ALL
        is_awaited = barrier_end > self._told and now_ms >= self._early_ms
        return Round.AWAITED if is_awaited else Round.NONE

    def ended(self, of: Round, began_ms: int, now_ms: int, told: int) -> None:
        """A round has ended. `told`: what the page says that says least of progress, of those that
        answer reads."""
        if of is Round.ALL:
            self._all_ms = began_ms + ALL_MS
        self._early_ms = now_ms + max(EARLY_MS, (_SHARE - 1) * (now_ms - began_ms))
        self._told = told
