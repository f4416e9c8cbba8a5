"""One request for all callers that wait: batches linearizable reads, at a worker and at a node.

    first caller ─► request 1 ──────────► answered: the callers that waited when it was sent
      callers that come meanwhile wait: ─► request 2, sent when 1 is back, for all of them

An answer holds for the moment at which its request was sent. So a caller that comes while a request
is in flight is not covered by it and waits for the next.

Not here: what is asked (`node.worker.statements.read_index`, `node.worker.pull.linearizable`,
`node.controller.quorum_routes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Requests of one kind, one at a time. `every_s`: from one that is sent to the next."""

    def __init__(self, ask: Callable[[], Awaitable[T]], every_s: float = 0.0) -> None:
        self._request = ask
        self._every_s, self._may_ask_s = every_s, 0.0
        self._under_way: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """The answer to a request that is sent after this call. Raises what the request raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._under_way))
            self._next.add_done_callback(_look_at)
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        loop = asyncio.get_running_loop()
        if (early_s := self._may_ask_s - loop.time()) > 0:
            await asyncio.sleep(early_s)  # who comes meanwhile shares this one
        self._may_ask_s = loop.time() + self._every_s
        self._under_way, self._next = self._next, None
        return await self._request()


def _look_at(asked: asyncio.Task[T]) -> None:
    """Read its error even if all callers have gone, so that asyncio logs no warning."""
    if not asked.cancelled():
        asked.exception()
