"""Answers that take unbounded time, such as a digest of a whole store: long polling.

A fixed time-out is too short for a large store and too long for a dead node. So a client that sends
`patient=true` gets `202 Accepted` every ASK_AGAIN_S while the work is in progress and polls again;
it fails only when no answer comes. The work continues between two polls. A client of an older
release does not send this, and waits for the answer.

Not here: what the work is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from standpipe.adapters.http.internal import HttpClient, PeerSilent, Reply, json_reply
from standpipe.model import NodeInfo

#: less than any client's time-out
ASK_AGAIN_S: Final = 5.0
#: for one answer of 202
ANSWER_MS_MAX: Final = 20_000
#: how long an answer is kept for its client
KEPT_S: Final = 60.0
#: a disk that hangs would answer 202 without end
WORK_S_MAX: Final = 3600.0
ACCEPTED: Final = 202
#: name of that parameter
PATIENT: Final = "patient"


class LongAnswers:
    """The work in progress at this node."""

    def __init__(self) -> None:
        #: request -> its answer
        self._work: dict[object, asyncio.Task[Reply]] = {}

    async def reply(
        self, what: object, work: Callable[[], Coroutine[Any, Any, Reply]], *, is_patient: bool
    ) -> Reply:
        """The answer, or 202 while there is none yet. Requests with equal `what` share the work."""
        task = self._work.get(what)
        if task is None:
            task = self._work[what] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._keep(what, done))
        await asyncio.wait({task}, timeout=ASK_AGAIN_S if is_patient else None)
        if not task.done():
            return json_reply({}, ACCEPTED)
        self._forget(what, task)
        return task.result()

    def _keep(self, what: object, task: asyncio.Task[Reply]) -> None:
        if not task.cancelled():
            task.exception()  # raised again at the next poll
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, what, task)

    def _forget(self, what: object, task: asyncio.Task[Reply]) -> None:
        if self._work.get(what) is task:
            del self._work[what]


async def ask_patiently(
    client: HttpClient, node: NodeInfo, path: str, **parameters: str | int
) -> Reply:
    """Poll a node until it answers. Raises PeerUnreachable and PeerSilent."""
    until_s = time.monotonic() + WORK_S_MAX
    while True:
        asked = {**parameters, PATIENT: "true"}
        reply = await client.get(
            node.internal, path, to=node.node_id, timeout_ms=ANSWER_MS_MAX, **asked
        )
        if reply.status != ACCEPTED:
            return reply
        if time.monotonic() > until_s:
            raise PeerSilent(f"{node.node_id} has been working on it for {WORK_S_MAX:.0f} s")
