"""Cells as a command prints them."""

from __future__ import annotations

import pytest

from standpipe.local.client.exact_cells import ExactCells

LONG = "123456789012345678901234567890123456.78"


@pytest.mark.parametrize(
    ("of", "cell", "shown", "why"),
    [
        ("DECIMAL(38, 2)", LONG, f"Decimal('{LONG}')", "a float has 15 digits"),
        ("DECIMAL(38, 0)", "9" * 38, f"Decimal('{'9' * 38}')", "more than 64 bits"),
        ("DECIMAL(4, 2)", "1.1", "Decimal('1.10')", "the digits of its scale"),
        ("DECIMAL(4, 2)", "1", "Decimal('1.00')", "a whole number, too"),
        ("DECIMAL(4, 2)", "-0.0", "Decimal('-0.00')", "as it is stored"),
        ("DECIMAL(4, 2)", "1.123", "Decimal('1.123')", "no digit is lost"),
        ("DECIMAL(4, 2)", "null", "None", "no value"),
        ("DECIMAL(4, 2)", '"x"', "'x'", "what does not fit stays"),
        ("ARRAY<DECIMAL(4, 2)>", "[1.1,null]", "[Decimal('1.10'), None]", "in an ARRAY"),
        ("MAP<STRING, DECIMAL(4, 2)>", '{"a":1.1}', "{'a': Decimal('1.10')}", "in a MAP"),
        (
            "STRUCT<`X` DECIMAL(4, 2), `Y` DOUBLE, `Z` STRING>",
            '{"x":1.1,"Y":1.10,"Z":"z","W":1}',
            "{'x': Decimal('1.10'), 'Y': 1.1, 'Z': 'z', 'W': 1}",
            "in a STRUCT, in any case",
        ),
        ("STRUCT<`X` DECIMAL(4, 2)>", "[1]", "[1]", "what does not fit stays"),
    ],
)
def test_a_decimal_is_exact(of: str, cell: str, shown: str, why: str) -> None:
    cells = ExactCells([of])
    (found,) = cells.row(cells.decode(f"[{cell}]"))
    assert repr(found) == shown, why


@pytest.mark.parametrize("types", [("DOUBLE",), ("DOUBLE", "DECIMAL(4, 2)")])
@pytest.mark.parametrize("cell", ["1.10", "1", "1e300", "1E-7", "-0.0", '"NaN"', "null"])
def test_a_double_is_what_it_is_without_decimals(types: tuple[str, ...], cell: str) -> None:
    cells = ExactCells(types)
    found = cells.row(cells.decode(f"[{','.join([cell] * len(types))}]"))
    plain = ExactCells(["DOUBLE"]).decode(f"[{cell}]")
    assert repr(found[0]) == repr(plain[0])


def test_a_type_of_a_later_release_stays() -> None:
    cells = ExactCells(["VECTOR<3>", "DECIMAL(4, 2)"])
    assert repr(cells.row(cells.decode('[{"v":"x"},1]'))) == "({'v': 'x'}, Decimal('1.00'))"
