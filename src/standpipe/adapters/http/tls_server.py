"""The accepting end of TLS connections: HTTP inside, through OpenSSL and two buffers.

    socket ─► TlsProtocol ─ deciphered ─► ProtocolSwitch or LookupProtocol ─► TlsTransport ─► socket

What uvloop's own TLS adds to a lookup took 1.3 times as long: it reads until an exception says that
nothing is left. Here a read is followed by another only where OpenSSL or its buffer has more, and
an answer is ciphered and written at once.

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
#: records of one read of the socket, until others of the loop have a turn
RECORDS_AT_ONCE: Final = 16


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
        self._is_proved = self._is_held = self._is_reading = False

    # -------------------------------------------------------- called by the event loop

    def data_received(self, data: bytes) -> None:
        """Records, or parts of them."""
        self._came.write(data)
        if not self._is_proved and not self._shake_hands():
            return
        self._read()

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
        else:
            self.transport.resume_reading()
            self._read_later()

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

    def _read(self) -> None:
        """Deliver what came, unless it is held."""
        came, tls, self._is_reading = self._came, self._tls, True
        try:
            for _ in range(RECORDS_AT_ONCE):
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
            else:
                self._read_later()
        except ssl.SSLWantReadError:
            pass  # no whole record
        except ssl.SSLError:
            self._flush()
            self.transport.abort()
            return
        finally:
            self._is_reading = False
        if self._goes.pending:  # answers of TLS itself, as to a new key
            self._flush()

    def _read_later(self) -> None:
        if self._came.pending or (self._is_proved and self._tls.pending()):
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._is_proved and not self._is_reading:
            self._read()

    def _flush(self) -> None:
        if self._goes.pending:
            self.transport.write(self._goes.read())


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
