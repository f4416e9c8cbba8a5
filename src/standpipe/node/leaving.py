"""A node that is about to stop announces it first: the file `run/leaving`.

    SIGTERM to the parent ──────────┐                  ┌─► controller: "leaving" in each heartbeat
    DrainNode in the log ───────────┴─► run/leaving ───┤      └─► peers try its replicas last
                                                       └─► workers: `connection: close`, not healthy

So reads go to other nodes before the first listener closes. A replica whose other holders are gone
is still read from a leaving node. Moving the replicas of a draining node is the assignment's work.

A separate module, since the supervisor, the controller and the workers share it.
Not here: how routing uses it (`control.routing.route`), heartbeats (`node.liveness.loop`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class Leaving:
    """The file of one node. A disk that is full or read-only keeps no process from its work: then
    only the process that announces it knows: of a drain, the controller with its heartbeats."""

    path: Path
    _is_begun: bool = False  # by this process

    @property
    def is_set(self) -> bool:
        """Whether the node is leaving. Costs one `stat`."""
        return self._is_begun or self.path.exists()

    def begin(self) -> None:
        """Announce that the node is about to stop."""
        self._is_begun = True
        try:
            self.path.touch()
        except OSError as error:
            _log.error("the node leaves, and its workers are not told", error=str(error))

    def end(self) -> None:
        """Withdraw the announcement, as at a start."""
        self._is_begun = False
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.error("the node stays, and its workers are not told", error=str(error))
