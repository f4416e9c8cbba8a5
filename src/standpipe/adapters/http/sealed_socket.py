"""A blocking socket whose two ends are proved, for `http.client`.

What is written is sealed, what is read is opened.

It has the methods of a socket that `http.client` and this project call, no others. Not here: the
handshake and the records (`adapters.sealed`), HTTP (`sync_client.py`).
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from typing import Any, Final, Self

from standpipe.adapters.sealed.handshake import Dialler, SealedSession

_READ_BYTES: Final = 256 << 10


class SealedSocket:
    """A connected socket with its session."""

    def __init__(self, raw: socket.socket, session: SealedSession, proof: bytes) -> None:
        self._raw, self._session = raw, session
        self._proof = proof  # sent with the first request
        #: opened, and not read yet; the same for all files
        self.opened = bytearray()

    @classmethod
    def proved(
        cls,
        raw: socket.socket,
        dialler: Dialler,
        awaits: Callable[[socket.socket], None] = lambda _: None,
    ) -> Self:
        """The connection, once the other end has proved itself.

        `awaits` is called before each read. Raises HandshakeRefused, and what the socket and
        `awaits` raise. The caller closes `raw` then.
        """
        raw.sendall(dialler.opening)
        while True:
            awaits(raw)
            data = raw.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("closed by the peer before it had proved itself")
            if (session := dialler.received(data)) is not None:
                return cls(raw, session, dialler.proof)

    def sendall(self, data: bytes) -> None:
        """See socket, as for the others."""
        sealed, self._proof = self._proof + self._session.sealer.seal(bytes(data)), b""
        self._raw.sendall(sealed)

    def makefile(self, mode: str, *_: Any, **__: Any) -> io.BufferedReader:
        """A file of what the other end sends. Keeps the connection open until it is closed."""
        assert mode == "rb", "http.client reads by files and writes by sendall"
        return io.BufferedReader(_Reader(self, self._raw.makefile("rb", buffering=0)))

    def receive(self, raw: io.RawIOBase) -> bool:
        """Open what comes next; False: the other end has closed. Raises SealBroken."""
        while not self.opened:
            data = raw.read(_READ_BYTES)
            if not data:
                return False
            self.opened += self._session.opener.open(data)
        return True

    def settimeout(self, seconds: float | None) -> None:
        """How long each call may wait; None: without limit."""
        self._raw.settimeout(seconds)

    def fileno(self) -> int:
        """For `select`: readable when records arrive."""
        return self._raw.fileno()

    def close(self) -> None:
        """Closed for good once its files are, too."""
        self._raw.close()


class _Reader(io.RawIOBase):
    """The file of one answer."""

    def __init__(self, sealed: SealedSocket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._sealed, self._raw = sealed, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if not self._sealed.receive(self._raw):
            return 0
        opened = self._sealed.opened
        count = min(len(view), len(opened))
        view[:count] = opened[:count]
        del opened[:count]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
