"""Reads as bursts on one connection: many requests at once, each answer with the time it came.

A client of one request at a time costs a test more processor than the reads that it is about. Here
a burst is one write (pipelining: RFC 9112, 9.3.2), so most of its reads are answered by the
node's fast path together.

Not here: what is read, and who judges it (`level_readers.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httptools
import msgspec

from standpipe.client.core.session import ClientSession, token_in

#: of one burst, after which its node counts as gone
ANSWERS_WITHIN_S: Final = 10.0
_HEAD: Final = (
    b"POST /query HTTP/1.1\r\nhost: %b\r\naccept: application/vnd.ksqlapi.delimited.v1\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)


class NodeGone(Exception):
    """The connection has ended before all answers were there."""


@dataclass(frozen=True)
class BurstAnswer:
    """`end`: monotonic, in seconds. `rows`: None: it was refused. `served_by`: a node's id."""

    end: float
    rows: list[Any] | None
    served_by: str = ""


class BurstConnection(asyncio.Protocol):
    """One keep-alive connection. One burst at a time."""

    def __init__(self, address: str, session: ClientSession | None) -> None:
        self._host, self._session = address.encode(), session
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._served_by = ""
        self._found: list[BurstAnswer] = []
        self._due = 0
        self._all: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, address: str, session: ClientSession | None) -> BurstConnection:
        """Raises OSError."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(address, session), host, int(port))
        return made

    async def ask(self, texts: Sequence[str], properties: Mapping[str, Any]) -> list[BurstAnswer]:
        """The answers to statements, in their order. Raises NodeGone; the connection is then
        closed."""
        more = {} if self._session is None else self._session.properties()
        bodies = [
            msgspec.json.encode({"ksql": text, "streamsProperties": {**properties, **more}})
            for text in texts
        ]
        assert self.transport is not None
        if self.transport.is_closing():
            raise NodeGone("closed by the node since the last burst")
        self._found, self._due = [], len(texts)
        self._all = asyncio.get_running_loop().create_future()
        self.transport.write(b"".join(_HEAD % (self._host, len(body), body) for body in bodies))
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                await self._all
        except (TimeoutError, OSError) as error:
            self.transport.abort()
            raise NodeGone(str(error)) from error
        return self._found

    # -------------------------------------------------- called by the event loop

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._all is not None and not self._all.done():
            self._all.set_exception(exc or ConnectionResetError("closed by the node"))
            self._all.exception()  # who waited may have given up

    # ------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        self._parts.clear()
        self._served_by = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"standpipe-served-by":
            self._served_by = value.decode()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        lines = b"".join(self._parts).split(b"\n")
        rows: list[Any] | None = None
        if self._parser.get_status_code() == HTTPStatus.OK:
            listed = [line for line in lines[1:] if line]
            if self._session is not None:
                token = token_in(listed.pop())
                assert token is not None, "an answer in a session has a token"
                self._session.saw(token)
            rows = [msgspec.json.decode(line) for line in listed]
        self._found.append(BurstAnswer(time.monotonic(), rows, self._served_by))
        if len(self._found) == self._due and self._all is not None and not self._all.done():
            self._all.set_result(None)
