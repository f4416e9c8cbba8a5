r"""Bytes of the REST API: what a request asks, and how an answer is laid out. Pure.

| form | first | each row | end |
|---|---|---|---|
| ARRAY | `[{"header":{queryId,schema}}` | `,\n{"row":{"columns":[…]}}` | `]` |
| LINES | `{queryId,columnNames,columnTypes}\n` | `[…]\n` | |
| OBJECTS | `[{queryId,columnNames,columnTypes}` | `,\n[…]` | `]` |

Source: ksqlDB's REST API; the article in docs/sources.md for the spelling of properties.
Not here: sockets, statements, rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from standpipe.config import keys, registry
from standpipe.errors import BadRequest
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import variables

_Body = TypeVar("_Body")

PULL_PATHS = (b"/query", b"/query-stream")
INSERTS_PATH = "/inserts-stream"

#: ksqlDB's per-request bound, and KLIP-12's name for the same thing.
LAG_PROPERTIES = (keys.LAG_MAX.name, "acceptable.offset.lag")
#: where a push query goes on; ksqlDB's name for a thing of its own, which it later took back
PUSH_TOKEN = "request.ksql.query.push.continuation.token"  # noqa: S105 a property's name

#: Properties of ksqlDB, Kafka Streams and Kafka's clients that a request may carry and that change
#: nothing here. Anything else is a typing mistake and is refused with the nearest name.
_FOREIGN_PREFIXES = (
    "auto.",
    "cache.",
    "commit.",
    "consumer.",
    "default.",
    "ksql.functions.",
    "ksql.persistence.",
    "ksql.query.persistent.",
    "ksql.query.push.",
    "ksql.query.transient.",
    "ksql.streams.",
    "ksql.variable.substitution.",
    "max.",
    "num.",
    "processing.",
    "producer.",
    "request.ksql.",
    "state.",
)
#: Those of pull queries one by one: a bound that is misspelt must not be passed over in silence.
_PULL_PROPERTIES = frozenset({"ksql.pull.queries.enable"}) | frozenset(
    f"ksql.query.pull.{name}"
    for name in (
        *("interpreter.enabled", "limit.clause.enabled", "metrics.enabled", "stream.enabled"),
        *("range.scan.enabled", "table.scan.enabled", "max.qps", "max.concurrent.requests"),
        *("max.hourly.bandwidth.megabytes", "thread.pool.size", "router.thread.pool.size"),
    )
)


class Form(Enum):
    """Layout of a pull query's answer, by its media type."""

    ARRAY = b"application/vnd.ksql.v1+json"
    LINES = b"application/vnd.ksqlapi.delimited.v1"
    OBJECTS = b"application/json"


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A body of /query or /query-stream; both spellings are read on both paths."""

    ksql: str | None = None
    sql: str | None = None
    streamsProperties: dict[str, object] | None = None  # noqa: N815 ksqlDB's name
    properties: dict[str, object] | None = None
    sessionVariables: dict[str, str] | None = None  # noqa: N815 ksqlDB's name
    requestProperties: dict[str, object] | None = None  # noqa: N815 ksqlDB's name


class StatementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A body of /ksql."""

    ksql: str
    streamsProperties: dict[str, object] | None = None  # noqa: N815 ksqlDB's name
    commandSequenceNumber: int | None = None  # noqa: N815 ksqlDB's name
    sessionVariables: dict[str, str] | None = None  # noqa: N815 ksqlDB's name


class Lookup(msgspec.Struct, frozen=True):
    """A pull query as asked: its text, its properties, the lag that the answer may have."""

    text: str
    properties: Mapping[str, str] = {}
    #: records behind the committed end; None: the node's own setting holds
    offset_lag_max: int | None = None


_pull_decoder = msgspec.json.Decoder(PullRequest)
_statement_decoder = msgspec.json.Decoder(StatementRequest)


# --------------------------------------------------------------------------------- requests


def parse_lookup(body: bytes) -> Lookup:
    """The pull query in a request body. Raises BadRequest that says what is wrong."""
    request = _decode(_pull_decoder, body)
    text = request.ksql if request.ksql is not None else request.sql
    if text is None:
        raise BadRequest('the body has no "ksql" (on /query-stream: "sql")')
    properties = request.streamsProperties or request.properties
    given = request.requestProperties
    if given and PUSH_TOKEN in given:  # all others are of no use here, and may be any
        properties = {**(properties or {}), PUSH_TOKEN: given[PUSH_TOKEN]}
    if request.sessionVariables:
        text = variables.substituted(text, variables.folded(request.sessionVariables))
    if not properties:
        return Lookup(text)
    bound = offset_lag_max(properties)
    return Lookup(text, {name: property_text(v) for name, v in properties.items()}, bound)


def parse_statements(body: bytes) -> StatementRequest:
    """The statements in a body of /ksql. Raises BadRequest."""
    request = _decode(_statement_decoder, body)
    check_properties(request.streamsProperties or {})
    return request


def _decode(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not the JSON object that is wanted: {error}") from error


def offset_lag_max(properties: Mapping[str, object]) -> int | None:
    """The lag bound among the properties, a number or its text. Raises BadRequest."""
    check_properties(properties)
    for name in LAG_PROPERTIES:
        if name in properties:
            return _whole_number(name, properties[name])
    return None


def property_text(value: object) -> str:
    """A property's value as text, which is how ksqlDB's clients mostly send it anyway."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole_number(name: str, value: object) -> int:
    is_text = isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()
    if is_text or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        number = int(value)  # pyright: ignore[reportArgumentType]
        if number <= keys.LAG_MAX.default:
            return number
    raise BadRequest(f"{name} = {value!r} is not a number of records, 0 or more")


def check_properties(properties: Mapping[str, object]) -> None:
    """Raises BadRequest for a property that nothing reads, with the nearest name."""
    for name in properties:
        if not is_known_property(name):
            near = difflib.get_close_matches(name, (*registry.KEYS, *LAG_PROPERTIES), n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise BadRequest(
                "Not recognizable as ksql, streams, consumer, or producer property: "
                f"'{name}'.{hint}"
            )


def is_known_property(name: str) -> bool:
    """Whether a request may carry the property: ours, or one that ksqlDB would read."""
    return (
        name in registry.KEYS
        or name in LAG_PROPERTIES
        or name in _PULL_PROPERTIES
        or name.startswith(_FOREIGN_PREFIXES)
        or name.startswith(tuple(registry.IGNORED_PREFIXES))
    )


# ------------------------------------------------------------------------------ media types


def accepted(header: str, offered: Sequence[str]) -> str | None:
    """The first of `offered` that an Accept header likes best; None: none of them.

    Parameters other than q are ignored, as ksqlDB's clients send `; charset=utf-8`.
    """
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


def form_of(path: bytes, accept: str) -> Form | None:
    """How a pull query on `path` is answered; None: no form that the client accepts."""
    if path == b"/query-stream":
        order = (Form.LINES, Form.ARRAY, Form.OBJECTS)
    else:
        order = (Form.ARRAY, Form.LINES, Form.OBJECTS)
    chosen = accepted(accept, [form.value.decode() for form in order])
    if chosen is None:
        return None
    form = Form(chosen.encode())
    # on the old path application/json is another word for its own type
    return Form.ARRAY if form is Form.OBJECTS and path == b"/query" else form


# ---------------------------------------------------------------------------------- answers


def render_rows(
    form: Form, plan: PullPlan, rows: Sequence[bytes], at_ms: int, final_message: str = ""
) -> bytes:
    """The body of an answer: header, then one JSON array per row of `rows`.

    `at_ms` (Unix) makes the query id, as in ksqlDB. `final_message`: of streams, in form ARRAY.
    """
    if form is Form.ARRAY:
        schema = plan.schema.replace("\\", "\\\\").replace('"', '\\"')
        head = f'[{{"header":{{"queryId":"query_{at_ms}","schema":"{schema}"}}}}'.encode()
        tail = b"]"
        if final_message:
            tail = b',\n{"finalMessage":"%b"}]' % final_message.encode()
        if not rows:
            return head + tail
        columns = b'}},\n{"row":{"columns":'.join(rows)
        return b'%b,\n{"row":{"columns":%b}}%b' % (head, columns, tail)
    names = msgspec.json.encode(plan.column_names)
    types = msgspec.json.encode(plan.column_types)
    head = b'{"queryId":"query_%d","columnNames":%b,"columnTypes":%b}' % (at_ms, names, types)
    if form is Form.LINES:
        return b"\n".join((head, *rows, b""))
    return b"[%b]" % b",\n".join((head, *rows))


def split_lines(body: bytes) -> list[bytes]:
    """The rows of an answer in the LINES form, as a peer gave them."""
    return body.split(b"\n")[1:-1]
