"""The body of a request: read up to a limit, or discarded after a refusal. HTTP/1.1 and HTTP/2.

Not here: how long a body may take (`adapters.http.connections`).
"""

from __future__ import annotations

import asyncio
import contextlib

from standpipe.adapters.http.server import Headers, Receive
from standpipe.errors import BadRequest, BodyTooLarge

#: A refused body is read and discarded up to this size, so that the client sees the refusal.
DISCARDED_BYTES_MAX = 64 * 1024 * 1024


def content_length(headers: Headers) -> int | None:
    """The declared length of a body; None: not declared (chunked, or no body)."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None


async def read_body(headers: Headers, receive: Receive, bytes_max: int) -> bytes:
    """The body of a request, never more than `bytes_max` of it in memory.

    Raises BodyTooLarge as soon as the declared or the received length passes the limit, and
    BadRequest when the client went away before the end.
    """
    declared = content_length(headers)
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise BadRequest("the body ended before its declared length")
        part: bytes = message.get("body", b"")
        size += len(part)
        is_read = not message.get("more_body", False)
        if size > bytes_max:
            raise _too_large(bytes_max, is_read=is_read)
        parts.append(part)
        if is_read:
            return b"".join(parts)


def _too_large(bytes_max: int, *, is_read: bool = False) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request body exceeds {bytes_max} bytes (standpipe.request.body.bytes.max)",
        is_read=is_read,
    )


async def discard_body(receive: Receive, bytes_max: int = DISCARDED_BYTES_MAX) -> None:
    """Read and discard the rest: closing a socket with unread bytes can lose the answer too."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while size <= bytes_max:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
