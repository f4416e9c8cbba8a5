"""A node that is about to stop says so first: `run/leaving`, a file that is there or not.

    SIGTERM to the parent ─┐                         ┌─► control: "leaving" in every beat
    POST /drain ───────────┴─► run/leaving ──────────┤      └─► peers try its replicas late
                                                     └─► workers: `connection: close`, not healthy

So reads are somewhere else before the first listener closes. A drain lasts until `POST /undrain` or
the node's next start; it moves no replica (that is the assignment's work), and a replica whose
other holders are gone is still read from a node that leaves.

Not here: what routing makes of it (`control.routing`), who sends beats (`node.liveness_loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from standpipe.adapters.http_client import Call, Handler, Reply, json_reply

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


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

    # -------------------------------------------------- on the internal listener

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("POST", "/drain"): self._drain, ("POST", "/undrain"): self._undrain}

    async def _drain(self, _: Call) -> Reply:
        self.begin()
        _log.info("drained: peers read elsewhere where they can")
        return json_reply({"leaving": True})

    async def _undrain(self, _: Call) -> Reply:
        self.end()
        _log.info("undrained")
        return json_reply({"leaving": False})
