"""One stream of an HTTP/2 connection: an ASGI request, and the answer to it.

Two rules keep a stream's memory small, whatever the peer does: a part of the body is credited to
the client's window only when the application has taken it, and a part of the answer is handed to
the connection only when both the client's windows and the socket have room for it.

A client that disconnects does not cancel its request, as with HTTP/1.1 here: the application reads
`http.disconnect`, and what it still sends is dropped.

Not here: frames, limits of the connection (`adapters.http.http2_server`), how large a body may be
(`adapters.http.request_body`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from standpipe.adapters.http.server import Application, Headers, Message

_log = logging.getLogger("standpipe.http2")

#: A streamed answer of this kind is sent as one frame per line, as ksqlDB's server does:
#: ksqldb-client for Node.js takes each frame for a row.
_LINES = (b"content-type", b"application/vnd.ksqlapi.delimited.v1")

#: Headers about one connection, for which HTTP/2 uses frames (RFC 9113, 8.2.2).
_OF_THE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


class Wire(Protocol):
    """What a stream needs of its connection. No call waits, none raises."""

    def head(self, stream_id: int, lines: Headers, *, is_end: bool) -> None:
        """Send the head of an answer, or an interim one (status 100)."""
        ...

    def data(self, stream_id: int, part: bytes, *, is_end: bool) -> None:
        """Send a part of the body, at most `room` of it."""
        ...

    def room(self, stream_id: int) -> int:
        """Bytes that may be sent now, in one frame; 0: wait until `Exchange.wake`."""
        ...

    def credit(self, stream_id: int, size: int) -> None:
        """Let the client send `size` more bytes: that many were consumed."""
        ...

    def reset(self, stream_id: int, *, is_fault: bool) -> None:
        """End the stream early. `is_fault`: its answer is incomplete."""
        ...

    def now(self) -> float:
        """The loop's clock, in seconds."""
        ...


class Exchange:
    """A request that is being answered."""

    def __init__(self, wire: Wire, stream_id: int, scope: dict[str, Any]) -> None:
        self.scope = scope
        #: since when the stream has waited for the client; None: it does not wait. Until the answer
        #: begins, `_receive` (waiting for the body) sets this; from then on, the sender does
        self.waits_since: float | None = None
        #: bytes of the body that have come
        self.received = 0
        #: the connection has the whole answer
        self.is_answered = False
        self._wire = wire
        self._id = stream_id
        self._news = asyncio.Event()
        # the request
        self._parts: list[bytes] = []
        self._owed = 0  # bytes of the client's window, padding included, that `_parts` took
        self._is_whole = False
        self._is_read = False
        self._wants_100 = (b"expect", b"100-continue") in scope["headers"]
        # the answer
        self._start: Message | None = None
        self._is_begun = False
        self._is_by_line = False
        self._is_cut = False

    # ------------------------------------------------------- from the connection

    def feed(self, part: bytes, credit: int) -> None:
        """A part of the body; `credit`: how much of the window it used."""
        if self._is_cut or self.is_answered or not part:
            self._wire.credit(self._id, credit)
            return
        self.received += len(part)
        self._parts.append(part)
        self._owed += credit
        self.wake()

    def end_body(self) -> None:
        """The body is complete."""
        self._is_whole = True
        self.wake()

    def cut(self) -> None:
        """The client or the connection is gone, or waited too long."""
        self._is_cut = True
        self._drop_body()
        self.wake()

    def wake(self) -> None:
        """Let the waiter check again: what it waits for may have arrived."""
        self._news.set()

    @property
    def waits_for_body(self) -> bool:
        """Whether the application waits for more of the body before it begins to answer."""
        return self.waits_since is not None and not self._is_begun

    # --------------------------------------------------------- for the application

    async def run(self, application: Application) -> None:
        """Run the application. An answer that it does not finish becomes an error."""
        try:
            await application(self.scope, self._receive, self._send)
        except Exception:
            _log.exception("unforeseen error in an answer over HTTP/2")
        if self._is_cut:
            return
        if not self._is_begun:
            self._wire.head(self._id, [(b":status", b"500")], is_end=True)
        elif not self.is_answered:
            self._wire.reset(self._id, is_fault=True)
            return
        if not self._is_whole:  # the application will not read the rest
            self._wire.reset(self._id, is_fault=False)
        self.is_answered = True
        self._drop_body()

    async def _receive(self) -> Message:
        if self._wants_100 and not self._parts and not self._is_whole:
            self._wire.head(self._id, [(b":status", b"100")], is_end=False)
        self._wants_100 = False
        if not self._is_read and not self._is_begun:
            self.waits_since = self._wire.now()
        try:
            while not self._is_cut:
                if (self._parts or self._is_whole) and not self._is_read:
                    return self._take_body()
                if self._is_read and self.is_answered:
                    break
                await self._wait()
            return {"type": "http.disconnect"}
        finally:
            if not self._is_begun:
                self.waits_since = None

    def _take_body(self) -> Message:
        body, owed = b"".join(self._parts), self._owed
        self._parts, self._owed = [], 0
        self._is_read = self._is_whole
        if owed:
            self._wire.credit(self._id, owed)
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    async def _send(self, message: Message) -> None:
        if self._is_cut:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        is_end = not message.get("more_body", False)
        body: bytes = b"" if self.scope["method"] == "HEAD" else message.get("body", b"")
        if self._start is not None:
            self._begin(self._start, is_end=is_end and not body)
            if is_end and not body:
                return
        await self._send_body(body, is_end=is_end)

    def _begin(self, start: Message, *, is_end: bool) -> None:
        given: Sequence[tuple[bytes, bytes]] = start.get("headers", ())
        lines = [(b":status", b"%d" % start["status"])]
        for name, value in given:
            if (folded := name.lower()) not in _OF_THE_CONNECTION:
                lines.append((folded, value))
        self._start, self._is_begun, self.is_answered = None, True, is_end
        self.waits_since = None
        self._is_by_line = _LINES in lines and all(name != b"content-length" for name, _ in lines)
        self._wire.head(self._id, lines, is_end=is_end)

    async def _send_body(self, body: bytes, *, is_end: bool) -> None:
        *parts, last = body.splitlines(keepends=True) if self._is_by_line and body else [body]
        for part in parts:
            await self._send_part(part, is_end=False)
        await self._send_part(last, is_end=is_end)

    async def _send_part(self, part: bytes, *, is_end: bool) -> None:
        """In one frame, if there is room for it."""
        at = 0
        while at < len(part) and (room := await self._room()):
            piece = part[at : at + room]
            at += len(piece)
            self.is_answered = is_end and at == len(part)
            self._wire.data(self._id, piece, is_end=self.is_answered)
        if is_end and not self.is_answered and not self._is_cut:
            self.is_answered = True
            self._wire.data(self._id, b"", is_end=True)

    async def _room(self) -> int:
        """Wait until bytes may be sent, and return how many; 0: the stream was cut. Events that
        bring no room, such as a ping, do not restart the wait."""
        try:
            while not self._is_cut:
                if (room := self._wire.room(self._id)) > 0:
                    return room
                if self.waits_since is None:
                    self.waits_since = self._wire.now()
                await self._wait()
            return 0
        finally:
            self.waits_since = None

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _drop_body(self) -> None:
        self._parts, owed, self._owed = [], self._owed, 0
        if owed:
            self._wire.credit(self._id, owed)


def scope_of(headers: Headers, client: object, server: object) -> dict[str, Any] | None:
    """The ASGI scope of a request's head; None: a request that is not served here (CONNECT)."""
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    target = pseudo.get(b":path", b"")
    if not target.isascii() or not target.startswith((b"/", b"*")):
        return None
    path, _, query = target.partition(b"?")
    lines = [(name, value) for name, value in headers if not name.startswith(b":")]
    if b":authority" in pseudo and all(name != b"host" for name, _ in lines):
        lines.insert(0, (b"host", pseudo[b":authority"]))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "2",
        "method": pseudo.get(b":method", b"").decode("latin-1"),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": lines,
        "client": client,
        "server": server,
        "state": {},
    }
