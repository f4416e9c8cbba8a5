"""What each serialisation format can carry, and ksqlDB's text for each refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from standpipe.model import Column
from standpipe.sql.declarations.properties import JSON_FORMATS
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.types import SqlType, parse_type, quoted

_KAFKA_TYPES: Final = frozenset({"INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES"})
#: Formats that can leave out the JSON object around a single value column.
_UNWRAPPABLE: Final = frozenset({"JSON", "AVRO", "JSON_SR"})
_MAP_KEYS: Final = (
    "Map keys, including types that contain maps, are not supported as they may lead to"
    " unexpected behavior due to inconsistent serialization. Key column name: `{name}`."
    " Column type: {type}. See https://github.com/confluentinc/ksql/issues/6621 for more."
)


def schema_text(columns: Sequence[Column]) -> str:
    """ksqlDB's spelling of a schema: "`ID` STRING KEY, `N` BIGINT"."""
    return ", ".join(
        f"{quoted(column.name)} {column.type}{' KEY' if column.is_key else ''}"
        for column in columns
    )


def check_columns(
    columns: Sequence[Column], name: str, part: Literal["Key", "Value"], at: Position | None
) -> None:
    """Refuses columns that the format cannot carry."""
    for column in columns:
        of = parse_type(column.type)
        if part == "Key" and of.contains("MAP"):
            raise refusal(_MAP_KEYS.format(name=column.name, type=of), at)
    reason = _reason(columns, name)
    if reason:
        raise refusal(
            f"{part} format does not support schema.\nformat: {name}\n"
            f"schema: Persistence{{columns=[{schema_text(columns)}], features=[]}}\n"
            f"reason: {reason}",
            at,
        )


def _reason(columns: Sequence[Column], name: str) -> str:
    """Why the format cannot carry the columns; "" if it can."""
    if name == "NONE" and columns:
        return (
            "The 'NONE' format can only be used when no columns are defined."
            f" Got: [{schema_text(columns)}]"
        )
    if name == "KAFKA" and len(columns) > 1:
        return f"The 'KAFKA' format only supports a single field. Got: [{schema_text(columns)}]"
    for column in columns:
        of = parse_type(column.type)
        if name == "KAFKA" and of.base not in _KAFKA_TYPES:
            return f"The 'KAFKA' format does not support type '{of.base}'"
        if name == "DELIMITED" and of.is_nested:
            return (
                f"The 'DELIMITED' format does not support type '{of.base}', column: "
                f"{quoted(column.name)}"
            )
        if name in JSON_FORMATS and not _json_maps(of):
            return "JSON only supports MAP types with STRING keys"
    return ""


def _json_maps(of: SqlType) -> bool:
    if of.base == "MAP" and of.arguments[0].base != "STRING":
        return False
    return all(map(_json_maps, of.arguments))


#: session property: whether a single value column is wrapped if the statement does not specify it
WRAP_PROPERTY: Final = "ksql.persistence.wrap.single.values"


def wraps(
    name: str,
    columns: Sequence[Column],
    given: bool | None,
    at: Position | None,
    *,
    usual: bool = True,
) -> bool:
    """Whether a single value column is wrapped in a JSON object.

    `given`: WRAP_SINGLE_VALUE, or None; `usual`: the session's default. Raises StatementError if
    the format or the number of columns does not allow what was given.
    """
    if given is None:
        return usual or name not in _UNWRAPPABLE or len(columns) != 1
    if name not in _UNWRAPPABLE and (given or name == "NONE"):
        raise refusal(
            f"Format '{name}' does not support 'WRAP_SINGLE_VALUE' set to '{str(given).lower()}'.",
            at,
        )
    if len(columns) != 1:
        raise refusal("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas", at)
    return given
