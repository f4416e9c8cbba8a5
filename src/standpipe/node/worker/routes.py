"""The routes of a worker's two listeners.

The *public* listener serves clients. The *peer* listener takes reads from other nodes, which have
proved that they know the cluster's secret: a client's load cannot starve it, and it takes no
statements.

Queries, batches and inserts are answered before Starlette; most pull queries never come here at all
(`node.worker.pull.fast_path`).

Source: ksqlDB's REST API. Not here: what the answers say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.sealed_server import peer_of
from standpipe.adapters.http.server import Application, Receive, Send
from standpipe.errors import BadRequest, NotFound, OutcomeUnknown, Unauthorized
from standpipe.node.liveness.wire import PROBE_PATH
from standpipe.node.worker.heavy_workers import HeavyWorkers
from standpipe.node.worker.inspect.cluster_status import ClusterStatus
from standpipe.node.worker.inspect.info import StatusRoutes
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.query_endpoint import QueryEndpoint
from standpipe.node.worker.request.body import BOUND_PROPERTIES, asked_bounds, is_known_property
from standpipe.node.worker.request.head import (
    BATCH_PATH,
    INSERTS_PATH,
    PACK_PATH,
    PULL_PATHS,
    Form,
    accepted,
)
from standpipe.node.worker.request.page_guard import PageGuard
from standpipe.node.worker.request.takes_long import STATEMENTS_BYTES_MAX
from standpipe.node.worker.responses import (
    JSON,
    Endpoint,
    guarded,
    json_response,
    plain,
    send_refusal,
)
from standpipe.node.worker.statements.execute import Statements

_KSQL_JSON = Form.ARRAY.value.decode()
_ENDED = OutcomeUnknown(
    "the worker that carried the statements out has ended: some may be in force. SHOW and DESCRIBE"
    " tell which."
)


# ----------------------------------------------------------------------------- the listeners


@dataclass(frozen=True)
class PublicApplication:
    """What clients reach."""

    queries: QueryEndpoint
    inserts: Application  # `node.worker.inserts_stream`
    batches: Application  # `node.worker.query_batch.endpoint`
    rest: Starlette
    pages: PageGuard

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = self.pages.refusal(scope["method"], scope["headers"])
        if refused is not None:
            await send_refusal(refused, receive, send)
            return
        if scope["method"] == "POST" and scope["path"].encode() in PULL_PATHS:
            await self.queries(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == INSERTS_PATH:
            await self.inserts(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == BATCH_PATH:
            await self.batches(scope, receive, send)
        else:
            await self.rest(scope, receive, send)


@dataclass(frozen=True)
class PeerApplication:
    """What other nodes reach: reads that are answered from this node's own stores, or refused."""

    queries: QueryEndpoint
    packs: Application  # `node.worker.pack_endpoint`

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            peer_of(scope)
        except Unauthorized as error:
            await send_refusal(error, receive, send)
            return
        if scope["method"] == "POST" and scope["path"].encode() in PULL_PATHS:
            await self.queries(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == PACK_PATH:
            await self.packs(scope, receive, send)
        elif scope["path"] == PROBE_PATH:
            await PlainTextResponse("ok")(scope, receive, send)
        else:
            await PlainTextResponse("Not Found", 404)(scope, receive, send)


@dataclass(frozen=True)
class Rest:
    """The routes of the public listener that are not queries, batches or inserts."""

    status: StatusRoutes
    cluster: ClusterStatus
    routes: Routes
    statements: Statements
    pushes: Pushes
    exposition: Callable[[], Awaitable[bytes]]  # of /metrics
    body_bytes_max: int
    #: None: this worker is one of them
    heavy: HeavyWorkers | None = None

    def application(self) -> Starlette:
        """The Starlette application; errors keep ksqlDB's texts: `Not Found` and JSON bodies."""
        get: list[tuple[str, Endpoint]] = [
            ("/", self.root),
            ("/info", self.info),
            ("/healthcheck", self.healthcheck),
            ("/clusterStatus", self.cluster_status),
            ("/route", self.route),
            ("/status", self.all_statuses),
            ("/status/{type}/{entity}/{action}", self.one_status),
            ("/is_valid_property/{name}", self.is_valid_property),
            ("/v1/metadata", self.metadata),
            ("/v1/metadata/id", self.metadata_id),
            ("/metrics", self.metrics),
        ]
        routes = [Route(path, guarded(endpoint), methods=["GET"]) for path, endpoint in get]
        posted = {"/ksql": self.ksql, "/close-query": self.close_query}
        routes += [Route(path, guarded(each), methods=["POST"]) for path, each in posted.items()]
        # known paths with another method are 405, not 404
        streaming = (*(path.decode() for path in PULL_PATHS), INSERTS_PATH, BATCH_PATH)
        routes += [Route(path, _not_called, methods=["POST"]) for path in streaming]
        handlers: dict[Any, Any] = {HTTPException: plain}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def ksql(self, request: Request) -> Response:
        """POST /ksql: statements."""
        media = accepted(request.headers.get("accept", ""), (_KSQL_JSON, JSON))
        if media is None:
            return PlainTextResponse("Not Acceptable", 406)
        body = await read_body(request.scope["headers"], request.receive, self.body_bytes_max)
        if self.heavy is not None and len(body) > STATEMENTS_BYTES_MAX:
            return _ByHeavy(self.heavy, body, guarded(lambda _: self._carried_out(body, media)))
        return await self._carried_out(body, media)

    async def _carried_out(self, body: bytes, media: str) -> Response:
        return json_response(await self.statements.carry_out(body), media)

    async def close_query(self, request: Request) -> Response:
        """POST /close-query: end a push query."""
        body = await read_body(request.scope["headers"], request.receive, self.body_bytes_max)
        self.pushes.close(body)
        return Response(b"", 200)

    async def root(self, request: Request) -> Response:
        """GET /: a page for browsers, else a redirect to /info."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(self.status.page(), media_type="text/html; charset=utf-8")
        return RedirectResponse("/info", 307)

    async def info(self, request: Request) -> Response:
        """GET /info."""
        return json_response(self.status.info())

    async def healthcheck(self, request: Request) -> Response:
        """GET /healthcheck."""
        return json_response(self.status.health())

    async def cluster_status(self, request: Request) -> Response:
        """GET /clusterStatus."""
        return json_response(self.cluster.page())

    async def route(self, request: Request) -> Response:
        """Ours: `?table=T&key=k`, bounds as in a request's properties."""
        asked = request.query_params
        if "table" not in asked:
            raise BadRequest("name a table: /route?table=T&key=k")
        given = {name: asked[name] for name in BOUND_PROPERTIES if name in asked}
        bounds = asked_bounds(given)
        return json_response(self.routes.of(asked["table"], asked.getlist("key"), bounds))

    async def all_statuses(self, request: Request) -> Response:
        """GET /status: all statements in force."""
        return json_response({"commandStatuses": self.status.commands()})

    async def one_status(self, request: Request) -> Response:
        """GET /status/{type}/{entity}/{action}. Raises NotFound."""
        wanted = "/".join(request.path_params[part] for part in ("type", "entity", "action"))
        known = self.status.commands()
        if wanted not in known:
            raise NotFound("Command not found")
        return json_response({"status": known[wanted], "message": "", "queryId": None})

    async def is_valid_property(self, request: Request) -> Response:
        """GET /is_valid_property/{name}. Raises BadRequest for an unknown one."""
        name = request.path_params["name"]
        if not is_known_property(name):
            raise BadRequest(f"One or more properties overrides set locally are unknown: {name}")
        return json_response(True)

    async def metadata(self, request: Request) -> Response:
        """GET /v1/metadata."""
        return json_response(self.status.metadata())

    async def metadata_id(self, request: Request) -> Response:
        """GET /v1/metadata/id."""
        return json_response(self.status.metadata()["clusterId"])

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, in Prometheus' text format."""
        text = await self.exposition()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class _ByHeavy(Response):
    """Statements that a heavy worker carries out; this worker does where there is none."""

    def __init__(self, heavy: HeavyWorkers, body: bytes, here: Endpoint) -> None:
        super().__init__()
        self._heavy, self._statements, self._here = heavy, body, here

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if await self._heavy.answer(scope, receive, send, self._statements, ended=_ENDED):
            return
        response = await self._here(Request(scope))
        await response(scope, receive, send)


async def _not_called(request: Request) -> Response:
    raise AssertionError("queries, batches and inserts are answered before Starlette")
