"""The consistency of a statement that reads the catalog: `standpipe.consistency`.

*local*: the catalog as this node has it, however old that is. *linearizable*: a catalog with every
statement that was acknowledged anywhere before the request arrived; it costs a read index, one
round of the quorum (`control.raft.reads`), and fails if no majority can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.config import keys
from standpipe.errors import BadRequest, LogUnavailable

LINEARIZABLE: Final = "linearizable"
CONSISTENCIES: Final = ("local", LINEARIZABLE)
#: How long the controller may take: the round in progress there, then the next one.
SECONDS_MAX: Final = 8.0


class _Answer(msgspec.Struct):
    """Answer of GET /read-index; `message` is an error's."""

    log_index: int = 0
    message: str = ""


def is_linearizable(properties: Mapping[str, str]) -> bool:
    """Whether a request asks for a linearizable read. Raises BadRequest for an unknown value."""
    asked = properties.get(keys.CONSISTENCY.name, keys.CONSISTENCY.default).lower()
    if asked not in CONSISTENCIES:
        raise BadRequest(f"{keys.CONSISTENCY.name} is {' or '.join(CONSISTENCIES)}, not '{asked}'")
    return asked == LINEARIZABLE


async def read_index(control: PeerClient, internal_address: str) -> int:
    """The log index that a read starting now must see. Raises LogUnavailable."""
    try:
        reply = await control.request(internal_address, "/read-index", timeout_s=SECONDS_MAX)
        answer = msgspec.json.decode(reply.body, type=_Answer)
    except (PathFailed, msgspec.MsgspecError) as error:
        raise LogUnavailable(
            f"the node's controller does not answer a linearizable read: {error}"
        ) from error
    if reply.status != 200:
        raise LogUnavailable(answer.message or f"control answered {reply.status}")
    return answer.log_index
