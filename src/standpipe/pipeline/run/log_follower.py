"""Which node a process follows the log of, and which ones it may ask at all.

Any node can serve the log, since each answers from its own copy. If one does not answer, or its
copy stands still (`watch/stale_log.py`), another one is asked.

Not here: what the log says, and all other requests (`control_client.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from standpipe.adapters.http.internal import HttpClient, PeerSilent, PeerUnreachable
from standpipe.control.metadata.commands import LogPage
from standpipe.errors import LogUnavailable
from standpipe.pipeline.run.watch.stale_log import StaleLog, is_better

POLL_WAIT_MS = 1000
CALL_MS_MAX = 3000
#: how long the others are waited for while the node that is followed stands still
BETTER_MS_MAX = 800
RETRY_S = 0.5

_NOT_SERVED = (PeerUnreachable, PeerSilent, LogUnavailable)

_log = structlog.get_logger("follow")


class KnownNodes:
    """The nodes that may be asked, in the order in which they are: those that the process was
    given, and the cluster's members. A process may live longer than all the nodes it was given."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = tuple(given)
        self._order = deque(dict.fromkeys(self._given))

    def learn(self, members: Iterable[str]) -> None:
        """Take over the internal addresses of the members. One that is a member no more is not
        asked any more, unless it was given."""
        wanted = dict.fromkeys([*self._given, *members])
        kept = [each for each in self._order if each in wanted]
        self._order = deque([*kept, *(each for each in wanted if each not in kept)])

    def in_order(self) -> list[str]:
        """All of them, the one to ask first."""
        return list(self._order)

    def begin_with(self, node: str) -> None:
        """Ask this one first from now on."""
        if node in self._order:
            self._order.rotate(-self._order.index(node))

    def put_last(self, node: str) -> None:
        """It did not answer, or not well: ask the one after it first."""
        if node in self._order:
            self._order.rotate(-self._order.index(node) - 1)


class FollowedCatalog(Protocol):
    """What is made of the log."""

    def next_index(self) -> int:
        """The entry to read next."""
        ...

    def confirmed_index(self) -> int:
        """The newest entry that the leader has told of; 0: it has not."""
        ...

    def take(self, page: LogPage) -> None:
        """The next entries."""
        ...


@dataclass(frozen=True)
class LogFollower:
    """Reads the log, from one node at a time."""

    client: HttpClient
    nodes: KnownNodes
    of: FollowedCatalog
    clock: Callable[[], float] = time.monotonic

    async def follow(self) -> None:
        """Read on until cancelled. Raises what is no matter of the node that was asked, such as an
        entry that this release does not know."""
        failures = 0
        while True:
            node = self.nodes.in_order()[0]
            try:
                self.nodes.begin_with(await self._follow_one(node))
            except _NOT_SERVED as error:
                _log.info("node does not serve the log", node=node, why=error.message)
                self.nodes.put_last(node)
                failures += 1
                if failures % len(self.nodes.in_order()) == 0:
                    await asyncio.sleep(RETRY_S)

    async def _follow_one(self, node: str) -> str:
        """Read the log from this node, as long as no other one is better. Returns that one."""
        stale = StaleLog()
        while True:
            page = await self._page(node, POLL_WAIT_MS, CALL_MS_MAX)
            self.of.take(page)
            why = stale.take(page, self.of.confirmed_index(), self.clock())
            if why and (better := await self._better(node, page)):
                _log.warning("another node serves the log", node=better, left=node, why=why)
                return better

    async def _better(self, node: str, served: LogPage) -> str | None:
        """Another node that is not cut off as this one is; all are asked at once."""

        async def is_it(other: str) -> bool:
            with contextlib.suppress(*_NOT_SERVED):
                return is_better(await self._page(other, 0, BETTER_MS_MAX), served)
            return False

        others = [other for other in self.nodes.in_order() if other != node]
        found = await asyncio.gather(*map(is_it, others))
        return next(itertools.compress(others, found), None)

    async def _page(self, node: str, wait_ms: int, timeout_ms: int) -> LogPage:
        target = f"/log?from={self.of.next_index()}&wait_ms={wait_ms}"
        reply = await self.client.get(node, target, timeout_ms=timeout_ms + wait_ms)
        if not reply.ok:
            raise LogUnavailable(f"{node} answers {reply.status}: {reply.body[:200]!r}")
        return reply.msgpack(LogPage)
