"""The body of a request: read up to a limit, or discarded after a refusal. HTTP/1.1 and HTTP/2.

Bodies that are still being read are bounded together, too: a client may open many connections, send
almost all of a large body on each, and then nothing for minutes. The one that was begun first gives
way, so that a client that sends its body at once is served; small bodies always have room.

Not here: how long a body may take (`adapters.http.connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from standpipe.adapters.http.server import Headers, Receive
from standpipe.errors import BadRequest, BodyTooLarge, TooManyRequests

#: A refused body is read and discarded up to this size, so that the client sees the refusal.
DISCARDED_BYTES_MAX = 64 * 1024 * 1024
#: What each body may have besides `LARGE_BYTES_MAX`.
SMALL_BYTES_MAX: Final = 64 * 1024
#: What large bodies may have together, in one process, until they are read: 64 of the default's
#: size. One alone may have more.
LARGE_BYTES_MAX: Final = 64 * 1024 * 1024


class LargeBodies:
    """The large bodies that one process is reading, the oldest first."""

    def __init__(self, bytes_max: int = LARGE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        #: {what ends the reading: bytes}
        self._begun: dict[asyncio.Timeout, int] = {}
        self._bytes = 0

    def grow(self, reading: asyncio.Timeout, size: int) -> None:
        """A body has so many bytes now. If there is no room, the oldest of several are given up,
        which may be this one."""
        self._count(reading, size)
        for oldest in list(self._begun):
            if self._bytes <= self._bytes_max or len(self._begun) == 1:
                return
            self.end(oldest)
            oldest.reschedule(asyncio.get_running_loop().time())

    def end(self, reading: asyncio.Timeout) -> None:
        """A body was read, or given up."""
        self._bytes -= self._begun.pop(reading, 0)

    def _count(self, reading: asyncio.Timeout, size: int) -> None:
        self._bytes += size - self._begun.get(reading, 0)
        self._begun[reading] = size


LARGE_BODIES: Final = LargeBodies()


def content_length(headers: Headers) -> int | None:
    """The declared length of a body; None: not declared (chunked, or no body)."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None


async def read_body(
    headers: Headers, receive: Receive, bytes_max: int, large: LargeBodies = LARGE_BODIES
) -> bytes:
    """The body of a request, never more than `bytes_max` of it in memory.

    Raises BodyTooLarge as soon as the declared or the received length passes the limit,
    TooManyRequests when the body gave way to others, and BadRequest when the client went away
    before the end.
    """
    declared = content_length(headers)
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(None) as reading:
            try:
                return await _read(receive, bytes_max, large, reading)
            finally:
                large.end(reading)
    except TimeoutError:
        raise TooManyRequests(
            "this body was read for longest of those that fill the memory for bodies: send it"
            " again, at once"
        ) from None


async def _read(
    receive: Receive, bytes_max: int, large: LargeBodies, reading: asyncio.Timeout
) -> bytes:
    body = bytearray()  # parts of one byte each would take forty times as much
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise BadRequest("the body ended before its declared length")
        part: bytes = message.get("body", b"")
        is_read = not message.get("more_body", False)
        if len(body) + len(part) > bytes_max:
            raise _too_large(bytes_max, is_read=is_read)
        if is_read and not body:
            return part
        body += part
        if is_read:
            return bytes(body)
        if len(body) > SMALL_BYTES_MAX:
            large.grow(reading, len(body) - SMALL_BYTES_MAX)


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
