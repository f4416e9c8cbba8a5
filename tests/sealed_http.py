"""Sealed connections for tests: a transport for httpx2, and the accepting end for blocking servers.

A test speaks to a port between nodes as a node or an operator does; it has no other way in.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Self

import httpx2

from standpipe.adapters.http.peer_client import ConnectFailed, PathFailed, Response
from standpipe.adapters.http.sealed_socket import SealedSocket
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.sealed.handshake import (
    INTERNAL,
    MAGIC,
    NONCE_BYTES,
    Acceptor,
    Dialler,
    PeerIdentity,
)
from standpipe.model import NodeId


class Sealed(httpx2.BaseTransport):
    """Requests of one identity; a kept connection per thread and origin."""

    def __init__(self, secret: str, node: str, listener: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._identity = PeerIdentity(secret, NodeId(node), listener)
        self._local = threading.local()
        self._made: list[SyncClient] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        client = getattr(self._local, "client", None)
        if client is None:
            client = SyncClient(timeout_s=self._timeout_s, identity=self._identity)
            self._local.client = client
            self._made.append(client)
        headers = {name: value for name, value in request.headers.items() if name in _PASSED_ON}
        try:
            answer: Response = client.request(
                request.method,
                f"http://{request.url.netloc.decode()}",
                request.url.raw_path.decode(),
                body=request.read(),
                headers=headers,
            )
        except ConnectFailed as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except PathFailed as error:
            raise httpx2.ReadError(str(error), request=request) from error
        kept = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return httpx2.Response(answer.status, headers=kept, content=answer.body, request=request)

    def close(self) -> None:
        for client in self._made:
            client.close()


_PASSED_ON = {"content-type", "accept"}


def sealed_client(
    secret: str,
    node: str = "",
    listener: str = INTERNAL,
    *,
    base_url: str = "",
    timeout_s: float = 30.0,
) -> httpx2.Client:
    """A client that proves to be `node`; empty: an operator."""
    return httpx2.Client(
        base_url=base_url, transport=Sealed(secret, node, listener, timeout_s), trust_env=False
    )


def ask_sealed(
    address: str,
    method: str,
    target: str,
    *,
    secret: str,
    node: str = "",
    listener: str = INTERNAL,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Response:
    """One request over a connection of its own."""
    identity = PeerIdentity(secret, NodeId(node), listener)
    with SyncClient(timeout_s=30.0, identity=identity) as client:
        return client.request(method, address, target, body=body, headers=headers)


class Line(SealedSocket):
    """A dialled connection for requests that are written by hand."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def recv(self, count: int) -> bytes:
        with self.makefile("rb") as file:
            return file.read1(count)


def dialled(address: tuple[str, int], identity: PeerIdentity, to: str = "") -> Line:
    """A connection whose acceptor has proved itself."""
    raw = socket.create_connection(address, 10)
    return Line.proved(raw, Dialler(identity, NodeId(to), os.urandom(NONCE_BYTES)))


def accepted(raw: socket.socket, identity: PeerIdentity) -> SealedSocket:
    """The accepting end of a connection, once its dialler has proved itself."""
    acceptor, opening = Acceptor(identity, os.urandom(NONCE_BYTES)), b""
    while len(opening) < len(MAGIC):
        opening += _some(raw)
    assert opening.startswith(MAGIC), opening
    data = opening[len(MAGIC) :]
    while (session := acceptor.received(data)) is None:
        if acceptor.answer:
            raw.sendall(acceptor.answer)
            acceptor.answer = b""
        data = _some(raw)
    sealed = SealedSocket(raw, session, b"")
    sealed.opened += session.opener.open(acceptor.rest)
    return sealed


def _some(raw: socket.socket) -> bytes:
    data = raw.recv(65536)
    if not data:
        raise ConnectionResetError("the dialler has gone")
    return data
