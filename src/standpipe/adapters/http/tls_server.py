"""The accepting end of TLS connections: HTTP inside, through OpenSSL and two buffers.

    socket ─► TlsProtocol ─ deciphered ─► ProtocolSwitch or LookupProtocol ─► TlsTransport ─► socket

What uvloop's own TLS adds to a lookup took 1.3 times as long: it reads until an exception says that
nothing is left. Here a read is followed by another only where OpenSSL or its buffer has more, and
an answer is ciphered and written at once.

OpenSSL gets a few records at a time, as it reads on until one of them has bytes of the application,
and each new key, of which a client may send thousands, takes as long as two lookups. What else a
read of the socket brought waits for the next turn of the loop, and no other read comes before.

A client that ends without close_notify is gone, as on a plain connection. Neither end renegotiates.

Not here: certificates (`adapters.http.tls`), which listener speaks TLS (`node.worker.listeners`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from standpipe.adapters.http.acceptor import AcceptedConnection
from standpipe.adapters.http.layered import LayerProtocol, LayerTransport

#: of one call of OpenSSL, which gives a record at most
READ_BYTES: Final = 16 * 1024
#: records that OpenSSL gets, until others of the loop have a turn
RECORDS_AT_ONCE: Final = 16
#: of a record, before its content: the last two are the content's length
HEADER_BYTES: Final = 5
#: What TLS itself may answer after the handshake, in all. A client whose keys are used up after
#: millions of records gets 27 bytes.
OWN_BYTES_MAX: Final = 32 * 1024


class TlsProtocol(LayerProtocol):
    """One connection. A switch of protocols may put another one inside."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[AcceptedConnection], asyncio.Protocol],
        connections: set[Any],
        accepted: AcceptedConnection,
    ) -> None:
        super().__init__(make, connections, accepted)
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=True)
        #: of the record that OpenSSL has the begin of: bytes that are still to come
        self._due = 0
        #: what OpenSSL has yet to get: records, if this is behind, else less than a header
        self._rest: bytes | memoryview = b""
        self._own_bytes = 0
        self._is_proved = self._is_held = self._is_behind = self._goes_on = False

    # -------------------------------------------------------- called by the event loop

    def data_received(self, data: bytes) -> None:
        """Records, or parts of them."""
        if self._rest:
            data = b"".join((self._rest, data))
        if self._is_behind:
            self._rest = data
        else:
            self._take(data)

    def eof_received(self) -> None:
        """The client is gone: TLS has no end of one half alone."""
        super().eof_received()

    # ----------------------------------------------------------- for the transport inside

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Cipher, and write at once."""
        try:
            written = self._tls.write(data)
            while written < len(data):
                data = data[written:]
                written = self._tls.write(data)
        except ssl.SSLError:
            self.transport.abort()
            return
        self.transport.write(self._goes.read())

    def end(self) -> None:
        """Tell the client that no more comes, and close when all is written."""
        with suppress(ssl.SSLError):  # the client's own close_notify is not waited for
            self._tls.unwrap()
        if not self.transport.is_closing():
            self._flush()
            self.transport.close()

    def hold(self, *, is_held: bool) -> None:
        """Deliver nothing more, or go on."""
        self._is_held = is_held
        if is_held:
            self.transport.pause_reading()
        elif self._is_behind or self._has_more():
            self._go_on_later()
        else:
            self.transport.resume_reading()

    @property
    def is_held(self) -> bool:
        """Whether nothing is delivered."""
        return self._is_held

    @property
    def tls(self) -> ssl.SSLObject:
        """What has been agreed on."""
        return self._tls

    # ---------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            self._flush()  # it says why
            self.transport.close()
            return False
        self._flush()
        self._is_proved = True
        self.begin(TlsTransport(self, self.transport))
        return True

    def _take(self, data: bytes | memoryview) -> None:
        """Give OpenSSL records, and deliver what is in them."""
        end, self._due = _cut(data, self._due)
        if end == len(data):
            self._rest = b""
        else:
            whole = memoryview(data)
            data, self._rest = whole[:end], whole[end:]
        self._came.write(data)
        if self._is_proved or self._shake_hands():
            self._read()
        if self._is_behind or len(self._rest) >= HEADER_BYTES:
            self._pace()

    def _pace(self) -> None:
        """Read nothing from the socket while records of its last read wait for their turn."""
        self._is_behind = len(self._rest) >= HEADER_BYTES
        if self.transport.is_closing():
            return
        if self._is_behind:
            self.transport.pause_reading()
            self._go_on_later()
        elif not self._is_held:
            self.transport.resume_reading()

    def _go_on_later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Deliver what was held, then what waited for its turn."""
        self._goes_on = False
        if self._has_more():
            self._read()
        if self._is_held or self.transport.is_closing():
            return
        if self._is_behind:
            self._take(self._rest)
        else:
            self.transport.resume_reading()

    def _has_more(self) -> bool:
        """Whether OpenSSL has what was not delivered."""
        return self._is_proved and bool(self._came.pending or self._tls.pending())

    def _read(self) -> None:
        """Deliver what came, unless it is held."""
        came, tls = self._came, self._tls
        try:
            while True:
                if self._is_held or self.transport.is_closing():
                    return
                opened = tls.read(READ_BYTES)
                if not opened:  # close_notify
                    self.end()
                    return
                if self.inner is None:
                    return
                self.inner.data_received(opened)
                if not came.pending and not tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass  # no whole record
        except ssl.SSLError:
            self._flush()
            self.transport.abort()
            return
        own_bytes = self._goes.pending  # answers of TLS itself, as to a new key
        if own_bytes:
            self._own_bytes += own_bytes
            if self._own_bytes > OWN_BYTES_MAX:
                self.transport.abort()
                return
            self._flush()

    def _flush(self) -> None:
        if self._goes.pending:
            self.transport.write(self._goes.read())


def _cut(data: bytes | memoryview, due: int) -> tuple[int, int]:
    """Where RECORDS_AT_ONCE records end, or all there are, and how many bytes of the last one are
    still to come. `due`: of the record that began before."""
    size, end = len(data), due
    for _ in range(RECORDS_AT_ONCE):
        if end + HEADER_BYTES > size:
            break
        end += HEADER_BYTES + int.from_bytes(data[end + 3 : end + HEADER_BYTES], "big")
    return (end, 0) if end <= size else (size, end - size)


class TlsTransport(LayerTransport):
    """What the protocol inside writes to: ciphers, and ends as TLS does."""

    def __init__(self, tls: TlsProtocol, raw: asyncio.Transport) -> None:
        super().__init__(raw)
        self._tls = tls
        #: without a call in between
        self.write = tls.write

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` and `sslcontext`; else what the socket's transport says."""
        if name == "ssl_object":
            return self._tls.tls
        if name == "sslcontext":
            return self._tls.tls.context
        return super().get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """From now on, another one is inside."""
        self._tls.inner = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The one that is inside."""
        assert self._tls.inner is not None
        return self._tls.inner

    def close(self) -> None:
        """Close when all is written."""
        self._tls.end()

    def can_write_eof(self) -> bool:
        """TLS has no end of one half alone."""
        return False

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`."""
        self._tls.hold(is_held=True)

    def resume_reading(self) -> None:
        """Deliver again."""
        self._tls.hold(is_held=False)

    def is_reading(self) -> bool:
        """Whether it delivers."""
        return not self._tls.is_held and not self._raw.is_closing()
