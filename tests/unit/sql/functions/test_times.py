"""Which patterns and zones are refused, and which are tested in Spark."""

from __future__ import annotations

import pytest

from standpipe.sql.functions import times
from standpipe.sql.functions.signature import Function
from standpipe.sql.functions.time_patterns import SHOWN
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Typed, TypedColumn

STRING = types.STRING
F = Function("F", (types.BIGINT, STRING, STRING), STRING, "plain", letters=SHOWN, zones=(2,))
COLUMN = TypedColumn(STRING, "A")


@pytest.mark.parametrize("zone", [Constant(STRING, "UTC"), Constant(STRING, None)])
def test_literals_are_tested_in_the_statement_alone(zone: Typed) -> None:
    made = times.template_for(F, (COLUMN, Constant(STRING, "HH:mm z"), zone))
    assert (made == "plain") is (zone == Constant(STRING, "UTC"))


def test_a_zone_of_null_makes_null_and_not_an_error_of_spark() -> None:
    made = times.template_for(F, (COLUMN, Constant(STRING, "z"), Constant(STRING, None)))
    assert made.startswith("if(")
    assert made.endswith(", plain, NULL)")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((COLUMN, Constant(STRING, "w"), Constant(STRING, "UTC")), "weeks depend on the language"),
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
