"""Reads that only the leader can answer, forwarded to it from any node.

Not here: writes (`node.controller.leader_proxy`), reads of the log itself
(`node.worker.statements.read_index`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from standpipe.adapters.http.internal import Call, HttpClient, PeerSilent, PeerUnreachable, Reply
from standpipe.errors import LogUnavailable
from standpipe.model import NodeId
from standpipe.node.controller.raft_driver import Quorum

#: marks a forwarded request: it is not forwarded again
FORWARDED: Final = "forwarded"


class LeaderReads:
    """Forwards a read to the leader, once."""

    def __init__(
        self,
        quorum: Quorum,
        client: HttpClient,
        addresses: Callable[[NodeId], Sequence[str]],
    ) -> None:
        self._quorum, self._client, self._addresses = quorum, client, addresses

    async def ask(self, call: Call, timeout_ms: int) -> Reply:
        """The leader's answer to the same request. Raises LogUnavailable if no leader is known, if
        it is this node, or if it does not answer."""
        me, leader = self._quorum.me.node, self._quorum.leader
        if leader is None or leader == me or FORWARDED in call.params:
            raise LogUnavailable(
                f"{me} knows no leader of the quorum: no majority of "
                f"{self._quorum.voters} can be reached, or an election is under way"
            )
        asked = asyncio.ensure_future(self._ask(leader, call, timeout_ms))
        moved = asyncio.ensure_future(self._quorum.changed())
        try:
            await asyncio.wait(
                {asked, moved}, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if asked.done():
                return asked.result()
            why = "it lost the lead" if moved.done() else f"no answer within {timeout_ms} ms"
            raise LogUnavailable(f"the leader {leader} does not answer: {why}")
        finally:
            asked.cancel()
            moved.cancel()

    async def _ask(self, leader: NodeId, call: Call, timeout_ms: int) -> Reply:
        target = f"{call.path}?{urlencode({**call.params, FORWARDED: 1})}"
        why = "no address of it is known"
        for address in self._addresses(leader):
            try:
                return await self._client.get(address, target, to=leader, timeout_ms=timeout_ms)
            except (PeerUnreachable, PeerSilent) as error:
                why = str(error)
        raise LogUnavailable(f"the leader {leader} does not answer: {why}")
