"""Answers of the node's controller to its workers: the assignment, and errors as StandpipeError.

Not here: sending statements (`node.worker.statements.execute`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.errors import LogUnavailable, ServerError, StandpipeError, StatementError

#: How long the assignor may take for a large cluster.
ASSIGNMENT_SECONDS_MAX: Final = 20.0


async def assignment(control: PeerClient, internal_address: str) -> Mapping[str, object]:
    """The body of GET /assignment. Raises LogUnavailable, or the error that it answers."""
    try:
        reply = await control.request(
            internal_address, "/assignment", timeout_s=ASSIGNMENT_SECONDS_MAX
        )
    except PathFailed as error:
        raise LogUnavailable(
            f"the control process of this node does not answer: {error}"
        ) from error
    body = msgspec.json.decode(reply.body, type=dict[str, object])
    if reply.status != 200:
        raise error_of(body, "EXPLAIN ASSIGNMENT;")
    return body


def error_of(body: Mapping[str, object], statement: str) -> StandpipeError:
    """The StandpipeError that an error body of the controller represents."""
    message = str(body.get("message", "control refused the statement"))
    code = body.get("error_code")
    if code == StatementError.code:
        extras = body.get("standpipe")
        place = cast("dict[str, object]", extras) if isinstance(extras, dict) else {}
        line, column = place.get("line"), place.get("column")
        return StatementError(
            message,
            statement=statement,
            line=line if isinstance(line, int) else None,
            column=column if isinstance(column, int) else None,
            hint=str(place.get("hint") or ""),
        )
    for kind in _kinds(StandpipeError):
        if kind.code == code and not issubclass(kind, StatementError):
            return kind(message)
    return ServerError(message)


def _kinds(base: type[StandpipeError]) -> list[type[StandpipeError]]:
    return [kind for below in base.__subclasses__() for kind in (below, *_kinds(below))]
