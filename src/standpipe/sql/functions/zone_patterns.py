"""Patterns of dates: whether one asks for the zone's name or offset.

Source: java.time.format.DateTimeFormatter, whose letters ksqlDB and Spark share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from standpipe.sql.functions.signature import Function
from standpipe.sql.types.typed_expression import Constant, Typed

_QUOTED: Final = re.compile("'[^']*'")
_ZONE: Final = re.compile("[zZXxOV]")


def template(function: Function, arguments: Sequence[Typed]) -> str:
    """The function's template for these arguments."""
    if not function.zoned or not all(isinstance(each, Constant) for each in arguments[1:]):
        return function.template
    pattern = arguments[1]
    assert isinstance(pattern, Constant)
    return function.zoned if names_zone(str(pattern.value)) else function.template


def names_zone(pattern: str) -> bool:
    """Whether a letter for the zone stands outside of quotes."""
    return _ZONE.search(_QUOTED.sub("", pattern)) is not None
