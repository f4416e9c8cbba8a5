"""One question for all who wait: the batching of linearizable reads, at a worker and at a node.

    first asks ───────────────► answered: those who waited when it was sent
      others come meanwhile: the next one is sent when this one is back, for all of them

An answer speaks of the moment at which its question was sent. So who comes while a question is
under way is not covered by it and waits for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Questions of one kind, one at a time."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._question = ask
        self._under_way: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """The answer to a question that is sent from now on. Raises what the question raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._under_way))
            self._next.add_done_callback(_look_at)
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._under_way, self._next = self._next, None
        return await self._question()


def _look_at(asked: asyncio.Task[T]) -> None:
    """All who waited may have gone: its error is nobody's then, and no warning."""
    if not asked.cancelled():
        asked.exception()
