"""When the node whose log a pipeline follows is cut off from the quorum, so that another is asked.

Each node serves the log from its own copy. One that has lost the quorum still answers, with pages
that stay empty: nothing fails, and the pipeline would not learn of its leases. Two signs of that:

    the page names no leader      also true of all nodes during an election
    an entry is missing from it   that the leader had when it renewed our leases

Either must last for `STALE_S`, and another node must be better: so nobody moves while no node has a
leader. Pure. Not here: asking the nodes (`run/control_client.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from standpipe.control.metadata.commands import LogPage

#: longer than an election takes
STALE_S: Final = 3.0


@dataclass
class StaleLog:
    """What the pages of one node have shown so far. Instants are those of a monotonic clock."""

    _leaderless_since_s: float | None = None
    #: an entry of the leader's log that the node's copy lacks, and since when
    _lacks: tuple[int, float] | None = None

    def take(self, page: LogPage, confirmed_index: int, now_s: float) -> str:
        """Why another node should be asked; empty: no reason. A reason is given once in `STALE_S`.

        `confirmed_index`: the newest entry that the leader has told us of; 0: it has not.
        """
        if page.leader:
            self._leaderless_since_s = None
        elif self._leaderless_since_s is None:
            self._leaderless_since_s = now_s
        # a copy that gets ahead may always lack the newest entry: it is the same one that counts
        if self._lacks and not page.last_index < self._lacks[0] <= confirmed_index:
            self._lacks = None
        if self._lacks is None and confirmed_index > page.last_index:
            self._lacks = confirmed_index, now_s
        why = self._why(now_s)
        if why:
            self._leaderless_since_s = self._lacks = None
        return why

    def _why(self, now_s: float) -> str:
        leaderless_since_s = self._leaderless_since_s
        if leaderless_since_s is not None and now_s - leaderless_since_s >= STALE_S:
            return f"it has known no leader for {STALE_S:.0f} s"
        if self._lacks is not None and now_s - self._lacks[1] >= STALE_S:
            return f"it has lacked entry {self._lacks[0]} for {STALE_S:.0f} s"
        return ""


def is_better(page: LogPage, served: LogPage) -> bool:
    """Whether a node that answers `page` should be followed instead of the one that has `served`:
    it has newer entries, or no older ones and a leader, which the other one does not know."""
    if page.last_index == served.last_index:
        return bool(page.leader) and not served.leader
    return page.last_index > served.last_index
