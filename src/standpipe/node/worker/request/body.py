"""The body of a request: statements or a query, and the properties beside them. Pure.

Both spellings of ksqlDB's two query paths are accepted on both. A property that nothing reads is
refused with the nearest name: a misspelt lag bound must not be ignored.

Source: ksqlDB's REST API; the article in docs/sources.md for the spelling of properties. Not here:
how large a body may be (`adapters.http.request_body`), paths, headers and layouts
(`node.worker.request.head`), what the statements mean (`sql`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar, cast

import msgspec

from standpipe.config import lags, registry
from standpipe.control.routing.bounds import LAG_UNBOUNDED, NOTHING_ASKED, AskedBounds
from standpipe.errors import BadRequest
from standpipe.model import Source
from standpipe.session_token import (
    ENABLE_PROPERTY,
    EVENTUAL,
    LEVEL_PROPERTY,
    LEVELS,
    LINEARIZABLE,
    SESSION,
    SNAPSHOT,
    TOKEN_PROPERTY,
)
from standpipe.session_token import PROPERTIES as SESSION_PROPERTIES
from standpipe.sql.expressions import statement_values
from standpipe.sql.expressions.statement_values import StatementValues
from standpipe.sql.plans import PARTITION_PROPERTY
from standpipe.sql.syntax import variables

_Body = TypeVar("_Body")
#: Of a property. A list or an object is none: as a text it would take as long as it is large, or
#: more stack than there is.
PropertyValue = str | int | float | bool | None

#: ksqlDB's per-request bound, and KLIP-12's name for the same thing.
LAG_PROPERTIES = (lags.LAG_MAX.name, "acceptable.offset.lag")
#: those that bound how old an answer may be
BOUND_PROPERTIES = frozenset({*LAG_PROPERTIES, *lags.TIME_BOUNDS})
#: where a push query resumes; named after a ksqlDB feature that was later removed
PUSH_TOKEN = "request.ksql.query.push.continuation.token"  # noqa: S105 a property's name

#: request properties that are read; ksqlDB's clients send them beside the others
_READ_REQUEST_PROPERTIES = (PUSH_TOKEN, *sorted(SESSION_PROPERTIES))

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

#: switches of ksqlDB that a session may set, for what is always on here: they change nothing
_ALWAYS_ON = frozenset(
    f"ksql.{name}.enabled" for name in ("create.or.replace", "lambdas", "suppress")
)


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A body of /query or /query-stream; both spellings are accepted on both paths."""

    ksql: str | None = None
    sql: str | None = None
    streamsProperties: dict[str, PropertyValue] | None = None  # noqa: N815 ksqlDB's name
    properties: dict[str, PropertyValue] | None = None
    sessionVariables: dict[str, str] | None = None  # noqa: N815 ksqlDB's name
    requestProperties: dict[str, object] | None = None  # noqa: N815 ksqlDB's name


class StatementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A body of /ksql."""

    ksql: str
    streamsProperties: dict[str, PropertyValue] | None = None  # noqa: N815 ksqlDB's name
    commandSequenceNumber: int | None = None  # noqa: N815 ksqlDB's name
    sessionVariables: dict[str, str] | None = None  # noqa: N815 ksqlDB's name


class Lookup(msgspec.Struct, frozen=True):
    """A pull query as asked: its text, its properties, how old the answer may be."""

    text: str
    properties: Mapping[str, str] = {}
    bounds: AskedBounds = NOTHING_ASKED
    #: the token of a read at level `session`, "" for the first one; None: another level
    session: str | None = None
    is_snapshot: bool = False
    is_linearizable: bool = False
    #: the only one that a scan reads; None: all
    partition: int | None = None


_pull_decoder = msgspec.json.Decoder(PullRequest)
_statement_decoder = msgspec.json.Decoder(StatementRequest)


def parse_lookup(body: bytes) -> Lookup:
    """The pull query in a request body. Raises BadRequest that says what is wrong."""
    request = _decode(_pull_decoder, body)
    text = request.ksql if request.ksql is not None else request.sql
    if text is None:
        raise BadRequest('the body has no "ksql" (on /query-stream: "sql")')
    properties = both(request.properties, request.streamsProperties)
    if request.requestProperties:  # all others are ignored, whatever they are
        given = request.requestProperties
        read = {name: given[name] for name in _READ_REQUEST_PROPERTIES if name in given}
        properties = {**(properties or {}), **_plain(read)}
    if request.sessionVariables and _substitutes(properties or {}):
        text = variables.substituted(text, variables.folded(request.sessionVariables))
    if not properties:
        return Lookup(text)
    return Lookup(text, *_asked(properties))


def both(
    ours: Mapping[str, PropertyValue] | None, ksqldb: Mapping[str, PropertyValue] | None
) -> Mapping[str, PropertyValue] | None:
    """The properties of both spellings: none is ignored. ksqlDB's win."""
    return {**ours, **ksqldb} if ours and ksqldb else ksqldb or ours


def _plain(properties: Mapping[str, object]) -> Mapping[str, PropertyValue]:
    for name, value in properties.items():
        if isinstance(value, list | dict):
            raise BadRequest(f"{name} is neither a text, a number, true nor false")
    return cast("Mapping[str, PropertyValue]", properties)


def _substitutes(properties: Mapping[str, object]) -> bool:
    given = properties.get(variables.SUBSTITUTION, True)
    return variables.substitutes({variables.SUBSTITUTION: property_text(given)})


#: what the properties of a request ask for: their texts, the bounds, the session's token, whether
#: the read is at level `snapshot`, and `linearizable`; and the partition
_Asked = tuple[Mapping[str, str], AskedBounds, str | None, bool, bool, int | None]
#: those of recent requests, with the types of their values, since 1 equals True; clients send the
#: same ones again and again
_recent: dict[tuple[tuple[str, type, object], ...], _Asked] = {}
_RECENT_MAX = 256
#: of one request that is kept: a client could send any number of them, of any length
_RECENT_PROPERTIES_MAX = 16
_RECENT_CHARS_MAX = 4_096
#: of a bound: 2^63 - 1 has 19
_DIGITS_MAX = 40
#: Of one request; ksqlDB's CLI sends those that its user has set.
PROPERTIES_MAX = 256
#: Of a name for which the nearest one is looked for: that takes as long as the name, squared.
_NAME_CHARS_MAX = 200
#: of a name or a value that an error shows
_SHOWN_CHARS_MAX = 200


def _asked(properties: Mapping[str, object]) -> _Asked:
    """Raises BadRequest."""
    place = None
    if len(properties) <= _RECENT_PROPERTIES_MAX:
        place = tuple([(name, value.__class__, value) for name, value in properties.items()])
        if (known := _recent.get(place)) is not None:
            return known
    bounds = asked_bounds(properties)
    texts = {name: property_text(value) for name, value in properties.items()}
    level = texts.get(LEVEL_PROPERTY)
    partition = None
    if PARTITION_PROPERTY in properties:
        partition = _whole_number(properties, PARTITION_PROPERTY, "a partition")
    session, is_snapshot = session_of(texts), level == SNAPSHOT
    found = (texts, bounds, session, is_snapshot, level == LINEARIZABLE, partition)
    if place is not None and sum(map(len, [*texts, *texts.values()])) <= _RECENT_CHARS_MAX:
        if len(_recent) >= _RECENT_MAX:
            _recent.clear()
        _recent[place] = found
    return found


def session_of(properties: Mapping[str, str]) -> str | None:
    """The token of a read at level `session`; "": it has none yet; None: another level.

    A token, or that tokens are enabled, asks for that level. Raises BadRequest.
    """
    if SESSION_PROPERTIES.isdisjoint(properties):
        return None
    level, token = properties.get(LEVEL_PROPERTY), properties.get(TOKEN_PROPERTY)
    if level is not None and level not in LEVELS:
        raise BadRequest(f"{LEVEL_PROPERTY} = {_shown(level)} is none of {', '.join(LEVELS)}")
    enabled = properties.get(ENABLE_PROPERTY, "").lower()
    if enabled not in ("", "true", "false"):
        raise BadRequest(f"{ENABLE_PROPERTY} = {_shown(enabled)} is neither true nor false")
    is_asked = level == SESSION or token is not None or enabled == "true"
    is_other = level is not None and level != SESSION
    if is_asked and (is_other or enabled == "false"):
        refused = LEVEL_PROPERTY if is_other else ENABLE_PROPERTY
        raise BadRequest(f"{refused} = {properties[refused]} contradicts a session token")
    return (token or "") if is_asked else None


def refuse_levels(
    properties: Mapping[str, object], what: str, allowed: Collection[str] = (EVENTUAL,)
) -> None:
    """Raises BadRequest if the properties ask for a level that is not allowed, bound a lag in time,
    or name a partition: `what` has none of these, and neither a token nor a promise must be
    ignored. The bound in records is without effect there, as in ksqlDB."""
    level = level_of(properties)
    if level not in allowed:
        raise BadRequest(f"read level {level} is for pull queries on tables, not for {what}")
    for name in (*lags.TIME_BOUNDS, PARTITION_PROPERTY):
        if name in properties:
            raise BadRequest(f"{name} is for pull queries on tables, not for {what}")


def level_of(properties: Mapping[str, object]) -> str:
    """The read level that properties ask for. Raises BadRequest if they contradict each other."""
    texts = {name: property_text(value) for name, value in properties.items()}
    return SESSION if session_of(texts) is not None else texts.get(LEVEL_PROPERTY, EVENTUAL)


def refuse_unbatched(properties: Mapping[str, object], source: Source) -> None:
    """Raises BadRequest for a read at a level that compares batches, of a table that has none."""
    if source.is_direct and (level := level_of(properties)) != EVENTUAL:
        raise BadRequest(
            f"read level {level} is not for {source.name}: a table with APPLY='DIRECT' has no"
            f" batches. Bound its lag instead, by {', '.join(sorted(lags.TIME_BOUNDS))}"
        )


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


def asked_bounds(properties: Mapping[str, object]) -> AskedBounds:
    """The bounds among the properties, numbers or their texts. Raises BadRequest."""
    check_properties(properties)
    if BOUND_PROPERTIES.isdisjoint(properties):
        return NOTHING_ASKED
    lag_name = next((name for name in LAG_PROPERTIES if name in properties), lags.LAG_MAX.name)
    return AskedBounds(
        _whole_number(properties, lag_name, "records"),
        _whole_number(properties, lags.REPLICA_LAG_MAX.name, "ms"),
        _whole_number(properties, lags.SOURCE_LAG_MAX.name, "ms"),
    )


def property_text(value: object) -> str:
    """A property's value as text, which is how ksqlDB's clients mostly send it anyway."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole_number(properties: Mapping[str, object], name: str, of: str) -> int | None:
    if name not in properties:
        return None
    value = properties[name]
    text = value.strip() if isinstance(value, str) else ""
    is_text = len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()
    if is_text or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        number = int(value)  # pyright: ignore[reportArgumentType]
        if number <= LAG_UNBOUNDED:
            return number
    raise BadRequest(f"{name} = {_shown(value)} is not a number of {of}, 0 or more")


def check_properties(properties: Mapping[str, object]) -> None:
    """Raises BadRequest for a property that nothing reads, with the nearest name, and for more
    than PROPERTIES_MAX."""
    if len(properties) > PROPERTIES_MAX:
        raise BadRequest(
            f"the request has {len(properties)} properties: it may have {PROPERTIES_MAX}"
        )
    for name in properties:
        if not is_known_property(name):
            known = (*registry.KEYS, *LAG_PROPERTIES, *SESSION_PROPERTIES, PARTITION_PROPERTY)
            is_short = len(name) <= _NAME_CHARS_MAX
            near = difflib.get_close_matches(name, known, n=1) if is_short else []
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise BadRequest(
                "Not recognizable as ksql, streams, consumer, or producer property: "
                f"'{name:.{_SHOWN_CHARS_MAX}}'.{hint}"
            )


def _shown(value: object) -> str:
    return f"{value!r:.{_SHOWN_CHARS_MAX}}"


def is_known_property(name: str) -> bool:
    """Whether a request may carry the property: ours, or one that ksqlDB would read."""
    return (
        name in registry.KEYS
        or name in LAG_PROPERTIES
        or name in _PULL_PROPERTIES
        or name in _ALWAYS_ON
        or name in SESSION_PROPERTIES
        or name == PARTITION_PROPERTY
        or name.startswith(_FOREIGN_PREFIXES)
        or name.startswith(tuple(registry.IGNORED_PREFIXES))
    )
