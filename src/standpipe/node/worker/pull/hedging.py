"""One read of one partition over several replicas: the first answer wins.

    candidates, in routing's order
      first ──────────── answer ─────────────────────────────► done
        │ refused ─────► next, at once (after a failed path: if the retry budget has one left)
        │ slow (p95) ──► next, beside it (a hedge, within its budget; the local replica is free)
              │ slow (4 × p95) ──► the one after it: two replicas may be lost at once

A costly read (a scan, many keys, a large text) may be what wedged a peer that fell silent over it.
It is never hedged, and tried at one more replica only; after a second silence it ends. A lookup of
one key costs next to nothing: its silence is the peer's, and it goes on to every replica.

A loser is not cancelled: the breaker of its path learns from its outcome, even from a time-out.
No read is hedged three times: three slow replicas mean a sick cluster. If hedging is switched off,
the local replica is not used as a hedge either.

Not here: the order (`control.routing.route`), budgets (`control.routing.hedge_budget`), the forward
(`node.worker.pull.forward`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from standpipe.control.routing.hedge_budget import Budget, ForwardLatency
from standpipe.control.routing.route import Verdict
from standpipe.model import NodeId, NodeInfo
from standpipe.node.worker.garbage import let_go
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused, PartitionAnswer
from standpipe.sql.plans import PullPlan

#: A try with less time than this ends without an answer and only costs its target work.
_TRY_S_MIN: Final = 0.005
#: A query that names more keys, or computes more for a row, counts as costly.
CHEAP_KEYS_MAX: Final = 16
CHEAP_EXPRESSIONS_MAX: Final = 64
CHEAP_CHARS_MAX: Final = 1_000
#: Replicas that may fall silent over a costly read before it is given up.
COSTLY_SILENCES_MAX: Final = 2
TOO_COSTLY: Final = "Not tried: replicas fell silent over this query, which may be too costly."
#: Waits before the first hedge and before the second, in p95s of forwards.
_HEDGE_WAITS: Final = (1, 4)
#: One try at one replica, at most `timeout_ms`. Raises ForwardRefused.
Attempt = Callable[[Verdict, int], Coroutine[Any, Any, PartitionAnswer]]
#: Candidates that a refusal names and that were not known before (NOT_OWNER with its map).
Further = Callable[[ForwardRefused], Sequence[Verdict]]


def is_costly(text: str, plan: PullPlan) -> bool:
    """Whether a query may be what silences a peer that works on it: retried once, never hedged."""
    return (
        plan.is_scan
        or plan.has_costly_rows
        or len(plan.keys) > CHEAP_KEYS_MAX
        or len(text) > CHEAP_CHARS_MAX
        or plan.expression_count > CHEAP_EXPRESSIONS_MAX
    )


class AllRefused(Exception):
    """No replica answered. `refusals`: in the order of the tries, one per replica."""

    def __init__(self, refusals: list[tuple[Verdict, ForwardRefused]]) -> None:
        super().__init__("no replica answered")
        self.refusals = refusals


@dataclass(frozen=True, kw_only=True)
class HedgedRead:
    """The read of one partition: whom to try, in which order, and for how long."""

    candidates: Sequence[Verdict]
    attempt: Attempt
    further: Further
    total_ms: int
    #: it takes long by itself, and another replica would take as long: no hedges
    is_scan: bool = False
    #: it computes so much that it may be what silenced a peer: no hedges, and one retry after that
    is_costly: bool = False


@dataclass
class HedgedReads:
    """What all reads of a worker share: budgets, how long forwards take, tries in flight."""

    hedges: Budget
    retries: Budget
    latency: ForwardLatency
    #: called with every replica that is slow
    silent: Callable[[NodeInfo], None] = lambda peer: None
    _tasks: set[asyncio.Task[PartitionAnswer]] = field(
        default_factory=set[asyncio.Task[PartitionAnswer]]
    )

    async def first(self, read: HedgedRead) -> PartitionAnswer:
        """The first answer. Raises AllRefused."""
        race = _Race(self, read, deque(read.candidates))
        return await race.run(asyncio.get_running_loop().time() + read.total_ms / 1000)

    def start(self, work: Coroutine[Any, Any, PartitionAnswer]) -> asyncio.Task[PartitionAnswer]:
        """Run a try that outlives its read if another replica answers first."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def close(self) -> None:
        """Cancel all tries; the worker is stopping."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[PartitionAnswer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: the loser's caller has returned


@dataclass
class _Race:
    shared: HedgedReads
    read: HedgedRead
    queue: deque[Verdict]
    refusals: list[tuple[Verdict, ForwardRefused]] = field(
        default_factory=list[tuple[Verdict, ForwardRefused]]
    )
    running: dict[asyncio.Task[PartitionAnswer], Verdict] = field(
        default_factory=dict[asyncio.Task[PartitionAnswer], Verdict]
    )
    hedge_count: int = 0
    #: how many replicas fell silent after they had the read
    silence_count: int = 0
    #: replicas that were reported as slow in this race
    slow: set[NodeId] = field(default_factory=set[NodeId])

    async def run(self, deadline: float) -> PartitionAnswer:
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
            wait_s = min(left_s, self._wait_s()) if self._may_hedge() else left_s
            done, _ = await asyncio.wait(
                self.running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                part = self._outcome(task, loop.time())
                if part is not None:
                    return part
            if not done and self._may_hedge():
                part = await self._hedge(left_s - wait_s, loop.time())
                if part is not None:
                    return part
        late = TOO_SLOW if self.read.is_scan else "Out of time."
        silent = [*self.running.values(), *self.queue]
        self.refusals += [(verdict, ForwardRefused(late)) for verdict in silent]
        raise AllRefused(self.refusals)

    def _may_hedge(self) -> bool:
        is_hedged = not (self.read.is_scan or self.read.is_costly)
        may = is_hedged and self.hedge_count < len(_HEDGE_WAITS)
        return may and bool(self.queue) and self.queue[0].ok

    def _wait_s(self) -> float:
        return _HEDGE_WAITS[self.hedge_count] * self.shared.latency.slow_ms / 1000

    async def _hedge(self, left_s: float, now_s: float) -> PartitionAnswer | None:
        """Try the next one too. The local replica costs no other node anything."""
        self.hedge_count += 1
        for slow in self.running.values():
            if slow.info is not None and slow.node_id not in self.slow:
                self.slow.add(slow.node_id)
                self.shared.silent(slow.info)
        hedges = self.shared.hedges
        if (self.queue[0].is_local and not hedges.is_off) or hedges.take(now_s):
            return await self._begin(self.queue.popleft(), left_s)
        return None

    async def _begin(self, verdict: Verdict, left_s: float) -> PartitionAnswer | None:
        """Start a try. One that this node can judge by itself ends at once."""
        timeout_ms = max(1, int(left_s * 1000))
        if not verdict.is_local and verdict.ok:
            self.running[self.shared.start(self.read.attempt(verdict, timeout_ms))] = verdict
            return None
        try:
            return await self.read.attempt(verdict, timeout_ms)
        except ForwardRefused as refusal:
            self._refused(verdict, refusal)
            return None

    def _outcome(self, task: asyncio.Task[PartitionAnswer], now_s: float) -> PartitionAnswer | None:
        verdict = self.running.pop(task)
        try:
            return task.result()
        except ForwardRefused as refusal:
            self._refused(verdict, refusal)
            self.queue.extend(self.read.further(refusal))
            self.silence_count += refusal.was_sent
            if self._is_suspect():
                self._give_up(TOO_COSTLY, self.queue)
            if refusal.is_path_failure and not self.running:
                self._spend_retry(now_s)
            return None

    def _refused(self, verdict: Verdict, refusal: ForwardRefused) -> None:
        let_go(refusal)  # one of its frames has this object, which has the refusal
        self.refusals.append((verdict, refusal))

    def _is_suspect(self) -> bool:
        """Whether the read itself may be what silences its peers."""
        is_costly = self.read.is_scan or self.read.is_costly
        return is_costly and self.silence_count >= COSTLY_SILENCES_MAX

    def _spend_retry(self, now_s: float) -> None:
        """Take a retry from the budget before another node is asked; the local replica is free."""
        remote = [verdict for verdict in self.queue if verdict.ok and not verdict.is_local]
        if not remote or self.queue[0].is_local or self.shared.retries.take(now_s):
            return
        self._give_up("Not tried: too many retries recently.", remote)

    def _give_up(self, why: str, untried: Iterable[Verdict]) -> None:
        """These are not asked any more."""
        given_up = list(untried)
        self.refusals += [(verdict, ForwardRefused(why)) for verdict in given_up]
        self.queue = deque(verdict for verdict in self.queue if verdict not in given_up)
