"""A body of POST /query-batch: many keys of one table. Pure.

    {"table": "FLIGHTS", "keys": ["N1", "N2"], "properties": {…}}

Keys are values of the table's only key column: texts, or whole numbers. What is asked of each
partition becomes a lookup with IN (`statement`), which is what nodes forward to each other.

Not here: the answer (`answer.py`), the reads (`reads.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from standpipe.control.routing.bounds import AskedBounds
from standpipe.data.query.partition_keys import PartitionKeys
from standpipe.errors import BadRequest
from standpipe.model import Source
from standpipe.node.worker.request.body import (
    BOUND_PROPERTIES,
    PropertyValue,
    asked_bounds,
    both,
    level_of,
    property_text,
)
from standpipe.session_token import EVENTUAL, LEVEL_PROPERTY, SNAPSHOT
from standpipe.sql.plans import PARTITION_PROPERTY, Value
from standpipe.sql.types.names import name_literal
from standpipe.sql.types.values import BIGINT_MAX, INTEGER_MAX

#: keys of one request
KEYS_MAX: Final = 4_000
#: of the table's name, with its quotes: no table has a longer one
TABLE_CHARACTERS_MAX: Final = 1_000
#: of a key, as a text: a statement has room for it
KEY_CHARACTERS_MAX: Final = 10_000
#: of one statement, with the keys of one partition: what a pull query may name
STATEMENT_KEYS_MAX: Final = 1_000
STATEMENT_CHARACTERS_MAX: Final = 40_000
#: type of a key column -> its largest value; None: it is a text
_KEY_TYPES: Final = {"STRING": None, "INTEGER": INTEGER_MAX, "BIGINT": BIGINT_MAX}


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: str
    keys: list[str | int]
    properties: dict[str, PropertyValue] | None = None
    streamsProperties: dict[str, PropertyValue] | None = None  # noqa: N815 ksqlDB's name


class Batch(NamedTuple):
    """The keys that are asked for, with duplicates, and how old their rows may be."""

    #: as a statement would name it
    table: str
    keys: Sequence[str | int]
    properties: Mapping[str, object]
    bounds: AskedBounds
    is_snapshot: bool = False


_decoder = msgspec.json.Decoder(_Body)


def parse_batch(body: bytes) -> Batch:
    """The batch in a request body. Raises BadRequest that says what is wrong."""
    try:
        asked = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not the expected JSON object: {error}") from error
    if len(asked.table) > TABLE_CHARACTERS_MAX:
        raise BadRequest(
            f"the name of the table has {len(asked.table)} characters: it may have "
            f"{TABLE_CHARACTERS_MAX}"
        )
    if len(asked.keys) > KEYS_MAX:
        raise BadRequest(
            f"the batch names {len(asked.keys)} keys. One may name {KEYS_MAX}: send several"
        )
    properties = both(asked.properties, asked.streamsProperties) or {}
    bounds = asked_bounds(properties)  # first: it bounds how many there are
    level = level_of(properties)
    if level not in (EVENTUAL, SNAPSHOT):
        raise BadRequest(f"read level {level} is not for batches: ask /query for IN")
    if PARTITION_PROPERTY in properties:
        raise BadRequest(f"{PARTITION_PROPERTY} is for scans, and a batch names keys")
    return Batch(asked.table, asked.keys, properties, bounds, is_snapshot=level == SNAPSHOT)


def sample(source: Source) -> str:
    """The lookup of one key of a table. Its plan, with other keys, is the plan of a batch.

    Raises BadRequest for a table that a batch cannot read.
    """
    columns = source.key_columns
    named = ", ".join(f"{column.name} {column.type}" for column in columns)
    if source.kind != "TABLE" or source.window is not None:
        what = "a stream" if source.kind != "TABLE" else "windowed"
        raise BadRequest(f"{source.name} is {what}: a batch reads one row for a key. Use /query")
    if len(columns) != 1 or columns[0].type not in _KEY_TYPES:
        raise BadRequest(
            f"the key of {source.name} is ({named}): a batch reads tables whose key is one STRING, "
            "INTEGER or BIGINT. Use /query"
        )
    return statement(source, ["" if columns[0].type == "STRING" else 0])


def check_keys(source: Source, keys: Sequence[str | int]) -> None:
    """Raises BadRequest for the first key that is no value of the key column."""
    (column,) = source.key_columns
    largest = _KEY_TYPES[column.type]
    for place, key in enumerate(keys):
        if largest is None and isinstance(key, str):
            if len(key) > KEY_CHARACTERS_MAX:
                raise BadRequest(
                    f"keys[{place}] has {len(key)} characters: it may have {KEY_CHARACTERS_MAX}"
                )
        elif largest is None or isinstance(key, str) or not -largest - 1 <= key <= largest:
            raise BadRequest(f"keys[{place}] = {key!r:.100} is no {column.type}, as the key is")


def statement(source: Source, keys: Sequence[Value]) -> str:
    """The lookup of some keys."""
    name, column = name_literal(source.name), name_literal(source.key_columns[0].name)
    literals = _literals(keys)
    where = f"= {literals}" if len(keys) == 1 else f"IN ({literals})"
    return f"SELECT * FROM {name} WHERE {column} {where};"  # noqa: S608 names are quoted


def body_of(text: str, properties: Mapping[str, object]) -> bytes:
    """The body of /query that asks for the same, as it is forwarded: with its bounds, and with its
    level if it is not the usual one, as no other property changes a lookup."""
    names = (*BOUND_PROPERTIES, *((LEVEL_PROPERTY,) if level_of(properties) == SNAPSHOT else ()))
    shown = {name: property_text(properties[name]) for name in names if name in properties}
    return msgspec.json.encode({"ksql": text, "streamsProperties": shown})


def slices(asked: PartitionKeys) -> Iterator[slice]:
    """The keys of one partition, cut into those of one statement each."""
    keys = asked.keys
    if 0 < len(keys) <= STATEMENT_KEYS_MAX and _characters_max(asked) <= STATEMENT_CHARACTERS_MAX:
        yield slice(0, len(keys))
        return
    start = size = 0
    for place, (key,) in enumerate(keys):
        more = len(_literal(key)) + 2
        is_full = place - start == STATEMENT_KEYS_MAX or size + more > STATEMENT_CHARACTERS_MAX
        if place > start and is_full:
            yield slice(start, place)
            start, size = place, 0
        size += more
    if keys:
        yield slice(start, len(keys))


def _characters_max(asked: PartitionKeys) -> int:
    """At most so many characters have their literals, with what is between them."""
    if asked.store_keys:  # a text has no more characters than bytes
        texts = 2 * sum(map(len, asked.store_keys))
    else:
        texts = sum(2 * len(key) for (key,) in asked.keys if isinstance(key, str))
    return texts + (len(str(BIGINT_MAX)) + 5) * len(asked.keys)


def _literals(keys: Sequence[Value]) -> str:
    """Those of some keys, between commas. Most texts have no quote, which needs another."""
    if isinstance(keys[0], str):
        joined = "', '".join(cast("Sequence[str]", keys))
        if joined.count("'") == 2 * (len(keys) - 1):
            return f"'{joined}'"
    return ", ".join(map(_literal, keys))


def _literal(key: Value) -> str:
    return "'" + key.replace("'", "''") + "'" if isinstance(key, str) else str(key)
