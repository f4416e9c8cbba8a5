"""A lookup by one literal, from body to response: C and Python make the same bytes of it."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_keys_fuzz import (
    KINDS,
    cut_alike,
    known_alike,
    response_alike,
)
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import literal_lookup

OF_TEXTS = [b"'", b"'", b"a", b"N1", b" ", b'"', b"\\", b"\0", b"\x1f", b"\x7f", b"\x80"]
OF_NUMBERS = [b"=", b"=", b" ", b"-", b"+", b"0", b"7", b"12", b".5", b"e3", b"9" * 18, b"N", b";"]
BODIES = st.lists(
    st.sampled_from(OF_TEXTS) | st.sampled_from(OF_NUMBERS) | st.binary(max_size=3),
    max_size=9,
).map(b"".join)
KEY = store_key(("a",), ("STRING",))


@needs_it
@given(BODIES)
def test_a_literal_is_cut_out_alike(body: bytes) -> None:
    cut_alike(body)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b"K = 'a';", b"a\0\1"),
        (b"''", b"\0\1"),
        (b"'a'", b"a\0\1"),
        (b"'" + b"x" * 501 + b"'", b"x" * 501 + b"\0\1"),
        (b"'" + b"x" * 502 + b"'", None),
        (b"'\x7f ~'", b"\x7f ~\0\1"),
        (b"", None),
        (b"'", None),
        (b"'a", None),
        (b"a'", None),
        (b"'it''s'", None),
        (b"'a' 'b'", None),
        (b"'a''", None),
        (b"'\\u0061'", None),
        (b"'a\"'", None),
        (b"'\x1f'", None),
        (b"'\0'", None),
        (b"'\xc3\xa9'", None),
    ],
)
def test_which_texts_are_plain(
    body: bytes, key: bytes | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    found = literal_lookup.cut(b"m", body)
    text = None if key is None else key.removesuffix(b"\0\1")
    assert found == (None if text is None else b"m" + body.replace(b"'%b'" % text, b"''"))


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b"K = 42;", b"42"),
        (b"K=42", b"42"),
        (b"K =   42;", b"42"),
        (b"K = -42;", b"42"),
        (b"K = 0;", b"0"),
        (b"A = 1 AND K = 42;", b"42"),
        (b"K = 42 LIMIT 1", b"42"),
        (b"K = 9223372036854775807;", b"9223372036854775807"),
        (b"K = 9999999999999999999;", b"9999999999999999999"),
        (b"K = 10000000000000000000;", None),
        (b"K = 042;", None),
        (b"K = 00;", None),
        (b"K = -0;", None),
        (b"K = -01;", None),
        (b"K = +42;", None),
        (b"K = - 42;", None),
        (b"K = --42;", None),
        (b"K = 42-;", None),
        (b"K =42 -;", None),
        (b"K = 42 - 1;", None),
        (b"K = -42-;", None),
        (b"K = 42 ;-", b"42"),
        (b"K = \t42;", None),
        (b"K = .5;", None),
        (b"K = x42;", None),
        (b"K = (42);", None),
        (b"K = '42", None),
        (b"K = 42 AND A = 'it''s'", None),
        (b"K = 42 AND A = B", None),
        (b"K IN (42)", None),
        (b"=", None),
        (b"= -", None),
        (b"=7", b"7"),
    ],
)
def test_which_numbers_are_usual(
    body: bytes, number: bytes | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    expected = None if number is None else b"m" + b"".join(body.rsplit(number, 1))
    assert literal_lookup.cut(b"m", body) == expected


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_frame_has_one_place_for_its_number(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies of one frame with one literal are equal but for spaces, which mean nothing there."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    met = dict[tuple[bytes, bytes], bytes]()
    for pieces in product([b"=", b" ", b"-", b"7", b";", b""], repeat=6):
        body = b"".join(pieces)
        place, frame = literal_lookup.place_in(body), literal_lookup.cut(b"", body)
        assert (place is None) is (frame is None)
        if place is not None and frame is not None:
            shown = body.replace(b" ", b"")
            assert met.setdefault((frame, body[place.begin : place.end]), shown) == shown, body
    assert len(met) > 100


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("type_", "literal", "number"),
    [
        ("INTEGER", b"= 2147483647;", 2**31 - 1),
        ("INTEGER", b"= -2147483647;", 1 - 2**31),
        ("INTEGER", b"= 2147483648;", None),
        ("INTEGER", b"= -2147483648;", None),
        ("BIGINT", b"= -2147483648;", -(2**31)),
        ("BIGINT", b"= 9223372036854775807;", 2**63 - 1),
        ("BIGINT", b"= -9223372036854775807;", 1 - 2**63),
        ("BIGINT", b"= 9223372036854775808;", None),
        ("BIGINT", b"= -9223372036854775808;", None),
        ("BIGINT", b"= 9999999999999999999;", None),
        ("STRING", b"= 7;", None),
        ("BIGINT", b"= '7';", None),
    ],
)
def test_what_a_column_holds(
    type_: str,
    literal: bytes,
    number: int | None,
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it does not hold is left to others, the two smallest numbers, too."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    frame, kind = literal_lookup.cut(b"", literal), literal_lookup.KINDS[type_]
    assert frame is not None
    known = {frame: literal_lookup.KnownLiteral(0, kind, 1, "meaning")}
    stored = None if number is None else store_key((number,), (type_,))
    expected = None if stored is None else ("meaning", 0, stored)
    assert literal_lookup.known_literal(known, b"", literal) == expected


@needs_it
@given(BODIES, BODIES, st.integers(1, 9), st.sampled_from(sorted(KINDS)))
def test_a_message_is_known_alike(
    learnt: bytes, message: bytes, partitions: int, kind: str
) -> None:
    known_alike(learnt, message, partitions, kind)
    place = literal_lookup.place_in(learnt)
    is_of_kind = place is not None and place.is_text is (kind == "STRING")
    if place and not place.is_text:  # it may be too large for its column
        is_of_kind &= int(learnt[place.begin : place.end]) < 2 ** (31 if kind == "INTEGER" else 63)
    assert known_alike(learnt, learnt, partitions, kind) is is_of_kind


@needs_it
@given(
    st.integers(-(2**63), 2**63 - 1) | st.integers(-99, 99),
    st.integers(1, 9),
    st.sampled_from(["INTEGER", "BIGINT"]),
)
def test_a_number_is_known_alike(number: int, partitions: int, kind: str) -> None:
    message = b"K = %d;" % number
    is_held = -(limit := 2 ** (31 if kind == "INTEGER" else 63)) < number < limit
    assert known_alike(message, message, partitions, kind) is is_held
    other = b"K = %d;" % -number
    assert not known_alike(other, message, partitions, kind) or not number, "the sign is kept"


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("message", "key"),
    [
        (b"K = 'a';", b"a\0\1"),
        (b"K = 'b';", b"b\0\1"),
        (b"K = 'ab';", None),
        (b"K = '';", None),
        (b"K = 'a'; ", None),
        (b"K : 'a';", None),
        (b"K = '\\';", None),
        (b"", None),
    ],
)
def test_which_messages_are_known(
    message: bytes, key: bytes | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    known = {b"K = '';": literal_lookup.KnownLiteral(8, 0, 1, "meaning")}
    expected = None if key is None else ("meaning", 0, key)
    assert literal_lookup.known_literal(known, b"", message) == expected


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(("more", "is_known"), [(0, True), (1, False)])
def test_a_long_message_is_not_known(
    more: int, is_known: bool, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    frame = b"''" + b"x" * (literal_lookup.MESSAGE_BYTES_MAX - 3 + more)
    known = {frame: literal_lookup.KnownLiteral(len(frame) + 1, 0, 1, "meaning")}
    found = literal_lookup.known_literal(known, b"", b"'a" + frame[1:])
    assert (found is not None) is is_known


@needs_it
@given(st.text(alphabet="aN1 ~\x7f", max_size=9), st.binary(max_size=20))
def test_a_response_is_made_alike(key: str, cells: bytes) -> None:
    """Its row may be of one column, or none."""
    stored = pack_row(b"[%b]" % cells, 5)
    assert response_alike(store_key((key,), ("STRING",)), stored)
    assert not response_alike(store_key((key,), ("STRING",)), stored[:-1])


@needs_it
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-99, 99), st.binary(max_size=20))
def test_a_response_with_a_number_is_made_alike(key: int, cells: bytes) -> None:
    stored, in_store = pack_row(b"[%b]" % cells, 5), store_key((key,), ("BIGINT",))
    assert response_alike(in_store, stored, "BIGINT")
    assert not response_alike(in_store, stored[:-1], "BIGINT")


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("columns", "body"),
    [(b"[1]", b'{["a",1]}'), (b'["",{}]', b'{["a","",{}]}'), (b"[]", b'{["a"]}')],
)
def test_a_response(
    columns: bytes, body: bytes, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    around = literal_lookup.Around(b"n: ", b"\r\n{", b"}", 2, is_text=True)
    made = literal_lookup.response(around, KEY, pack_row(columns, 5))
    assert made == b"n: %d\r\n%b" % (len(body), body)
    damaged = pack_row(columns, 5)[:-1] + b"!"
    with pytest.raises(DamagedRow):
        literal_lookup.response(around, KEY, damaged)
    by_number = literal_lookup.Around(b"n: ", b"\r\n{", b"}", 2, is_text=False)
    made = literal_lookup.response(by_number, store_key((-7,), ("INTEGER",)), pack_row(columns, 5))
    of_number = body.replace(b'"a"', b"-7")
    assert made == b"n: %d\r\n%b" % (len(of_number), of_number)
    full = pack_row(columns, 5, b"a" * 600)
    assert literal_lookup.response(around, KEY, full) is None


@needs_it
@pytest.mark.parametrize("odd", [(), (b"",), (b"", b"", b""), ("", b""), (b"", bytearray(b"'a'"))])
def test_what_is_no_body_is_an_error(odd: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        native._native.cut(*odd)  # type: ignore[union-attr,arg-type]


@needs_it
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (((b"", b"", b"", 0, True), KEY), TypeError),
        (((b"", b"", b"", 0), KEY, b""), TypeError),
        (([b"", b"", b"", 0, True], KEY, b""), TypeError),
        (((b"", b"", b"", b"", True), KEY, b""), TypeError),
        (((b"", b"", "", 0, True), KEY, b""), TypeError),
        (((b"", b"", b"", True, True), KEY, b""), TypeError),
        (((b"", b"", b"", 0, 1), KEY, b""), TypeError),
        (((b"", b"", b"", 0, True), KEY, None), TypeError),
        (((b"", b"", b"", -1, True), KEY, b""), ValueError),
        (((b"", b"", b"", 2**64, True), KEY, b""), OverflowError),
    ],
)
def test_what_is_no_response_is_an_error(odd: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native._native.response(*odd)  # type: ignore[union-attr,arg-type]


@needs_it
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (({}, b""), TypeError),
        (({}, b"", "'a'"), TypeError),
        (({}, "", b"'a'"), TypeError),
        (([], b"", b"'a'"), TypeError),
        (({b"''": "no"}, b"", b"'a'"), TypeError),
        (({b"''": (3, 0, 1, None)}, b"", b"'a'"), TypeError),
        (({b"''": (3, 0, 1, None, [])}, b"", b"'a'"), TypeError),
        (({b"''": ("3", 0, 1, None, None)}, b"", b"'a'"), TypeError),
        (({b"''": (3, "0", 1, None, None)}, b"", b"'a'"), TypeError),
        (({b"''": (3, 0, "1", None, None)}, b"", b"'a'"), TypeError),
        (({b"''": (3, 0, 0, None, None)}, b"", b"'a'"), ValueError),
        (({b"''": (3, -1, 1, None, None)}, b"", b"'a'"), ValueError),
        (({b"''": (3, 3, 1, None, None)}, b"", b"'a'"), ValueError),
        (({b"''": (2**64, 0, 1, None, None)}, b"", b"'a'"), OverflowError),
        (({b"''": (3, 2**64, 1, None, None)}, b"", b"'a'"), OverflowError),
        (({b"''": (3, 0, 2**64, None, None)}, b"", b"'a'"), OverflowError),
    ],
)
def test_what_is_nothing_known_is_an_error(odd: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native._native.known_literal(*odd)  # type: ignore[union-attr]


@needs_it
def test_nothing_is_held() -> None:
    body, stored, big = b"K = 'a'", pack_row(b"[1]", 5), 10**6
    meaning = ["meaning"]
    known: dict[bytes, Any] = {b"K = ''": (7, 0, 4, meaning, {}), b"M = ": (0, 1, 4, meaning, None)}
    known[b"N = "] = None
    before = [sys.getrefcount(each) for each in (body, stored, KEY, big, meaning)]
    for _ in range(9):
        native.cut(body, body)
        assert native.known_literal(known, b"", body)
        assert native.known_literal(known, b"", b"M = 7")
        assert native.known_literal(known, b"", b"M = " + b"9" * 19) is None
        assert native.known_literal(known, b"", b"N = 7") is None
        assert native.known_literal(known, b"", body + b" ") is None
        native.response((body, body, body, big, True), KEY, stored)
        native.response((body, body, body, big, False), KEY, stored)
        native.response((body, body, body, big, True), KEY, stored[:-1])
    assert [sys.getrefcount(each) for each in (body, stored, KEY, big, meaning)] == before


class DropsWhatIsKnown:
    """Its __index__ ran while C read the entry that it is in."""

    def __init__(self, known: dict[bytes, Any]) -> None:
        self._known = known

    def __index__(self) -> int:
        self._known.clear()
        return 1


@needs_it
@pytest.mark.parametrize(
    ("name", "entry", "body"),
    [
        ("known_literal", (0, 0, 1, "its meaning", None), b"'a'"),
        ("known_statement", (0, 0, 1, 0, False, "its meaning"), b"\"'a'\""),
        ("known_list", (1, "its meaning"), b"'a','b'"),
    ],
)
def test_no_number_of_an_entry_runs_python(name: str, entry: tuple[Any, ...], body: bytes) -> None:
    function = native.compiled(name)
    cut_by = {"known_literal": "cut", "known_statement": "cut_all", "known_list": "cut_list"}
    cut = native.compiled(cut_by[name])
    assert function is not None
    assert cut is not None
    assert function({cut(b"", body): entry}, b"", body) is not None
    for place, number in enumerate(entry):
        if type(number) not in (int, bool):
            continue
        known: dict[bytes, Any] = {}
        odd = (*entry[:place], DropsWhatIsKnown(known), *entry[place + 1 :])
        known[cut(b"", body)] = odd
        with pytest.raises(TypeError):
            function(known, b"", body)
        assert known, place
