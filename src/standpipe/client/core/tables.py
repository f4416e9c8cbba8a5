"""What a client knows of a table: columns, partition of a key, nodes with replicas. Pure.

It comes from DESCRIBE and from `GET /route`. If it is outdated, a node forwards the read once; the
answer is still right, since every node answers every key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, cast

from standpipe.client.core.literals import UnfitParameter, literal
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import encode_key, partition_of
from standpipe.errors import ServerError, StandpipeError
from standpipe.model import Column
from standpipe.sql.plans import Value
from standpipe.sql.types import types, values
from standpipe.sql.types.names import folded, name_literal
from standpipe.sql.types.types import SqlType, parse_type, quoted

BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")
#: values of the key columns
Key = tuple[object, ...]
_PLAIN: Final[dict[str, type]] = {"STRING": str, "INTEGER": int, "BIGINT": int}
#: the type of values that nodes have as they are given
_OWN: Final[dict[str, type]] = {**_PLAIN, "BOOLEAN": bool, "DOUBLE": float, "BYTES": bytes}
_EPOCH_DAY: Final = date(1970, 1, 1)


@dataclass(frozen=True)
class SourceShape:
    """A stream or table as DESCRIBE shows it. `columns`: name -> type, key columns first."""

    name: str
    columns: Mapping[str, SqlType]
    key_columns: tuple[Column, ...]
    key_format: str
    is_windowed: bool
    #: columns whose values a table has in one row only, bounds of its windows among them; empty for
    #: a stream, whose key may come again
    row_key: tuple[str, ...] = ()

    @property
    def has_text_key(self) -> bool:
        """Whether a key in Kafka is the UTF-8 of its only column."""
        keys = self.key_columns
        return self.key_format == "KAFKA" and len(keys) == 1 and keys[0].type == "STRING"

    @property
    def plain_key(self) -> type | None:
        """The type of values of an only key column that are equal where their keys are, and no
        others of it; None: it has none."""
        keys = self.key_columns
        return _PLAIN.get(keys[0].type) if len(keys) == 1 else None

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> SourceShape:
        """From the `sourceDescription` of DESCRIBE. Raises ServerError."""
        try:
            columns = {
                each["name"]: parse_type(_spelling(each["schema"])) for each in described["fields"]
            }
            keys = [each["name"] for each in described["fields"] if each.get("type") == "KEY"]
            is_windowed = described["windowType"] is not None
            own = [name for name in keys if not (is_windowed and name in BOUNDS)]
            return cls(
                name=described["name"],
                columns=columns,
                key_columns=tuple(
                    Column(name=name, type=str(columns[name]), is_key=True) for name in own
                ),
                key_format=_key_format(described),
                is_windowed=is_windowed,
                row_key=_row_key(described, own),
            )
        except (KeyError, TypeError, StandpipeError) as error:
            raise ServerError(f"a description that cannot be read: {error!r}") from error

    def column(self, name: str) -> str:
        """The column that a user means by a name. Raises UnfitParameter."""
        for each in (name, folded(name)):
            if each in self.columns:
                return each
        near = ", ".join(self.columns)
        raise UnfitParameter(f"{self.name} has no column {name}; it has {near}")

    def key_of(self, given: Mapping[str, object]) -> tuple[tuple[object, ...], str]:
        """The values of the key columns, and the WHERE clause that asks for them.

        A windowed table's bounds may be given, too: ms since 1970, or a datetime. Raises
        UnfitParameter if the key is not whole, or if a column is not of the key.
        """
        if len(given) == 1 and len(self.key_columns) == 1:  # most lookups
            ((asked, value),) = given.items()
            only = self.key_columns[0].name
            if asked == only or self.column(asked) == only:
                return (value,), f"{name_literal(only)} = {literal(value, self.columns[only])}"
        named = {self.column(name): value for name, value in given.items()}
        names = [column.name for column in self.key_columns]
        bounds = [name for name in named if self.is_windowed and name in BOUNDS]
        if set(named) - set(bounds) != set(names):
            raise UnfitParameter(f"the key of {self.name} is {', '.join(names)}: give each of them")
        terms = [
            f"{name_literal(name)} = {literal(value, self.columns[name])}"
            for name in (*names, *bounds)
            for value in (named[name] if name in names else _bound_ms(named[name]),)
        ]
        return tuple([named[name] for name in names]), " AND ".join(terms)

    def partition(self, key: Sequence[object], count: int) -> int | None:
        """The partition of a key among `count`; None: it cannot be told here."""
        if count == 0:
            return None
        kind = native.kind_of(self)
        if kind is not None and (parts := native.keys_by_partition((tuple(key),), kind, count)):
            (found,) = parts
            return found
        if self.has_text_key and isinstance(key[0], str):  # most tables: the bytes are the text's
            return partition_of(key[0].encode(errors="replace"), count)
        try:
            plain = [
                plain_value(value, self.columns[column.name])
                for value, column in zip(key, self.key_columns, strict=True)
            ]
            raw = encode_key(plain, self.key_columns, self.key_format)
        except (StandpipeError, ValueError, TypeError, ArithmeticError):
            return None  # the node says what is wrong with it
        return None if raw is None else partition_of(raw, count)


def _row_key(described: Mapping[str, Any], key: Sequence[str]) -> tuple[str, ...]:
    if described.get("type") != "TABLE":
        return ()
    window = described["windowType"]
    # the size of any other window is fixed, so its start tells it
    bounds = {None: (), "SESSION": BOUNDS}.get(window, BOUNDS[:1])
    return (*key, *bounds)


def _key_format(described: Mapping[str, Any]) -> str:
    """Of the keys by which nodes place rows; those of a public topic in AVRO are others."""
    own: Mapping[str, Any] = described.get("standpipe") or {}
    return str(own.get("keyFormat") or described["keyFormat"])


@dataclass
class TableMap:
    """A table and who holds it. `holders`: per partition the addresses, the active first."""

    shape: SourceShape
    holders: tuple[tuple[str, ...], ...]
    #: monotonic seconds
    read_s: float
    #: an answer came from another node than the one that was asked
    is_old: bool = False

    @property
    def select(self) -> str:
        """The beginning of a lookup."""
        return f"SELECT * FROM {name_literal(self.shape.name)} WHERE "  # noqa: S608 a name of the catalog

    def holders_of(self, key: Sequence[object]) -> tuple[str, ...]:
        """The addresses to ask for a key, best first; empty: any node."""
        partition = self.shape.partition(key, len(self.holders))
        return () if partition is None else self.holders[partition]

    def by_holders(self, keys: Sequence[Key]) -> dict[tuple[str, ...], list[Key]]:
        """Keys by whom to ask for them, as `holders_of` says of each."""
        found: dict[tuple[str, ...], list[Key]] = {}
        kind = native.kind_of(self.shape) if self.holders else None
        parts = kind is not None and native.keys_by_partition(tuple(keys), kind, len(self.holders))
        if parts:
            for partition, (its_keys, _) in parts.items():
                found.setdefault(self.holders[partition], []).extend(its_keys)
        else:
            for key in keys:
                found.setdefault(self.holders_of(key), []).append(key)
        return found


def holders_of_route(route: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Who holds each partition, from the body of `GET /route`. Raises ServerError."""
    try:
        parts = sorted(route["partitions"], key=lambda each: each["partition"])
        return tuple(
            tuple(host for host in (each["activeHost"], *each["standbyHosts"]) if host)
            for each in parts
        )
    except (KeyError, TypeError) as error:
        raise ServerError(f"a route that cannot be read: {error!r}") from error


def members_of_status(page: Mapping[str, Any]) -> dict[str, str]:
    """Node id -> public address, from `GET /clusterStatus`. Raises ServerError."""
    try:
        return {
            host["standpipe"]["nodeId"]: address for address, host in page["clusterStatus"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ServerError(f"a status that cannot be read: {error!r}") from error


def plain_value(value: object, of: SqlType) -> Value:
    """A value as nodes have it in a key (`sql/types/types.py`), however it is spelled: the DATE
    '2024-1-1' and the midnight of that day are one. Raises ValueError, TypeError, ArithmeticError
    or UnfitParameter for what nodes refuse."""
    given, base = type(value), of.base
    if given is _OWN.get(base):
        return value
    made = _MADE.get((given, base))
    if made is not None:
        return made(value, of)
    if of.is_nested:
        return _nested(value, of)
    return values.coerce(*_read(literal(value)), of)


def _read(text: str) -> tuple[object, SqlType]:
    """What nodes read in a literal of a value without parts, and as which type. Raises ValueError
    for another literal."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'"), types.STRING
    if text in ("TRUE", "FALSE"):
        return text == "TRUE", types.BOOLEAN
    if "e" in text.lower():
        return float(text), types.DOUBLE
    if "." in text:
        return Decimal(text), types.literal_decimal(text)
    number = int(text)
    return number, types.INTEGER if abs(number) <= values.INTEGER_MAX else types.BIGINT


def _nested(value: object, of: SqlType) -> Value:
    """A list or a dict with the values that nodes have in it."""
    if of.base == "STRUCT" and isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        named = {str(name).upper(): part for name, part in given.items()}
        parts = [named.get(name.upper()) for name in of.field_names]
        made = map(_part, parts, of.arguments)
        return dict(zip(of.field_names, made, strict=True))
    if of.base == "ARRAY" and isinstance(value, list | tuple):
        return [_part(each, of.arguments[0]) for each in cast("Sequence[object]", value)]
    raise ValueError(f"{value!r} is no {of}")


def _part(value: object, of: SqlType) -> Value:
    return None if value is None else plain_value(value, of)


def _unix_ms(value: datetime) -> int:
    """As `literals.moment_text` has it: cut to the millisecond, also before 1970."""
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - values.EPOCH) // timedelta(milliseconds=1)


def _day_ms(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


#: the usual types of values, without the way by their literals
_MADE: Final[dict[tuple[type, str], Callable[[Any, SqlType], Value]]] = {
    (datetime, "TIMESTAMP"): lambda value, _: _unix_ms(value),
    (date, "DATE"): lambda value, _: (value - _EPOCH_DAY).days,
    (time, "TIME"): lambda value, _: _day_ms(value),
    (Decimal, "DECIMAL"): values.as_decimal,
}


def _bound_ms(value: object) -> object:
    return _unix_ms(value) if isinstance(value, datetime) else value


def _spelling(schema: Mapping[str, Any]) -> str:
    """The type that DESCRIBE's schema stands for; it does not show a MAP's key type."""
    base = schema["type"]
    if base == "DECIMAL":
        found = schema["parameters"]
        return f"DECIMAL({found['precision']}, {found['scale']})"
    if base == "ARRAY":
        return f"ARRAY<{_spelling(schema['memberSchema'])}>"
    if base == "MAP":
        return f"MAP<STRING, {_spelling(schema['memberSchema'])}>"
    if base == "STRUCT":
        fields = (
            f"{quoted(each['name'])} {_spelling(each['schema'])}" for each in schema["fields"]
        )
        return f"STRUCT<{', '.join(fields)}>"
    return base
