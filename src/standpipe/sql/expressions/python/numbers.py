"""Numbers, as Java's Math, StrictMath and BigDecimal compute them."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Context, Decimal, localcontext
from typing import Any, Final

from standpipe.sql.expressions.python.computed import Computed, of_types, order_of, present
from standpipe.sql.functions.numeric import KILOMETRES, MILES
from standpipe.sql.types import casts, values
from standpipe.sql.types.types import SqlType

#: digits of the longest DOUBLE when written out, and of a DECIMAL beside it
_EXACT: Final = Context(prec=800)
#: from here on, a DOUBLE has no fraction
_WHOLE_FROM: Final = 2.0**52
_SCALE_MAX: Final = 400  # a DOUBLE has no digit beyond, on either side of its point
#: km and miles (ksqlDB's)
_RADIUS_KM: Final = 6371.0
_RADIUS_MI: Final = 3959.0


def _fitting(of: SqlType) -> Callable[[Any], Any]:
    """Brings a number into a type: integers wrap, and a DECIMAL that does not fit is NULL."""
    if of.base == "DECIMAL":
        return lambda value: decimal_or_null(value, of)
    if of.base in ("INTEGER", "BIGINT"):
        return lambda value: casts.wrapped(int(value), of.base)
    return float


def decimal_or_null(value: Decimal, of: SqlType) -> Decimal | None:
    """The number at the type's scale; NULL if it has too many digits."""
    try:
        return values.as_decimal(values.at_scale(value, of.scale, ROUND_DOWN), of)
    except (ValueError, ArithmeticError):
        return None


def _abs(_: tuple[SqlType, ...], result: SqlType) -> Callable[..., Any]:
    fit = _fitting(result)
    return lambda value: fit(abs(value))


def _whole(way: str) -> Callable[[tuple[SqlType, ...], SqlType], Callable[..., Any]]:
    """FLOOR or CEIL: the type stays, also a DECIMAL's scale."""
    nearest = math.floor if way == ROUND_FLOOR else math.ceil

    def for_types(_: tuple[SqlType, ...], result: SqlType) -> Callable[..., Any]:
        if result.base == "DECIMAL":
            return lambda value: decimal_or_null(value.to_integral_value(way), result)
        if result.base == "DOUBLE":
            return lambda value: float(nearest(value)) if abs(value) < _WHOLE_FROM else value
        return lambda value: value

    return for_types


def _round(parameters: tuple[SqlType, ...], result: SqlType) -> Callable[..., Any]:
    """ROUND: half up, towards positive infinity also below zero."""
    if len(parameters) == 2:
        return _to_scale(_half_up, result)
    if parameters[0].base == "DOUBLE":
        return _nearest
    if result.base == "DECIMAL":
        return lambda value: decimal_or_null(_half_up(value, 0), result)
    return lambda value: value


def _nearest(value: float) -> int:
    """Java's Math.round: a BIGINT; NaN is 0, and what does not fit the largest."""
    if not abs(value) < _WHOLE_FROM:
        return casts.saturated(value, "BIGINT")
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


def _half_up(value: Decimal, scale: int) -> Decimal:
    with localcontext(_EXACT):
        unit = Decimal(1).scaleb(-scale)
        low, high = value.quantize(unit, ROUND_FLOOR), value.quantize(unit, ROUND_CEILING)
        return low if value - low < high - value else high


def _trunc(parameters: tuple[SqlType, ...], result: SqlType) -> Callable[..., Any]:
    if len(parameters) == 2:
        return _to_scale(_down, result)
    if parameters[0].base == "DOUBLE":
        return lambda value: casts.saturated(value, "BIGINT")
    if result.base == "DECIMAL":
        return lambda value: decimal_or_null(_down(value, 0), result)
    return lambda value: value


def _down(value: Decimal, scale: int) -> Decimal:
    with localcontext(_EXACT):
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN)


def _to_scale(made: Callable[[Decimal, int], Decimal], result: SqlType) -> Callable[..., Any]:
    """A number at a scale: a DOUBLE through the shortest decimal that denotes it, which NaN and the
    infinities do not have: NULL."""
    fit = _fitting(result)

    def compute(value: Any, scale: int) -> Any:
        scale = max(-_SCALE_MAX, min(scale, _SCALE_MAX))
        if isinstance(value, float):
            return fit(made(Decimal(repr(value)), scale)) if math.isfinite(value) else None
        return fit(made(Decimal(value), scale))

    return compute


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """NaN where Python raises an error: outside of the function's domain."""

    def compute(*given: float) -> float:
        try:
            return float(function(*map(float, given)))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return compute


def log(value: float) -> float:
    """The natural logarithm: -Infinity for 0, NaN below it."""
    value = float(value)
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def _log(base: float, value: float | None = None) -> float:
    if value is None:
        return log(base)
    if base <= 0 or base == 1 or value < 0:
        return math.nan
    return log(value) / log(base)


def _power(base: float, exponent: float) -> float:
    """As Java's Math.pow, where Python raises an error or has another result."""
    base, exponent = float(base), float(exponent)
    is_odd = math.isfinite(exponent) and exponent % 2 == 1
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and is_odd else math.inf
    except ValueError:
        if base != 0:
            return math.nan
        return -math.inf if is_odd and math.copysign(1, base) < 0 else math.inf


def _cbrt(value: float) -> float:
    """As Java's, which is exact for cubes of whole numbers."""
    root = math.cbrt(value)
    whole = math.floor(root + 0.5) if abs(root) < _WHOLE_FROM else root
    return float(whole) if whole**3 == value else root


def _cot(value: float) -> float:
    tangent = math.tan(value)
    return math.copysign(math.inf, tangent) if tangent == 0 else 1 / tangent


def _sinh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > 711 else math.sinh(value)


def _distance(*given: Any) -> float | None:
    """Of two points by latitude and longitude in degrees: the haversine formula, km or miles.

    NULL for what is no degree, or another unit.
    """
    if None in given[:4]:
        return None
    one, two, three, four = (float(each) for each in given[:4])
    unit = str(given[4] if len(given) > 4 and given[4] is not None else "").strip(casts.BLANKS)
    is_miles = unit.lower() in MILES
    if not (is_miles or unit.lower() in ("", *KILOMETRES)):
        return None
    if not max(abs(one), abs(three)) <= 90 or not max(abs(two), abs(four)) <= 180:
        return None
    height = math.sin(math.radians(three - one) / 2) ** 2
    width = math.sin(math.radians(four - two) / 2) ** 2
    root = math.sqrt(height + math.cos(math.radians(one)) * math.cos(math.radians(three)) * width)
    return 2.0 * math.asin(root) * (_RADIUS_MI if is_miles else _RADIUS_KM)


def largest(*given: Any) -> Any:
    """The largest value that is not NULL; NULL if there is none."""
    return max(present(*given), key=order_of, default=None)


def smallest(*given: Any) -> Any:
    """The smallest value that is not NULL; NULL if there is none."""
    return min(present(*given), key=order_of, default=None)


_OF_ONE: Final = (
    *("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "COSH", "TANH", "EXP", "SQRT"),
    *("DEGREES", "RADIANS"),
)

FUNCTIONS: Final[Mapping[str, Computed]] = {
    "ABS": of_types(_abs),
    "CEIL": of_types(_whole(ROUND_CEILING)),
    "FLOOR": of_types(_whole(ROUND_FLOOR)),
    "ROUND": of_types(_round),
    "TRUNC": of_types(_trunc),
    "LN": Computed(log),
    "LOG": Computed(_log),
    "POWER": Computed(_power),
    "SIGN": Computed(lambda value: (value > 0) - (value < 0)),
    "PI": Computed(lambda: math.pi),
    "ATAN2": Computed(_total(math.atan2)),
    "CBRT": Computed(_total(_cbrt)),
    "COT": Computed(_total(_cot)),
    "SINH": Computed(_total(_sinh)),
    **{name: Computed(_total(getattr(math, name.lower()))) for name in _OF_ONE},
    "GREATEST": Computed(largest, is_strict=False),
    "LEAST": Computed(smallest, is_strict=False),
    "GEO_DISTANCE": Computed(_distance, is_strict=False),
}
