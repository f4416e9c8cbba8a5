"""tests/conformance/verdict.py: what counts as equal, and what must not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.conformance.schemas import columns_of
from tests.conformance.verdict import is_equal, is_same_multiset, is_within

from standpipe.sql.types.types import parse_type

D = Decimal


@pytest.mark.parametrize(
    ("of", "expected", "actual", "equal", "why"),
    [
        ("DOUBLE", D("0.1"), D("0.1000005"), True, "doubles within 1e-6"),
        ("DOUBLE", D("0.1"), D("0.1000020"), False, ""),
        ("DOUBLE", D("1E300"), D("1.0000000000000002E300"), True, "one step of a large one"),
        ("DOUBLE", D("1E300"), D("1.00000000000001E300"), False, "more than one"),
        ("DOUBLE", 1, D("1.0"), True, "a double may be spelled without its point"),
        ("DOUBLE", "NaN", "NaN", True, ""),
        ("DOUBLE", "NaN", D("1.0"), False, ""),
        ("DECIMAL(9, 7)", D("0.0000001"), D("0.0000002"), False, "decimals are exact"),
        ("DECIMAL(4, 2)", D("1.10"), D("1.10"), True, ""),
        ("DECIMAL(4, 2)", D("1.10"), D("1.1"), False, "the scale is the type's"),
        ("DECIMAL(4, 2)", "1.10", D("1.10"), True, "a decimal may be spelled as a text"),
        ("DECIMAL(4, 2)", D("1.10"), "x", False, ""),
        ("DECIMAL(1, 0)", True, 1, False, "a boolean is no number"),
        ("BIGINT", 5, 5, True, ""),
        ("BIGINT", 5, D("5.0"), False, "an integer has no point"),
        ("BIGINT", 5, D("5.0000001"), False, "and no tolerance"),
        ("BIGINT", 1, True, False, "true is not 1"),
        ("BOOLEAN", True, 1, False, "1 is not true"),
        ("STRING", "5", 5, False, "a number is no text"),
        ("STRING", 5, "5", False, "nor the other way round"),
        ("STRING", None, "", False, "null is no empty text"),
        ("DATE", 3, 3, True, "a day's number in a topic"),
        ("DATE", "1970-01-04", "1970-01-04", True, "a text in an answer"),
        ("ARRAY<INTEGER>", [1, 2], [1], False, "all of the elements"),
        ("ARRAY<INTEGER>", [1, 2], [2, 1], False, "in order"),
        ("ARRAY<DECIMAL(2, 1)>", [D("1.0")], [D("1.00")], False, "types go inside"),
        ("MAP<STRING, INTEGER>", {"a": 1}, {"A": 1}, False, "a map's keys are exact"),
        ("MAP<STRING, INTEGER>", {"a": None}, {"b": None}, False, ""),
    ],
)
def test_values(of: str, expected: Any, actual: Any, equal: bool, why: str) -> None:
    assert is_equal(expected, actual, parse_type(of)) is equal, why


@pytest.mark.parametrize(
    ("expected", "actual", "equal", "why"),
    [
        ({"A": 1, "B": 2}, {"A": 1, "B": 2}, True, ""),
        ({"a": 1, "b": 2}, {"A": 1, "B": 2}, True, "names are folded where the exact one is not"),
        ({"a": 1, "A": 1}, {"A": 1, "B": 2}, False, "one field must not stand for two"),
        ({"A": 1}, {"A": 1, "B": 2}, False, "a field more"),
        ({"A": 1, "B": 2}, {"A": 1}, False, "a field less"),
        ({"X": None, "B": 2}, {"A": None, "B": 2}, True, "no field of the schema, and null"),
        ({"X": 1, "B": 2}, {"A": 1, "B": 2}, False, "not null"),
        ({"X": None, "B": 2}, {"A": 1, "B": 2}, False, "the field itself is not null"),
        ({"A": None, "B": None}, {"A": None, "X": None}, False, "what is written has a schema"),
        ({"A": None, "B": 2}, {"A": None, "B": 3}, False, ""),
    ],
)
def test_fields(expected: Any, actual: Any, equal: bool, why: str) -> None:
    of = parse_type("STRUCT<`A` INTEGER, `B` INTEGER>")
    assert is_equal(expected, actual, of) is equal, why


def test_a_row_stands_for_one_other_only() -> None:
    types = [parse_type("STRING"), parse_type("INTEGER")]
    one, two = ["a", 1], ["a", 2]
    assert is_same_multiset([one, two], [two, one], types)
    assert not is_same_multiset([one, one], [one, two], types)
    assert not is_same_multiset([one], [one, one], types), "a row too many"
    assert not is_same_multiset([["a"]], [["a"]], types), "a column too few"
    assert is_within([two], [one, two], types)
    assert not is_within([two, two], [one, two], types)


def test_schemas() -> None:
    columns = columns_of(
        "`a` STRUCT<`X` INTEGER, `Y` DECIMAL(4, 2)> KEY, b INT, H BYTES HEADER('b')"
    )
    assert [str(column.type) for column in columns] == [
        "STRUCT<`X` INTEGER, `Y` DECIMAL(4, 2)>",
        "INTEGER",
        "BYTES",
    ]
    assert [column.name for column in columns] == ["a", "B", "H"]
    assert [column.is_key for column in columns] == [True, False, False]
