"""Answers of the REST routes: JSON, errors in ksqlDB's shape, and refusals before a body is read.

Not here: the routes (`node.worker.routes`), the texts of errors (`standpipe.errors`).
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from standpipe.adapters.http.request_body import discard_body
from standpipe.adapters.http.server import Receive, Send
from standpipe.errors import BodyTooLarge, ServerError, StandpipeError
from standpipe.node.worker.statements.execute import StatementFailed

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

JSON = "application/json"
#: of what a process, or its node, has none left
_SHORT_OF: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.EROFS}
)


class NodeExhausted(StandpipeError):
    """The node has no file descriptor, memory or disk left for this request. Ask another node."""

    status = 503
    code = 50314
    retry_after_s = 1


Endpoint = Callable[[Request], Awaitable[Response]]


def json_response(value: object, media: str = JSON, status: int = 200) -> Response:
    """A response with `value` as its JSON body."""
    return Response(msgspec.json.encode(value), status, media_type=media)


def error_response(error: StandpipeError, body: dict[str, object] | None = None) -> Response:
    """An error in ksqlDB's shape, with Retry-After if retrying makes sense."""
    response = json_response(body or error.body(), status=error.status)
    if error.retry_after_s is not None:
        response.headers["retry-after"] = str(error.retry_after_s)
    if isinstance(error, BodyTooLarge):
        response.headers["connection"] = "close"
    return response


def as_standpipe_error(error: Exception) -> StandpipeError:
    """The error to show: itself if it is one of ours, else a server error, with a logged trace."""
    if isinstance(error, StandpipeError):
        return error
    if isinstance(error, OSError) and error.errno in _SHORT_OF:
        _log.warning("a request could not be answered", error=str(error))
        reason = errno.errorcode[error.errno]
        return NodeExhausted(f"this node has run out of something ({reason}): ask another node")
    _log.error("unforeseen error", exc_info=error)
    return ServerError(f"unforeseen error: {type(error).__name__}; the node's log has the trace")


async def send_refusal(error: StandpipeError, receive: Receive, send: Send) -> None:
    """Send an error before the request's body was read; then read and discard the rest."""
    response = error_response(error)
    await send(
        {"type": "http.response.start", "status": error.status, "headers": response.raw_headers}
    )
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    if not (isinstance(error, BodyTooLarge) and error.is_read):
        await discard_body(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def plain(request: Request, error: HTTPException) -> Response:
    """Starlette's own refusals, as ksqlDB words them."""
    texts = {404: "Not Found", 405: "Method Not Allowed"}
    text = texts.get(error.status_code, error.detail)
    return PlainTextResponse(text, error.status_code, headers=dict(error.headers or {}))


def guarded(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors turned into responses."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BodyTooLarge as error:
            return _Refusal(error)
        except StatementFailed as failed:
            return error_response(failed.cause, failed.body())
        except Exception as error:
            return error_response(as_standpipe_error(error))

    return call


class _Refusal(Response):
    """An error that is sent before the request's body was read."""

    def __init__(self, error: StandpipeError) -> None:
        super().__init__(b"", error.status)
        self._error = error

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send_refusal(self._error, receive, send)
