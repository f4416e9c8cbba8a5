"""Rows that may take long, computed in a thread beside the worker's loop.

A function of a long text takes up to a second for one row (`sql.expressions.evaluator.WORK_MAX`).
On the loop, no lookup would be answered meanwhile, and the node's parent would kill the worker as
wedged. In a thread, the loop gets the interpreter back every few milliseconds
(`sys.setswitchinterval`). One thread, since a second one would take as much from the loop again;
and while lookups come, it rests for as long as it worked, so that they have half of the core.

Not here: which plans are costly (`sql.expressions.evaluator_functions.is_costly`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from standpipe.node.worker.request.in_hand import TextsInHand

#: Others may have no work to be held up by meanwhile.
REST_S_MAX: Final = 0.5

T = TypeVar("T")


class RowThread:
    """That of one worker. `lookups`: how many reads the worker has answered."""

    def __init__(self, in_hand: TextsInHand, lookups: Callable[[], int] = lambda: 0) -> None:
        self._in_hand, self._lookups = in_hand, lookups
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="costly-rows")
        self._answered = 0
        self._worked_s = 0.0

    async def run(self, compute: Callable[[], T], digest: bytes) -> T:
        """What `compute` returns or raises; `digest` names its text. A caller that is cancelled
        does not end what has begun."""

        def work() -> T:
            if self._lookups() != self._answered:
                time.sleep(min(self._worked_s, REST_S_MAX))
            self._answered = self._lookups()
            began_s = time.monotonic()
            try:
                with self._in_hand.in_thread(digest):
                    return compute()
            finally:
                self._worked_s = time.monotonic() - began_s

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """The process ends: does not wait for what runs."""
        self._thread.shutdown(wait=False, cancel_futures=True)
