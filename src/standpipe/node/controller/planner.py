"""The next step of the assignment, computed outside the event loop that answers the node's peers.

    catalog, ClusterObservation ─► from_catalog.problem ─┬─ small ─► a thread ────────────┬─► Step
                                                         └─ large ─► a separate process ──┘

A large cluster's plan takes seconds of one core, and a thread would share the interpreter with this
node's heartbeats. Not here: when a step is committed (`node.controller.leader`).
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from standpipe.config import keys, registry
from standpipe.control.assignment import from_catalog
from standpipe.control.assignment.from_catalog import ClusterObservation, MoveLimits, Problem
from standpipe.control.assignment.rebalance import Step, Throttle
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommitAssignment
from standpipe.errors import ServerError
from standpipe.model import NodeId

#: up to this many nodes × partitions, a thread plans: some 20 ms of work
SMALL_MAX: Final = 20_000
POLL_S: Final = 0.2
#: even without news: an active replica may have fallen behind its standby
REVIEW_S: Final = 10.0
#: the command of the separate process
PLANNER: Final = (sys.executable, "-m", "standpipe.node.controller.planner_process")
#: for one plan; a statement waits for a shorter time (`standpipe.placement.timeout.ms`)
PLAN_S_MAX: Final = 60.0


class PlacementFailed(ServerError):
    """The planner gave no assignment: it took too long, or its process ended."""


class ClusterObserver(Protocol):
    """What receives the other nodes' heartbeats and lag reports (`node.liveness.loop`)."""

    def told(self) -> ClusterObservation:
        """The newest lag reports, and the nodes that are down."""
        ...

    def away_ms(self) -> Mapping[NodeId, int]:
        """Nodes that are down -> for how many ms."""
        ...

    @property
    def changes(self) -> object:
        """A value that differs whenever a report has changed."""
        ...


def limits_of(values: registry.Config) -> MoveLimits:
    """The limits on moves of replicas, from this node's configuration."""
    return MoveLimits(
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
    """Plans the assignment from one node's reports. Only the leader's plans are committed."""

    observer: ClusterObserver
    limits: MoveLimits
    clock_s: Callable[[], float]
    #: how long a new leader waits for the others' reports before it plans without them
    settle_s: float
    #: instant at which this node became the leader, or started
    _since_s: float = 0.0
    _waits_for_moves: bool = False

    def begin(self) -> None:
        """Called when this node becomes the leader: earlier reports may be old."""
        self._since_s = self.clock_s()

    async def due(self, catalog: Catalog) -> CommitAssignment | None:
        """The next assignment; None: the committed one stays. Raises PlacementFailed."""
        step = await solve(self.problem(catalog), PLAN_S_MAX)
        self._waits_for_moves = step.wants_followup
        return from_catalog.command(catalog, step)

    def problem(self, catalog: Catalog) -> Problem:
        """The input of the assignor, as of now."""
        heard = self.observer.told()
        missing = catalog.nodes.keys() - heard.reports.keys() - heard.away_ms.keys()
        if missing and self.clock_s() - self._since_s < self.settle_s:
            heard = ClusterObservation(away_ms=heard.away_ms)  # no report counts before all are in
            self._waits_for_moves = True
        return from_catalog.problem(catalog, heard, self.limits)

    async def news(self) -> None:
        """Wait until a node comes or goes or a moving replica progresses, at most REVIEW_S."""
        before = self._digest()
        for _ in range(int(REVIEW_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            if self._digest() != before:
                return

    def _digest(self) -> object:
        away_ms = self.observer.away_ms()
        gone = [node for node, ms in away_ms.items() if ms >= self.limits.gone_after_ms]
        moved = self.observer.changes if self._waits_for_moves else None
        return (tuple(sorted(away_ms)), tuple(sorted(gone)), moved)


async def solve(problem: Problem, timeout_s: float) -> Step:
    """The next step, without blocking the event loop. Raises PlacementFailed.

    A large problem is never solved in this process: nobody could stop it, and this node's peers
    would wait for the interpreter.
    """
    try:
        if problem.size <= SMALL_MAX:
            return await asyncio.to_thread(problem.solve)
        process = await asyncio.create_subprocess_exec(
            *PLANNER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
    except (OSError, RuntimeError) as error:  # no memory, no further process or thread
        raise PlacementFailed(f"the planner failed: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            answer, _ = await process.communicate(pickle.dumps(problem))
    except TimeoutError:
        raise PlacementFailed(f"the planner took more than {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise PlacementFailed(f"the planner's process ended with status {process.returncode}")
    step = pickle.loads(answer)  # noqa: S301 our own child, over a pipe
    assert isinstance(step, Step)
    return step
