"""+, -, *, / and %, as Java's primitive types and BigDecimal compute them."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from decimal import ROUND_05UP, ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

from standpipe.sql.types import casts, values
from standpipe.sql.types.types import REMAINDER_QUOTIENT_MAX, SqlType


def computed(sign: str, one: Any, two: Any, of: SqlType) -> Any:
    """Java's arithmetic: integers wrap and divide towards zero; an undefined result is NULL."""
    if of.base == "DECIMAL":
        return _computed_decimal(sign, Decimal(one), Decimal(two), of.scale)
    if of.base == "DOUBLE":
        one, two = float(one), float(two)
    try:
        result = _OPERATIONS[sign](one, two)
    except (ArithmeticError, ValueError):  # the latter: the remainder of infinity
        return _by_zero(sign, one, two) if of.base == "DOUBLE" else None
    return casts.wrapped(result, of.base) if of.base in ("INTEGER", "BIGINT") else result


#: digits enough for any two DECIMALs; what is cut off cannot be taken for a half (ROUND_05UP)
_EXACT: Final = Context(prec=160, rounding=ROUND_05UP)


def _computed_decimal(sign: str, one: Decimal, two: Decimal, scale: int) -> Decimal | None:
    """Rounded once, half up; NULL if 38 digits are not enough."""
    try:
        if sign == "%" and two and abs(float(one) / float(two)) >= REMAINDER_QUOTIENT_MAX:
            return None
        with localcontext(_EXACT):
            return values.at_scale(_OPERATIONS[sign](one, two), scale, ROUND_HALF_UP)
    except ArithmeticError:
        return None


def _by_zero(sign: str, one: float, two: float) -> float:
    if sign == "%" or one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, two)


def _divided(one: Any, two: Any) -> Any:
    if isinstance(one, int):
        whole = abs(one) // abs(two)
        return whole if (one < 0) == (two < 0) else -whole
    return one / two


def _remainder(one: Any, two: Any) -> Any:
    if isinstance(one, int):
        return one - two * _divided(one, two)
    return one % two if isinstance(one, Decimal) else math.fmod(one, two)


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
}


def with_nan(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """NaN equals itself and is the largest number (Spark's; Java has both meanings)."""

    def compared(one: Any, two: Any) -> bool:
        if one == one and two == two:  # noqa: PLR0124 - NaN is not
            return compare(one, two)
        return compare(one != one, two != two)  # noqa: PLR0124

    return compared
