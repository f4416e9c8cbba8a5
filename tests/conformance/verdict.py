"""Equal, as the cases mean it: doubles within 1e-6, decimals exact, fields by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

TOLERANCE = Decimal("0.000001")
RELATIVE = Decimal("1E-15")
DOUBLE_DIGITS = 17


def is_equal(expected: Any, actual: Any) -> bool:
    """`actual` was read from a topic or an answer, its numbers with a point as Decimal."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if len(expected) != len(actual):
            return False
        found = {name: field(actual, str(name)) for name in expected}
        if _ABSENT in found.values():  # upstream reads by schema: null fields need no names
            return all(value is None for value in (*expected.values(), *actual.values()))
        return all(is_equal(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(is_equal, expected, actual))
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if _is_number(expected) and _is_number(actual):
        if isinstance(expected, int) and isinstance(actual, int):
            return expected == actual
        one, two = Decimal(expected), Decimal(actual)
        if not (one.is_finite() and two.is_finite()):
            return one == two
        # large doubles are further apart than the cases' tolerance: one step of them is let pass
        is_double = len(one.as_tuple().digits) <= DOUBLE_DIGITS
        return abs(one - two) <= max(TOLERANCE, abs(one) * RELATIVE * is_double)
    if _is_number(actual) and isinstance(expected, str):  # a decimal may be spelled as a string
        return expected == str(actual)
    if _is_number(expected) and isinstance(actual, str):
        return str(expected) == actual
    return bool(expected == actual)


_ABSENT = object()


def field(object_: Mapping[str, Any], name: str) -> Any:
    """A field by its exact name, else by the upper-cased one."""
    return object_.get(name, object_.get(name.upper(), _ABSENT))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal, float)) and not isinstance(value, bool)


def is_same_multiset(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    left = list(actual)
    for row in expected:
        place = next((n for n, other in enumerate(left) if is_equal(row, other)), None)
        if place is None:
            return False
        del left[place]
    return not left


def shown(value: Any) -> str:
    """For a line of the report."""
    return json.dumps(value, default=str, ensure_ascii=False, sort_keys=True)[:700]
