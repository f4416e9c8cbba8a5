"""POST /query and /query-stream on the slow path: an ASGI application for each listener.

A request comes here when the fast path does not know its head yet, or has declined it. A push query
or PRINT, which only its text reveals, is passed to `node.worker.push.endpoint`.

Not here: the fast path (`node.worker.pull.fast_path`), rows (`node.worker.pull.slow_path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import PlainTextResponse

from standpipe.adapters.http.server import WORKING, Headers, Receive, Send, read_body
from standpipe.errors import BadRequest, BodyTooLarge
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.scans import ScanRequester
from standpipe.node.worker.pull.slow_path import PullResponse, SlowPath
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.request.answer import headers as fresh_headers
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form, accepted, header
from standpipe.node.worker.responses import as_standpipe_error, error_response, send_refusal
from standpipe.sql.lookup.plan_cache import NotAPullQuery
from standpipe.sql.syntax.ast_statements import PrintTopic

_LINES = Form.LINES.value.decode()


@dataclass(frozen=True)
class QueryEndpoint:
    """Pull queries of one listener. Its caller has checked path, method and secret."""

    slow_path: SlowPath
    body_bytes_max: int
    is_peer: bool
    #: of the public listener; None: nodes ask each other for pull queries only
    pushes: Pushes | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or send its error."""
        headers: Headers = scope["headers"]
        try:
            path = scope["path"].encode()
            request_format = RequestFormat.read(path, headers, is_peer=self.is_peer)
            if request_format is None:
                await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
                return
            body = await read_body(headers, receive, self.body_bytes_max)
            answer = await self._answer(request_format, scope, body, receive, send)
        except BodyTooLarge as error:
            await send_refusal(error, receive, send)
        except Exception as error:
            shown = as_standpipe_error(error)
            self.slow_path.metrics.count("standpipe_pull_errors", str(shown.code))
            await error_response(shown)(scope, receive, send)
        else:
            if answer is None:
                return
            lines = [
                (b"content-type", request_format.form.value),
                (b"content-length", b"%d" % len(answer.body)),
                *fresh_headers(answer.fresh),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": lines})
            await send({"type": "http.response.body", "body": answer.body})

    async def _answer(
        self,
        request_format: RequestFormat,
        scope: dict[str, Any],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> PullResponse | None:
        """None: it was a push query or PRINT, and has ended."""
        forward = request_format.forward
        every_ms = None if forward is None else forward.working_ms
        requester = ScanRequester(receive, scope.get("extensions", {}).get(WORKING), every_ms)
        try:
            return await self.slow_path.answer(request_format, body, requester)
        except NotAPullQuery as asked:
            if self.pushes is None:
                raise BadRequest("nodes ask each other for pull queries only") from None
            statement = asked.statement
        finally:
            requester.close()
        is_print, accept = isinstance(statement, PrintTopic), header(scope["headers"], "accept")
        if is_print and accepted(accept, (_LINES,)) is None:
            await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
            return None
        form = request_format.form
        await self.pushes.answer(statement, parse_lookup(body), form, receive, send)
        return None
