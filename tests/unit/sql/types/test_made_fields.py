"""How much of STRUCTs the bytes of a row allow."""

from __future__ import annotations

import pytest

from standpipe.sql.types.made_fields import (
    FREE_FIELDS,
    JSON_FIELDS_PER_BYTE_MAX,
    MadeFields,
    TooManyFields,
)


@pytest.mark.parametrize(
    ("size_bytes", "per_byte_max", "allowed"),
    [
        (0, JSON_FIELDS_PER_BYTE_MAX, FREE_FIELDS),
        (1000, JSON_FIELDS_PER_BYTE_MAX, FREE_FIELDS + 4000),
        (1000, 16, FREE_FIELDS + 16_000),
    ],
)
def test_made_fields_are_bounded_by_bytes(size_bytes: int, per_byte_max: int, allowed: int) -> None:
    made = MadeFields(size_bytes, per_byte_max)
    made.make(allowed - 1)
    made.make(1)
    with pytest.raises(TooManyFields, match="more fields than its bytes allow"):
        made.make(1)


@pytest.mark.parametrize(
    ("names", "counted", "why"),
    [
        (("A", "B"), 2, "short names cost no more"),
        (("A" * 16, "B" * 15), 3, "31 characters"),
        (("A" * 32_000,), 2001, "a name as long as a type may be"),
    ],
)
def test_made_fields_count_with_their_names(names: tuple[str, ...], counted: int, why: str) -> None:
    made = MadeFields(0)
    made.make(FREE_FIELDS - counted)
    made.make_named(names)
    with pytest.raises(TooManyFields):
        made.make(1)
    assert why
