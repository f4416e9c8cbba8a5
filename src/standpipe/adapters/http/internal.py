"""Internal routes, both ends: how a node calls another one, and which callers a listener admits.

A call fails in one of three ways, and the caller reacts differently to each: nothing was sent
(PeerUnreachable: try another node at once), no answer in time (PeerSilent: the request may have
been carried out), or an answer that is an error (returned as a `Reply` with its status).

Both ends are proved before a request is sent (`adapters.sealed.handshake`); a request that comes
over any other connection is refused before its body is read. `InternalApp` tells a handler which
node asks, bounds the body, and turns a StandpipeError into an answer.

Not here: connections (`peer_client.py`); which peer, and what to do when it fails; what the routes
do.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
import structlog

from standpipe.adapters.http import server
from standpipe.adapters.http.connections import CutReason, PortLimits
from standpipe.adapters.http.peer_client import UNNAMED, ConnectFailed, PathFailed, PeerClient
from standpipe.adapters.http.protocol_switch import OtherProtocol, Proving, Watched
from standpipe.adapters.http.request_body import discard_body, read_body
from standpipe.adapters.http.sealed_server import Seal, peer_of
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.errors import (
    BadRequest,
    NotFound,
    PortInUse,
    ServerError,
    StandpipeError,
    Unauthorized,
)
from standpipe.model import NodeId

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

#: Headers that go to the caller from a handler's reply, which may be another node's.
_PASSED_ON: Final = frozenset({"connection", "content-type", "retry-after"})
#: Of the body of a request that is refused.
_REFUSED_BYTES_MAX: Final = 64 << 10
#: In which earlier releases sent the secret.
_OLD_SECRET_HEADER: Final = b"standpipe-secret"

T = TypeVar("T")
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class PeerUnreachable(ServerError):
    """No connection to the peer: nothing was sent."""


class PeerSilent(ServerError):
    """The peer may have received the request, and did not answer in time or closed."""


@dataclass(frozen=True)
class Reply:
    """A complete answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON. Raises PeerSilent if it is not JSON: no Standpipe node answered."""
        return self.decoded(msgspec.json.Decoder(Any))

    def json_as(self, type_: type[T]) -> T:
        """The body as a record, from JSON. Raises PeerSilent if it does not fit."""
        return self.decoded(msgspec.json.Decoder(type_))

    def msgpack(self, type_: type[T]) -> T:
        """The body as a msgpack record. Raises PeerSilent if it does not fit."""
        return self.decoded(msgspec.msgpack.Decoder(type_))

    def decoded(self, decoder: msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T]) -> T:
        """The body, decoded. Raises PeerSilent if the decoder cannot read it."""
        try:
            return decoder.decode(self.body)
        except msgspec.MsgspecError as error:
            raise PeerSilent(f"the answer cannot be read: {error}") from error


def json_reply(value: object, status: int = 200) -> Reply:
    """An answer with a JSON body."""
    return Reply(status, {"content-type": JSON}, msgspec.json.encode(value))


def msgpack_reply(value: object) -> Reply:
    """An answer with a msgpack body."""
    return Reply(200, {"content-type": MSGPACK}, msgspec.msgpack.encode(value))


def error_reply(error: StandpipeError) -> Reply:
    """An answer that carries an error; the caller gets it as a `Reply`."""
    reply = json_reply(error.body(), error.status)
    if error.retry_after_s is None:
        return reply
    return replace(reply, headers={**reply.headers, "retry-after": str(error.retry_after_s)})


@dataclass(frozen=True)
class Call:
    """A request that a peer sent, or this process itself."""

    path: str
    params: Mapping[str, str]
    body: bytes
    #: the node that has proved itself; empty: an operator, a pipeline, or nobody yet
    peer: NodeId = UNNAMED

    def must_come_from(self, node: NodeId) -> None:
        """Raises Unauthorized unless it is `node` that has proved itself: a node speaks for itself
        only."""
        if self.peer != node:
            said = self.peer or "a process that is no node"
            raise Unauthorized(f"{said} sent {self.path} in the name of {node}")

    def json(self, type_: type[T]) -> T:
        """The body as JSON. Raises BadRequest, as the other two do."""
        return _asked(lambda: msgspec.json.decode(self.body, type=type_))

    def msgpack(self, type_: type[T]) -> T:
        """The body as msgpack."""
        return _asked(lambda: msgspec.msgpack.decode(self.body, type=type_))

    def query(self, type_: type[T]) -> T:
        """The query parameters, with numbers parsed from text."""
        return _asked(lambda: msgspec.convert(self.params, type_, strict=False))


def _asked(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


Handler = Callable[[Call], Awaitable[Reply]]


async def no_route(call: Call) -> Reply:
    """The answer for a path that has no route. Raises NotFound."""
    raise NotFound(f"no internal route {call.path}")


class InternalApp:
    """ASGI application of an internal listener. `routes`: (method, path) -> handler.

    `otherwise` answers a request that has no route; its call has no body.
    """

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Handler],
        *,
        body_bytes_max: int,
        otherwise: Handler = no_route,
    ) -> None:
        self._routes = routes
        self._otherwise = otherwise
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await _send(await self._answer(scope, receive), send)

    async def _answer(self, scope: Any, receive: Any) -> Reply:
        try:
            peer = peer_of(scope)
            handler = self._routes.get((scope["method"], scope["path"]))
            if handler is None:
                return await self._otherwise(Call(f"{scope['method']} {scope['path']}", {}, b""))
            body = await read_body(scope["headers"], receive, self._body_bytes_max)
            params = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            return await handler(Call(scope["path"], params, body, peer))
        except StandpipeError as error:
            return error_reply(error)
        except Exception as error:
            _log.exception("internal route failed", path=scope["path"])
            return error_reply(ServerError(f"{type(error).__name__}: {error}"))


async def _send(reply: Reply, send: Any) -> None:
    headers = [(b"content-length", str(len(reply.body)).encode())]
    passed = ((name.lower(), value) for name, value in reply.headers.items())
    headers += [(k.encode(), v.encode()) for k, v in passed if k in _PASSED_ON]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def refuse_unsealed(scope: Any, receive: Any, send: Any) -> None:
    """ASGI application of a listener between nodes for connections that are not sealed."""
    if scope["type"] != "http":
        return
    why = "this port is for the nodes of a cluster, which prove that they know its secret"
    step = "use the public port, or a command of Standpipe with --secret-file"
    if any(name == _OLD_SECRET_HEADER for name, _ in scope["headers"]):
        why = f"{_OLD_SECRET_HEADER.decode()} is no longer accepted: an older release sent it"
        step = "start this release wherever the request came from, then change the secret"
    await discard_body(receive, _REFUSED_BYTES_MAX)
    refusal = error_reply(Unauthorized(f"{why}; {step}"))
    await _send(replace(refusal, headers={**refusal.headers, "connection": "close"}), send)


def sealed(identity: PeerIdentity) -> Seal:
    """Makes a listener one between nodes (`Listener.seal`)."""
    return Seal(identity, refuse_unsealed)


def bind_alone(address: str) -> socket.socket:
    """A listening socket that no other process may share. Raises PortInUse."""
    host, _, port = address.rpartition(":")
    try:
        bound = socket.create_server((host.strip("[]"), int(port)), backlog=server.BACKLOG)
    except OSError as error:
        raise PortInUse(
            f"cannot listen on {address}: {error.strerror}",
            next_step="stop the other process, or choose another port",
        ) from error
    bound.setblocking(False)
    return bound


async def serve(
    bound: socket.socket,
    app: InternalApp,
    stop: asyncio.Event,
    grace_s: float,
    *,
    identity: PeerIdentity,
    other: tuple[bytes, Callable[[], Proving]] | None = None,
    limits: PortLimits | None = None,
    ended: Callable[[CutReason], None] | None = None,
) -> None:
    """Serve an internal listener until `stop`; then up to `grace_s` for what is in flight.

    `identity`: whom it proves to be. `other`: a second protocol on the same port, and the bytes
    that it opens with. `limits` and `ended` are those of `Listener`.
    """
    listener = server.Listener(
        socket=bound,
        application=app,
        fast_path=server.NoFastPath(),
        limits=limits or PortLimits(),
        ended=ended,
        seal=sealed(identity),
    )
    if other is not None:
        opening, protocol = other
        listener.other = OtherProtocol(opening, lambda _, accepted: Watched(protocol(), accepted))
    await server.serve([listener], stop, grace_s)


class HttpClient:
    """Calls of other nodes' internal routes. One per process and event loop; close it at the end.

    Wraps `PeerClient`: adds a default time-out, and the two errors. `to`: the node that must prove
    to be at the address; empty: any of the cluster.
    """

    def __init__(self, identity: PeerIdentity, *, timeout_ms: int = 1000) -> None:
        self._client = PeerClient(identity=identity)
        self._timeout_ms = timeout_ms

    async def get(
        self,
        address: str,
        path: str,
        *,
        to: NodeId = UNNAMED,
        timeout_ms: int | None = None,
        **params: str | int,
    ) -> Reply:
        """GET http://address/path?params. Raises PeerUnreachable or PeerSilent."""
        target = f"{path}?{urlencode(params)}" if params else path
        return await self._request("GET", address, target, to=to, timeout_ms=timeout_ms)

    async def post(
        self,
        address: str,
        path: str,
        body: bytes,
        *,
        to: NodeId = UNNAMED,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> Reply:
        """POST bytes. Raises PeerUnreachable or PeerSilent."""
        all_headers = {"content-type": content_type, **(headers or {})}
        return await self._request(
            "POST", address, path, to=to, body=body, headers=all_headers, timeout_ms=timeout_ms
        )

    async def post_json(
        self,
        address: str,
        path: str,
        value: object,
        *,
        to: NodeId = UNNAMED,
        timeout_ms: int | None = None,
    ) -> Reply:
        """POST a value as JSON. Raises PeerUnreachable or PeerSilent."""
        body = msgspec.json.encode(value)
        return await self.post(address, path, body, to=to, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def _request(
        self,
        method: str,
        address: str,
        target: str,
        *,
        to: NodeId,
        timeout_ms: int | None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        total_s = (timeout_ms or self._timeout_ms) / 1000
        try:
            response = await self._client.request(
                address,
                target,
                to=to,
                method=method,
                timeout_s=total_s,
                body=body,
                headers=headers,
                is_repeatable=method == "GET",
            )
        except ConnectFailed as error:
            raise PeerUnreachable(f"{address} cannot be reached: {error}") from error
        except PathFailed as error:
            raise PeerSilent(f"the connection to {address} broke: {error}") from error
        return Reply(response.status, response.headers, response.body)
