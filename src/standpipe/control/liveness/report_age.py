"""How old a report may be for the node that assigns replicas. Pure: instants arrive in calls.

Not here: what is reported (`control.liveness.lag`), how old a lag may be for a read
(`node.liveness.peer_state`).
"""

from __future__ import annotations

from typing import Final

#: A node that did not look for this long was not listening.
PAUSED_MS: Final = 1000


class Belief:
    """From which instant on the assigning node trusts reports. Instants are of its clock, in ms.

    Without heartbeats, reports are rare and go only to the leader, so a report expires after
    `age_ms_max`. With heartbeats, these confirm reports or show that a node is down, so reports
    stay valid. A node that was not listening for a while has missed newer reports: none expires
    until the others have had `settle_ms` to report again.
    """

    def __init__(self, age_ms_max: int, settle_ms: int) -> None:
        self._age_ms_max, self._settle_ms = age_ms_max, settle_ms
        self._looked_ms: int | None = None
        self._settled_ms = 0
        self.since_ms = 0

    def look(self, now_ms: int, *, by_reports: bool) -> None:
        """To be called continuously while this node listens."""
        if self._looked_ms is not None and now_ms - self._looked_ms > PAUSED_MS:
            self._settled_ms = now_ms + self._settle_ms
        self._looked_ms = now_ms
        if by_reports and now_ms >= self._settled_ms:
            self.since_ms = now_ms - self._age_ms_max
