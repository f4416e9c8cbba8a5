"""A node that is about to stop says so first: `run/leaving`, a file that is there or not.

    SIGTERM to the parent ──────────┐                  ┌─► control: "leaving" in every beat
    the log says that it drains ────┴─► run/leaving ───┤      └─► peers try its replicas late
                                                       └─► workers: `connection: close`, not healthy

So reads are somewhere else before the first listener closes. A replica whose other holders are gone
is still read from a node that leaves. That a drain also moves its copies is the assignment's work.

Not here: what routing makes of it (`control.routing.route`), who sends beats
(`node.liveness.loop`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Leaving:
    """The file of one node."""

    path: Path

    @property
    def is_set(self) -> bool:
        """One `stat`."""
        return self.path.exists()

    def begin(self) -> None:
        self.path.touch()

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
