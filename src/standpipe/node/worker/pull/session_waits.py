"""Reads at level `session` that wait for this node's replica to cover their token.

    SessionWaits.until     one waiter: until the replica's page is due, its time is over, or its
                           requester is gone
    first_covered          one read that waits at several replicas at once: the first answer wins

One timer per worker reads the pages that somebody waits for, every 1 ms at first and every 10 ms
later; while nobody waits there is none. A page that has not changed costs 0.2 us, however many wait
for it, and wakes nobody. Of waiters that are alike, a page is due first for the one that came
first; so a page is judged once for each kind of them, and they are woken a few at a time, with a
turn of the loop in between: thousands that wait are no burden to the reads that do not.
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
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
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
#: in one turn of the loop: each then reads its rows, in about 0.1 ms
WOKEN_AT_ONCE: Final = 16

Page = ReplicaStatus | None


@dataclass(eq=False, slots=True)
class _Waiter:
    is_due: Callable[[Page], bool]
    #: the page that was judged last
    seen: Page
    requester: ScanRequester
    #: its end has come: whether a page is due, or what failed
    end: bool | Exception | None = None
    woken: asyncio.Future[bool] = field(default_factory=asyncio.Future[bool])

    def judge(self, page: Page) -> bool:
        """Whether its end has come. What fails is this waiter's, and no other's."""
        if self.end is None and page is not self.seen:
            self.seen = page
            try:
                self.end = self.is_due(page) or None
            except Exception as error:
                self.end = error
        return self.end is not None


@dataclass(eq=False, slots=True)
class _Waiters:
    """Those of one replica."""

    #: by what they wait for; of those that are alike, in the order in which they came
    alike: dict[Hashable, dict[_Waiter, None]] = field(
        default_factory=dict[Hashable, dict[_Waiter, None]]
    )
    #: they may have seen an older page than the others
    new: list[_Waiter] = field(default_factory=list[_Waiter])
    #: the page that all others have seen
    seen: Page = None

    def add(self, like: Hashable, waiter: _Waiter) -> None:
        self.alike.setdefault(like, {})[waiter] = None
        self.new.append(waiter)

    def leave(self, like: Hashable, waiter: _Waiter) -> None:
        alike = self.alike[like]
        del alike[waiter]
        if not alike:
            del self.alike[like]

    def due(self, page: Page) -> list[_Waiter]:
        """Those for which it is due and was not before."""
        found = [each for each in self.new if each.end is None and each.judge(page)]
        self.new = []
        if page is not self.seen:
            self.seen = page
            for alike in self.alike.values():
                for waiter in alike:
                    if waiter.end is not None:
                        continue
                    if not waiter.judge(page):
                        break
                    found.append(waiter)
        return found


@dataclass
class SessionWaits:
    """All waiters of a worker. `page_of`: the newest page of this node's replica."""

    page_of: Callable[[ReplicaId], Page]
    _waiting: dict[ReplicaId, _Waiters] = field(default_factory=dict[ReplicaId, _Waiters])
    #: those whose requester wants signs of work
    _signing: dict[_Waiter, None] = field(default_factory=dict[_Waiter, None])
    _ended: deque[_Waiter] = field(default_factory=deque[_Waiter])
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
        *,
        like: Hashable = None,
    ) -> bool:
        """Wait for a page after `seen` that is due. False: the time is over, on the loop's clock.

        `like`: equal for waiters of which a page is due for the one that came first, if it is due
        for any of them; None: nothing is known of it. Raises BadRequest when the requester is gone.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(is_due, seen, requester)
        like = waiter if like is None else like
        self._waiting.setdefault(replica_id, _Waiters()).add(like, waiter)
        self._count += 1
        self._hasten(loop)

        def give_up(_: object = None) -> None:
            self._end(waiter, end=False)

        timer = loop.call_at(until_s, give_up)
        if requester.wants_signs:
            self._signing[waiter] = None
        leaving = requester.leaving()
        if leaving is not None:
            leaving.add_done_callback(give_up)
        try:
            has_news = await waiter.woken
            requester.look()
            return has_news
        finally:
            timer.cancel()
            if leaving is not None:
                leaving.remove_done_callback(give_up)
            self._leave(replica_id, like, waiter)

    def _hasten(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next tick comes soon, but is not put off by those who arrive before it."""
        self._tick_s = TICK_S_MIN
        if self._timer is not None:
            if self._timer.when() <= loop.time() + TICK_S_MIN:
                return
            self._timer.cancel()
        self._timer = loop.call_later(TICK_S_MIN, self._tick)

    def _leave(self, replica_id: ReplicaId, like: Hashable, waiter: _Waiter) -> None:
        waiters = self._waiting[replica_id]
        waiters.leave(like, waiter)
        waiter.end = waiter.end or False  # it may be among those that are new
        self._signing.pop(waiter, None)
        self._count -= 1
        if not waiters.alike:
            del self._waiting[replica_id]
        if not self._count and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._sign()
        for replica_id, waiters in self._waiting.items():
            with contextlib.suppress(OSError):  # no descriptor is free, for instance: no news
                page = self.page_of(replica_id)
                for waiter in waiters.due(page):
                    self._wake_later(waiter)
        self._tick_s = min(self._tick_s * _SLOWER, TICK_S_MAX)
        self._timer = loop.call_later(self._tick_s, self._tick) if self._count else None

    def _sign(self) -> None:
        for waiter in self._signing:
            try:
                waiter.requester.look()
            except Exception as error:
                self._end(waiter, end=error)

    def _end(self, waiter: _Waiter, *, end: bool | Exception) -> None:
        if waiter.end is None:
            waiter.end = end
            self._wake_later(waiter)

    def _wake_later(self, waiter: _Waiter) -> None:
        self._ended.append(waiter)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Some of those whose end has come."""
        for _ in range(min(WOKEN_AT_ONCE, len(self._ended))):
            waiter = self._ended.popleft()
            if waiter.woken.done():  # its read was cancelled
                continue
            if isinstance(waiter.end, Exception):
                waiter.woken.set_exception(waiter.end)
            else:
                waiter.woken.set_result(waiter.end is True)
        if self._ended:
            asyncio.get_running_loop().call_soon(self._wake)


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
    leaving = requester.leaving()
    look_s = LOOK_S if requester.wants_signs else None
    try:
        while running:
            ends = running if leaving is None else (*running, leaving)
            done, _ = await asyncio.wait(ends, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
            requester.look()
            for task in running.keys() & done:
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
