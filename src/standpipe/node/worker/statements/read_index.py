"""What a statement that reads the catalog may ask for: `standpipe.consistency`.

*local*: the catalog as this node's map shows it, as old as that may be. *linearizable*: one that
has every statement that was acknowledged anywhere before the request arrived; it costs a round of
the quorum (`control.raft.reads`) and fails where no majority can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.config import keys
from standpipe.errors import BadRequest, LogUnavailable

CONSISTENCIES: Final = ("local", "linearizable")
#: How long control may take: the question that is under way there, then ours.
SECONDS_MAX: Final = 8.0


class _Answer(msgspec.Struct):
    """Of GET /read-index; `message` is an error's."""

    log_index: int = 0
    message: str = ""


def is_linearizable(properties: Mapping[str, str]) -> bool:
    """Which of the two a request asks for. Raises BadRequest for anything else."""
    asked = properties.get(keys.CONSISTENCY.name, keys.CONSISTENCY.default).lower()
    if asked not in CONSISTENCIES:
        raise BadRequest(f"{keys.CONSISTENCY.name} is {' or '.join(CONSISTENCIES)}, not '{asked}'")
    return asked == "linearizable"


async def read_index(control: PeerClient, internal_address: str) -> int:
    """The log index that a read which begins now must be shown. Raises LogUnavailable."""
    try:
        reply = await control.request(internal_address, "/read-index", timeout_seconds=SECONDS_MAX)
        answer = msgspec.json.decode(reply.body, type=_Answer)
    except (PathFailed, msgspec.MsgspecError) as error:
        raise LogUnavailable(f"control does not answer a linearizable read: {error}") from error
    if reply.status != 200:
        raise LogUnavailable(answer.message or f"control answered {reply.status}")
    return answer.log_index
