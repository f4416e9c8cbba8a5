"""Plans of pull queries with a large text, made beside the event loop.

Parsing and analysing take some 30 µs a token. A short text is planned on the loop, which turns
before the next one; a text beyond INLINE_CHARS_MAX would hold up every lookup of the worker, so a
thread plans it while the loop goes on serving. There are two threads, whose core is the loop's too:
texts of some lines do not wait behind those of some pages. Texts that find so many before them as
PENDING_MAX says are refused, since clients that wait for long ask again.

Not here: how large a text may be (`sql.syntax.limits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from standpipe.errors import TooManyRequests
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.sql.lookup.plan_cache import Compiled, PlanCache
from standpipe.sql.plans import PullPlan

#: Characters of a text that is still planned on the loop: at most as many tokens, some 8 ms.
INLINE_CHARS_MAX: Final = 256
#: Characters of a text that the first thread plans: at most 0.1 s.
MEDIUM_CHARS_MAX: Final = 4_000
#: Texts of one worker that are planned, or wait for it: at the first thread and at the second.
PENDING_MAX: Final = (64, 16)


class LargeTexts:
    """The planner of large texts at one worker."""

    def __init__(self, in_hand: TextsInHand | None = None) -> None:
        self._in_hand = in_hand or TextsInHand()
        self._threads = [
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{size}-texts")
            for size in ("medium", "large")
        ]
        self._pending = [0, 0]
        #: who has it plans on the loop; first come, first served
        self._turn = asyncio.Lock()

    async def plan(self, plans: PlanCache, text: str, properties: Mapping[str, str]) -> PullPlan:
        """The plan of a text of any size. Raises as `PlanCache.plan` does, TextRefused and
        TooManyRequests."""
        digest = self._in_hand.admitted(text)
        found = plans.cached(text, properties)
        if found is not None:
            return found
        if len(text) > INLINE_CHARS_MAX:
            return plans.keep(await self._planned(digest, plans, text, properties))
        async with self._turn:
            with self._in_hand.on_loop(digest):
                plan = plans.plan(text, properties)
            await asyncio.sleep(0)
        return plan

    async def _planned(
        self, digest: bytes, plans: PlanCache, text: str, properties: Mapping[str, str]
    ) -> Compiled:
        number = int(len(text) > MEDIUM_CHARS_MAX)
        if self._pending[number] >= PENDING_MAX[number]:
            raise TooManyRequests("too many large queries wait to be planned: retry in a second")
        self._pending[number] += 1
        compiled = self._compiled
        planning = self._threads[number].submit(compiled, digest, plans, text, properties)
        loop = asyncio.get_running_loop()
        # not in a `finally` here: a client that leaves does not end the thread's work
        planning.add_done_callback(lambda _: self._ended_in(loop, number))
        return await asyncio.wrap_future(planning)

    def _compiled(
        self, digest: bytes, plans: PlanCache, text: str, properties: Mapping[str, str]
    ) -> Compiled:
        with self._in_hand.in_thread(digest):
            return plans.compiled(text, properties)

    def _ended_in(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        def count() -> None:
            self._pending[number] -= 1

        with suppress(RuntimeError):  # the worker's loop has ended
            loop.call_soon_threadsafe(count)

    def close(self) -> None:
        """End the threads; what waits for them is cancelled."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
