"""The body of a request: statements or a query, and the properties beside them. Pure.

Both spellings of ksqlDB's two query paths are accepted on both. A property that nothing reads is
refused with the nearest name: a misspelt lag bound must not be ignored.

Source: ksqlDB's REST API; the article in docs/sources.md for the spelling of properties. Not here:
how large a body may be (`adapters.http.request_body`), paths, headers and layouts
(`node.worker.request.head`), what the statements mean (`sql`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from standpipe.config import keys, registry
from standpipe.errors import BadRequest
from standpipe.sql.expressions import statement_values
from standpipe.sql.expressions.statement_values import StatementValues
from standpipe.sql.syntax import variables

_Body = TypeVar("_Body")

#: ksqlDB's per-request bound, and KLIP-12's name for the same thing.
LAG_PROPERTIES = (keys.LAG_MAX.name, "acceptable.offset.lag")
#: where a push query resumes; named after a ksqlDB feature that was later removed
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
#: Those of pull queries, one by one: a misspelt bound must not be silently ignored.
_PULL_PROPERTIES = frozenset({"ksql.pull.queries.enable"}) | frozenset(
    f"ksql.query.pull.{name}"
    for name in (
        *("interpreter.enabled", "limit.clause.enabled", "metrics.enabled", "stream.enabled"),
        *("range.scan.enabled", "table.scan.enabled", "max.qps", "max.concurrent.requests"),
        *("max.hourly.bandwidth.megabytes", "thread.pool.size", "router.thread.pool.size"),
    )
)


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A body of /query or /query-stream; both spellings are accepted on both paths."""

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
    #: records behind the committed end; None: the node's own setting applies
    offset_lag_max: int | None = None


_pull_decoder = msgspec.json.Decoder(PullRequest)
_statement_decoder = msgspec.json.Decoder(StatementRequest)


def parse_lookup(body: bytes) -> Lookup:
    """The pull query in a request body. Raises BadRequest that says what is wrong."""
    request = _decode(_pull_decoder, body)
    text = request.ksql if request.ksql is not None else request.sql
    if text is None:
        raise BadRequest('the body has no "ksql" (on /query-stream: "sql")')
    properties = request.streamsProperties or request.properties
    given = request.requestProperties
    if given and PUSH_TOKEN in given:  # all others are ignored, whatever they are
        properties = {**(properties or {}), PUSH_TOKEN: given[PUSH_TOKEN]}
    if request.sessionVariables:
        text = variables.substituted(text, variables.folded(request.sessionVariables))
    if not properties:
        return Lookup(text)
    bound = offset_lag_max(properties)
    return Lookup(text, {name: property_text(v) for name, v in properties.items()}, bound)


def with_values(asked: Lookup, body: bytes, values: StatementValues) -> tuple[Lookup, bytes]:
    """A pull query and its body with values for RANDOM() and others: whatever is forwarded has the
    same ones. Variables are replaced in the text already."""
    text = statement_values.in_text(asked.text, values)
    made: dict[str, object] = msgspec.json.decode(body)
    made.pop("sessionVariables", None)
    name = "ksql" if made.get("ksql") is not None else "sql"
    body = msgspec.json.encode({**made, name: text})
    return msgspec.structs.replace(asked, text=text), body


def parse_statements(body: bytes) -> StatementRequest:
    """The statements in a body of /ksql. Raises BadRequest."""
    request = _decode(_statement_decoder, body)
    check_properties(request.streamsProperties or {})
    return request


def _decode(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not the expected JSON object: {error}") from error


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
