"""Which requests a web page may have sent, and that those are refused. Pure.

A browser lets any page send requests to any address that the browser reaches, a developer's
loopback included: it only hides the answer. A statement needs no answer to drop a table. Three
checks of a request's head refuse such requests, one for each way to send them:

- *Host*: a page of `evil.example` whose name is made to resolve to this node is, to the browser,
  of the same origin (DNS rebinding). So the host must be an IP address, a loopback name, or a name
  of this node.
- *Origin*: browsers send it with every POST to another origin, and pages cannot change it. It must
  be the node's own, or allowed by name.
- *Content-Type*: a page may send text/plain, a form, or nothing to another origin without asking
  first (a "simple request"), but not JSON. So a body must be declared as JSON. Where no type is
  given, the sender must not be a browser (no Origin, no Sec-Fetch-Site): ksqlDB's Java client and
  its CLI send none.

A head is checked when it is parsed: for the fast path, once for all requests with the same head.

Not here: the routes (`node.worker.routes`); the listeners between nodes, where no page can prove
that it knows the secret.

Source: Fetch standard (CORS-safelisted request-header), RFC 6454 (Origin), RFC 9110 7.4 (421).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from standpipe.adapters.http.server import Headers
from standpipe.config.listeners import HOSTS_ALLOWED, ORIGINS_ALLOWED, listed
from standpipe.config.registry import Config
from standpipe.errors import (
    BadRequest,
    ForeignPage,
    StandpipeError,
    UnknownHost,
    UnsupportedMediaType,
)

#: Types of a body, as ksqlDB's clients declare them. No page may send them without asking first.
BODY_TYPES: Final = (
    b"application/json",
    b"application/vnd.ksql.v1+json",
    b"application/vnd.ksqlapi.delimited.v1",
)
#: Browsers add one of them to every POST (Sec-Fetch-Site: to addresses that they trust).
_OF_BROWSERS: Final = (b"origin", b"sec-fetch-site")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
#: Of a Host or an Origin: a name in DNS has 253. Each part of it is looked for among the allowed
#: names, so 32 KiB of dots would take 0.1 s of the loop, before any other check.
_CHARS_MAX: Final = 300


@dataclass(frozen=True, kw_only=True)
class PageGuard:
    """The checks of one listener. `hosts` and `origins` are in lower case; see
    `standpipe.http.hosts.allowed` and `standpipe.http.origins.allowed`."""

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: Config, own: Iterable[str]) -> Self:
        """From the keys. `own`: host names and addresses (`host:port` too) of this node."""
        names = {authority(name.lower())[0] for name in own if name}
        return cls(
            hosts=frozenset({"localhost", ".localhost", *names, *listed(settings[HOSTS_ALLOWED])}),
            origins=frozenset(listed(settings[ORIGINS_ALLOWED])),
        )

    def refusal(self, method: str, headers: Headers) -> StandpipeError | None:
        """Why a request is refused; None: it is not."""
        hosts, origins = _values(headers, b"host"), _values(headers, b"origin")
        if len(hosts) > 1 or len(origins) > 1:
            return BadRequest("a request has one Host and one Origin at most (RFC 9112, RFC 6454)")
        for host in hosts:
            if len(host) > _CHARS_MAX or not self._is_own(host):
                return _unknown_host(host)
        for origin in origins:
            if len(origin) > _CHARS_MAX or not self._may_send(origin, hosts):
                return _foreign(origin)
        return _unfit_type(headers) if method in ("POST", "PUT", "PATCH") else None

    def _is_own(self, host: str) -> bool:
        name, _ = authority(host)
        if "*" in self.hosts or name in self.hosts or _is_address(name):
            return True
        _, dot, parent = name.partition(".")
        while dot:
            if f".{parent}" in self.hosts:
                return True
            _, dot, parent = parent.partition(".")
        return False

    def _may_send(self, origin: str, hosts: list[str]) -> bool:
        if origin in self.origins or "*" in self.origins:
            return True
        scheme, _, place = origin.partition("://")
        name, port = authority(place)
        own = {authority(host) for host in hosts}
        default = _DEFAULT_PORTS.get(scheme, "")
        return bool(name) and bool(own & {(name, port or default), (name, port)})


def authority(text: str) -> tuple[str, str]:
    """Host and port of `host:port`; no port: an empty one. A dot at the end is dropped, and so are
    the brackets of an IPv6 address."""
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
        return name, port.removeprefix(":")
    name, _, port = text.partition(":")
    return name.removesuffix("."), port


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for found, value in headers if found == name]


def _is_address(name: str) -> bool:
    """An address cannot be made to resolve to another one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _unfit_type(headers: Headers) -> StandpipeError | None:
    given = [value for name, value in headers if name == b"content-type"]
    kinds = [value.split(b";", maxsplit=1)[0].strip().lower() for value in given]
    if kinds and all(kind in BODY_TYPES for kind in kinds):
        return None
    if not kinds and not any(name in _OF_BROWSERS for name, _ in headers):
        return None
    said = ", ".join(kind.decode("latin-1") for kind in kinds)[:_CHARS_MAX] or "no type"
    return UnsupportedMediaType(
        f"the body is declared as {said}, which any web page may send; "
        "add the header Content-Type: application/json (curl -H 'Content-Type: application/json')"
    )


def _unknown_host(host: str) -> StandpipeError:
    return UnknownHost(
        f"{host:.{_CHARS_MAX}} is not a name of this node; ask it by its address, or add the name "
        "to standpipe.http.hosts.allowed"
    )


def _foreign(origin: str) -> StandpipeError:
    return ForeignPage(
        f"a web page of {origin:.{_CHARS_MAX}} may not send requests to this node; to allow it, "
        "add its origin to standpipe.http.origins.allowed"
    )
