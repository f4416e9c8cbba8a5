"""Numbers where Python's own functions differ from Java's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from standpipe.sql.expressions.python.numbers import FUNCTIONS
from standpipe.sql.types.types import SqlType, parse_type


def function(name: str, *types: str, result: str = "DOUBLE") -> Callable[..., Any]:
    made = FUNCTIONS[name]
    given: tuple[SqlType, ...] = tuple(map(parse_type, types))
    return made.compute if made.for_types is None else made.for_types(given, parse_type(result))


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("FLOOR", "-1.25", "-2.00"),
        ("FLOOR", "1.25", "1.00"),
        ("CEIL", "-1.25", "-1.00"),
        ("CEIL", "98.01", "99.00"),
        ("CEIL", "99.01", None),
    ],
)
def test_floor_and_ceil_keep_the_scale(name: str, value: str, result: str | None) -> None:
    """ksqlDB's Floor and Ceil have the type of their argument."""
    of = "DECIMAL(4, 2)"
    found = function(name, of, result=of)(Decimal(value))
    assert (found if found is None else str(found)) == result


@pytest.mark.parametrize("root", [3.0, -3.0, 0.0, 1000.0, 1e100])
def test_the_cube_root_of_a_cube_is_exact(root: float) -> None:
    assert function("CBRT")(root**3) == root


BERN, ROME = (46.948, 7.4474), (41.8933, 12.4829)


@pytest.mark.parametrize(
    ("unit", "result"),
    [
        ((), 690.0),
        ((None,), 690.0),
        (("",), 690.0),
        ((" KM ",), 690.0),
        (("Kilometres",), 690.0),
        (("miles",), 428.8),
        (("MI",), 428.8),
        (("million",), None),
        (("leagues",), None),
    ],
)
def test_units_of_a_distance(unit: tuple[str | None, ...], result: float | None) -> None:
    found = function("GEO_DISTANCE")(*BERN, *ROME, *unit)
    assert found == (result if result is None else pytest.approx(result, rel=0.01))


@pytest.mark.parametrize(
    "degrees", [(90.1, 0, 0, 0), (0, 180.1, 0, 0), (0, 0, -90.1, 0), (0, 0, 0, -181)]
)
def test_no_point_on_earth(degrees: tuple[float, ...]) -> None:
    """An error in ksqlDB, which is NULL in a row."""
    assert function("GEO_DISTANCE")(*degrees) is None
    assert function("GEO_DISTANCE")(90, 180, -90, -180) is not None
