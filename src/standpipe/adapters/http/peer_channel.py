"""Many requests on one kept connection to a peer, under way at once, answered in their order.

    send ─► those of this turn of the loop, or, while others are under way, all until the last of
            them is answered                ─► one write        (pipelining: RFC 9112, 9.3.2)
    read ─► head, body; head, body; ...     ─► each to who asked

A forward of its own costs four system calls at both ends, and two seals. Here those that wait at
once share them. The price is their order: one that takes long holds back those behind it. So it is
for requests that are answered at once, whose askers have another way when an answer is late.

The answers come from a node of the cluster, whose heads say how long the body is. Whatever has no
such head ends the channel: nobody knows then where the next answer begins.

Not here: how a connection is made, kept and sealed (`peer_client.py`), what is asked
(`node.worker.pull.fast_forward`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

#: Requests under way on a channel. A target answers ANSWERED_AT_ONCE of `server.py` in one turn.
UNDER_WAY_MAX: Final = 64
#: of the head of an answer
HEAD_BYTES_MAX: Final = 16 * 1024
_LENGTH: Final = b"\r\ncontent-length: "
_CLOSE: Final = b"\r\nconnection: close"
_DIGITS_MAX: Final = 12


class Asker(Protocol):
    """Who waits for one answer. Exactly one of the two is called, once, in another turn."""

    def answered(self, head: bytes, body: bytes) -> None:
        """`head`: the status line and the headers, each closed by CRLF, without the empty line."""
        ...

    def unanswered(self) -> None:
        """None comes any more, or one that is too long."""
        ...


class PeerChannel:
    """One connection. `write` sends bytes on it, `abort` ends it and what is unsent."""

    def __init__(
        self, write: Callable[[bytes], None], abort: Callable[[], None], body_bytes_max: int
    ) -> None:
        self._write, self._abort = write, abort
        self._body_bytes_max = body_bytes_max
        self._loop = asyncio.get_running_loop()
        #: requests that are not written yet
        self._unsent: list[bytes | Callable[[], bytes]] = []
        self._askers: deque[Asker] = deque()
        #: of an answer that is not whole yet
        self._rest = b""
        #: bytes of a body that is too long, still to come
        self._skipped = 0
        self.is_open = True
        #: on the loop's clock
        self.used_s = self._loop.time()

    @property
    def under_way(self) -> int:
        """Requests whose answers are still to come."""
        return len(self._askers)

    @property
    def is_free(self) -> bool:
        """Whether it takes one more request."""
        return self.is_open and len(self._askers) < UNDER_WAY_MAX

    def send(self, message: bytes | Callable[[], bytes], asker: Asker) -> None:
        """Ask for one more answer. The channel must be free. The request is written in the next
        turn of the loop, or with all that wait once those are answered that were written. One that
        may grow until then is called for its bytes when it is written."""
        if not self._unsent and not self._askers:
            self._loop.call_soon(self._flush)
        self._unsent.append(message)
        self._askers.append(asker)

    def end(self) -> None:
        """Withdraw what is under way, and end the connection."""
        self.lost()
        self._abort()

    # ------------------------------------------------------------- called by the connection

    def received(self, data: bytes) -> None:
        """Bytes of answers."""
        if self._skipped:
            skipped = min(self._skipped, len(data))
            self._skipped -= skipped
            data = data[skipped:]
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while at < size:
            head_end = data.find(b"\r\n\r\n", at, at + HEAD_BYTES_MAX)
            if head_end < 0:
                if size - at < HEAD_BYTES_MAX and self._askers:
                    self._rest = data[at:]
                    return
                self.end()
                return
            length = _length_in(data, at, head_end)
            if length is None or not self._askers:
                self.end()
                return
            body = head_end + 4
            if length > self._body_bytes_max:
                self._askers.popleft().unanswered()
                self._skipped = max(0, body + length - size)
                at = body + length
                continue
            if body + length > size:
                self._rest = data[at:]
                return
            head = data[at : head_end + 2]
            at = body + length
            if _CLOSE in head:
                self.is_open = False
            self._askers.popleft().answered(head, data[body:at])
        if self._unsent and len(self._unsent) == len(self._askers):
            self._flush()

    def lost(self) -> None:
        """The connection has ended."""
        self.is_open = False
        self._unsent.clear()
        askers = [*self._askers]
        self._askers.clear()
        for asker in askers:
            asker.unanswered()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            self.used_s = self._loop.time()
            self._write(b"".join([each if isinstance(each, bytes) else each() for each in unsent]))


def _length_in(data: bytes, at: int, head_end: int) -> int | None:
    """Of the body behind a head; None: the head does not say it in digits."""
    found = data.find(_LENGTH, at, head_end)
    if found < 0:
        return None
    begin = found + len(_LENGTH)
    end = data.find(b"\r\n", begin, head_end + 2)
    digits = data[begin:end]
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else None
