"""sql/expressions/coercion.py: what brings the items of a list to one type."""

from __future__ import annotations

from decimal import Decimal

import pytest

from standpipe.sql.expressions.coercion import Mismatch, NotOfType, coerced, common
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Typed, TypedColumn
from standpipe.sql.types.types import BIGINT, BOOLEAN, INTEGER, NULL, STRING, SqlType


def _text(value: str) -> Constant:
    return Constant(STRING, value)


@pytest.mark.parametrize(
    ("items", "of", "why"),
    [
        ([Constant(INTEGER, 1), Constant(BIGINT, 2)], BIGINT, "numbers widen"),
        ([Constant(NULL, None), TypedColumn(INTEGER, "A")], INTEGER, "NULL is of any type"),
        (
            [TypedColumn(INTEGER, "A"), _text("4.000")],
            INTEGER,
            "a literal is read as the others are",
        ),
        (
            [TypedColumn(BIGINT, "A"), _text("2e1")],
            types.decimal(19, 0),
            "an exponent makes a DECIMAL",
        ),
        ([TypedColumn(STRING, "A"), Constant(INTEGER, 1)], STRING, "beside text a literal is text"),
        *(
            (items, SqlType(base), "text is read beside a time or BYTES, a column's as well")
            for base in ("TIMESTAMP", "DATE", "TIME", "BYTES")
            for items in (
                [TypedColumn(SqlType(base), "A"), TypedColumn(STRING, "B")],
                [TypedColumn(STRING, "A"), TypedColumn(SqlType(base), "B")],
                [_text("…"), TypedColumn(SqlType(base), "B")],
                [_text("…"), Constant(SqlType(base), None)],
            )
        ),
        (
            [TypedColumn(types.array(BIGINT), "A"), TypedColumn(types.array(INTEGER), "B")],
            types.array(BIGINT),
            "inside of collections too",
        ),
        (
            [
                TypedColumn(types.struct((("A", BIGINT),)), "S"),
                TypedColumn(types.struct((("A", INTEGER), ("B", STRING))), "T"),
            ],
            types.struct((("A", BIGINT), ("B", STRING))),
            "structs get the fields of all",
        ),
        (
            [
                TypedColumn(types.struct((("A", INTEGER), ("B", STRING))), "S"),
                TypedColumn(types.struct((("C", STRING), ("A", BIGINT))), "T"),
            ],
            types.struct((("C", STRING), ("A", BIGINT), ("B", STRING))),
            "those of the last one first",
        ),
    ],
)
def test_common(items: list[Typed], of: SqlType, why: str) -> None:
    assert common(items) == of, why


def test_a_column_is_not_read_as_something_else() -> None:
    with pytest.raises(Mismatch) as caught:
        common([TypedColumn(STRING, "A"), Constant(INTEGER, 10), TypedColumn(types.DOUBLE, "B")])
    assert (caught.value.found, caught.value.item) == (STRING, 2)


@pytest.mark.parametrize(
    ("text", "of", "value"),
    [
        ("4.000", INTEGER, 4),
        ("2e1", BIGINT, 20),
        ("tr", BOOLEAN, True),
        ("Y", BOOLEAN, True),
        ("no", BOOLEAN, False),
        ("1.5", types.decimal(4, 2), Decimal("1.50")),
    ],
)
def test_coerced_text(text: str, of: SqlType, value: object) -> None:
    assert coerced(_text(text), of) == Constant(of, value)


def test_a_text_of_gigabytes_of_zeros_is_refused() -> None:
    # its digits were written to find the DECIMAL: one SELECT took the node's memory
    items = [TypedColumn(INTEGER, "A"), _text("1E99999999999999")]
    of = common(items)
    assert of == INTEGER
    with pytest.raises(NotOfType, match='for type INTEGER: "1E99999999999999"'):
        coerced(items[1], of)


@pytest.mark.parametrize("of", [INTEGER, BIGINT, BOOLEAN, types.DOUBLE])
def test_text_that_says_something_else(of: SqlType) -> None:
    with pytest.raises(NotOfType, match=f'invalid input syntax for type {of.base}: "hello"'):
        coerced(_text("hello"), of)
