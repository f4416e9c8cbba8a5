"""The parent logs when its node's disk or file descriptors run low, and when they no longer do.

Not here: the thresholds (`node.room`); /healthcheck and metrics, for which workers read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from standpipe.adapters.clock import Clock
from standpipe.node.room import NodeRoom

LOOK_MS: Final = 5_000

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class RoomWatch:
    """Of one node."""

    room: NodeRoom
    clock: Clock
    _looked_ms: int | None = None
    _told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Look, at most every LOOK_MS, and log what has changed."""
        now_ms = self.clock.monotonic_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        short = self._short()
        for what in sorted(short.keys() - self._told):
            _log.error("nearly used up", what=what, detail=short[what])
        for what in sorted(self._told - short.keys()):
            _log.info("enough again", what=what)
        self._told = frozenset(short)

    def _short(self) -> dict[str, str]:
        """What is nearly used up -> how much of it is left."""
        found: dict[str, str | None] = {}
        try:
            found["disk"] = self.room.disk().complaint
            for each in self.room.descriptors():
                found[f"descriptors of {each.name}"] = each.complaint
        except OSError as error:
            found["this process"] = str(error)
        return {what: complaint for what, complaint in found.items() if complaint}
