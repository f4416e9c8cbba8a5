"""The routes of a worker: ASGI in, ksqlDB's REST API out.

Two lanes with one application each. The *public* lane is for clients. The *peer* lane takes reads
from other nodes, after the cluster's secret and before the body; nothing that a client does can
starve it, and it knows no statements.

Pull queries are answered before Starlette, in both lanes; most never come here at all (`quick`).

Source: ksqlDB's REST API. Not here: what the answers say.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from standpipe.adapters.http.peer_client import SECRET_HEADER
from standpipe.adapters.http.server import WORKING, Application, Headers, Receive, Send, read_body
from standpipe.errors import (
    BadRequest,
    BodyTooLarge,
    NotFound,
    StandpipeError,
    Unauthorized,
)
from standpipe.model import Offset
from standpipe.node.worker.inspect.cluster_status import ClusterStatus
from standpipe.node.worker.inspect.info import Status
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.pull.forward import (
    DEADLINE_HEADER,
    EPOCH_HEADER,
    FORWARDED_HEADER,
    PARTITION_HEADER,
    PROBE_PATH,
    TABLE_HEADER,
    WORKING_HEADER,
)
from standpipe.node.worker.pull.forward_terms import Ask, Terms
from standpipe.node.worker.pull.query import Answer, Pulls
from standpipe.node.worker.pull.scans import Asker
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.request.bodies import (
    INSERTS_PATH,
    LAG_PROPERTIES,
    PULL_PATHS,
    Form,
    accepted,
    form_of,
    is_known_property,
    offset_lag_max,
    parse_lookup,
)
from standpipe.node.worker.request.freshness import END_HEADER
from standpipe.node.worker.request.freshness import headers as fresh_headers
from standpipe.node.worker.responses import (
    JSON,
    Endpoint,
    error_response,
    foreseen,
    guarded,
    json_response,
    plain,
    send_refusal,
)
from standpipe.node.worker.statements.execute import Statements
from standpipe.sql.lookup.plan_cache import NotAPullQuery
from standpipe.sql.syntax.ast_statements import PrintTopic

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_KSQL_JSON = Form.ARRAY.value.decode()
_LINES = Form.LINES.value.decode()


# ------------------------------------------------------------------------------ pull queries


@dataclass(frozen=True)
class PullRoute:
    """/query and /query-stream of one lane, by the quick and by the ordinary way."""

    pulls: Pulls
    body_bytes_max: int
    #: of the peer lane; None: the public lane, where nobody can ask for an answer from here only
    secret: bytes | None = None
    #: of the public lane; None: nothing that goes on is answered here
    pushes: Pushes | None = None

    # the quick way (adapters.http_server.Quick)

    def classify(self, path: bytes, headers: Headers) -> Ask | None:
        """How a head wants its answer; None: not for the quick way."""
        try:
            if path not in PULL_PATHS or not self.is_admitted(headers):
                return None
            length = next(int(value) for name, value in headers if name == b"content-length")
            return self.ask(path, headers) if length <= self.body_bytes_max else None
        except StandpipeError:
            return None

    def answer(self, token: Ask, body: bytes) -> bytes | None:
        return self.pulls.quickly(token, body)

    # the ordinary way

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a POST whose path is one of PULL_PATHS."""
        headers: Headers = scope["headers"]
        try:
            ask = self.ask(scope["path"].encode(), headers)
            if ask is None:
                await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
                return
            body = await read_body(headers, receive, self.body_bytes_max)
            answer = await self._answer(ask, scope, body, receive, send)
        except BodyTooLarge as error:
            await send_refusal(error, receive, send)
        except Exception as error:
            shown = foreseen(error)
            self.pulls.metrics.count("standpipe_pull_errors", str(shown.code))
            await error_response(shown)(scope, receive, send)
        else:
            if answer is None:
                return
            lines = [
                (b"content-type", ask.form.value),
                (b"content-length", b"%d" % len(answer.body)),
                *fresh_headers(answer.fresh),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": lines})
            await send({"type": "http.response.body", "body": answer.body})

    async def _answer(
        self, ask: Ask, scope: dict[str, Any], body: bytes, receive: Receive, send: Send
    ) -> Answer | None:
        """None: it was a push query or PRINT, and is over."""
        terms = ask.terms
        every_ms = None if terms is None else terms.working_ms
        asker = Asker(receive, scope.get("extensions", {}).get(WORKING), every_ms)
        try:
            return await self.pulls.answer(ask, body, asker)
        except NotAPullQuery as asked:
            if self.pushes is None:
                raise BadRequest("nodes ask each other for pull queries only") from None
            statement = asked.statement
        finally:
            asker.close()
        is_print, accept = isinstance(statement, PrintTopic), header(scope["headers"], "accept")
        if is_print and accepted(accept, (_LINES,)) is None:
            await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
            return None
        await self.pushes.answer(statement, parse_lookup(body), ask.form, receive, send)
        return None

    # both

    def is_admitted(self, headers: Headers) -> bool:
        """Whether the request carries the lane's secret, compared in constant time."""
        if self.secret is None:
            return True
        given = header(headers, SECRET_HEADER)
        return hmac.compare_digest(given.encode("latin-1"), self.secret)

    def ask(self, path: bytes, headers: Headers) -> Ask | None:
        """Layout and terms; None: no layout that the client accepts. Raises BadRequest."""
        form = form_of(path, header(headers, "accept"))
        if form is None:
            return None
        is_forward = self.secret is not None and bool(header(headers, FORWARDED_HEADER))
        return Ask(form, _terms(headers) if is_forward else None)


def header(headers: Headers, name: str) -> str:
    """Value of a header, all of them joined by commas where it comes several times."""
    wanted = name.encode()
    return ",".join(value.decode("latin-1") for found, value in headers if found == wanted)


def _terms(headers: Headers) -> Terms:
    try:
        partition = header(headers, PARTITION_HEADER)
        deadline = header(headers, DEADLINE_HEADER)
        epoch, end = header(headers, EPOCH_HEADER), header(headers, END_HEADER)
        working = header(headers, WORKING_HEADER)
        return Terms(
            partition=int(partition) if partition else None,
            table=header(headers, TABLE_HEADER),
            timeout_ms=int(deadline) if deadline else None,
            assignment_epoch=int(epoch) if epoch else None,
            committed_end=Offset(int(end)) if end else None,
            working_ms=int(working) if working else None,
        )
    except ValueError as error:
        raise BadRequest(f"a header of the forward is malformed: {error}") from error


# --------------------------------------------------------------------------------- the lanes


@dataclass(frozen=True)
class PublicLane:
    """What clients reach."""

    pull: PullRoute
    inserts: Application  # `node.worker.inserts_stream`
    rest: Starlette

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST" and scope["path"].encode() in PULL_PATHS:
            await self.pull(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == INSERTS_PATH:
            await self.inserts(scope, receive, send)
        else:
            await self.rest(scope, receive, send)


@dataclass(frozen=True)
class PeerLane:
    """What other nodes reach: reads that are answered from this node's own stores, or refused."""

    pull: PullRoute

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not self.pull.is_admitted(scope["headers"]):
            error = Unauthorized("the peer lane wants the cluster's secret")
            await send_refusal(error, receive, send)
        elif scope["method"] == "POST" and scope["path"].encode() in PULL_PATHS:
            await self.pull(scope, receive, send)
        elif scope["path"] == PROBE_PATH:
            await PlainTextResponse("ok")(scope, receive, send)
        else:
            await PlainTextResponse("Not Found", 404)(scope, receive, send)


@dataclass(frozen=True)
class Rest:
    """The routes of the public lane that are not pull queries."""

    status: Status
    cluster: ClusterStatus
    routes: Routes
    statements: Statements
    pushes: Pushes
    exposition: Callable[[], Awaitable[bytes]]  # of /metrics
    body_bytes_max: int

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
        streaming = (*(path.decode() for path in PULL_PATHS), INSERTS_PATH)
        routes += [Route(path, _not_called, methods=["POST"]) for path in streaming]
        handlers: dict[Any, Any] = {HTTPException: plain}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def ksql(self, request: Request) -> Response:
        media = accepted(request.headers.get("accept", ""), (_KSQL_JSON, JSON))
        if media is None:
            return PlainTextResponse("Not Acceptable", 406)
        body = await read_body(request.scope["headers"], request.receive, self.body_bytes_max)
        return json_response(await self.statements.carry_out(body), media)

    async def close_query(self, request: Request) -> Response:
        body = await read_body(request.scope["headers"], request.receive, self.body_bytes_max)
        self.pushes.close(body)
        return Response(b"", 200)

    async def root(self, request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return Response(self.status.page(), media_type="text/html; charset=utf-8")
        return RedirectResponse("/info", 307)

    async def info(self, request: Request) -> Response:
        return json_response(self.status.info())

    async def healthcheck(self, request: Request) -> Response:
        return json_response(self.status.health())

    async def cluster_status(self, request: Request) -> Response:
        return json_response(self.cluster.page())

    async def route(self, request: Request) -> Response:
        """Ours: `?table=T&key=k`, the bound as in a request's properties."""
        asked = request.query_params
        if "table" not in asked:
            raise BadRequest("say of which table: /route?table=T&key=k")
        given = {name: asked[name] for name in LAG_PROPERTIES if name in asked}
        lag_max = offset_lag_max(given)
        return json_response(self.routes.of(asked["table"], asked.getlist("key"), lag_max))

    async def all_statuses(self, request: Request) -> Response:
        return json_response({"commandStatuses": self.status.commands()})

    async def one_status(self, request: Request) -> Response:
        wanted = "/".join(request.path_params[part] for part in ("type", "entity", "action"))
        known = self.status.commands()
        if wanted not in known:
            raise NotFound("Command not found")
        return json_response({"status": known[wanted], "message": "", "queryId": None})

    async def is_valid_property(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not is_known_property(name):
            raise BadRequest(f"One or more properties overrides set locally are unknown: {name}")
        return json_response(True)

    async def metadata(self, request: Request) -> Response:
        return json_response(self.status.metadata())

    async def metadata_id(self, request: Request) -> Response:
        return json_response(self.status.metadata()["clusterId"])

    async def metrics(self, request: Request) -> Response:
        text = await self.exposition()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _not_called(request: Request) -> Response:
    raise AssertionError("pull queries and inserts are answered before Starlette")
