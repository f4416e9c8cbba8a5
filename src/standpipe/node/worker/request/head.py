"""The head of a request: its path, its headers, and the layouts that it accepts. Pure.

Source: ksqlDB's REST API ("/query", "/query-stream", content types). Not here: bodies
(`node.worker.request.body`), how an answer is laid out (`node.worker.request.answer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from standpipe.adapters.http.server import Headers

PULL_PATHS = (b"/query", b"/query-stream")
INSERTS_PATH = "/inserts-stream"
BATCH_PATH = "/query-batch"
#: of the peer listener, and the media type of its answers (`data.query.lookup_pack`)
PACK_PATH = "/query-pack"
PACK_TYPE = "application/vnd.standpipe.pack.v1"
#: Of an Accept header; browsers send some 150. Each of its types is compared with each of ours, and
#: 32 KiB of commas would take 0.1 s of the loop.
ACCEPT_CHARS_MAX = 2_000


class Form(Enum):
    """Layout of a query's answer, by its media type."""

    ARRAY = b"application/vnd.ksql.v1+json"
    LINES = b"application/vnd.ksqlapi.delimited.v1"
    OBJECTS = b"application/json"


def header(headers: Headers, name: str) -> str:
    """Value of a header; several of one name are joined by commas, and an absent one is empty."""
    wanted = name.encode()
    return ",".join(value.decode("latin-1") for found, value in headers if found == wanted)


def form_of(path: bytes, accept: str) -> Form | None:
    """How a pull query on `path` is answered; None: no layout that the client accepts."""
    if path == b"/query-stream":
        order = (Form.LINES, Form.ARRAY, Form.OBJECTS)
    else:
        order = (Form.ARRAY, Form.LINES, Form.OBJECTS)
    chosen = accepted(accept, [form.value.decode() for form in order])
    if chosen is None:
        return None
    form = Form(chosen.encode())
    # on the old path, application/json is another name for ARRAY's type
    return Form.ARRAY if form is Form.OBJECTS and path == b"/query" else form


def accepted(header: str, offered: Sequence[str]) -> str | None:
    """The media type of `offered` that an Accept header prefers, the first of equals; None: none.

    Parameters other than q are ignored, as ksqlDB's clients send `; charset=utf-8`. A header of
    more than ACCEPT_CHARS_MAX accepts none.
    """
    if len(header) > ACCEPT_CHARS_MAX:
        return None
    best: tuple[float, int] | None = None
    for part in (header or "*/*").lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        quality = _quality(parameters)
        for rank, offer in enumerate(offered):
            if quality > 0 and _matches(media, offer) and (best is None or (-quality, rank) < best):
                best = (-quality, rank)
    return None if best is None else offered[best[1]]


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _matches(media: str, offer: str) -> bool:
    return media in ("*/*", "*", offer) or media == offer.split("/", maxsplit=1)[0] + "/*"
