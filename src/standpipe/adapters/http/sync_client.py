"""The synchronous HTTP/1.1 client, for commands, threads and other callers without an event loop.

Built on `http.client`: a command must start fast, and a tailer must stay small. It adds what a
caller of a cluster needs: a short time-out for connecting beside that for an answer, and one
exception (`PathFailed`) for everything that is not an answer.

With an `identity` a connection is sealed: nothing is sent before the other end has proved itself
(`adapters.sealed.handshake`).

A connection is kept per origin. One that the server has closed is recognised before it is used. A
GET that meets its end is sent again, nothing else is. Redirects are not followed, and the
environment's proxies are ignored.

Not here: which node to ask, and what its answer means (`local/client/`, `node/store_transfer/`);
calls on an event loop (`peer_client.py`).
"""

from __future__ import annotations

import os
import select
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from typing import Self, cast
from urllib.parse import urlsplit

from standpipe.adapters.http.peer_client import (
    UNNAMED,
    ConnectFailed,
    PathFailed,
    Response,
    Unproved,
)
from standpipe.adapters.http.sealed_socket import SealedSocket
from standpipe.adapters.sealed.handshake import NONCE_BYTES, Dialler, HandshakeRefused, PeerIdentity
from standpipe.model import NodeId


def open_connection(
    origin: str,
    *,
    connect_s_max: float,
    answer_s_max: float | None,
    tls: ssl.SSLContext | None = None,
    identity: PeerIdentity | None = None,
    to: NodeId = UNNAMED,
    awaits: Callable[[socket], None] = lambda _: None,
) -> HTTPConnection:
    """A connection to `host:port`, `http://host:port` or `https://host:port`.

    Its first request connects, as does the first one after a `close`, each with at most
    `connect_s_max` seconds. `identity`: whom this process proves to be, to a listener between
    nodes; `to`: the node that must prove to be there; empty: any. Connecting raises
    HandshakeRefused, an OSError, if it is another; `awaits` is called before each read of its
    proof, and may raise TimeoutError. `answer_s_max`: seconds of silence after which
    a read fails; None: no limit.
    """
    parts = urlsplit(origin if "://" in origin else f"http://{origin}")
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        secure = _TlsConnection(host, parts.port, timeout=connect_s_max, context=context)
        secure.answer_s_max = answer_s_max
        return secure
    plain = _PlainConnection(host, parts.port, timeout=connect_s_max)
    if identity is not None:
        plain.prove = partial(_prove, identity, to, awaits)
    plain.answer_s_max = answer_s_max
    return plain


class _PlainConnection(HTTPConnection):
    answer_s_max: float | None = None
    prove: Callable[[socket], SealedSocket] | None = None

    def connect(self) -> None:
        super().connect()
        if self.prove is not None:
            try:
                self.sock = cast("socket", self.prove(self.sock))
            except OSError:
                self.close()
                raise
        self.sock.settimeout(self.answer_s_max)


def _prove(
    identity: PeerIdentity, to: NodeId, awaits: Callable[[socket], None], raw: socket
) -> SealedSocket:
    dialler = Dialler(identity, to, os.urandom(NONCE_BYTES))
    return SealedSocket.proved(raw, dialler, awaits)


class _TlsConnection(HTTPSConnection):
    answer_s_max: float | None = None

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self.answer_s_max)


class SyncClient:
    """Blocking calls. For one thread at a time; close it at the end.

    `headers` are sent with every request. `tls`: which certificates to trust; None: the system's.
    `identity`, `to`: see `open_connection`.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        connect_s_max: float | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        identity: PeerIdentity | None = None,
        to: NodeId = UNNAMED,
    ) -> None:
        self._identity, self._to = identity, to
        self._timeout_s = timeout_s
        self._connect_s_max = timeout_s if connect_s_max is None else connect_s_max
        self._headers = dict(headers or {})
        self._tls = tls
        self._kept: dict[str, HTTPConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept connections."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    def get(self, origin: str, target: str) -> Response:
        """GET origin + target. Raises PathFailed."""
        return self.request("GET", origin, target)

    def request(
        self,
        method: str,
        origin: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """A complete answer, whatever its status. Raises PathFailed, or ConnectFailed when nothing
        was sent.

        A server may close a kept connection while a request is on its way to it. A GET is then sent
        again over a new one; anything else may have been carried out (RFC 9110, 9.2.2).
        """
        kept = self._kept.pop(origin, None)
        is_kept = kept is not None and _is_usable(kept)
        connection = kept if kept and is_kept else self._connected(origin, self._timeout_s)
        try:
            connection.request(method, target, body or None, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            connection.close()
            if is_kept and method == "GET" and isinstance(error, ConnectionError):
                return self.request(method, origin, target, body=body, headers=headers)
            raise PathFailed(_reason(error)) from error
        if connection.sock is not None:  # pyright: ignore[reportUnnecessaryComparison] None: closed
            self._kept[origin] = connection
        return Response(answer.status, _lower(answer), content)

    @contextmanager
    def stream(
        self, origin: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> Generator[tuple[Response, Generator[str]]]:
        """POST a request whose answer does not end: its head, and its lines as they come.

        If the status is not 200, the head has the whole body, and there are no lines. Reading has
        no time-out. Raises PathFailed, also from the lines.
        """
        connection = self._connected(origin, None)
        try:
            try:
                connection.request("POST", target, body, {**self._headers, **headers})
                answer = connection.getresponse()
                is_ok = answer.status == 200
                content = b"" if is_ok else answer.read()
            except (OSError, HTTPException) as error:
                raise PathFailed(_reason(error)) from error
            yield Response(answer.status, _lower(answer), content), _lines(answer)
        finally:
            connection.close()

    def _connected(self, origin: str, answer_s_max: float | None) -> HTTPConnection:
        connection = open_connection(
            origin,
            connect_s_max=self._connect_s_max,
            answer_s_max=answer_s_max,
            tls=self._tls,
            identity=self._identity,
            to=self._to,
        )
        try:
            connection.connect()
        except HandshakeRefused as error:
            raise Unproved(str(error)) from error
        except OSError as error:
            raise ConnectFailed(_reason(error)) from error
        return connection


def _is_usable(connection: HTTPConnection) -> bool:
    """Whether the server has kept its side open: a closed connection is readable."""
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    if not readable.poll(0):
        return True
    connection.close()
    return False


def _lines(answer: HTTPResponse) -> Generator[str]:
    """Not by `answer.readline`, which takes a broken connection for the end of the answer."""
    rest = b""
    try:
        while data := answer.read1(65536):
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode().rstrip("\r") for line in whole)
        if rest:
            yield rest.decode()
    except (OSError, HTTPException) as error:
        raise PathFailed(_reason(error)) from error


def _lower(answer: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
