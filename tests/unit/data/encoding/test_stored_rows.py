"""Rows of a store: what was packed comes back, or is known to be damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.encoding import stored_rows


@given(st.binary(max_size=40), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20))
def test_rows_round_trip(value: bytes, rowtime_ms: int, full_key: bytes) -> None:
    data = stored_rows.pack_row(value, rowtime_ms, full_key)
    assert stored_rows.unpack_row(data) == stored_rows.StoredRow(value, rowtime_ms, full_key)


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


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(min_size=8, max_size=8)), max_size=5))
def test_many_are_packed_as_one_is(given_rows: list[tuple[bytes, bytes]]) -> None:
    values, rowtimes = [value for value, _ in given_rows], [rowtime for _, rowtime in given_rows]
    one_by_one = [stored_rows.pack_row_at(value, rowtime) for value, rowtime in given_rows]
    assert stored_rows.pack_rows_at(values, rowtimes) == one_by_one


@pytest.mark.parametrize("rowtimes", [[bytes(8), bytes(7)], [bytes(8)], [b""]])
def test_what_is_no_rowtime_is_refused(rowtimes: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"8 bytes|longer"):
        stored_rows.pack_rows_at([b"[1]", b"[2]"], rowtimes)
