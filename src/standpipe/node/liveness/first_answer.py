"""Whether this node's workers serve: no copy may count as ready before they do.

A node that joins starts its tailer and its workers beside each other. On a busy machine the tailer
has caught up while the workers still import. If its lags were reported then, the leader would move
copies, and thus reads, to a port that refuses connections. The same holds where workers cannot
start at all, such as where another program has the port.

The node asks itself as a peer would, so the answer also proves that it comes from this node. A
worker that dies later is not asked about: `workers_ok` says so, and routing tries it late
(`control/routing/route.py`).

Not here: what a node reports until then (`node.liveness.local_state`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.adapters.sealed.handshake import PEER
from standpipe.node.addresses import dialled
from standpipe.node.configuration import NodeConfig
from standpipe.node.liveness.wire import PROBE_PATH

ASK_S: Final = 0.05
ANSWER_S_MAX: Final = 1.0


class FirstAnswer:
    """The first answer of one of this node's workers since this process started."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self.has_come = False

    async def run(self) -> None:
        """Ask until there is an answer."""
        client = PeerClient(identity=self._config.identity(PEER), to=self._config.node_id)
        try:
            while not self.has_come:
                self.has_come = await self._is_answered(client)
                await asyncio.sleep(ASK_S)
        finally:
            client.close()

    async def _is_answered(self, client: PeerClient) -> bool:
        try:
            answer = await client.request(
                dialled(self._config.peer), PROBE_PATH, timeout_s=ANSWER_S_MAX
            )
        except PathFailed:
            return False
        return answer.status == 200
