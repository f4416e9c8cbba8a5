"""POST /query-batch: many keys of one table in one request, an ASGI application.

Its caller has checked method and head, as for a query (`node.worker.routes`). The body may be as
large as a query's, rows count against the budget of all answers of the worker, and an answer is
sent whole, with its length.

Not here: the reads (`reads.py`), the layouts (`answer.py`).
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from starlette.responses import PlainTextResponse

from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import Headers, Receive, Send
from standpipe.errors import BodyTooLarge
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.query_batch.answer import BatchForm, arrow
from standpipe.node.worker.query_batch.reads import BatchReads
from standpipe.node.worker.query_batch.request_body import parse_batch
from standpipe.node.worker.request.answer import headers as fresh_headers
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.head import accepted, header
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.responses import as_standpipe_error, error_response, send_refusal


@dataclass(frozen=True)
class BatchEndpoint:
    """Batches of the public listener."""

    slow_path: SlowPath
    body_bytes_max: int
    #: shared by the listeners of a worker
    answers: AnswerBudget

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or send its error."""
        headers: Headers = scope["headers"]
        media = accepted(header(headers, "accept"), [form.value for form in BatchForm])
        if media is None:
            await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
            return
        address = (scope.get("client") or ("",))[0]
        requester = ScanRequester(budget=self.answers, address=address)
        try:
            await self._answered(BatchForm(media), headers, requester, receive, send)
        except BodyTooLarge as error:
            await send_refusal(error, receive, send)
        except Exception as error:
            shown = as_standpipe_error(error)
            self.slow_path.metrics.count("standpipe_pull_errors", str(shown.code))
            await error_response(shown)(scope, receive, send)
        finally:
            requester.release()

    async def _answered(
        self,
        form: BatchForm,
        headers: Headers,
        requester: ScanRequester,
        receive: Receive,
        send: Send,
    ) -> None:
        body = await read_body(headers, receive, self.body_bytes_max)
        if form is BatchForm.ARROW:  # before any row is read
            await _import_arrow()
        answer = await BatchReads(self.slow_path).answer(parse_batch(body), requester)
        requester.hold(answer.rows_bytes)
        if answer.takes_long(form):  # a second for some MiB: the loop turns meanwhile
            content = await asyncio.to_thread(answer.body, form)
        else:
            content = answer.body(form)
        lines = [
            (b"content-type", form.value.encode()),
            (b"content-length", b"%d" % len(content)),
            *fresh_headers(answer.fresh(self.slow_path.node_id)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        await send({"type": "http.response.body", "body": content, "more_body": False})


async def _import_arrow() -> None:
    """The first import takes a while. Raises NoArrow."""
    if "pyarrow" in sys.modules:
        arrow()
    else:
        await asyncio.to_thread(arrow)
