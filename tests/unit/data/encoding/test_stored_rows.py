"""Rows of a store: what was packed comes back, or is known to be damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.encoding import stored_rows
from standpipe.sql.declarations.added_columns import ADDED_MAX


@given(
    st.binary(max_size=40),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=20),
    st.integers(0, ADDED_MAX),
)
def test_rows_round_trip(value: bytes, rowtime_ms: int, full_key: bytes, added: int) -> None:
    data = stored_rows.pack_row(value, rowtime_ms, full_key, added)
    row = stored_rows.StoredRow(value, rowtime_ms, full_key, added)
    assert stored_rows.unpack_row(data) == row
    assert stored_rows.bare_value(data) == (None if full_key or added else value)


def test_no_row_has_more_columns_than_fit() -> None:
    with pytest.raises(IndexError):
        stored_rows.pack_row(b"[1]", 5, b"", ADDED_MAX + 1)


@pytest.mark.parametrize(
    ("array", "own", "known", "shown", "why"),
    [
        (b"[1,2]", 1, 1, b"[1,2]", "as many as there are"),
        (b"[1]", 0, 1, b"[1,null]", "written before the second one was added"),
        (b"[1,2]", 1, 3, b"[1,2,null,null]", "and two more"),
        (b"[]", 0, 1, b"[null]", ""),
        (b'[1,[2,{"a":3}],"x"]', 2, 1, b'[1,[2,{"a":3}]]', "the reader has not heard of the third"),
        (b'[1,"]",[2]]', 2, 0, b"[1]", ""),
    ],
)
def test_a_reader_sees_the_columns_that_it_knows(
    array: bytes, own: int, known: int, shown: bytes, why: str
) -> None:
    row = stored_rows.StoredRow(array, 5, b"", own)
    assert stored_rows.fitted(row, known) == shown, why


def test_every_flipped_bit_of_a_row_is_noticed() -> None:
    data = stored_rows.pack_row(b'["a",1]', 5, b"key")
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(stored_rows.DamagedRow):
            stored_rows.unpack_row(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(stored_rows.DamagedRow):
            stored_rows.unpack_row(data[:length])


def test_no_damaged_row_is_bare() -> None:
    data = stored_rows.pack_row(b'["a",1]', 5)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(stored_rows.DamagedRow):
            stored_rows.bare_value(bytes(damaged)) or stored_rows.unpack_row(bytes(damaged))


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(min_size=8, max_size=8)), max_size=5))
def test_many_are_packed_as_one_is(given_rows: list[tuple[bytes, bytes]]) -> None:
    values, rowtimes = [value for value, _ in given_rows], [rowtime for _, rowtime in given_rows]
    one_by_one = [stored_rows.pack_row_at(value, rowtime) for value, rowtime in given_rows]
    assert stored_rows.pack_rows_at(values, rowtimes) == one_by_one


@pytest.mark.parametrize("rowtimes", [[bytes(8), bytes(7)], [bytes(8)], [b""]])
def test_what_is_no_rowtime_is_refused(rowtimes: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"8 bytes|longer"):
        stored_rows.pack_rows_at([b"[1]", b"[2]"], rowtimes)
