"""Rows that may take long, computed in a thread beside the worker's loop.

A function of a long text takes up to a second for one row (`sql.expressions.evaluator.WORK_MAX`).
On the loop, no lookup would be answered meanwhile, and the node's parent would kill the worker as
wedged. In a thread, the loop gets the interpreter back every few milliseconds
(`sys.setswitchinterval`). A heavy worker computes most such rows (`takes_long.py`); a worker of
lookups does where none is there. One thread, since a second one would take as much from the loop
again; and while lookups come, it rests for as long as it worked: they have half of the core.

Not here: which plans have such rows (`sql.expressions.evaluator_functions.has_costly_rows`); which
text is in hand meanwhile (`in_hand.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

#: Others may have no work to be held up by meanwhile.
REST_S_MAX: Final = 0.5

T = TypeVar("T")


class RowThread:
    """That of one worker. `lookups`: how many reads the worker has answered."""

    def __init__(self, lookups: Callable[[], int] = lambda: 0) -> None:
        self._lookups = lookups
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="costly-rows")
        self._answered = 0
        self._worked_s = 0.0

    async def run(self, compute: Callable[[], T]) -> T:
        """What `compute` returns or raises. A caller that is cancelled does not end what has
        begun."""

        def work() -> T:
            if self._lookups() != self._answered:
                time.sleep(min(self._worked_s, REST_S_MAX))
            self._answered = self._lookups()
            began_s = time.monotonic()
            try:
                return compute()
            finally:
                self._worked_s = time.monotonic() - began_s

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def submit(self, work: Callable[[], object]) -> None:
        """Have `work` done after all that was asked for before."""
        self._thread.submit(work)

    def close(self) -> None:
        """The process ends: does not wait for what runs."""
        self._thread.shutdown(wait=False, cancel_futures=True)
