"""One read of one partition over several replicas: the first answer wins.

    candidates, in routing's order
      first ──────────── answer ─────────────────────────────► done
        │ refused ─────► next, at once (after a failed path: if the retry budget has one left)
        │ slow (p95) ──► next, beside it (a hedge, within its budget; the own replica is free)
              │ slow (4 × p95) ──► the one after it: two replicas may be lost at once

A loser is not called off: its end, be it a time-out, is what the breaker of its path learns from.
Nothing is hedged three times: three replicas that are slow are a sick cluster. Where hedges are
switched off, the own replica is none either.

Not here: the order (`control.routing.route`), budgets (`control.routing.hedge_budget`), the forward
(`node.worker.pull.forward`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from standpipe.control.routing.hedge_budget import Budget, Pace
from standpipe.control.routing.route import Verdict
from standpipe.model import NodeId, NodeInfo
from standpipe.node.worker.pull.forward import TOO_SLOW, Part, Refused

#: A try with less time than this ends without an answer and only costs its target work.
_TRY_S_MIN: Final = 0.005
#: How often the p95 of forwards is waited for before the first hedge, and then before the second.
_PATIENCES: Final = (1, 4)
#: One try at one replica, `timeout_ms` at the most. Raises Refused.
Attempt = Callable[[Verdict, int], Coroutine[Any, Any, Part]]
#: Candidates that a refusal names and that were not known before (NOT_OWNER with its map).
Further = Callable[[Refused], Sequence[Verdict]]


class AllRefused(Exception):
    """No replica answered. `refusals`: in the order of the tries, one per replica."""

    def __init__(self, refusals: list[tuple[Verdict, Refused]]) -> None:
        super().__init__("no replica answered")
        self.refusals = refusals


@dataclass
class Racing:
    """What all races of a worker share."""

    hedges: Budget
    retries: Budget
    pace: Pace
    #: is told of every replica that is slow
    silent: Callable[[NodeInfo], None] = lambda peer: None
    _tasks: set[asyncio.Task[Part]] = field(default_factory=set[asyncio.Task[Part]])

    async def first(
        self,
        candidates: Sequence[Verdict],
        attempt: Attempt,
        further: Further,
        total_ms: int,
        *,
        is_scan: bool = False,
    ) -> Part:
        """The first answer. Raises AllRefused.

        `is_scan`: it takes long by itself, and another replica would take as long: no hedges.
        """
        race = _Race(self, deque(candidates), attempt, further, is_scan=is_scan)
        return await race.run(asyncio.get_running_loop().time() + total_ms / 1000)

    def start(self, work: Coroutine[Any, Any, Part]) -> asyncio.Task[Part]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Part]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody else may look at a loser's


@dataclass
class _Race:
    shared: Racing
    queue: deque[Verdict]
    attempt: Attempt
    further: Further
    is_scan: bool
    refusals: list[tuple[Verdict, Refused]] = field(default_factory=list[tuple[Verdict, Refused]])
    running: dict[asyncio.Task[Part], Verdict] = field(
        default_factory=dict[asyncio.Task[Part], Verdict]
    )
    hedge_count: int = 0
    #: who was slow in this race, and was said to be
    slow: set[NodeId] = field(default_factory=set[NodeId])

    async def run(self, deadline: float) -> Part:
        loop = asyncio.get_running_loop()
        self.shared.hedges.read(loop.time())
        self.shared.retries.read(loop.time())
        while self.queue or self.running:
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            if not self.running:
                if left_s < _TRY_S_MIN:
                    break
                verdict = self.queue.popleft()
                part = await self._begin(verdict, left_s)
                if part is not None:
                    return part
                continue
            patience_s = min(left_s, self._patience_s()) if self._may_hedge() else left_s
            done, _ = await asyncio.wait(
                self.running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                part = self._outcome(task, loop.time())
                if part is not None:
                    return part
            if not done and self._may_hedge():
                part = await self._hedge(left_s - patience_s, loop.time())
                if part is not None:
                    return part
        late = TOO_SLOW if self.is_scan else "Out of time."
        unheard = [*self.running.values(), *self.queue]
        self.refusals += [(verdict, Refused(late)) for verdict in unheard]
        raise AllRefused(self.refusals)

    def _may_hedge(self) -> bool:
        may = self.hedge_count < len(_PATIENCES) and not self.is_scan
        return may and bool(self.queue) and self.queue[0].ok

    def _patience_s(self) -> float:
        return _PATIENCES[self.hedge_count] * self.shared.pace.slow_ms / 1000

    async def _hedge(self, left_s: float, now_s: float) -> Part | None:
        """Ask the next one too. The own replica costs no other node anything."""
        self.hedge_count += 1
        for slow in self.running.values():
            if slow.info is not None and slow.node_id not in self.slow:
                self.slow.add(slow.node_id)
                self.shared.silent(slow.info)
        hedges = self.shared.hedges
        if (self.queue[0].is_local and not hedges.is_off) or hedges.take(now_s):
            return await self._begin(self.queue.popleft(), left_s)
        return None

    async def _begin(self, verdict: Verdict, left_s: float) -> Part | None:
        """Try one. What this node can judge by itself is over at once."""
        timeout_ms = max(1, int(left_s * 1000))
        if not verdict.is_local and verdict.ok:
            self.running[self.shared.start(self.attempt(verdict, timeout_ms))] = verdict
            return None
        try:
            return await self.attempt(verdict, timeout_ms)
        except Refused as refusal:
            self.refusals.append((verdict, refusal))
            return None

    def _outcome(self, task: asyncio.Task[Part], now_s: float) -> Part | None:
        verdict = self.running.pop(task)
        try:
            return task.result()
        except Refused as refusal:
            self.refusals.append((verdict, refusal))
            self.queue.extend(self.further(refusal))
            if refusal.is_path_failure and not self.running:
                self._spend_retry(now_s)
            return None

    def _spend_retry(self, now_s: float) -> None:
        """Before another node is asked again; the own replica costs nobody anything."""
        remote = [verdict for verdict in self.queue if verdict.ok and not verdict.is_local]
        if not remote or self.queue[0].is_local or self.shared.retries.take(now_s):
            return
        exhausted = "Not tried: too many reads were tried again lately."
        self.refusals += [(verdict, Refused(exhausted)) for verdict in remote]
        self.queue = deque(verdict for verdict in self.queue if verdict not in remote)
