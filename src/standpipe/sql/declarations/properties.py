"""The keys of WITH clauses, each declared once: name, type, and the statements that accept it.

Unknown keys are refused with the nearest name, and values of the wrong type are refused. ksqlDB's
keys that Standpipe does not support are refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from standpipe.config.statements import SOURCE_REPLICAS_MAX
from standpipe.model import Source, TimeBounds
from standpipe.sql.syntax.ast import LiteralValue, Position
from standpipe.sql.syntax.ast_statements import Property
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name

#: Formats that can be read and written, in the order in which messages list them.
FORMATS: Final = ("JSON", "DELIMITED", "KAFKA", "NONE", "AVRO", "JSON_SR")
#: Those of them whose records name a schema in a registry.
REGISTRY_FORMATS: Final = ("AVRO", "JSON_SR")
#: Those of them whose records can only be read with that schema.
READ_BY_SCHEMA: Final = ("AVRO",)
#: Those of them that are JSON, behind the id of a schema or without one.
JSON_FORMATS: Final = ("JSON", "JSON_SR")
#: ksqlDB's others, which need compiled schemas.
FORMATS_REFUSED: Final = ("PROTOBUF", "PROTOBUF_NOSR")
_DIGITS_MAX: Final = 20  # of a 64-bit integer with its sign
_REPLICA_LAG: Final = "ACCEPTABLE_REPLICA_LAG_MS"
_SOURCE_LAG: Final = "ACCEPTABLE_SOURCE_LAG_MS"
_DELIMITERS: Final = {"SPACE": " ", "TAB": "\t"}

#: CREATE … (columns), CREATE … AS SELECT, INSERT INTO … SELECT
Place = Literal["SOURCE", "AS", "INSERT"]


@dataclass(frozen=True, slots=True)
class PropertyKey:
    """A key of a WITH clause. `places`: the statements that accept it."""

    name: str
    type: Literal["STRING", "INTEGER", "BOOLEAN"]
    places: frozenset[Place]
    is_supported: bool = True


_BOTH: Final[frozenset[Place]] = frozenset({"SOURCE", "AS"})
_SOURCE: Final[frozenset[Place]] = frozenset({"SOURCE"})
_INSERT: Final[frozenset[Place]] = frozenset({"INSERT"})

#: what names or shapes a schema in a registry, for keys and for values; whether it is supported
_OF_REGISTRY: Final[tuple[tuple[str, Literal["STRING", "INTEGER"], bool], ...]] = (
    ("SCHEMA_ID", "INTEGER", True),
    ("SCHEMA_FULL_NAME", "STRING", True),
    ("PROTOBUF_NULLABLE_REPRESENTATION", "STRING", False),
)

KEYS: Final = {
    key.name: key
    for key in (
        PropertyKey("KAFKA_TOPIC", "STRING", _BOTH),
        PropertyKey("FORMAT", "STRING", _BOTH),
        PropertyKey("KEY_FORMAT", "STRING", _BOTH),
        PropertyKey("VALUE_FORMAT", "STRING", _BOTH),
        PropertyKey("PARTITIONS", "INTEGER", _BOTH),
        PropertyKey("REPLICAS", "INTEGER", _BOTH),
        PropertyKey("RETENTION_MS", "INTEGER", _BOTH),
        PropertyKey("CLEANUP_POLICY", "STRING", _BOTH),
        PropertyKey("TIMESTAMP", "STRING", _BOTH),
        PropertyKey("TIMESTAMP_FORMAT", "STRING", _BOTH),
        PropertyKey("WRAP_SINGLE_VALUE", "BOOLEAN", _BOTH),
        PropertyKey("ACCEPTABLE_OFFSET_LAG", "INTEGER", _BOTH),  # KLIP-12
        PropertyKey(_REPLICA_LAG, "INTEGER", _BOTH),
        PropertyKey(_SOURCE_LAG, "INTEGER", _BOTH),
        PropertyKey("VALUE_DELIMITER", "STRING", _BOTH),
        PropertyKey("KEY_DELIMITER", "STRING", _BOTH),
        PropertyKey("WRITER", "STRING", _SOURCE),
        PropertyKey("APPLY", "STRING", _SOURCE),
        PropertyKey("VERSION_COLUMN", "STRING", _SOURCE),
        PropertyKey("WINDOW_TYPE", "STRING", _SOURCE),
        PropertyKey("WINDOW_SIZE", "STRING", _SOURCE),
        PropertyKey("WINDOW_RETENTION", "STRING", _SOURCE),
        *(
            PropertyKey(f"{part}_{name}", of, _BOTH, is_supported=is_supported)
            for part in ("KEY", "VALUE")
            for name, of, is_supported in _OF_REGISTRY
        ),
        PropertyKey("VALUE_AVRO_SCHEMA_FULL_NAME", "STRING", _BOTH),
        PropertyKey("QUERY_ID", "STRING", _INSERT),
        PropertyKey("SOURCED_BY_CONNECTOR", "STRING", _SOURCE, is_supported=False),
    )
}

#: keys of a WITH clause that only a format with a registry has
REGISTRY_KEYS: Final = frozenset(
    name for name in KEYS if "_SCHEMA_" in name or "_PROTOBUF_" in name
)

#: KSQL once named the key column here
_KEY_HINT: Final = "Mark the column instead: KEY in a stream, PRIMARY KEY in a table."


class Properties:
    """The checked properties of one statement."""

    def __init__(self, given: tuple[Property, ...], place: Place) -> None:
        """Raises StatementError for unknown, repeated, unsupported or wrongly typed keys."""
        self.values: dict[str, object] = {}
        self.places: dict[str, Position] = {}
        _check_known(given, place)
        for each in given:
            key = KEYS[each.name]
            if each.name in self.values:
                raise refusal(f"Duplicate property in the WITH clause: {each.name}", each.at)
            self.values[each.name] = _typed(key, each.value)
            self.places[each.name] = each.at
        if "CLEANUP_POLICY" in self.values:  # it has a type of its own, like every key
            raise refusal(
                "Invalid config variable in the WITH clause: CLEANUP_POLICY.\nThe CLEANUP_POLICY"
                " config is automatically inferred based on the type of source (STREAM or TABLE)."
                "\nUsers can't set the CLEANUP_POLICY config manually.",
                self.places["CLEANUP_POLICY"],
            )
        if "FORMAT" in self.values:
            for name in ("KEY_FORMAT", "VALUE_FORMAT"):
                if name in self.values:
                    raise refusal(
                        f"Cannot supply both '{name}' and 'FORMAT' properties, as 'FORMAT' sets"
                        " both key and value formats.",
                        self.places[name],
                    )

    def text(self, name: str) -> str | None:
        """The value of a key as text; None if the clause does not give it."""
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """The value of an INTEGER key; None if the clause does not give it."""
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def flag(self, name: str) -> bool | None:
        """The value of a BOOLEAN key; None if the clause does not give it."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else None

    def at(self, name: str) -> Position | None:
        """The key's position in the text, for refusals; None if it is not given."""
        return self.places.get(name)

    def format(self, name: str) -> str | None:
        """KEY_FORMAT or VALUE_FORMAT, or FORMAT for both; None if neither is given."""
        given = name if name in self.values else "FORMAT"
        text = self.text(given)
        return None if text is None else check_format(text, self.at(given))

    def delimiter(self, name: Literal["KEY_DELIMITER", "VALUE_DELIMITER"]) -> str | None:
        """One character, or None if the property is not given."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip():
            raise refusal(
                "Delimiter cannot be empty, if you meant to have a tab or space for delimiter,"
                " please use the special values 'TAB' or 'SPACE'. Invalid delimiter value:"
                f" '{text}'.",
                self.at(name),
            )
        character = _DELIMITERS.get(text.upper(), text)
        if len(character) != 1:
            raise refusal(
                f"Invalid delimiter value: '{text}'. Delimiter must be a single character"
                " or TAB,SPACE.",
                self.at(name),
            )
        return character

    def sink_delimiter(self, part: Literal["KEY", "VALUE"], source: Source, of: str) -> str:
        """The delimiter of a result of format `of`: as given, or as the source's if that has the
        same format (ksqlDB's Analyzer.buildFormatInfo)."""
        is_key = part == "KEY"
        if (given := self.delimiter("KEY_DELIMITER" if is_key else "VALUE_DELIMITER")) is not None:
            return given
        if of != (source.key_format if is_key else source.value_format):
            return ","
        return source.key_delimiter if is_key else source.value_delimiter

    def check_delimiters(self, key_format: str | None, value_format: str | None) -> None:
        """Raises StatementError for a delimiter that is none, or whose format has none."""
        for part, name in (("KEY", key_format), ("VALUE", value_format)):
            key: Any = f"{part}_DELIMITER"
            if self.delimiter(key) is not None and name not in (None, "DELIMITED"):
                raise refusal(
                    f"{name} does not support the following configs: [delimiter]", self.at(key)
                )

    def check_retention(self, *, is_kept: bool) -> None:
        """Raises StatementError for RETENTION_MS of a table whose topic is compacted (`is_kept`),
        as in ksqlDB, and for a time that Kafka has not."""
        retention_ms, at = self.number("RETENTION_MS"), self.at("RETENTION_MS")
        if retention_ms is None:
            return
        if is_kept:
            raise refusal(
                "Invalid config variable in the WITH clause: RETENTION_MS. Non-windowed tables do"
                " not support retention.",
                at,
            )
        if retention_ms < -1:
            raise refusal(
                "Invalid config variable in the WITH clause: RETENTION_MS must be at least -1,"
                f" which is without an end, got {retention_ms}",
                at,
            )

    @property
    def partitions(self) -> int | None:
        """PARTITIONS, at least 1; None if it is not given. Raises StatementError below 1."""
        count = self.number("PARTITIONS")
        if count is not None and count < 1:
            raise refusal(
                f"Invalid number of partitions in WITH clause: {count}", self.at("PARTITIONS")
            )
        return count

    def check_replicas(self, limit: int) -> None:
        """Raises StatementError for REPLICAS below 1, or above the limit of the key."""
        count, at = self.number("REPLICAS"), self.at("REPLICAS")
        if count is not None and count < 1:
            raise refusal(f"Invalid number of replicas in WITH clause: {count}", at)
        if count is not None and count > limit:
            raise refusal(
                f"The topic would have {count} replicas; {SOURCE_REPLICAS_MAX.name} allows"
                f" {limit}. Next: name fewer REPLICAS, or raise the key on every node.",
                at,
            )

    @property
    def acceptable_offset_lag(self) -> int | None:
        """KLIP-12's limit on the lag of an answer, in records."""
        return self._lag("ACCEPTABLE_OFFSET_LAG")

    @property
    def time_bounds(self) -> TimeBounds | UnsetType:
        """Limits on the lags of an answer in ms; UNSET if none is given. Raises StatementError."""
        replica_ms, source_ms = self._lag(_REPLICA_LAG), self._lag(_SOURCE_LAG)
        if replica_ms is None and source_ms is None:
            return UNSET
        return replica_ms, source_ms

    def check_time_bounds(self, name: str, *, is_table: bool, is_external: bool = False) -> None:
        """Raises StatementError for a bound in ms that no read could keep. `is_table`: the source
        has replicas; `is_external`: an application writes it, and nobody knows what from."""
        for key in (_REPLICA_LAG, _SOURCE_LAG):
            if key not in self.values:
                continue
            if not is_table:
                raise refusal(
                    f"{key} is for tables with replicas, of CREATE TABLE … AS SELECT and CREATE"
                    f" SOURCE TABLE: {name} has none.",
                    self.at(key),
                )
            if is_external and key == _SOURCE_LAG:
                raise refusal(
                    f"{key} is not for tables with WRITER='EXTERNAL': their source lag is not"
                    " known, so no read would be answered.",
                    self.at(key),
                )

    def _lag(self, key: str) -> int | None:
        lag = self.number(key)
        if lag is not None and lag < 0:
            raise refusal(f"Invalid lag in WITH clause: {lag} is below 0", self.at(key))
        return lag


def check_format(text: str, at: Position | None = None) -> str:
    """The format's name in upper case. Raises StatementError if it is unknown or refused."""
    name = text.upper()
    if name in FORMATS:
        return name
    if name in FORMATS_REFUSED:
        raise refusal(
            f"Format {name} is not supported. Standpipe reads and writes {', '.join(FORMATS)}.",
            at,
        )
    raise unknown_name(f"Unknown format: {text}", at, nearest(name, FORMATS))


def default_format(properties: Mapping[str, str], of: Literal["key", "value"]) -> str | None:
    """`ksql.persistence.default.format.{of}` of a session; KAFKA for keys if it is not set."""
    text = properties.get(f"ksql.persistence.default.format.{of}")
    if text is None:
        return "KAFKA" if of == "key" else None
    return check_format(text)


def _check_known(given: tuple[Property, ...], place: Place) -> None:
    known = {key.name for key in KEYS.values() if place in key.places}
    others = [each for each in given if each.name not in known]
    if others:
        raise unknown_name(
            "Invalid config variable(s) in the WITH clause:"
            f" {','.join(dict.fromkeys(each.name for each in others))}",
            others[0].at,
            _KEY_HINT if others[0].name == "KEY" else nearest(others[0].name, known),
        )
    for each in given:
        if not KEYS[each.name].is_supported:
            lacks = "no connectors" if "CONNECTOR" in each.name else "no PROTOBUF"
            raise refusal(
                f"{each.name} in a WITH clause is not supported: Standpipe has {lacks}. Leave"
                " it out.",
                each.at,
            )


def _typed(key: PropertyKey, literal: LiteralValue) -> object:
    """The value as the key's type; text is accepted for numbers and booleans, as in ksqlDB."""
    value = literal.value
    text = str(value)
    if key.type == "STRING" and isinstance(value, str):
        return value
    if key.type == "BOOLEAN" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    is_whole = not isinstance(value, (bool, float, Decimal)) and text.removeprefix("-").isdecimal()
    if key.type == "INTEGER" and is_whole:
        number = int(text) if len(text) <= _DIGITS_MAX else None
        if number is None or not -(2**63) <= number < 2**63:
            raise refusal(
                f"Invalid config variable in the WITH clause: {key.name} must be a 64-bit integer,"
                f" got {text[:_DIGITS_MAX]}",
                literal.at,
            )
        return number
    raise refusal(
        f"Invalid config variable in the WITH clause: {key.name} must be of type {key.type},"
        f" got {literal.text or value}",
        literal.at,
    )
