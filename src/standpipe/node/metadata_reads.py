"""What a statement that reads the catalog may ask for: `standpipe.consistency`.

*local*: the catalog as this node's map shows it, as old as that may be. *linearizable*: one that
has every statement that was acknowledged anywhere before the request arrived; it costs a round of
the quorum (`control.raft_reads`) and fails where no majority can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe import config
from standpipe.adapters.peer_client import PathFailed, PeerClient
from standpipe.errors import BadRequest, LogUnavailable

CONSISTENCIES: Final = ("local", "linearizable")
#: How long the quorum's leader may take.
SECONDS_MAX: Final = 5.0


class _Answer(msgspec.Struct):
    """Of GET /read-index; `message` is an error's."""

    log_index: int = 0
    message: str = ""


def is_linearizable(properties: Mapping[str, str]) -> bool:
    """Which of the two a request asks for. Raises BadRequest for anything else."""
    asked = properties.get(config.CONSISTENCY.name, config.CONSISTENCY.default).lower()
    if asked not in CONSISTENCIES:
        raise BadRequest(
            f"{config.CONSISTENCY.name} is {' or '.join(CONSISTENCIES)}, not '{asked}'"
        )
    return asked == "linearizable"


class ReadIndexes:
    """Questions of one worker to its node's control, one at a time: each is asked for all reads
    that wait when it is sent. A question that was under way before a read came does not cover it.
    """

    def __init__(self, control: PeerClient, internal_address: str) -> None:
        self._control = control
        self._internal_address = internal_address
        self._under_way: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def newest(self) -> int:
        """The log index that a read which begins now must be shown. Raises LogUnavailable."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._under_way))
            self._next.add_done_callback(_look_at)
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait([before])
        self._under_way, self._next = self._next, None
        return await read_index(self._control, self._internal_address)


def _look_at(asked: asyncio.Task[int]) -> None:
    """All who waited may have gone: its error is nobody's then, and no warning."""
    if not asked.cancelled():
        asked.exception()


async def read_index(control: PeerClient, internal_address: str) -> int:
    """Ask control once. Raises LogUnavailable."""
    try:
        reply = await control.request(internal_address, "/read-index", timeout_seconds=SECONDS_MAX)
        answer = msgspec.json.decode(reply.body, type=_Answer)
    except (PathFailed, msgspec.MsgspecError) as error:
        raise LogUnavailable(f"control does not answer a linearizable read: {error}") from error
    if reply.status != 200:
        raise LogUnavailable(answer.message or f"control answered {reply.status}")
    return answer.log_index
