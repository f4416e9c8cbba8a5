"""Reads at level `session` that wait for this node's replica to cover their token.

    SessionWaits.until     one waiter: until the replica's page is due, its time is over, or its
                           requester is gone
    first_covered          one read that waits at several replicas at once: the first answer wins

One timer per worker reads the pages that somebody waits for, every 1 ms at first and every 10 ms
later; while nobody waits there is none. A page that has not changed costs 0.2 us, however many wait
for it, and wakes nobody.
A page only wakes: the reader then judges the rows by their own transaction, since a page may
describe others (`node.worker.pull.local_read`).
*Rejected:* a futex or a socket from the tailer (one more thing that must survive restarts of both
processes, to gain at most 10 ms of a batch that takes seconds).

Not here: what covers a token (`control.routing.session`), how many may wait
(`node.worker.request.wait_limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from standpipe.control.routing.route import Verdict
from standpipe.errors import StandpipeError, TooManyRequests
from standpipe.model import ReplicaId, ReplicaStatus
from standpipe.node.worker.garbage import let_go
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.hedging import AllRefused
from standpipe.node.worker.pull.scans import LOOK_S
from standpipe.node.worker.request.scan_requester import ScanRequester

TICK_S_MIN: Final = 0.001
TICK_S_MAX: Final = 0.010
#: each tick is so much later than the one before it
_SLOWER: Final = 1.2

Page = ReplicaStatus | None


@dataclass(eq=False)
class _Waiter:
    seen: Page
    is_due: Callable[[Page], bool]
    requester: ScanRequester
    until_s: float
    woken: asyncio.Future[bool]

    def turn(self, page: Page, now_s: float, *, is_look_due: bool) -> None:
        """Judge the page, and look whether the requester is still there. What fails is this
        waiter's, and no other's."""
        try:
            if not self.woken.done():
                self.judge(page, now_s)
            if is_look_due and not self.woken.done():
                self.requester.look()
        except Exception as error:
            self.woken.set_exception(error)

    def judge(self, page: Page, now_s: float) -> None:
        """Wake it if the page is due, or its time is over."""
        if page is not self.seen:
            self.seen = page
            if self.is_due(page):
                self.woken.set_result(True)
                return
        if now_s >= self.until_s:
            self.woken.set_result(False)


@dataclass(eq=False)
class _Waiters:
    """Those of one replica."""

    waiting: list[_Waiter] = field(default_factory=list[_Waiter])
    #: the page that all of them have seen, if it is one
    seen: Page = None
    #: somebody has come since
    is_new: bool = True
    #: until then nobody's time is over
    until_s: float = float("inf")

    def add(self, waiter: _Waiter) -> None:
        self.waiting.append(waiter)
        self.is_new = True

    def turn(self, page: Page, now_s: float, *, is_look_due: bool) -> None:
        """Each waiter's turn, if one of them can have news."""
        is_same = page is self.seen and not self.is_new
        if is_same and not is_look_due and now_s < self.until_s:
            return
        for waiter in self.waiting:
            waiter.turn(page, now_s, is_look_due=is_look_due)
        self.seen, self.is_new = page, False
        self.until_s = min(one.until_s for one in self.waiting)

    def without_page(self, now_s: float, *, is_look_due: bool) -> None:
        """Likewise, when the page cannot be read."""
        for waiter in self.waiting:
            waiter.turn(waiter.seen, now_s, is_look_due=is_look_due)


@dataclass
class SessionWaits:
    """All waiters of a worker. `page_of`: the newest page of this node's replica."""

    page_of: Callable[[ReplicaId], Page]
    _waiting: dict[ReplicaId, _Waiters] = field(default_factory=dict[ReplicaId, _Waiters])
    _count: int = 0
    _tick_s: float = TICK_S_MIN
    _looked_s: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """How many wait now."""
        return self._count

    async def until(
        self,
        replica_id: ReplicaId,
        seen: Page,
        is_due: Callable[[Page], bool],
        requester: ScanRequester,
        until_s: float,
    ) -> bool:
        """Wait for a page after `seen` that is due. False: the time is over, on the loop's clock.

        Raises BadRequest when the requester is gone.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(seen, is_due, requester, until_s, loop.create_future())
        self._waiting.setdefault(replica_id, _Waiters()).add(waiter)
        self._count += 1
        self._hasten(loop)
        try:
            return await waiter.woken
        finally:
            self._leave(replica_id, waiter)

    def _hasten(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next tick comes soon, but is not put off by those who arrive before it."""
        self._tick_s = TICK_S_MIN
        if self._timer is not None:
            if self._timer.when() <= loop.time() + TICK_S_MIN:
                return
            self._timer.cancel()
        self._timer = loop.call_later(TICK_S_MIN, self._tick)

    def _leave(self, replica_id: ReplicaId, waiter: _Waiter) -> None:
        waiting = self._waiting[replica_id].waiting
        waiting.remove(waiter)
        self._count -= 1
        if not waiting:
            del self._waiting[replica_id]
        if not self._count and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        is_look_due = now_s - self._looked_s >= LOOK_S
        if is_look_due:
            self._looked_s = now_s
        for replica_id, waiters in self._waiting.items():
            try:
                page = self.page_of(replica_id)
            except OSError:  # no descriptor is free, for instance: no news
                waiters.without_page(now_s, is_look_due=is_look_due)
            else:
                waiters.turn(page, now_s, is_look_due=is_look_due)
        self._tick_s = min(self._tick_s * _SLOWER, TICK_S_MAX)
        self._timer = loop.call_later(self._tick_s, self._tick) if self._count else None


Try = Coroutine[Any, Any, PartitionAnswer]


async def first_covered(
    tries: Sequence[tuple[Verdict, Try]], requester: ScanRequester
) -> PartitionAnswer:
    """The first answer of tries that wait side by side; the others are cancelled, so that their
    targets drop them. Raises AllRefused, what is wrong with the statement itself, or BadRequest
    when the requester is gone."""
    running = {asyncio.create_task(attempt): verdict for verdict, attempt in tries}
    refusals: list[tuple[Verdict, ForwardRefused]] = []
    full: TooManyRequests | None = None
    try:
        while running:
            done, _ = await asyncio.wait(
                running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            requester.look()
            for task in done:
                verdict = running.pop(task)
                try:
                    return task.result()
                except ForwardRefused as refusal:
                    let_go(refusal)
                    refusals.append((verdict, refusal))
                except TooManyRequests as refusal:
                    full = refusal
    finally:
        for task in running:
            task.cancel()
        for task in running:
            with contextlib.suppress(asyncio.CancelledError, ForwardRefused, StandpipeError):
                await task
    if full is not None:
        raise full
    raise AllRefused(refusals)
