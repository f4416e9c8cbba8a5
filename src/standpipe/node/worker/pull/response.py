"""The answer to a pull query: sent whole, or in pieces as fast as the client reads them.

Not here: the layout (`node.worker.request.answer_pieces`), the rows (`node.worker.pull.slow_path`),
HTTP (`node.worker.query_endpoint`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from standpipe.data.query.order import merged
from standpipe.errors import StandpipeError
from standpipe.freshness import Freshness
from standpipe.node.worker.pull.forward import PartitionAnswer
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.pull_query import PullQuery
from standpipe.node.worker.pull.stream_pull import final_message
from standpipe.node.worker.request.answer import render_rows
from standpipe.node.worker.request.answer_pieces import AnswerPieces, batches_of, is_large


@dataclass(frozen=True)
class PullResponse:
    """The answer to a whole query: its body, laid out, and how fresh its rows are.

    A large body comes in pieces, each made when the one before it has been sent.
    """

    body: bytes
    fresh: Freshness
    #: None: `body` is all of it
    pieces: AsyncGenerator[bytes] | None = None


async def pieces(layout: AnswerPieces, rows: Sequence[bytes]) -> AsyncGenerator[bytes]:
    """The pieces of an answer whose rows are all here."""
    yield layout.head()
    for batch in batches_of(rows):
        yield layout.rows(batch)
        await asyncio.sleep(0)  # a client that reads fast must not hold up the others
    yield layout.tail()


async def streamed(
    layout: AnswerPieces, begun: Sequence[list[bytes]], batches: AsyncGenerator[list[bytes]]
) -> AsyncGenerator[bytes]:
    """The pieces of an answer whose rows are still read. An error is its last item."""
    count = 0
    try:
        yield layout.head()
        for batch in begun:
            count += len(batch)
            yield layout.rows(batch)
        async for batch in batches:
            count += len(batch)
            yield layout.rows(batch)
        yield layout.tail(final_message(layout.plan, count))
    except StandpipeError as error:
        yield layout.failed(error)
    finally:
        await batches.aclose()


def of_query(
    request_format: RequestFormat, query: PullQuery, part: PartitionAnswer
) -> PullResponse:
    """The answer of a table: whole, or in pieces if it is large."""
    is_final = request_format.forward is None
    rows = merged(query.plan, part.rows, is_final=is_final)
    token = None
    if query.session is not None and is_final:
        token = query.session.known.token(part.stamps)
    layout = AnswerPieces(request_format.form, query.plan, int(time.time() * 1000), token)
    if is_large(rows):
        return PullResponse(b"", part.fresh, pieces(layout, rows))
    body = render_rows(layout.form, query.plan, rows, layout.at_ms, token=token)
    return PullResponse(body, part.fresh)


async def of_stream(
    layout: AnswerPieces, fresh: Freshness, batches: AsyncGenerator[list[bytes]]
) -> PullResponse:
    """The answer of a stream: whole if it is one batch. If reading the second batch fails, the
    client gets only the error."""
    first = await anext(batches, list[bytes]())
    second = await anext(batches, None)
    if second is not None:
        return PullResponse(b"", fresh, streamed(layout, (first, second), batches))
    message = final_message(layout.plan, len(first))
    body = render_rows(layout.form, layout.plan, first, layout.at_ms, message)
    return PullResponse(body, fresh)
