"""DECIMAL arithmetic against fractions, which are exact. Spark's: `tests/e2e/both_ways.py`.

Source: ksqlDB's SqlDecimal for the types, ArithmeticInterpreter for the values.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.sql.expressions.python.arithmetic import computed
from standpipe.sql.types.types import SqlType, arithmetic_type, decimal, parse_type


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Decimal, SqlType]:
    """A DECIMAL of any type, often one with all digits or with few."""
    precision = draw(st.one_of(st.integers(1, 38), st.just(38)))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    unscaled = draw(st.one_of(st.integers(0, min(most, 12)), st.integers(0, most), st.just(most)))
    sign = draw(st.sampled_from((1, -1)))
    return Decimal(f"{sign * unscaled}E-{scale}"), decimal(precision, scale)


def rounded(exact: Fraction, of: SqlType) -> Decimal | None:
    """Half up, once; None if it does not fit the type's digits."""
    whole, rest = divmod(abs(exact) * 10**of.scale, 1)
    unscaled = int(whole) + (rest >= Fraction(1, 2))
    sign = -1 if exact < 0 else 1
    return Decimal(f"{sign * unscaled}E-{of.scale}") if unscaled < 10**38 else None


@settings(max_examples=examples(300))
@given(one=numbers(), two=numbers(), sign=st.sampled_from("+-*/%"))
def test_decimals_are_rounded_once(
    one: tuple[Decimal, SqlType], two: tuple[Decimal, SqlType], sign: str
) -> None:
    of = arithmetic_type(sign, one[1], two[1])
    assert of is not None
    left, right = Fraction(one[0]), Fraction(two[0])
    if sign in "/%":
        assume(right != 0)
        quotient = left / right
        assume(sign == "/" or abs(quotient) < 10**36)
        exact = quotient if sign == "/" else left - right * int(quotient)
    else:
        exact = {"+": left + right, "-": left - right, "*": left * right}[sign]
    assert computed(sign, one[0], two[0], of) == rounded(exact, of)


@settings(max_examples=examples(100))
@given(
    quotient=st.decimals(-10_000, 10_000, places=4),
    divisor=st.decimals(-100, 100, places=2).filter(bool),
)
def test_a_quotient_with_an_end_is_exact(quotient: Decimal, divisor: Decimal) -> None:
    """ksqlDB has a value for these alone."""
    dividend, types = quotient * divisor, (decimal(15, 6), decimal(5, 2))
    of = arithmetic_type("/", *types)
    assert of is not None
    assert computed("/", dividend, divisor, of) == quotient


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("9812880523922269336248996434762856 / 1000.01 AS DECIMAL(38, 6)",
         "9812782396098308353165464780115.054849", "not rounded to 38 digits first"),
        ("1 / 3 AS DECIMAL(8, 6)", "0.333333", "no end"),
        ("2 / 3 AS DECIMAL(8, 6)", "0.666667", "half up"),
        ("-2 / 3 AS DECIMAL(8, 6)", "-0.666667", "away from zero"),
        ("1 / 0 AS DECIMAL(8, 6)", None, ""),
        ("1 % 0 AS DECIMAL(8, 6)", None, ""),
        ("-7.5 % 2 AS DECIMAL(3, 1)", "-1.5", "the sign of the dividend"),
        ("1e36 % 0.7 AS DECIMAL(2, 1)", "0.3", ""),
        ("1e37 % 0.7 AS DECIMAL(2, 1)", None, "the quotient has too many digits for Spark"),
        ("1e37 * 10 AS DECIMAL(38, 0)", None, "39 digits"),
    ],
)  # fmt: skip
def test_results(text: str, result: str | None, why: str) -> None:
    one, sign, two, _, of = text.split(" ", 4)
    found = computed(sign, Decimal(one), Decimal(two), parse_type(of))
    assert found == (None if result is None else Decimal(result)), why
