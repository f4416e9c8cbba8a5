"""The certificate of a listener: PEM files, read again when they change.

A renewal (cert-manager, certbot, a cron job) replaces the files. If that needed a restart of the
node, one day the restart would come too late. Open connections keep the certificate that they began
with.

Not here: connections (`adapters.http.tls_server`); which listener speaks TLS
(`node/worker/listeners.py`); certificates of clients, which are not asked for; the listeners
between nodes, which a shared secret seals (docs/ARCHITECTURE.md).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

import structlog

from standpipe.config.keys import (
    HTTP2_STREAMS_MAX,
    TLS_CERTIFICATE,
    TLS_KEY,
)
from standpipe.config.registry import (
    Config,
)
from standpipe.errors import ConfigError

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Certificate:
    """A certificate chain and its key, from two PEM files (they may be the same one).

    `protocols`: what ALPN offers, best first. Raises ConfigError when the files cannot be used.
    """

    def __init__(self, chain: Path, key: Path, protocols: Sequence[str]) -> None:
        self.chain = chain
        self.key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 or newer
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self.context.set_alpn_protocols(protocols)
        self._seen = self._times()
        self._load()

    def reload_if_changed(self) -> None:
        """Load files that changed; if they cannot be used, log why and keep the old ones."""
        seen = self._times()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._load()
        except ConfigError as error:
            _log.error("certificate not renewed", error=error.message, next_step=error.next_step)
        else:
            _log.info("certificate renewed", path=str(self.chain))

    def _load(self) -> None:
        try:
            # first in a scratch context: a chain whose key does not fit would spoil the one in use
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.chain, self.key, _no_password
            )
            self.context.load_cert_chain(self.chain, self.key, _no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{self.chain} and {self.key} are not a certificate and its key: {error}",
                next_step="give standpipe.tls.certificate and standpipe.tls.key PEM files that "
                "belong together; the key without a password",
            ) from error

    def _times(self) -> tuple[int, ...]:
        """When the files were written; 0 for one that is being replaced just now."""
        return tuple(_written_ns(path) for path in (self.chain, self.key))


def certificate_of(settings: Config) -> Certificate:
    """What `standpipe.tls.*` name. Raises ConfigError."""
    protocols = ["h2", "http/1.1"] if settings[HTTP2_STREAMS_MAX] else ["http/1.1"]
    chain, key = Path(settings[TLS_CERTIFICATE]), Path(settings[TLS_KEY])
    return Certificate(chain, key, protocols)


def _no_password() -> str:
    """No operator is there to type a password; without this, OpenSSL would ask the terminal."""
    return ""


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
