"""Who shall hold what, worked out beside the loop that answers the node's peers.

    catalog, Heard ─► placement.problem ─┬─ small ─► a thread ──────────────┬─► Step
                                         └─ large ─► a process of its own ──┘

A large cluster's plan takes seconds of one core, and a thread would share the interpreter with the
beats of this node. Not here: when a step is committed (`node.controller.leader`).
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from standpipe.config import keys, registry
from standpipe.control.assignment import from_catalog
from standpipe.control.assignment.from_catalog import Heard, Limits, Problem
from standpipe.control.assignment.rebalance import Step, Throttle
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommitAssignment
from standpipe.model import NodeId

#: nodes × partitions that are placed in a thread: some 20 ms of work
SMALL_MAX: Final = 20_000
POLL_S: Final = 0.2
#: without news: an owner may have come to trail its standby
REVIEW_S: Final = 10.0

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Ears(Protocol):
    """What hears the other nodes (`node.liveness.loop`)."""

    def told(self) -> Heard: ...

    def away_ms(self) -> Mapping[NodeId, int]: ...

    @property
    def changes(self) -> object: ...


def limits_of(values: registry.Config) -> Limits:
    """A node's own limits."""
    return Limits(
        acceptable_lag_records=values[keys.RECOVERY_LAG],
        throttle=Throttle(
            warmup_count_max=values[keys.WARMUPS_MAX],
            warmup_bytes_max=values[keys.MOVE_BYTES_MAX],
            leaving_lag_records=2 * values[keys.RECOVERY_LAG],
        ),
        gone_after_ms=values[keys.GONE_AFTER],
    )


@dataclass
class Placing:
    """One node's view of where copies should go. Only the leader's is committed."""

    ears: Ears
    limits: Limits
    clock_s: Callable[[], float]
    #: how long a new leader waits for what the others report before it goes on without
    settle_s: float
    #: instant at which this node came to lead, or began
    _since_s: float = 0.0
    _waits_for_moves: bool = False

    def begin(self) -> None:
        """Lead from now on: what was heard so far may be old."""
        self._since_s = self.clock_s()

    async def due(self, catalog: Catalog) -> CommitAssignment | None:
        """The next assignment; None: the committed one."""
        step = await solve(self.problem(catalog))
        self._waits_for_moves = step.wants_followup
        return from_catalog.command(catalog, step)

    def problem(self, catalog: Catalog) -> Problem:
        """What is known now, as the assignor wants it."""
        heard = self.ears.told()
        missing = catalog.nodes.keys() - heard.reports.keys() - heard.away_ms.keys()
        if missing and self.clock_s() - self._since_s < self.settle_s:
            heard = Heard(away_ms=heard.away_ms)  # nobody's word counts before all have spoken
            self._waits_for_moves = True
        return from_catalog.problem(catalog, heard, self.limits)

    async def news(self) -> None:
        """Returns when another look is due: somebody came or went, or a copy on the move moved."""
        before = self._digest()
        for _ in range(int(REVIEW_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            if self._digest() != before:
                return

    def _digest(self) -> object:
        away_ms = self.ears.away_ms()
        gone = [node for node, ms in away_ms.items() if ms >= self.limits.gone_after_ms]
        moved = self.ears.changes if self._waits_for_moves else None
        return (tuple(sorted(away_ms)), tuple(sorted(gone)), moved)


async def solve(problem: Problem) -> Step:
    """The step, without holding up the loop."""
    if problem.size <= SMALL_MAX:
        return await asyncio.to_thread(problem.solve)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "standpipe.node.controller.planner_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        answer, _ = await process.communicate(pickle.dumps(problem))
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode != 0:
        _log.error("the assignor's process failed: placed here", status=process.returncode)
        return await asyncio.to_thread(problem.solve)
    step = pickle.loads(answer)  # noqa: S301 our own child, over a pipe
    assert isinstance(step, Step)
    return step
