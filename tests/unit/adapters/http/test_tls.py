"""Certificates: taken up when they change, kept when what comes instead is wrong."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from tests.tls import FIRST, SECOND, Pair, copied

from standpipe.adapters.http.tls import Certificate, certificate_of
from standpipe.config.registry import (
    load,
)
from standpipe.errors import ConfigError


def shown(certificate: Certificate) -> str | None:
    """Common name of what a client is shown, and None where no handshake comes about."""
    trust = ssl.create_default_context(cafile=FIRST.certificate)
    trust.load_verify_locations(SECOND.certificate)
    trust.set_alpn_protocols(["h2"])
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(back, there, server_hostname="localhost")
    server = certificate.context.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
    (name,) = [value for ((key, value),) in client.getpeercert()["subject"] if key == "commonName"]
    return f"{name}, {client.selected_alpn_protocol()}"


def replaced(pair: Pair, by: Pair, second: int) -> None:
    for old, new in zip(pair, by, strict=True):
        old.write_bytes(new.read_bytes())
        os.utime(old, (second, second))


def test_a_renewed_certificate_is_shown(tmp_path: Path) -> None:
    pair = copied(FIRST, tmp_path)
    certificate = Certificate(*pair, ["h2", "http/1.1"])
    assert shown(certificate) == "standpipe test first, h2"
    replaced(pair, SECOND, 1)
    assert shown(certificate) == "standpipe test first, h2", "nobody has looked yet"
    certificate.reload_if_changed()
    assert shown(certificate) == "standpipe test second, h2"


@pytest.mark.parametrize("what", ["nothing", "no PEM", "another key"])
def test_a_wrong_renewal_changes_nothing(tmp_path: Path, what: str) -> None:
    pair = copied(FIRST, tmp_path)
    certificate = Certificate(*pair, ["h2"])
    if what == "nothing":
        pair.key.unlink()
    elif what == "no PEM":
        pair.certificate.write_text("half a fi")
    else:
        pair.key.write_bytes(SECOND.key.read_bytes())
    os.utime(pair.certificate, (1, 1))
    certificate.reload_if_changed()
    assert shown(certificate) == "standpipe test first, h2"
    replaced(copied(SECOND, tmp_path), SECOND, 2)
    certificate.reload_if_changed()
    assert shown(certificate) == "standpipe test second, h2", "what is right again is taken"


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"first\.crt and .*nothing are not a certificate"):
        Certificate(FIRST.certificate, tmp_path / "nothing", ["h2"])
    with pytest.raises(ConfigError, match="not a certificate and its key"):
        Certificate(FIRST.certificate, SECOND.key, ["h2"])


def test_alpn_offers_what_is_spoken() -> None:
    keys = {
        "standpipe.tls.listener": "127.0.0.1:0",
        "standpipe.tls.certificate": str(FIRST.certificate),
        "standpipe.tls.key": str(FIRST.key),
    }
    assert shown(certificate_of(load(keys))) == "standpipe test first, h2"
    alone = {**keys, "standpipe.http2.streams.max": 0}
    assert shown(certificate_of(load(alone))) == "standpipe test first, None"


@pytest.mark.parametrize(
    "keys",
    [
        {"standpipe.tls.listener": "127.0.0.1:8443"},
        {"standpipe.tls.key": "k", "standpipe.tls.certificate": "c"},
        {
            "standpipe.tls.listener": "8443",
            "standpipe.tls.key": "k",
            "standpipe.tls.certificate": "c",
        },
    ],
)
def test_half_of_the_keys_is_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"standpipe\.tls\.listener"):
        load(keys)
