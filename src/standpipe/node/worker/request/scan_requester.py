"""Who waits for the rows of a read, and what is collected for it.

Not here: the scans themselves (`node.worker.pull.scans`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from standpipe.adapters.http.server import Receive
from standpipe.errors import BadRequest
from standpipe.node.worker.request.answer_budget import AnswerBudget


class ScanRequester:
    """The client or peer that waits for a scan.

    It may go away. A peer needs a sign of work now and then, or it takes the silence for a failed
    path. What is collected for it counts against the worker's budget until `release`.
    """

    def __init__(
        self,
        receive: Receive | None = None,
        say: Callable[[], None] | None = None,
        every_ms: int | None = None,
        *,
        budget: AnswerBudget | None = None,
        is_peer: bool = False,
        address: str = "",
        may_pass_on: bool = False,
    ) -> None:
        """`say` is called every `every_ms`; None: the requester wants no sign of work.
        `may_pass_on`: a heavy worker answers it if it takes long."""
        self.is_peer, self.address = is_peer, address
        self.may_pass_on = may_pass_on
        self._receive, self._say = receive, say
        self._every_s = None if every_ms is None else every_ms / 1000
        self._said_s = 0.0
        self._leaving: asyncio.Task[None] | None = None
        self._budget = budget or AnswerBudget()
        self._held_bytes = 0
        self._copied_bytes = 0
        self._is_released = False

    def hold(self, more_bytes: int) -> None:
        """More of its answer was collected; less than 0: some was dropped. Raises BadRequest and
        TooManyRequests.

        After `release` nothing is charged: the loser of a hedge may end after the answer is out.
        """
        if self._is_released:
            return
        self._budget.take(self._held_bytes, more_bytes, self._copied_bytes)
        self._held_bytes += more_bytes

    def copied(self, more_bytes: int) -> None:
        """One of its scans has copied more from the store; less than 0: it has decoded some."""
        if not self._is_released:
            self._budget.lend(more_bytes)
            self._copied_bytes += more_bytes

    @property
    def room_bytes(self) -> int:
        """What its scans may still copy."""
        return self._budget.room_bytes

    def release(self) -> None:
        """Its answer is out, or it gets none."""
        self._is_released = True
        self.close()
        self._budget.give_back(self._held_bytes + self._copied_bytes)
        self._held_bytes = self._copied_bytes = 0

    def look(self) -> None:
        """Send a sign of work, if one is due. Raises BadRequest when the requester is gone."""
        now_s = time.monotonic()
        if self._say and self._every_s is not None and now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            self._say()
        if self.is_gone:
            raise BadRequest("the client disconnected before its answer")

    @property
    def wants_signs(self) -> bool:
        """Whether `look` is to be called now and then."""
        return self._say is not None and self._every_s is not None

    @property
    def is_gone(self) -> bool:
        """Whether it went away. The first call begins to watch for that."""
        leaving = self.leaving()
        return leaving is not None and leaving.done()

    def leaving(self) -> asyncio.Task[None] | None:
        """Ends when it goes away, or with `close`; None: nobody can tell."""
        if self._leaving is None and self._receive is not None:
            self._leaving = asyncio.create_task(left(self._receive))
        return self._leaving

    def close(self) -> None:
        """Stop watching whether the requester is there."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None


async def left(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
