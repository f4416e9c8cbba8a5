"""Schemas as the cases spell them: "`ID` STRING KEY, N BIGINT"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from standpipe.sql.types.types import SqlType, parse_type

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|(\S+))\s+")
_HEADER = re.compile(r"\s+HEADERS?(\('[^']*'\))?$")


class SchemaColumn(NamedTuple):
    name: str
    type: SqlType
    is_key: bool


def columns_of(schema: str) -> list[SchemaColumn]:
    """Columns of a schema's text; names without quotes are upper-cased, as in a statement."""
    return [_column(text) for text in _split(schema)] if schema.strip() else []


def _split(schema: str) -> Iterator[str]:
    """At commas outside of brackets and quotes."""
    depth, start, is_quoted = 0, 0, False
    for at, letter in enumerate(schema):
        if letter == "`":
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and not depth:
                yield schema[start:at]
                start = at + 1
    yield schema[start:]


def _column(text: str) -> SchemaColumn:
    match = _NAME.match(text)
    assert match is not None, text
    rest = _HEADER.sub("", text[match.end() :].strip())
    of, is_key = re.subn(r"\s+(PRIMARY\s+)?KEY$", "", rest)
    name = match[2].upper() if match[1] is None else match[1].replace("``", "`")
    return SchemaColumn(name, parse_type(of), bool(is_key))
