"""What CREATE STREAM or TABLE declares besides plain columns: header columns and windowed keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from standpipe.model import Column, Window
from standpipe.sql.declarations.properties import Properties
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.ast_statements import ColumnDefinition, Creation
from standpipe.sql.syntax.build_queries import DURATION_MS_MAX, UNITS_MS
from standpipe.sql.syntax.errors import refusal

_HEADERS_TYPE: Final = "ARRAY<STRUCT<`KEY` STRING, `VALUE` BYTES>>"
_WINDOWS: Final = ("SESSION", "HOPPING", "TUMBLING")
_DURATION: Final = re.compile(r"\s*(\S+)\s+(\S+)\s*")
#: of a number that Python reads as one, and that is worth showing
_DIGITS_MAX: Final = 100


def header_column(definition: ColumnDefinition) -> Column:
    """HEADERS, all of a record's headers, or HEADER('k'), one of them. Refuses wrong types."""
    key = definition.header_key or ""
    wanted, mark = ("BYTES", f"HEADER('{key}')") if key else (_HEADERS_TYPE, "HEADERS")
    if str(definition.type) != wanted:
        raise refusal(
            f"Invalid type for {mark} column: expected {wanted}, got {definition.type}",
            definition.at,
        )
    return Column(name=definition.name, type=wanted, header=key)


def check_headers(columns: Sequence[Column], at: Position) -> None:
    """Refuses the headers of a record twice: all of them, or those with one key; and those with a
    key after all of them. ksqlDB takes the other order."""
    keys = [column.header for column in columns if column.header is not None]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is None and "" in keys[:-1]:
        twice = ""
    if twice is not None:
        what = f"HEADER('{twice}')" if twice else "HEADERS"
        raise refusal(f"Schema already contains a {what} column.", at)


def source_window(properties: Properties, keys: list[Column], creation: Creation) -> Window | None:
    """The window of the topic's keys, from WINDOW_TYPE and WINDOW_SIZE; None if not windowed."""
    kind, at = properties.text("WINDOW_TYPE"), properties.at("WINDOW_TYPE")
    size = properties.text("WINDOW_SIZE")
    if kind is None:
        for key in ("WINDOW_SIZE", "WINDOW_RETENTION"):
            if properties.text(key) is not None:
                raise refusal(f"{key} needs a WINDOW_TYPE.", properties.at(key))
        return None
    name = kind.upper()
    if name not in _WINDOWS:
        raise refusal(
            f"Invalid value {kind} for property WINDOW_TYPE: String must be one of: SESSION,"
            " HOPPING, TUMBLING, null",
            at,
        )
    if not keys:
        raise refusal("Windowed sources require a key column.", creation.at)
    if name == "SESSION":
        if size is not None:
            raise refusal("'WINDOW_SIZE' should not be set for SESSION windows.", at)
        return Window(kind="SESSION", size_ms=0, advance_ms=0, grace_ms=0, retention_ms=0)
    if size is None:
        raise refusal(
            f"{name} windows require 'WINDOW_SIZE' to be provided in the WITH clause. For example:"
            " 'WINDOW_SIZE'='10 SECONDS'",
            at,
        )
    size_ms = _duration_ms("WINDOW_SIZE", size, properties)
    kind_of = "HOPPING" if name == "HOPPING" else "TUMBLING"
    return Window(
        kind=kind_of,
        size_ms=size_ms,
        advance_ms=size_ms,
        grace_ms=0,
        retention_ms=_retention_ms(size_ms, properties),
    )


def _retention_ms(size_ms: int, properties: Properties) -> int:
    """How long the rows of a window are kept after its start; 0: until they are deleted."""
    text, at = properties.text("WINDOW_RETENTION"), properties.at("WINDOW_RETENTION")
    if text is None:
        return 0
    if properties.text("WRITER") is None:
        raise refusal(
            "WINDOW_RETENTION is for tables with WRITER='EXTERNAL': of other topics, only their"
            " writers know how long windows matter.",
            at,
        )
    retention_ms = _duration_ms("WINDOW_RETENTION", text, properties)
    if retention_ms < size_ms:
        raise refusal("WINDOW_RETENTION must not be less than WINDOW_SIZE.", at)
    return retention_ms


def _duration_ms(key: str, text: str, properties: Properties) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise refusal(
            f"Configuration {key} is invalid: Invalid duration: '{text}'. {error}",
            properties.at(key),
        ) from error


def duration_ms(text: str) -> int:
    """Of a text such as '10 SECONDS'. Raises ValueError that says why it is none."""
    match = _DURATION.fullmatch(text)
    why = f"Expected string with format '<value> <unit>', Got: '{text}'"
    if match is not None:
        unit = match[2].upper()
        length = UNITS_MS.get(unit.removesuffix("S"))
        if length is None:
            why = f"Unknown time unit: '{unit}'"
        elif not match[1].isdecimal() or len(match[1]) > _DIGITS_MAX:
            why = f"Not numeric: '{match[1]}'"
        elif int(match[1]) == 0:
            why = "It must be above 0"
        elif int(match[1]) * length > DURATION_MS_MAX:
            why = f"It must be at most {DURATION_MS_MAX} ms"
        else:
            return int(match[1]) * length
    raise ValueError(why)
