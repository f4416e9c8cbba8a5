"""HTTP/2 on the HTTP/1.1 port, distinguished by the preface (prior knowledge, h2c).

The package h2, a pure state machine, handles frames, states, header compression and windows. This
file moves bytes between it, the socket and the ASGI application, and sets the limits that h2 leaves
to its user. One port serves both, as with ksqlDB's `listeners`: its clients know one port, and
SO_REUSEPORT spreads connections of both kinds over the workers. TLS works the same way: a client
that chose h2 by ALPN opens with the preface. `Upgrade: h2c` is ignored, since RFC 9113 dropped it.
Rejected: hypercorn, which speaks HTTP/2 well but brings its own server, listeners and drain, so it
would have needed a second port.

What a client can make a connection hold:

| limit | value | beyond it |
|---|---|---|
| request head, decompressed | `HEAD_BYTES_MAX` | the connection ends: ENHANCE_YOUR_CALM |
| HPACK table of the answers' headers | `HPACK_TABLE_BYTES_MAX` | the oldest entries go |
| settings | those that HTTP/2 has | ignored |
| body of a request | `request_body.read_body`, as for HTTP/1.1 | 413 |
| streams at once | `ConnectionLimits.streams_max` | the connection ends: PROTOCOL_ERROR |
| of these: requests still running whose stream was reset | the same | the stream: REFUSED_STREAM |
| body bytes that the application has not read | 64 KiB a stream, 1 MiB in all | flow control |
| answers that wait for the client | `WAITING_BYTES_MAX` in the socket | senders wait |
| frames that ask for no answer (PING, RST_STREAM, SETTINGS, …) | `Allowance` | ENHANCE_YOUR_CALM |
| frames that came in one read | `FRAMES_AT_ONCE` | others of the loop have a turn |
| answers to such frames that the client does not read | `UNREAD_BYTES_MAX` | cut off |
| silence; a stream that waits for the client | `ConnectionLimits.idle_s` | GOAWAY; CANCEL |
| a frame, or a head of several, that is not whole | `PortLimits.head_ms_max` | cut off |
| rate of a body that the application waits for | `PortLimits` | the stream: CANCEL |

Source: RFC 9113; ksqlDB's listeners.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hpack import Encoder
from uvicorn.server import ServerState

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.connections import ConnectionProgress, CutReason, Pace, WaitingFor
from standpipe.adapters.http.http2_stream import Exchange, scope_of
from standpipe.adapters.http.protocol_switch import OtherProtocol
from standpipe.adapters.http.server import HEAD_BYTES_MAX, IDLE_SECONDS_MAX, Headers, Listener

if TYPE_CHECKING:
    from hyperframe.frame import Frame, SettingsFrame

#: The bytes that an HTTP/2 client opens with (RFC 9113, 3.4).
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: For all streams together, so that sixteen unread streams do not block the others.
CONNECTION_WINDOW_BYTES = 1024 * 1024
#: The socket's buffer; a sender waits while it holds more. nginx: 64 KiB.
WAITING_BYTES_MAX = 64 * 1024
#: Only answers to PING and SETTINGS can push the buffer this far above `WAITING_BYTES_MAX`.
UNREAD_BYTES_MAX = 1024 * 1024
#: h2 parses whole slices, so a flood costs up to one slice before it is noticed.
SLICE_BYTES = 1024
#: Frames of one connection, until others of the loop have a turn; counted after each slice. A
#: request costs about 70 µs, whether or not it is reset at once.
FRAMES_AT_ONCE = 64
#: HPACK's default (RFC 9113, 6.5.2). A client may offer up to 4 GiB, and hpack would fill it: it
#: searches its table linearly, and each new content-length adds an entry.
HPACK_TABLE_BYTES_MAX = 4096
#: Frames that ask for no answer: a burst, a rate per second, and a credit for each frame of ours (a
#: client updates two windows for each). The flood of 2023 was hundreds of thousands a second.
ALLOWED_AT_ONCE = 1000
ALLOWED_PER_SECOND = 100
ALLOWED_PER_FRAME = 2
#: what HTTP/2 has, and h2 knows
_SETTINGS: Final = frozenset(SettingCodes)
#: "Every stream you may still open": the first half of a graceful shutdown (RFC 9113, 6.8).
LAST_STREAM_OF_ALL = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits that can be configured."""

    streams_max: int
    idle_s: float = IDLE_SECONDS_MAX


class Allowance:
    """A token bucket for frames that cause work but no answer."""

    def __init__(self, now: float) -> None:
        self._left = float(ALLOWED_AT_ONCE)
        self._counted_at = now

    def earn(self) -> None:
        """A frame of an answer was sent."""
        self._left = min(ALLOWED_AT_ONCE, self._left + ALLOWED_PER_FRAME)

    def spend(self, now: float) -> bool:
        """Count one frame; False: too many."""
        grown = self._left + (now - self._counted_at) * ALLOWED_PER_SECOND
        self._counted_at = now
        self._left = min(ALLOWED_AT_ONCE, grown) - 1
        return self._left >= 0


class _States(H2ConnectionStateMachine):
    """h2 ends a connection with the first GOAWAY, which only concerns streams that its receiver may
    open: existing ones are still to be answered (RFC 9113, 6.8). Node.js sends GOAWAY as soon as a
    session is closed, and then still sends the requests that wait for a free stream.
    """

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        if input_ in (ConnectionInputs.RECV_GOAWAY, ConnectionInputs.SEND_GOAWAY):
            return []
        return super().process_input(input_)


class _HpackEncoder(Encoder):
    """hpack adopts whatever table size the client offers; a smaller one is always allowed."""

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = min(value, HPACK_TABLE_BYTES_MAX)
        self.header_table.maxsize = size
        if self.header_table.resized:
            self.table_size_changes.append(size)


class _Http2Connection(H2Connection):
    #: h2 remembers 65,536 closed streams of each connection, to tell late frames from wrong ones.
    MAX_CLOSED_STREAMS = 1024

    def __init__(self) -> None:
        super().__init__(H2Configuration(client_side=False, header_encoding=None))
        self.state_machine = _States()
        self.encoder = _HpackEncoder()

    def _receive_settings_frame(self, frame: SettingsFrame) -> tuple[list[Frame], list[Event]]:
        """h2 keeps every setting that it is sent, though unknown ones mean nothing (RFC 9113,
        6.5.2): 65,536 of them are 50 MB of each connection, for as long as it lasts."""
        known = {name: value for name, value in frame.settings.items() if name in _SETTINGS}
        frame.settings = known
        return super()._receive_settings_frame(frame)

    def clear_outbound_data_buffer(self) -> None:
        """Keep the buffer: data still unsent when a GOAWAY arrives is sent."""


def offer_http2(listener: Listener, limits: ConnectionLimits) -> None:
    """Let the listener's port speak HTTP/2 too, for the same application."""
    listener.other = OtherProtocol(
        PREFACE, lambda state, accepted: Http2Protocol(listener, state, limits, accepted)
    )


class Http2Protocol(asyncio.Protocol):
    """One connection, after its preface. `shutdown` and `transport` are for `serve`."""

    def __init__(
        self,
        listener: Listener,
        state: ServerState,
        limits: ConnectionLimits,
        accepted: AcceptedConnection,
    ) -> None:
        self._listener = listener
        self._accepted = accepted
        self._state = state
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._allowance = Allowance(self._loop.time())
        self._exchanges: dict[int, Exchange] = {}
        #: of the streams whose body the application waits for
        self._paces: dict[int, Pace] = {}
        #: frames that were whole, and requests
        self._frames = 0
        self._requests = 0
        self._h2 = _Http2Connection()
        self._last_data_at = self._loop.time()
        self._is_paused = False
        self._is_lost = False
        #: bytes that were read and wait for a turn
        self._held = b""
        #: the last stream that will be answered; None: not shutting down
        self._last_stream: int | None = None

    # ------------------------------------------------------------ asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop: send the settings."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._client = transport.get_extra_info("peername")
        self._server = transport.get_extra_info("sockname")
        # uvicorn's set holds whatever can be shut down
        self._state.connections.add(cast("Any", self))
        self._accepted.serve(transport, self._progress, self._tend)
        self._watch_again()
        self._open()

    def _open(self) -> None:
        settings = self._h2.local_settings
        settings.max_concurrent_streams = self._limits.streams_max
        settings.max_header_list_size = HEAD_BYTES_MAX
        settings.acknowledge()  # in force from the first frame, before the client agrees
        self._h2.decoder.max_header_list_size = HEAD_BYTES_MAX
        self._h2.initiate_connection()
        window = CONNECTION_WINDOW_BYTES - self._h2.inbound_flow_control_window
        self._h2.increment_flow_control_window(window)
        self._h2.receive_data(PREFACE)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop: cancel all streams."""
        self._is_lost = True
        self._accepted.leave()
        self._watch.cancel()
        self._state.connections.discard(cast("Any", self))
        for exchange in self._exchanges.values():
            exchange.cut()

    def pause_writing(self) -> None:
        """Called by the event loop: the socket is full."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Called by the event loop: the socket has room again."""
        self._is_paused = False
        self._wake_all()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: frames of the client."""
        self._last_data_at = self._loop.time()
        if self._held:
            self._held += data
            return
        try:
            at = self._parse(data)
        except ProtocolError:
            self._flush()  # h2 has said why
            self.transport.close()
            return
        if self.transport.is_closing():
            return
        self._flush()
        if self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.transport.abort()
        elif at < len(data):
            self._held = data[at:]
            self.transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _parse(self, data: bytes) -> int:
        """Take frames, and return how many bytes they had: others of the loop want a turn. Raises
        ProtocolError."""
        first = self._frames
        for at in range(0, len(data), SLICE_BYTES):
            if self._frames - first >= FRAMES_AT_ONCE or self.transport.is_closing():
                return at
            for event in self._h2.receive_data(data[at : at + SLICE_BYTES]):
                self._take(event)
        return len(data)

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(held)

    def eof_received(self) -> bool:
        """Called by the event loop: the client sends no more."""
        return False  # no more requests can come, and the client does not wait for open ones

    # ---------------------------------------------------------------- frames in

    def _take(self, event: Event) -> None:
        self._frames += 1
        if isinstance(event, RequestReceived):
            self._begin(event)
            return
        if isinstance(event, DataReceived):
            stream, credit = event.stream_id, event.flow_controlled_length
            if exchange := self._exchanges.get(stream):
                exchange.feed(event.data, credit)
            else:
                self.credit(stream, credit)
            if event.data or event.stream_ended:
                return
        elif isinstance(event, StreamEnded):
            if exchange := self._exchanges.get(event.stream_id):
                exchange.end_body()
            return
        elif isinstance(event, StreamReset):
            if exchange := self._exchanges.get(event.stream_id):
                exchange.cut()
        elif isinstance(event, ConnectionTerminated) and event.error_code != ErrorCodes.NO_ERROR:
            self.transport.close()
        else:  # a window, a setting, a ping: senders that wait for room check again
            self._wake_all()
        if not self._allowance.spend(self._last_data_at):
            self._close(ErrorCodes.ENHANCE_YOUR_CALM)

    def _begin(self, event: RequestReceived) -> None:
        stream = event.stream_id
        is_late = self._last_stream is not None and stream > self._last_stream
        if is_late or self._is_full():
            self._reset(stream, ErrorCodes.REFUSED_STREAM)
            return
        if self._listener.is_leaving and self._last_stream is None:
            self._send_goaway(LAST_STREAM_OF_ALL)
        scope = scope_of(cast("Headers", event.headers), self._client, self._server)
        if scope is None:
            self._reset(stream, ErrorCodes.REFUSED_STREAM)
            return
        exchange = self._exchanges[stream] = Exchange(self, stream, scope)
        self._requests += 1
        task = self._loop.create_task(exchange.run(self._listener.application))
        self._state.tasks.add(task)
        task.add_done_callback(lambda _: self._end(stream))
        task.add_done_callback(self._state.tasks.discard)

    def _is_full(self) -> bool:
        """Whether running requests reach the stream limit; h2 does not count reset ones."""
        limit = self._limits.streams_max
        if len(self._exchanges) < limit:
            return False
        return sum(not exchange.is_answered for exchange in self._exchanges.values()) >= limit

    def _end(self, stream: int) -> None:
        del self._exchanges[stream]
        self._paces.pop(stream, None)
        if self._last_stream not in (None, LAST_STREAM_OF_ALL) and not self._exchanges:
            self._close(ErrorCodes.NO_ERROR)

    # --------------------------------------------------- frames out (Exchange's Wire)

    def head(self, stream_id: int, lines: Headers, *, is_end: bool) -> None:
        """Send the head of a response (`Wire`)."""
        self._allowance.earn()
        self._attempt(lambda: self._h2.send_headers(stream_id, list(lines), end_stream=is_end))

    def data(self, stream_id: int, part: bytes, *, is_end: bool) -> None:
        """Send a part of a body (`Wire`). It must fit into `room`."""
        self._allowance.earn()
        self._attempt(lambda: self._h2.send_data(stream_id, part, end_stream=is_end))

    def room(self, stream_id: int) -> int:
        """Bytes of a body that may be sent now (`Wire`); 0: wait."""
        if self._is_paused or self._is_lost:
            return 0
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except ProtocolError:
            return 0
        return min(window, self._h2.max_outbound_frame_size)

    def credit(self, stream_id: int, size: int) -> None:
        """Give the client window for `size` bytes of a request (`Wire`)."""
        if size:
            self._attempt(lambda: self._h2.acknowledge_received_data(size, stream_id))

    def reset(self, stream_id: int, *, is_fault: bool) -> None:
        """End a stream without an answer (`Wire`). `is_fault`: the handler failed."""
        code = ErrorCodes.INTERNAL_ERROR if is_fault else ErrorCodes.NO_ERROR
        self._reset(stream_id, code)

    def now(self) -> float:
        """The event loop's clock, in s (`Wire`)."""
        return self._loop.time()

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        self._attempt(lambda: self._h2.reset_stream(stream_id, code))

    def _attempt(self, call: Any) -> None:
        """Send, unless the stream or the connection has been closed."""
        if self._is_lost or self.transport.is_closing():
            return
        try:
            call()
        except ProtocolError:
            return
        self._flush()

    def _flush(self) -> None:
        if (data := self._h2.data_to_send()) and not self.transport.is_closing():
            self.transport.write(data)

    def _wake_all(self) -> None:
        """Wake the longest waiter first: the connection's window may suffice for one stream only,
        and a stream that the others starve would look as if its client had stalled it."""
        exchanges = self._exchanges.values()
        for exchange in sorted(exchanges, key=lambda each: each.waits_since or self.now()):
            exchange.wake()

    # ------------------------------------------------------------------- the end

    def shutdown(self) -> None:
        """No new streams; close when those that are open have been answered."""
        if not self._exchanges:
            self._close(ErrorCodes.NO_ERROR)
        else:
            self._send_goaway(self._h2.highest_inbound_stream_id)

    def _send_goaway(self, last_stream: int) -> None:
        """GOAWAY: streams up to this one will be answered."""
        self._last_stream = last_stream
        self._attempt(lambda: self._h2.close_connection(last_stream_id=last_stream))

    def _close(self, code: ErrorCodes) -> None:
        self._attempt(lambda: self._h2.close_connection(code))
        self.transport.close()

    def _progress(self) -> ConnectionProgress:
        """Half a frame, or half a head, is waited for. A client may hold a connection open by
        pings, but one without a stream is idle, and gives way when the listener is full."""
        is_fresh = not self._requests
        if is_inside_a_frame(self._h2):
            stage = WaitingFor.HEAD
        else:
            stage = WaitingFor.BUSY if self._exchanges or is_fresh else WaitingFor.IDLE
        return ConnectionProgress(stage, self._frames, is_fresh=is_fresh)

    def _tend(self, now_ms: int) -> int:
        """Called at each sweep of the listener: end streams whose body comes too slowly. Returns
        how many there are."""
        late: list[int] = []
        for stream, exchange in self._exchanges.items():
            if exchange.waits_for_body:
                progress = ConnectionProgress(WaitingFor.BODY, 0, exchange.received)
                pace = self._paces.setdefault(stream, Pace(now_ms, progress))
                if pace.is_late(progress, now_ms, self._listener.limits) is not None:
                    late.append(stream)
            elif self._paces:
                self._paces.pop(stream, None)
        for stream in late:
            self._reset(stream, ErrorCodes.CANCEL)
            self._exchanges[stream].cut()
            self._accepted.tell(CutReason.BODY)
        return max(1, len(self._exchanges))

    def _watch_again(self) -> None:
        self._check_at = self._loop.time() + self._limits.idle_s / 3
        self._watch = self._loop.call_at(self._check_at, self._check_idle)

    def _check_idle(self) -> None:
        now, idle = self._loop.time(), self._limits.idle_s
        silent = now - self._last_data_at
        if now - self._check_at > idle / 3:
            self._watch_again()  # this process was stalled: no client is to blame
            return
        if self.transport.is_closing() or silent >= 2 * idle:
            self.transport.abort()  # the client does not read what was sent (at least a ping)
            return
        for stream, exchange in list(self._exchanges.items()):
            if exchange.waits_since is not None and now - exchange.waits_since >= idle:
                self._reset(stream, ErrorCodes.CANCEL)
                exchange.cut()
        if silent >= idle and not self._exchanges:
            self._close(ErrorCodes.NO_ERROR)
        elif silent >= idle:
            self._attempt(lambda: self._h2.ping(b"silence?"))
        self._watch_again()


def is_inside_a_frame(connection: H2Connection) -> bool:
    """Whether the client has begun a frame, or a head of several frames, and not ended it."""
    buffer: Any = connection.incoming_buffer
    return bool(buffer._data or buffer._headers_buffer)
