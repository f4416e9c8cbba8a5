"""Which patterns ask for a zone, and which template they get."""

from __future__ import annotations

import pytest

from standpipe.sql.functions import times
from standpipe.sql.functions.signature import Function
from standpipe.sql.functions.time_patterns import SHOWN
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Typed, TypedColumn

STRING = types.STRING
F = Function(
    "F", (types.BIGINT, STRING, STRING), STRING, "plain", zoned="zoned", letters=SHOWN, zones=(2,)
)
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
    ],
)
def test_template(arguments: tuple[Typed, ...], chosen: str, why: str) -> None:
    assert times.template_for(F, arguments) == chosen, why


def test_a_zone_of_null_makes_null_and_not_an_error_of_spark() -> None:
    made = times.template_for(F, (COLUMN, Constant(STRING, "z"), Constant(STRING, None)))
    assert made.startswith("if(")
    assert made.endswith(", plain, NULL)")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((COLUMN, Constant(STRING, "z"), COLUMN), "Spark wants the zone as a literal"),
        ((COLUMN, Constant(STRING, "w"), Constant(STRING, "UTC")), "a letter that Spark lacks"),
        ((COLUMN, Constant(STRING, "y"), Constant(STRING, "PST")), "no zone of Java's"),
    ],
)
def test_refusals(arguments: tuple[Typed, ...], why: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the Typer has the words
        times.template_for(F, arguments)
    assert why


def test_a_pattern_of_a_column_is_tested_in_spark() -> None:
    made = times.template_for(F, (COLUMN, COLUMN, COLUMN))
    assert "length({1}) <= 200 AND regexp_like({1}, " in made, "the pattern"
    assert "cast(concat('2020-01-01 00:00:00 ', {2}) AS TIMESTAMP) IS NOT NULL" in made, "the zone"
    assert made.endswith(", plain, NULL)")
