"""Which literals are cut out of a body, and which rows C shows: all as Python would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_statements_fuzz import (
    CELLS,
    COLUMNS,
    PIECES,
    statement_alike,
    template_of,
    text_shown_alike,
)
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.query.statement_lookup import cut_all, places_in, program_of

BODIES = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=10).map(b"".join)


@needs_it
@given(BODIES, BODIES)
def test_literals_are_cut_out_alike(body: bytes, other: bytes) -> None:
    statement_alike(body, other)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("body", "literals"),
    [
        (b"\"K = 'a' AND N > 5\"", [b"a", b"5"]),
        (b"\"(5,'')\"", [b"5", b""]),
        (b'"N=-5 "', [b"5"]),
        (b'" 9223372036854775807"', [b"9223372036854775807"]),
        (b'" 9223372036854775808"', []),
        (b'"N > 5', None),
        (b"N > 5", []),
        (b'{"a": 5}', []),
        (b'{"a": "5"}', []),
        (b'" x5 5x 1.5 5. .5 1e3 @5 5@ $5 _5 \xc3\xa95 007 -0 "', []),
        (b'" 0 00 "', [b"0"]),
        (b"\" 'it''s' \"", None),
        (b'" \' "', None),
        (b'"\\u0035 5"', None),
        (b'"a\n 5"', None),
        (b'"' + b" 5" * 16 + b'"', [b"5"] * 16),
        (b'"' + b" 5" * 17 + b'"', None),
    ],
)
def test_which_literals_are_cut_out(
    body: bytes, literals: list[bytes] | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    places = places_in(body)
    found = None if places is None else [body[each.begin : each.end] for each in places]
    assert found == literals
    cut = cut_all(b"m", body)
    assert (cut is None) is (not literals)
    if cut is not None and literals:
        assert len(cut) == 1 + len(body) - sum(map(len, literals)) + len(literals)


@needs_it
@given(
    st.sampled_from(COLUMNS),
    st.sampled_from(["", "N > 3", "S <> 'a' AND N <= -3", "N BETWEEN 1 AND 9 AND S >= 'a'"]),
    st.tuples(*(st.sampled_from(each) for each in CELLS)),
    st.sampled_from([b"3", b"0", b"17", b"999999999999999999"]),
    st.sampled_from([b"a", b"", b"b", b"zz"]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_rows_are_shown_alike(
    shown: str,
    condition: str,
    cells: tuple[bytes, ...],
    number: bytes,
    text: bytes,
    added: int,
    own: int,
) -> None:
    """Also where columns were added to the table, and the row has some of them."""
    text_shown_alike(shown, condition, cells, number, text, own=min(own, added), added=added)


@needs_it
def test_a_row_with_fewer_columns_is_shown_in_c() -> None:
    usual = tuple(each[0] for each in CELLS)
    for own in range(3):
        assert text_shown_alike("*", "", usual, b"", b"", own=own, added=2)
        assert text_shown_alike("S, B, N", "N > 3", usual, b"0", b"", own=own, added=2)


@needs_it
@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_each_comparison(sign: str) -> None:
    """Of values that are less, equal and greater, one of them because it is longer."""
    usual = tuple(each[0] for each in CELLS)
    for cell in (b"4", b"5", b"6", b"-5", b"50", b"null"):
        for condition in (f"N {sign} 5", f"N {sign} -5", f"5 {sign} N"):
            assert text_shown_alike("ID", condition, (cell, *usual[1:]), b"5", b"")
    for cell in (b'"a"', b'"b"', b'"bb"', b'"c"', b'""', b'"\xc3\xa9"', b"null"):
        for condition in (f"S {sign} 'b'", f"'b' {sign} S"):
            assert text_shown_alike("ID", condition, (usual[0], cell, *usual[2:]), b"", b"b")


@pytest.mark.parametrize(
    ("shown", "condition", "has_program", "why"),
    [
        ("B, S, N, ID", "N > 3", True, "usual columns"),
        ("D", "", True, "any cell is shown as it is where none is decoded"),
        ("D", "N > 3", False, "a DOUBLE is decoded"),
        ("N", "D > 3", False, "compared as DOUBLE"),
        ("N", "(N > 3 OR S = 'a')", False, "no AND"),
        ("N", "N > 3 AND NOT (S = 'a')", False, "no comparison"),
        ("N", "N > 3 AND B", False, "a condition without a literal"),
        ("N + 1", "N > 3", False, "computed"),
        ("N", "ID <> 'a'", False, "of the key"),
    ],
)
def test_which_statements_have_a_program(
    shown: str, condition: str, has_program: bool, why: str
) -> None:
    assert (program_of(template_of(shown, condition)) is not None) is has_program, why
