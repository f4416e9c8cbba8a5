"""POST /query-pack on the slow path: lookups that another node has sent together.

A pack comes here when the fast path does not know its head yet, and is answered as there: what
takes the slow path is left to the node that asked, which sends it by itself.

Not here: how a pack is answered (`node.worker.pull.fast_path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import Headers, Receive, Send
from standpipe.data.query.lookup_pack import Pack
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.request.head import PACK_TYPE
from standpipe.node.worker.responses import guarded


@dataclass(frozen=True)
class PackEndpoint:
    """Packs of the peer listener. Its caller has checked path, method and peer."""

    fast_path: LookupFastPath

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or send its error."""
        response = await guarded(self._answer)(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        headers: Headers = request.scope["headers"]
        token = self.fast_path.classify(request.scope["path"].encode(), headers)
        if token is None:
            return PlainTextResponse("Not Acceptable", 406)
        body = await read_body(headers, request.receive, self.fast_path.bytes_max(is_pack=True))
        answers = self.fast_path.answers(token, Pack.parse(body))
        return Response(answers, media_type=PACK_TYPE)
