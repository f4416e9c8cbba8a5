"""The node's controller as its workers use it: statements for the log, the assignment, errors.

Not here: what a statement is (`node.worker.statements.execute`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from standpipe.adapters.http.peer_client import (
    ConnectFailed,
    PathFailed,
    PeerClient,
    Response,
)
from standpipe.errors import (
    LogUnavailable,
    OutcomeUnknown,
    ServerError,
    StandpipeError,
    StatementError,
)
from standpipe.model import Snapshot

#: How long a statement may take at the quorum's leader: it may have to make a topic.
EXECUTE_SECONDS_MAX: Final = 20.0
#: Between the two tries of a statement.
PAUSE_S: Final = 0.2
#: How long the assignor may take for a large cluster.
ASSIGNMENT_SECONDS_MAX: Final = 20.0

_JSON: Final = {"content-type": "application/json"}


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
    the id makes that harmless.

    Raises OutcomeUnknown if it may be logged: the client, which has no such id, must not repeat it.
    Else LogUnavailable, or the error that it answers.
    """
    try:
        reply, lost = await _sent_twice(control, internal_address, request)
    except ConnectFailed as error:
        raise LogUnavailable(
            f"the control process of this node does not answer: {error}"
        ) from error
    except PathFailed as error:
        raise _unknown(f"the control process of this node gave no answer ({error})") from error
    try:
        if reply.status == 200:
            return msgspec.json.decode(reply.body, type=Executed)
        error = error_of(msgspec.json.decode(reply.body, type=dict[str, object]), statement)
    except msgspec.MsgspecError as unreadable:
        raise _unknown(f"control answered {reply.status} without JSON") from unreadable
    if lost is not None and isinstance(error, LogUnavailable):
        raise _unknown(f"{error.message}, and an earlier try had no answer ({lost})") from lost
    raise error


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{why}: the statement may be carried out. Look whether it was (SHOW, DESCRIBE); if not, "
        "send it again"
    )


async def _sent_twice(
    control: PeerClient, internal_address: str, request: Mapping[str, object]
) -> tuple[Response, PathFailed | None]:
    """The answer; the second time after a pause, if the first had none. Also why the first had
    none, if control may have read it. Raises ConnectFailed if it read neither, else PathFailed."""
    lost: PathFailed | None = None
    try:
        return await _sent(control, internal_address, request), None
    except ConnectFailed:
        pass
    except PathFailed as error:
        lost = error
    await asyncio.sleep(PAUSE_S)
    try:
        return await _sent(control, internal_address, request), lost
    except ConnectFailed as error:
        if lost is None:
            raise
        raise lost from error


async def _sent(
    control: PeerClient, internal_address: str, request: Mapping[str, object]
) -> Response:
    """Sent once only, so that ConnectFailed means that control did not read it."""
    return await control.request(
        internal_address,
        "/execute",
        body=msgspec.json.encode(request),
        headers=_JSON,
        timeout_s=EXECUTE_SECONDS_MAX,
        is_repeatable=False,
    )


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
        headers=_JSON,
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
    """The StandpipeError that an error body of the controller represents: the first class with its
    code, with what the body has under `standpipe`; ServerError if there is no such class."""
    message = str(body.get("message", "control refused the statement"))
    code, extras = body.get("error_code"), body.get("standpipe")
    details = cast("dict[str, object]", extras) if isinstance(extras, dict) else {}
    kind = next((each for each in _kinds(StandpipeError) if each.code == code), ServerError)
    if issubclass(kind, StatementError):
        line, column = details.get("line"), details.get("column")
        return kind(
            message,
            statement=statement,
            line=line if isinstance(line, int) else None,
            column=column if isinstance(column, int) else None,
            hint=str(details.get("hint") or ""),
        )
    error = kind(message)
    error.details = details
    return error


def _kinds(base: type[StandpipeError]) -> list[type[StandpipeError]]:
    return [kind for below in base.__subclasses__() for kind in (below, *_kinds(below))]
