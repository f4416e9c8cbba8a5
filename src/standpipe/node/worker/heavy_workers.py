"""Requests that take long, passed on to a heavy worker of the same node, and answered by it.

    worker ─► HeavyWorkers.answer ══ Unix socket ══► HeavyApplication ─► the endpoints, as anywhere
    client ◄─ piece by piece ◄══════════════════════ the answer

A heavy worker is a worker without ports. Its priority is lower (`standpipe.node.worker.main`), so
that a lookup on a busy machine does not wait for it, and it is killed, as any worker, when it hangs
or takes too much memory: lookups go on meanwhile. The one with the fewest requests of this worker
gets the next. If none can be reached, the worker answers itself, unless one was killed lately: the
same request may have been the reason.

Not here: which requests take long (`node.worker.request.takes_long`).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from starlette.responses import PlainTextResponse

from standpipe.adapters.http.server import WORKING, Application, Headers, Receive, Send
from standpipe.adapters.http.unix_exchange import EndedEarly, NotReached, SocketFolder, exchange
from standpipe.adapters.metrics import Metrics
from standpipe.errors import HeavyWorkerEnded, StandpipeError, TextRefused
from standpipe.node.addresses import SILENT_SECONDS_MAX
from standpipe.node.worker.request.head import PULL_PATHS
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.scan_requester import left
from standpipe.node.worker.responses import error_response

#: What a worker tells with a request: its lane, and the address of its client.
PASSED_ON: Final = b"standpipe-passed-on"
CLIENTS, PEERS = b"clients", b"peers"
PATHS: Final = frozenset({*(path.decode() for path in PULL_PATHS), "/ksql"})
#: How long a client may take for a piece, of about 64 KiB: the rows that wait for it take room that
#: other scans want. As long as the kernel waits for one that reads nothing.
PIECE_S_MAX: Final = float(SILENT_SECONDS_MAX)
#: After a heavy worker has ended, for its parent to say why.
REPORT_S: Final = 0.3
_REPORT_LOOKS: Final = 6

_ENDED: Final = HeavyWorkerEnded("the worker that worked on the answer has ended: ask again")
_TO_BLAME: Final = "this text stopped the worker that executed it: simplify it"

#: of one connection, or written again by the server of this one
_NOT_PASSED_ON: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade"),
        *(b"te", b"trailer", b"expect", b"http2-settings", PASSED_ON),
    }
)
#: RFC 9110, 5.6.2 and 5.5
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_NOT_PASSED_BACK: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding"})


def socket_name(number: int) -> str:
    """Of a heavy worker's socket, in the node's `run/`."""
    return f"heavy-{number}.socket"


@dataclass
class HeavyWorkers:
    """The heavy workers of this node, as another worker sees them. `numbers`: theirs, until the
    parent says which it has started."""

    sockets: SocketFolder
    numbers: Sequence[int]
    in_hand: TextsInHand
    metrics: Metrics
    #: number -> requests that it answers for this worker
    _in_progress: Counter[int] = field(default_factory=Counter[int])

    async def answer(
        self,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        body: bytes,
        *,
        ended: StandpipeError = _ENDED,
        text: str = "",
        is_peer: bool = False,
    ) -> bool:
        """Have one of them answer a request whose body was read. False: none can be reached, and
        nothing was sent. `ended`: what the client is told if the process ends, unless its parent
        says that `text` is to blame.
        """
        if scope["path"] not in PATHS:
            return False
        request = _request(scope, body, PEERS if is_peer else CLIENTS)
        numbers = self.in_hand.heavy_workers or self.numbers
        for number in sorted(numbers, key=lambda each: self._in_progress[each]):
            with self._place_at(number):
                try:
                    connection = await self.sockets.connect(socket_name(number))
                except NotReached:
                    continue
                watch = asyncio.create_task(_end_when_left(receive, connection[1]))
                passing = _Passing(scope, send)
                try:
                    outcome = await passing.outcome(*connection, request, watch)
                finally:
                    watch.cancel()
            self.metrics.count("standpipe_requests_passed_on", outcome)
            if outcome == "ended" and not passing.is_begun:  # else the server cuts the answer off
                why = TextRefused(_TO_BLAME) if await self._is_to_blame(text) else ended
                await error_response(why)(scope, receive, send)
            return True
        self.metrics.count("standpipe_requests_passed_on", "unreached")
        if not self.in_hand.has_heavy_ended():
            return False
        # it may be this request that ended it, and would end the worker that has the lookups
        await error_response(_ENDED)(scope, receive, send)
        return True

    @contextmanager
    def _place_at(self, number: int) -> Generator[None]:
        self._in_progress[number] += 1
        try:
            yield
        finally:
            self._in_progress[number] -= 1

    async def _is_to_blame(self, text: str) -> bool:
        """What the parent of both says, soon."""
        for _ in range(_REPORT_LOOKS):
            self.in_hand.refresh()
            if self.in_hand.refused_for_s(text) > 0:
                return True
            await asyncio.sleep(REPORT_S / _REPORT_LOOKS)
        return False


@dataclass
class _Passing:
    """An answer on its way to the client."""

    scope: dict[str, Any]
    send: Send
    is_begun: bool = False

    async def outcome(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: bytes,
        watch: asyncio.Task[None],
    ) -> Literal["answered", "abandoned", "ended"]:
        """Pass the whole answer on. `watch` is done once the client has left."""
        try:
            await exchange(
                reader, writer, request, begin=self.begin, more=self.more, working=self.working
            )
            await self._send({"type": "http.response.body", "body": b""})
        except EndedEarly:
            return "abandoned" if watch.done() else "ended"
        return "answered"

    async def begin(self, status: int, headers: Headers) -> None:
        self.is_begun = True
        kept = [header for header in headers if header[0] not in _NOT_PASSED_BACK]
        await self._send({"type": "http.response.start", "status": status, "headers": kept})

    async def more(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    def working(self) -> None:
        say = self.scope.get("extensions", {}).get(WORKING)
        if say is not None:
            say()

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(PIECE_S_MAX):
                await self.send(message)
        except TimeoutError:
            raise EndedEarly("the client takes nothing") from None


async def _end_when_left(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """The client has gone: so does the request."""
    await left(receive)
    writer.transport.abort()


def _request(scope: dict[str, Any], body: bytes, lane: bytes) -> bytes:
    """The path is one of PATHS; the query string of the target means nothing to them. By HTTP/2 a
    client may send what would be the end of a line here: it must add no line of its own. A client
    of HTTP/1.0, which knows no chunks, gets an answer with its length."""
    version = b"1.0" if scope["http_version"] == "1.0" else b"1.1"
    address = (scope.get("client") or ("",))[0].encode()
    lines = [
        b"POST %b HTTP/%b" % (scope["path"].encode(), version),
        *(b"%b: %b" % each for each in scope["headers"] if _is_passed_on(*each)),
        b"content-length: %d" % len(body),
        b"%b: %b %b" % (PASSED_ON, lane, address),
        b"\r\n",
    ]
    return b"\r\n".join(lines) + body


def _is_passed_on(name: bytes, value: bytes) -> bool:
    return name not in _NOT_PASSED_ON and bool(_NAME(name)) and not _CONTROL(value)


@dataclass(frozen=True)
class HeavyApplication:
    """What other workers of the node reach at a heavy worker: the endpoints of both lanes."""

    clients: Application
    peers: Application

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        told = [value for name, value in scope["headers"] if name == PASSED_ON]
        lane, _, address = (told or [b""])[0].partition(b" ")
        if lane not in (CLIENTS, PEERS):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
            return
        scope["client"] = (address.decode(), 0)
        await (self.peers if lane == PEERS else self.clients)(scope, receive, send)
