"""Which patterns ask for a zone, and which template they get."""

from __future__ import annotations

import pytest

from standpipe.sql.functions import times
from standpipe.sql.functions.signature import Function
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Typed, TypedColumn

STRING = types.STRING
F = Function("F", (types.BIGINT, STRING, STRING), STRING, "plain", zoned="zoned")
COLUMN = TypedColumn(STRING, "A")


@pytest.mark.parametrize(
    ("pattern", "names", "why"),
    [
        ("yyyy-MM-dd HH:mm:ss zzz", True, ""),
        ("HHXXX", True, ""),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", False, "a quoted letter is itself"),
        ("HH''z", True, "two quotes are one, and open nothing"),
        ("yyyy", False, ""),
    ],
)
def test_names_zone(pattern: str, names: bool, why: str) -> None:
    assert times.names_zone(pattern) is names, why


@pytest.mark.parametrize(
    ("arguments", "chosen", "why"),
    [
        ((COLUMN, Constant(STRING, "z"), Constant(STRING, "UTC")), "zoned", ""),
        ((COLUMN, Constant(STRING, "y"), Constant(STRING, "UTC")), "plain", "no letter"),
        ((COLUMN, Constant(STRING, "z"), COLUMN), "plain", "Spark wants the zone as a literal"),
    ],
)
def test_template(arguments: tuple[Typed, ...], chosen: str, why: str) -> None:
    assert times.template_for(F, arguments) == chosen, why
