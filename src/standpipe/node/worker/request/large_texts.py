"""Plans queries with a large text in threads beside the event loop.

Parsing and analysing take some 30 µs a token. The loop plans a short text itself, and serves other
requests before the next one. A text beyond INLINE_CHARS_MAX would delay every lookup of the worker,
so a thread plans it while the loop continues. There are two threads for clients, and two for peers,
so that texts of some lines do not wait behind those of some pages. A text is refused if PENDING_MAX
others wait, since clients that wait for long send their request again. The largest texts, and plans
whose rows take long, are left to a heavy worker (`node.worker.request.takes_long`).

Not here: how large a text may be (`sql.syntax.limits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from standpipe.errors import TooManyRequests
from standpipe.node.worker.request.body import Lookup
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.takes_long import refuse_long, refuse_unknown
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import PullPlan

#: Characters of a text that is still planned on the loop: at most as many tokens, some 8 ms.
INLINE_CHARS_MAX: Final = 256
#: Characters of a text that the first thread plans: at most 0.1 s.
MEDIUM_CHARS_MAX: Final = 4_000
#: Texts of a lane that are planned, or wait for it: at its first thread and at its second.
PENDING_MAX: Final = (64, 16)

T = TypeVar("T")


class _Lane:
    """The texts of clients, or those of peers: neither fills the other's threads."""

    def __init__(self, name: str) -> None:
        self.threads = [
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{size}-texts-of-{name}")
            for size in ("medium", "large")
        ]
        self.pending = [0, 0]
        #: the holder plans on the loop; first come, first served
        self.turn = asyncio.Lock()


class LargeTexts:
    """The planner of texts at one worker."""

    def __init__(self, in_hand: TextsInHand | None = None) -> None:
        self._in_hand = in_hand or TextsInHand()
        self._clients, self._peers = _Lane("clients"), _Lane("peers")

    async def plan(
        self,
        plans: PlanCache,
        asked: Lookup,
        *,
        requester: ScanRequester | None = None,
        digest: bytes | None = None,
    ) -> PullPlan:
        """The plan of a text of any size. `digest`: the text's, if it is admitted already.

        Raises as `PlanCache.plan` does, TextRefused, TooManyRequests, and TakesLong if a heavy
        worker may answer the requester."""
        digest = digest or self._in_hand.admitted(asked.text)
        known = requester or ScanRequester()
        plan = plans.cached(asked.text, asked.properties)
        if plan is None:
            if known.may_pass_on:
                refuse_unknown(asked.text)
            plan = await self._found(plans, asked, digest, is_peer=known.is_peer)
        if known.may_pass_on:
            refuse_long(plan)
        return plan

    async def beside(self, text: str, digest: bytes, plan: Callable[[], T]) -> T:
        """What `plan` returns or raises, of a client's text that is no pull query. Raises
        TooManyRequests."""
        if len(text) > INLINE_CHARS_MAX:
            return await self._planned(self._clients, text, digest, plan)
        async with self._clients.turn:
            with self._in_hand.on_loop(digest):
                found = plan()
            await asyncio.sleep(0)
        return found

    async def _found(
        self, plans: PlanCache, asked: Lookup, digest: bytes, *, is_peer: bool
    ) -> PullPlan:
        lane = self._peers if is_peer else self._clients
        if len(asked.text) > INLINE_CHARS_MAX:
            compiled = partial(plans.compiled, asked.text, asked.properties)
            return plans.keep(await self._planned(lane, asked.text, digest, compiled))
        async with lane.turn:
            with self._in_hand.on_loop(digest):
                plan = plans.plan(asked.text, asked.properties)
            await asyncio.sleep(0)
        return plan

    async def _planned(self, lane: _Lane, text: str, digest: bytes, plan: Callable[[], T]) -> T:
        number = int(len(text) > MEDIUM_CHARS_MAX)
        if lane.pending[number] >= PENDING_MAX[number]:
            raise TooManyRequests("too many large queries wait to be planned: retry in a second")
        lane.pending[number] += 1
        planning = lane.threads[number].submit(self._in_turn, digest, plan)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            lane.pending[number] -= 1

        def in_thread(_: object) -> None:
            with suppress(RuntimeError):  # the worker's loop has ended
                loop.call_soon_threadsafe(ended)

        # not in a `finally` here: a client that leaves does not end the thread's work
        planning.add_done_callback(in_thread)
        return await asyncio.wrap_future(planning)

    def _in_turn(self, digest: bytes, plan: Callable[[], T]) -> T:
        with self._in_hand.in_thread(digest):
            return plan()

    def close(self) -> None:
        """End the threads; what waits for them is cancelled."""
        for thread in (*self._clients.threads, *self._peers.threads):
            thread.shutdown(wait=False, cancel_futures=True)
