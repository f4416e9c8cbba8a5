"""Which columns a format can carry; the messages are in tests/sql/create_source.sql."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.model import Column
from standpipe.sql.declarations.formats import check_columns, schema_text, wraps


def columns(*types: str) -> list[Column]:
    return [Column(name=f"C{index}", type=of) for index, of in enumerate(types)]


@pytest.mark.parametrize(
    ("name", "types", "can"),
    [
        ("JSON", ["ARRAY<STRUCT<`A` INTEGER>>", "MAP<STRING, INTEGER>"], True),
        ("JSON", ["ARRAY<MAP<INTEGER, INTEGER>>"], False),
        ("KAFKA", ["BYTES"], True),
        ("KAFKA", ["BOOLEAN"], False),
        ("KAFKA", ["INTEGER", "INTEGER"], False),
        ("KAFKA", [], True),
        ("DELIMITED", ["DECIMAL(4, 2)", "DATE"], True),
        ("DELIMITED", ["MAP<STRING, INTEGER>"], False),
        ("NONE", [], True),
        ("NONE", ["INTEGER"], False),
    ],
)
def test_values(name: str, types: list[str], can: bool) -> None:
    if can:
        check_columns(columns(*types), name, "Value", None)
        return
    with pytest.raises(StatementError):
        check_columns(columns(*types), name, "Value", None)


@pytest.mark.parametrize(
    ("name", "count", "asked", "result"),
    [
        ("JSON", 1, None, True),
        ("JSON", 1, False, False),
        ("JSON", 2, False, None),
        ("DELIMITED", 1, False, False),
        ("DELIMITED", 1, True, None),
        ("KAFKA", 1, True, None),
        ("NONE", 0, False, None),
    ],
)
def test_wrap_single_value(name: str, count: int, asked: bool | None, result: bool | None) -> None:
    given = columns(*["INTEGER"] * count)
    if result is None:
        with pytest.raises(StatementError):
            wraps(name, given, asked, None)
        return
    assert wraps(name, given, asked, None) is result


def test_schema_text() -> None:
    key = Column(name="a`b", type="INTEGER", is_key=True)
    assert schema_text([key, *columns("STRING")]) == "`a``b` INTEGER KEY, `C0` STRING"
