"""The requests of one HTTP/1.1 connection, one after the other: uvicorn's protocol with bounds.

A client may send requests before earlier ones are answered (pipelining; RFC 9112, 9.3.2). uvicorn
parses whatever comes and queues it, tells only the newest request when the client is gone, and
stops reading meanwhile, so that it does not see the client go. Here instead:

- *Bytes behind an unanswered request are held, not parsed.* Parsing is in pieces, so the requests
  that are queued are those of one piece; one, where its head says plainly how long it is. Reading
  goes on until `HELD_BYTES_MAX` are held.
- *An answer of the fast path that comes later* (`Awaited`) is waited for as those of the slow path
  are; if it does not come, its request is parsed.
- *The running request is told* when the connection is lost; those that are queued are dropped.
- *A client that leaves is noticed* while reading is paused, too: each sweep of the listener asks
  the socket. An end of the client's sending half counts as leaving, as it does while reading. It
  comes after what the client sent: if that is more than the socket's buffer takes, the client's
  kernel has to give up first.
- *An answer to what cannot be parsed waits for its turn*, after those to earlier requests. Then the
  server sends no more, and discards what still comes: to close a socket with unread bytes resets
  the connection, and a client may lose answers that it has not read yet.

Rejected: closing a connection on which a request comes behind an endless answer (the client would
lose the answer that it reads); reading on without a bound (memory, or the time to discard it);
pausing the parser (httptools cannot).

Not here: the fast path and heads (`adapters.http.server`), deadlines
(`adapters.http.connections`).
"""

from __future__ import annotations

import asyncio
import re
import select
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.fast_path import Awaited

#: What the parser gets at a time. The smallest request has 18 bytes, and each takes 2.3 KiB of
#: memory: a read of 256 KiB, parsed at once, would become 32 MB.
PIECE_BYTES: Final = 4096
#: behind an unanswered request, until reading is paused; the last read comes on top
HELD_BYTES_MAX: Final = 64 * 1024
#: after the last answer, until the connection is closed
DISCARDED_BYTES_MAX: Final = 1024 * 1024
_plain_length: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r\n", re.IGNORECASE).search


class PipelinedProtocol(HttpToolsProtocol):
    """What `adapters.http.server` builds on: `data_received` is for its subclass, which holds what
    comes while `_must_wait`, and hands the rest to `_parse`."""

    def __init__(
        self, config: UvicornConfig, state: ServerState, accepted: AcceptedConnection
    ) -> None:
        super().__init__(config, state, {})
        self._accepted = accepted
        #: the parser is inside a message
        self._partial = False
        #: a head that is to be parsed again, without its offer to change the protocol
        self._again: bytes | None = None
        #: the request that is being answered, or was answered last; others are in `pipeline`
        self._running: RequestResponseCycle | None = None
        #: the answer of the fast path that is on its way, and the bytes of its request
        self._awaited: tuple[Awaited, bytes] | None = None
        self._closes_after_it = False
        #: bytes that wait for an answer
        self._held = bytearray()
        #: the last answer of this connection, to what could not be parsed
        self._refusal: bytes | None = None
        #: bytes after it; None: it is still to be sent
        self._discarded: int | None = None

    # -------------------------------------------------------------- reading

    @property
    def _is_unanswered(self) -> bool:
        return self._running is not None and not self._running.response_complete

    @property
    def _is_behind(self) -> bool:
        """Whether the next bytes come behind a request whose answer comes first."""
        if self._awaited is not None or self.pipeline:
            return True
        return self._is_unanswered and not self._partial

    @property
    def _must_wait(self) -> bool:
        """Whether what arrives is to be held."""
        return bool(self._held) or self._refusal is not None or self._is_behind

    def _hold(self, data: bytes) -> None:
        """Parse it later; nothing follows what was refused."""
        if self._refusal is None:
            self._held += data
        if len(self._held) > HELD_BYTES_MAX:
            self._flow.hold()
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES_MAX:
                self.transport.close()

    def _give_way(self, data: bytes) -> None:
        """Go on with `data` when others of the loop have had a turn."""
        self._hold(data)
        self._flow.hold()  # otherwise a client's end would come before its answers
        self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Parse what was held, if it is its turn."""
        if self._refusal is not None or self._is_behind or self.transport.is_closing():
            return
        held = bytes(self._held)
        self._held.clear()
        self._flow.release()
        if held:
            self.data_received(held)

    def _parse(self, data: bytes) -> None:
        """What uvicorn does, but for messages that offer another protocol: its parser ends at their
        head, and their body would never be read."""
        self._unset_keepalive_if_required()
        at = 0
        while at < len(data):
            if self._is_behind:
                self._hold(data[at:])
                return
            piece = data[at : at + PIECE_BYTES]
            at += len(piece)
            try:
                self.parser.feed_data(piece)
            except HttpParserUpgrade as ended:
                if self._again is None:
                    self.send_400_response("Unsupported protocol.")
                    return
                data = self._again + piece[ended.args[0] :] + data[at:]
                at, self._again = 0, None
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # uvicorn's
            except HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return

    def on_message_begin(self) -> None:
        """Called by the parser: a request begins."""
        self._partial = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Called by the parser: the request is complete."""
        if self._again is not None:
            return
        self._partial = False
        super().on_message_complete()

    # -------------------------------------------------------------- answering

    def _await(self, answer: Awaited, request: bytes, behind: bytes) -> None:
        """An answer of the fast path comes later. `behind`: what follows its request."""
        self._awaited = answer, request
        if behind:
            self._hold(behind)
        answer.then(self._arrived)

    def _arrived(self, answer: bytes | None) -> None:
        """The answer that was awaited, or None: parse its request."""
        assert self._awaited is not None
        (_, request), self._awaited = self._awaited, None
        if self.transport.is_closing():
            return
        if answer is None:
            self._parse(request)
        else:
            self.transport.write(answer)
        if self._closes_after_it:
            self.shutdown()
        elif self._held and not self._is_behind:
            self._go_on()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Called by a request that has been answered: it is the turn of the next one."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._refusal is not None and not self._is_unanswered:
            self._end()
        elif self._held and not self._is_behind:
            self.loop.call_soon(self._go_on)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, unless it has been refused already."""
        self._refuse(400, msg)

    def _refuse(self, status: int, text: str) -> None:
        """End the connection with an error, after the answers to earlier requests. If the request
        at fault is being answered already, it gets no second answer."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._held.clear()
        self._refusal = _refusal(status, text)
        self._flow.hold()
        own = self.cycle
        if self._partial and own and own.scope is self.scope:  # its body is at fault
            if own is not self._running:
                self.pipeline.popleft()
            else:
                _tell(own)
                self._refusal = b"" if own.response_started else self._refusal
                self._end()
                return
        if not self._is_unanswered:
            self._end()

    def _end(self) -> None:
        self._discarded = 0
        if self._refusal:
            self.transport.write(self._refusal)
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.transport.write_eof()
        self._flow.release()

    def shutdown(self) -> None:
        """Called by the server when it stops."""
        if self._awaited is not None:
            self._closes_after_it = True
        elif self._discarded is not None:
            self.transport.close()
        else:
            super().shutdown()

    # -------------------------------------------------------------- the client's end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop: nobody waits for the answers."""
        self.pipeline.clear()
        self._held.clear()
        if self._awaited is not None:
            (answer, _), self._awaited = self._awaited, None
            answer.leave()
        if self._is_unanswered and self._running is not None:
            _tell(self._running)
        super().connection_lost(exc)

    def _leave_if_abandoned(self, now_ms: int) -> int:
        """Called at each sweep of the listener: while reading is paused, the loop does not tell."""
        is_hidden = self._is_unanswered and self.flow.read_paused
        if is_hidden and not self.transport.is_closing() and has_left(self.transport):
            self.transport.abort()
        return 1


class _Flow(FlowControl):
    """uvicorn resumes reading after each answer, and whenever a request asks for more of its body:
    what is held would grow by one read each time."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()


def message_end(data: bytes) -> int:
    """Where the first message of some bytes ends, if its head says so plainly; else where they end.
    A guess, which changes nothing but how the parser gets them: it alone judges heads. Of more than
    HELD_BYTES_MAX none is cut off, as what is behind it is copied for each."""
    if len(data) > HELD_BYTES_MAX:
        return len(data)
    head_end = data.find(b"\r\n\r\n") + 4
    found = _plain_length(data, 0, head_end)
    return len(data) if found is None else min(len(data), head_end + int(found[1]))


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has closed the connection, or its sending half, whatever it sent before is
    still to be read."""
    ended = select.poll()
    ended.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(ended.poll(0))


def _tell(cycle: RequestResponseCycle) -> None:
    """That nobody waits for its answer any more."""
    cycle.disconnected = True
    cycle.message_event.set()


def _refusal(status: int, text: str) -> bytes:
    body = text.encode()
    return (
        b"%bcontent-type: text/plain; charset=utf-8\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%b"
    ) % (STATUS_LINE[status], len(body), body)
