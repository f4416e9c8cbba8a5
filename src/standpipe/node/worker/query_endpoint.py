"""POST /query and /query-stream on the slow path: an ASGI application for each listener.

A request comes here when the fast path does not know its head yet, or has declined it. A push query
or PRINT, which only its text reveals, is passed to `node.worker.push.endpoint`.

A request that takes long is passed on to a heavy worker, and answered here if none is there.

Not here: the fast path (`node.worker.pull.fast_path`), rows (`node.worker.pull.slow_path`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.responses import PlainTextResponse

from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import WORKING, Headers, Receive, Send
from standpipe.errors import BadRequest, BodyTooLarge
from standpipe.node.worker.garbage import let_go
from standpipe.node.worker.heavy_workers import PIECE_S_MAX, HeavyWorkers
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.response import PullResponse
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.request.answer import headers as fresh_headers
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form, accepted, header
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.takes_long import TakesLong
from standpipe.node.worker.responses import as_standpipe_error, error_response, send_refusal
from standpipe.sql.lookup.plan_cache import NotAPullQuery
from standpipe.sql.syntax.ast_statements import PrintTopic

_LINES = Form.LINES.value.decode()


class _Exchange(NamedTuple):
    scope: dict[str, Any]
    receive: Receive
    send: Send


@dataclass(frozen=True)
class QueryEndpoint:
    """Pull queries of one listener. Its caller has checked path, method and peer."""

    slow_path: SlowPath
    body_bytes_max: int
    is_peer: bool
    #: shared by the listeners of a worker
    answers: AnswerBudget = field(default_factory=AnswerBudget)
    #: of the public listener; None: nodes ask each other for pull queries only
    pushes: Pushes | None = None
    #: None: this worker is one of them
    heavy: HeavyWorkers | None = None

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
            requester = self._requester(request_format, scope, receive)
            try:
                exchange = _Exchange(scope, receive, send)
                try:
                    answer = await self._answer(exchange, request_format, body, requester)
                except TakesLong:
                    answer = await self._by_heavy(exchange, request_format, body, requester)
                if answer is not None and scope.get("http_version") == "1.0":
                    answer = await _whole(answer, requester)
            except BaseException:
                requester.release()
                raise
        except BodyTooLarge as error:
            await send_refusal(error, receive, send)
        except Exception as error:
            shown = as_standpipe_error(error)
            self.slow_path.metrics.count("standpipe_pull_errors", str(shown.code))
            let_go(shown)
            await error_response(shown)(scope, receive, send)
        else:
            try:
                if answer is not None:
                    await _send_answer(answer, request_format.form, requester, send)
            finally:
                requester.release()

    def _requester(
        self, request_format: RequestFormat, scope: dict[str, Any], receive: Receive
    ) -> ScanRequester:
        forward = request_format.forward
        return ScanRequester(
            receive,
            scope.get("extensions", {}).get(WORKING),
            None if forward is None else forward.working_ms,
            budget=self.answers,
            is_peer=self.is_peer,
            address=(scope.get("client") or ("",))[0],
            may_pass_on=self.heavy is not None,
        )

    async def _by_heavy(
        self,
        exchange: _Exchange,
        request_format: RequestFormat,
        body: bytes,
        requester: ScanRequester,
    ) -> PullResponse | None:
        """None: a heavy worker has answered. Where there is none, this worker answers."""
        requester.close()
        text = parse_lookup(body).text
        if self.heavy and await self.heavy.answer(*exchange, body, text=text, is_peer=self.is_peer):
            return None
        requester.may_pass_on = False
        return await self._answer(exchange, request_format, body, requester)

    async def _answer(
        self,
        exchange: _Exchange,
        request_format: RequestFormat,
        body: bytes,
        requester: ScanRequester,
    ) -> PullResponse | None:
        """None: it was a push query or PRINT, and has ended. Raises TakesLong."""
        try:
            return await self.slow_path.answer(request_format, body, requester)
        except NotAPullQuery as asked:
            if self.pushes is None:
                raise BadRequest("nodes ask each other for pull queries only") from None
            statement = asked.statement
        requester.close()
        scope, receive, send = exchange
        is_print, accept = isinstance(statement, PrintTopic), header(scope["headers"], "accept")
        if is_print and accepted(accept, (_LINES,)) is None:
            await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
            return None
        form = request_format.form
        may_pass_on = requester.may_pass_on
        await self.pushes.answer(
            statement, parse_lookup(body), form, receive, send, may_pass_on=may_pass_on
        )
        return None


async def _whole(answer: PullResponse, requester: ScanRequester) -> PullResponse:
    """The answer in one piece, for HTTP/1.0, which has no chunks. Raises BadRequest and
    TooManyRequests if it takes too much memory."""
    if answer.pieces is None:
        return answer
    parts: list[bytes] = []
    async with aclosing(answer.pieces) as pieces:
        async for piece in pieces:
            requester.hold(len(piece))
            parts.append(piece)
    return PullResponse(b"".join(parts), answer.fresh)


async def _send_answer(
    answer: PullResponse, form: Form, requester: ScanRequester, send: Send
) -> None:
    """Send it whole with its length, or piece by piece as fast as the client reads."""
    lines = [(b"content-type", form.value), *fresh_headers(answer.fresh)]
    if answer.pieces is None:
        lines.insert(1, (b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})
        return
    await send({"type": "http.response.start", "status": 200, "headers": lines})
    async with aclosing(answer.pieces) as pieces:
        async for piece in pieces:
            try:
                async with asyncio.timeout(PIECE_S_MAX):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                return  # the server cuts the answer off
            if requester.is_gone:
                return
    await send({"type": "http.response.body", "body": b""})
