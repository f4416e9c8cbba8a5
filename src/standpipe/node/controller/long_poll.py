"""Answers that take as long as they take, as to read a store through does.

A time-out of fixed length is too short for a large store and too long for a dead node. So who asks
says that it is *patient*: it is told `202 Accepted` every ASK_AGAIN_S while there is work, asks
again, and fails only when nothing is said. The work goes on between two questions. Who is not
patient (an older release) waits for the answer as it always did.

Not here: what the work is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from standpipe.adapters.http.internal import HttpClient, PeerSilent, Reply, json_reply

#: less than any time-out of who asks
ASK_AGAIN_S: Final = 5.0
#: for one answer of "still at work"
ANSWER_MS_MAX: Final = 20_000
#: how long an answer waits for who asked for it
KEPT_S: Final = 60.0
#: a disk that hangs says that it works for ever
WORK_S_MAX: Final = 3600.0
ACCEPTED: Final = 202
#: name of the parameter that says so
PATIENT: Final = "patient"


class LongAnswers:
    """What this node is working at."""

    def __init__(self) -> None:
        #: what was asked -> its answer
        self._work: dict[object, asyncio.Task[Reply]] = {}

    async def reply(
        self, what: object, work: Callable[[], Coroutine[Any, Any, Reply]], *, is_patient: bool
    ) -> Reply:
        """The answer, or ACCEPTED. `what`: equal questions share one piece of work."""
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
            task.exception()  # whoever asks again gets it
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, what, task)

    def _forget(self, what: object, task: asyncio.Task[Reply]) -> None:
        if self._work.get(what) is task:
            del self._work[what]


async def ask_patiently(
    client: HttpClient, address: str, path: str, **parameters: str | int
) -> Reply:
    """The answer of a node that may work at it for long. Raises PeerUnreachable and PeerSilent."""
    until_s = time.monotonic() + WORK_S_MAX
    while True:
        asked = {**parameters, PATIENT: "true"}
        reply = await client.get(address, path, timeout_ms=ANSWER_MS_MAX, **asked)
        if reply.status != ACCEPTED:
            return reply
        if time.monotonic() > until_s:
            raise PeerSilent(f"{address} has worked at it for {WORK_S_MAX:.0f} s")
