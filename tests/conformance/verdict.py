"""Equal, as the cases mean it: doubles within 1e-6, decimals exact, fields by name.

What is compared has a type, the column's: without one, a decimal that is off by a millionth could
not be told from a double that is allowed to be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from standpipe.sql.types.types import SqlType

TOLERANCE: Final = Decimal("0.000001")
#: large doubles are further apart than the cases' tolerance: one step of them is let pass
RELATIVE: Final = Decimal("1E-15")
_WHOLE: Final = frozenset({"INTEGER", "BIGINT", "DATE", "TIME", "TIMESTAMP"})


def is_equal(expected: Any, actual: Any, of: SqlType) -> bool:
    """`actual` was read from a topic or an answer, its numbers with a point as Decimal."""
    if expected is None or actual is None:
        return expected is actual
    if of.base == "STRUCT":
        return _are_equal_fields(expected, actual, of)
    if of.base == "MAP":
        return _are_equal_entries(expected, actual, of.arguments[1])
    if of.base == "ARRAY":
        if not isinstance(expected, list) or not isinstance(actual, list):
            return False
        pairs = zip(expected, actual, strict=False)
        element = of.arguments[0]
        return len(expected) == len(actual) and all(is_equal(*pair, element) for pair in pairs)
    if of.base == "DOUBLE":
        return _is_close(expected, actual)
    if of.base == "DECIMAL":
        return _is_same_decimal(expected, actual, of.scale)
    if of.base in _WHOLE and _is_number(expected):
        return isinstance(actual, int) and not isinstance(actual, bool) and expected == actual
    return type(expected) is type(actual) and bool(expected == actual)


def _are_equal_fields(expected: Any, actual: Any, of: SqlType) -> bool:
    """Fields by their exact names, else by the upper-cased ones; no field may stand for two.

    Upstream reads both by schema: a null under a name that the schema has not says nothing.
    """
    if not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
        return False
    if len(expected) != len(actual):
        return False
    types = dict(zip(of.field_names, of.arguments, strict=True))
    found: dict[str, Any] = {}
    for name, value in expected.items():
        known = name if name in types else name.upper()
        if known in found or (known not in types and value is not None):
            return False
        found[known] = value
    return actual.keys() <= types.keys() and all(
        is_equal(found.get(name), actual.get(name), of_field) for name, of_field in types.items()
    )


def _are_equal_entries(expected: Any, actual: Any, of: SqlType) -> bool:
    if not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
        return False
    return expected.keys() == actual.keys() and all(
        is_equal(value, actual[name], of) for name, value in expected.items()
    )


def _is_close(expected: Any, actual: Any) -> bool:
    if not (_is_number(expected) and _is_number(actual)):  # NaN and Infinity are texts
        return type(expected) is type(actual) and bool(expected == actual)
    one, two = Decimal(expected), Decimal(actual)
    return abs(one - two) <= max(TOLERANCE, abs(one) * RELATIVE)


def _is_same_decimal(expected: Any, actual: Any, scale: int) -> bool:
    """Either may be spelled as a text; what was read must have the type's scale."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return False
    try:
        one, two = Decimal(expected), Decimal(actual)
    except (InvalidOperation, TypeError, ValueError):
        return False
    return one == two and two.as_tuple().exponent == -scale


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal, float)) and not isinstance(value, bool)


def is_same_multiset(
    expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], types: Sequence[SqlType]
) -> bool:
    """Rows in any order, each as often as it is expected."""
    return len(expected) == len(actual) and is_within(expected, actual, types)


def is_within(
    rows: Sequence[Sequence[Any]], of: Sequence[Sequence[Any]], types: Sequence[SqlType]
) -> bool:
    """Whether each of the rows is among the others, a row of them standing for one only."""
    left = list(of)
    for row in rows:
        place = next((n for n, other in enumerate(left) if _is_same_row(row, other, types)), None)
        if place is None:
            return False
        del left[place]
    return True


def _is_same_row(one: Sequence[Any], two: Sequence[Any], types: Sequence[SqlType]) -> bool:
    if not len(one) == len(two) == len(types):
        return False
    return all(map(is_equal, one, two, types))


def shown(value: Any) -> str:
    """For a line of the report."""
    return json.dumps(value, default=str, ensure_ascii=False, sort_keys=True)[:700]
