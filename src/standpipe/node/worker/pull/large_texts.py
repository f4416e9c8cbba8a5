"""Plans of pull queries with a large text, made beside the event loop.

Parsing and analysing take some 30 µs a token. A short text is planned at once; a text beyond
INLINE_CHARS_MAX would hold up every lookup of the worker, so a thread plans it while the loop goes
on serving. One thread: its core is the loop's too. Texts that find PENDING_MAX before them are
refused, since clients that wait for long ask again.

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

#: Characters of a text that is still planned on the loop: at most as many tokens, some 30 ms.
INLINE_CHARS_MAX: Final = 1_000
#: Large texts of one worker that are planned or wait for it.
PENDING_MAX: Final = 16


class LargeTexts:
    """The planner of large texts at one worker."""

    def __init__(self, in_hand: TextsInHand | None = None) -> None:
        self._in_hand = in_hand or TextsInHand()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-texts")
        self._pending = 0

    async def plan(self, plans: PlanCache, text: str, properties: Mapping[str, str]) -> PullPlan:
        """The plan of a text of any size. Raises as `PlanCache.plan` does, TextRefused and
        TooManyRequests."""
        digest = self._in_hand.admitted(text)
        if len(text) <= INLINE_CHARS_MAX:
            with self._in_hand.on_loop(digest):
                return plans.plan(text, properties)
        found = plans.cached(text, properties)
        if found is not None:
            return found
        if self._pending >= PENDING_MAX:
            raise TooManyRequests("too many large queries wait to be planned: retry in a second")
        self._pending += 1
        planning = self._thread.submit(self._compiled, digest, plans, text, properties)
        loop = asyncio.get_running_loop()
        # not in a `finally` here: a client that leaves does not end the thread's work
        planning.add_done_callback(lambda _: self._ended_in(loop))
        return plans.keep(await asyncio.wrap_future(planning))

    def _compiled(
        self, digest: bytes, plans: PlanCache, text: str, properties: Mapping[str, str]
    ) -> Compiled:
        with self._in_hand.in_thread(digest):
            return plans.compiled(text, properties)

    def _ended_in(self, loop: asyncio.AbstractEventLoop) -> None:
        def count() -> None:
            self._pending -= 1

        with suppress(RuntimeError):  # the worker's loop has ended
            loop.call_soon_threadsafe(count)

    def close(self) -> None:
        """End the thread; what waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
