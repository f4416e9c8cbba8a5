"""The acceptor of a listening socket: accepts connections within their limits, and cuts late ones.

asyncio's own server accepts every connection before it calls our code. When the process has no file
descriptor left, asyncio logs that and retries each second, and no other part of the process can
open a file either. So each listener accepts connections itself: each one becomes an
`AcceptedConnection` at once, before a TLS handshake and before the first byte, and one timer per
listener checks all of them.

Not here: which connections may stay (`adapters.http.connections`, pure); requests
(`adapters.http.server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

import structlog

from standpipe.adapters.http.connections import (
    FRESH,
    SWEPT_AT_ONCE,
    ConnectionProgress,
    Connections,
    CutReason,
    PortLimits,
    Room,
)

#: Connections that one turn of the loop accepts: requests of others wait meanwhile.
ACCEPTED_AT_ONCE: Final = 64
#: After an accept that failed because memory or descriptors had run out.
PAUSE_S: Final = 0.1
#: How often refused and cut connections are logged at most.
LOG_EVERY_MS: Final = 10_000
#: For those that were accepted in the moment of the stop: until their protocol is there.
SETTLE_S: Final = 0.2

#: Such a connection is closed, the others are reset.
_POLITE: Final = frozenset({CutReason.IDLE, CutReason.ROOM})
_SHORT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class AcceptedConnection:
    """One accepted connection. The protocol that serves it sets what it knows, and calls `leave`
    when the connection is lost."""

    __slots__ = ("_acceptor", "admission", "look", "raw", "tend", "transport")

    def __init__(self, acceptor: SocketAcceptor, raw: socket.socket) -> None:
        self._acceptor = acceptor
        #: until the event loop owns it
        self.raw: socket.socket | None = raw
        #: until there is a protocol
        self.admission: asyncio.Task[None] | None = None
        self.transport: asyncio.BaseTransport | None = None
        #: how far it has come
        self.look: Callable[[], ConnectionProgress] = _is_fresh
        #: called at each sweep with the time in ms, to cut what is late within the connection. It
        #: returns how many streams it looked at
        self.tend: Callable[[int], int] | None = None

    def serve(
        self,
        transport: asyncio.BaseTransport,
        look: Callable[[], ConnectionProgress],
        tend: Callable[[int], int] | None = None,
    ) -> None:
        """A protocol has taken the connection."""
        self.transport, self.look, self.tend = transport, look, tend

    def tell(self, reason: CutReason) -> None:
        """Count a part of the connection that was cut."""
        self._acceptor.tell(reason)

    def leave(self) -> None:
        """The connection has ended."""
        self._acceptor.connections.leave(self)

    def _has_unsent(self) -> bool:
        """Then a polite end would wait for a client that reads nothing."""
        return cast("asyncio.Transport", self.transport).get_write_buffer_size() > 0

    def cut(self, reason: CutReason) -> None:
        """End the connection."""
        self._acceptor.tell(reason)
        if self.transport is None:
            if self.admission is not None:
                self.admission.cancel()
        elif reason in _POLITE and not self.transport.is_closing() and not self._has_unsent():
            self.transport.close()
        else:
            cast("asyncio.Transport", self.transport).abort()


class SocketAcceptor:
    """The accepting side of one listening socket, which it closes at the end.

    `factory` makes the protocol of a connection; `room` is shared with the other listeners of this
    process. `told` is called with each reason for which one was refused or cut.
    """

    def __init__(
        self,
        bound: socket.socket,
        factory: Callable[[AcceptedConnection], asyncio.Protocol],
        limits: PortLimits,
        *,
        room: Room | None = None,
        told: Callable[[CutReason], None] | None = None,
    ) -> None:
        self.connections: Connections[AcceptedConnection] = Connections(
            limits, lambda accepted: accepted.look(), room
        )
        self._bound = bound
        self._factory = factory
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._admissions: set[asyncio.Task[None]] = set()
        self._spare: int | None = None
        self._pause: asyncio.TimerHandle | None = None
        #: ends only by a fault of this program
        self.sweeping: asyncio.Task[None] | None = None
        #: reasons since the last line of the log
        self._untold: Counter[CutReason] = Counter()
        self._logged_ms = -LOG_EVERY_MS

    def open(self) -> None:
        """Accept from now on."""
        self._keep_spare()
        # Connections inherit it (Linux). asyncio does not set it on those that are handed to it:
        # an answer of two writes would wait 40 ms for a delayed acknowledgement.
        if self._bound.family != socket.AF_UNIX:
            self._bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._bound, self._accept)
        self.sweeping = self._loop.create_task(self._sweep())

    async def close(self) -> None:
        """Accept no more; connections that are open stay, and are not watched any longer."""
        self._loop.remove_reader(self._bound)
        for handle in (self._pause, self.sweeping):
            if handle is not None:
                handle.cancel()
        if self._admissions:
            await asyncio.wait(self._admissions, timeout=SETTLE_S)
        for admission in list(self._admissions):
            admission.cancel()
        self._bound.close()
        if self._spare is not None:
            os.close(self._spare)

    def tell(self, reason: CutReason) -> None:
        """Count a connection that was refused or cut."""
        if reason is CutReason.IDLE:  # the usual end
            return
        self._untold[reason] += 1
        if self._told is not None:
            self._told(reason)

    # ------------------------------------------------------------------- accepting

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                raw, address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SHORT_OF:
                    continue  # that client has gone again: accept(2) reports its error here
                if not self._turn_away():
                    self._wait()
                    return
            else:
                self._take(raw, address[0] if address else "")  # "": by a Unix socket

    def _take(self, raw: socket.socket, address: str) -> None:
        accepted = AcceptedConnection(self, raw)
        verdict = self.connections.arrive(accepted, address, self._now_ms())
        if isinstance(verdict, CutReason):
            raw.close()
            self.tell(verdict)
            return
        if verdict is not None:
            verdict.cut(CutReason.ROOM)
        raw.setblocking(False)
        accepted.admission = self._loop.create_task(self._admit(raw, accepted))
        self._admissions.add(accepted.admission)
        accepted.admission.add_done_callback(lambda done: self._admitted(done, accepted))

    async def _admit(self, raw: socket.socket, accepted: AcceptedConnection) -> None:
        accepted.raw = None
        await self._loop.connect_accepted_socket(lambda: self._factory(accepted), raw)

    def _admitted(self, done: asyncio.Task[None], accepted: AcceptedConnection) -> None:
        self._admissions.discard(done)
        accepted.admission = None
        if not done.cancelled() and done.exception() is None:
            return
        accepted.leave()  # it was cut
        if accepted.raw is not None:
            accepted.raw.close()

    def _turn_away(self) -> bool:
        """Hang up on a client, with the descriptor that is kept for that. Otherwise he would wait
        in the kernel's queue, and the loop would be woken for him again and again."""
        if self._spare is None:
            return False
        os.close(self._spare)
        self._spare = None
        with contextlib.suppress(OSError):
            self._bound.accept()[0].close()
            self.tell(CutReason.DESCRIPTORS)
        return self._keep_spare()

    def _keep_spare(self) -> bool:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return self._spare is not None

    def _wait(self) -> None:
        self._loop.remove_reader(self._bound)
        self._pause = self._loop.call_later(PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if self._spare is None:
            self._keep_spare()
        self._loop.add_reader(self._bound, self._accept)

    # -------------------------------------------------------------------- sweeping

    async def _sweep(self) -> None:
        self.connections.begin(self._now_ms())
        while True:  # ends by cancellation
            await asyncio.sleep(self.connections.limits.sweep_ms / 1000)
            now_ms = self._now_ms()
            for late in self.connections.sweep(now_ms):
                for accepted, reason in late:
                    accepted.cut(reason)
                await asyncio.sleep(0)
            looked = 0
            for accepted in list(self.connections):
                looked += 1 if accepted.tend is None else accepted.tend(now_ms)
                if looked >= SWEPT_AT_ONCE:
                    looked = 0
                    await asyncio.sleep(0)
            self._log(now_ms)

    def _log(self, now_ms: int) -> None:
        if not self._untold or now_ms - self._logged_ms < LOG_EVERY_MS:
            return
        counts = {reason.value: count for reason, count in self._untold.items()}
        _log.warning(
            "connections refused or cut",
            port=self._name(),
            reasons=counts,
            open=len(self.connections),
        )
        self._untold.clear()
        self._logged_ms = now_ms

    def _name(self) -> int | str:
        """Its port, or the path of a Unix socket."""
        name: str | tuple[str, int] = self._bound.getsockname()
        return name if isinstance(name, str) else name[1]

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def room_for(listeners: int) -> Room:
    """How many file descriptors the connections of so many listeners of this process may take: half
    of all, so that files and connections to others have the other half."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Room(2**31 if soft == resource.RLIM_INFINITY else soft // 2, listeners)


def _is_fresh() -> ConnectionProgress:
    return FRESH
