"""The node's controller as its workers use it: statements for the log, the assignment, errors.

Not here: what a statement is (`node.worker.statements.execute`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient, Response
from standpipe.errors import LogUnavailable, ServerError, StandpipeError, StatementError
from standpipe.model import Snapshot

#: How long a statement may take at the quorum's leader: it may have to make a topic.
EXECUTE_SECONDS_MAX: Final = 20.0
#: How long the assignor may take for a large cluster.
ASSIGNMENT_SECONDS_MAX: Final = 20.0


class Executed(msgspec.Struct):
    """What the controller answers once a statement is logged and carried out."""

    log_index: int
    entities: list[dict[str, object]] = []


def request_id(known: Snapshot) -> dict[str, object]:
    """The fields of a new request that make it apply once: an id, and the index of the log that
    this node knew before (`control.metadata.requests`)."""
    return {"request_id": uuid.uuid4().hex, "known_index": known.log_index}


async def execute(
    control: PeerClient, internal_address: str, request: Mapping[str, object], statement: str
) -> Executed:
    """Send a statement with its request id to the metadata log. Retries once if no answer came:
    the id makes that harmless. Raises LogUnavailable, or the error that it answers."""
    try:
        reply = await _sent_twice(control, internal_address, request)
    except PathFailed as error:
        raise LogUnavailable(
            f"the control process of this node does not answer: {error}"
        ) from error
    try:
        if reply.status != 200:
            raise error_of(msgspec.json.decode(reply.body, type=dict[str, object]), statement)
        return msgspec.json.decode(reply.body, type=Executed)
    except msgspec.MsgspecError as error:
        raise LogUnavailable(f"control answered {reply.status} without JSON") from error


async def _sent_twice(
    control: PeerClient, internal_address: str, request: Mapping[str, object]
) -> Response:
    """The second time after a pause, if the first had no answer. Raises PathFailed."""
    path, timeout_s = "/execute", EXECUTE_SECONDS_MAX
    try:
        return await ask(control, internal_address, path, request, timeout_s=timeout_s)
    except PathFailed:
        await asyncio.sleep(0.2)
        return await ask(control, internal_address, path, request, timeout_s=timeout_s)


async def ask(
    control: PeerClient,
    internal_address: str,
    path: str,
    request: Mapping[str, object],
    *,
    timeout_s: float,
) -> Response:
    """POST a request to the controller. Raises PathFailed."""
    return await control.request(
        internal_address,
        path,
        body=msgspec.json.encode(request),
        headers={"content-type": "application/json"},
        timeout_s=timeout_s,
    )


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
