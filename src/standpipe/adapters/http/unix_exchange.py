"""One HTTP exchange with another process of this node, over a Unix socket, piece by piece.

The answer is passed on as it comes: the caller says for each piece when the next one may come, so
nothing is collected here. A new connection for each exchange costs 0.05 ms, and its end tells the
other process that nobody waits any longer.

A Unix socket needs no port and no proof: only this user may enter the directory. Its path may have
107 bytes only, so it is reached through the directory's descriptor, however long that path is.

Not here: exchanges with other nodes (`peer_client.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import httptools

from standpipe.adapters.http.server import BACKLOG, Headers

READ_BYTES: Final = 64 * 1024
CONNECT_S_MAX: Final = 1.0


class NotReached(Exception):
    """Nobody listens there: nothing was sent."""


class EndedEarly(Exception):
    """The other process ended the connection before its answer was complete."""


class SocketFolder:
    """The directory in which the processes of a node have their sockets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def bind(self, name: str) -> socket.socket:
        """A listening socket there, in place of an earlier one. Raises OSError."""
        (self._folder / name).unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(self._path(name))
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
        bound.setblocking(False)
        return bound

    async def connect(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises NotReached."""
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                return await asyncio.open_unix_connection(self._path(name))
        except OSError as error:  # TimeoutError is one
            raise NotReached(f"{name}: {error}") from error

    def _path(self, name: str) -> str:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{name}"


class _ParsedAnswer:
    """What the parser has found in the bytes so far."""

    def __init__(self, working: Callable[[], None]) -> None:
        self._working = working
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # ------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._working()
        else:
            self.status = status

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    *,
    begin: Callable[[int, Headers], Awaitable[None]],
    more: Callable[[bytes], Awaitable[None]],
    working: Callable[[], None],
) -> None:
    """Send a request and pass its answer on: `begin` with status and headers, `more` with each
    piece of the body, `working` for each interim response. Raises EndedEarly, and what they raise.
    """
    answer = _ParsedAnswer(working)
    is_begun = False
    try:
        writer.write(request)
        with suppress(ConnectionError):  # it may have answered before it has read all
            await writer.drain()
        while not answer.is_complete:
            data = await reader.read(READ_BYTES)
            if not data:
                raise EndedEarly
            answer.feed(data)
            if answer.status and not is_begun:
                is_begun = True
                await begin(answer.status, answer.headers)
            pieces, answer.pieces = answer.pieces, []
            for piece in pieces:
                await more(piece)
    except (ConnectionError, httptools.HttpParserError) as error:
        raise EndedEarly(str(error)) from error
    finally:
        writer.transport.abort()
