"""A lookup by one text, from body to response: C and Python make the same bytes of it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_keys_fuzz import cut_alike, known_alike, response_alike
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import text_lookup

BODIES = st.lists(
    st.sampled_from([b"'", b"'", b"a", b"N1", b" ", b'"', b"\\", b"\0", b"\x1f", b"\x7f", b"\x80"])
    | st.binary(max_size=3),
    max_size=9,
).map(b"".join)
KEY = store_key(("a",), ("STRING",))


@needs_it
@given(BODIES)
def test_a_text_is_cut_out_alike(body: bytes) -> None:
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
    found = text_lookup.cut(b"m", body)
    assert (found and found[2]) == key
    if found:
        assert found[0] == b"m" + body.replace((key or b"").removesuffix(b"\0\1"), b"")


@needs_it
@given(BODIES, BODIES, st.integers(1, 9))
def test_a_message_is_known_alike(learnt: bytes, message: bytes, partitions: int) -> None:
    known_alike(learnt, message, partitions)
    is_usable = text_lookup.cut(b"", learnt) is not None
    assert known_alike(learnt, learnt, partitions) is is_usable


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
    known = {b"K = '';": text_lookup.KnownText(8, 1, "meaning")}
    expected = None if key is None else ("meaning", 0, key)
    assert text_lookup.known_text(known, message) == expected


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(("more", "is_known"), [(0, True), (1, False)])
def test_a_long_message_is_not_known(
    more: int, is_known: bool, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    frame = b"''" + b"x" * (text_lookup.MESSAGE_BYTES_MAX - 3 + more)
    known = {frame: text_lookup.KnownText(len(frame) + 1, 1, "meaning")}
    found = text_lookup.known_text(known, b"'a" + frame[1:])
    assert (found is not None) is is_known


@needs_it
@given(st.text(alphabet="aN1 ~\x7f", max_size=9), st.binary(max_size=20))
def test_a_response_is_made_alike(key: str, cells: bytes) -> None:
    stored = pack_row(b"[%b]" % cells, 5)
    assert response_alike(store_key((key,), ("STRING",)), stored)
    assert not response_alike(store_key((key,), ("STRING",)), stored[:-1])


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
    around = text_lookup.Around(b"n: ", b"\r\n{", b"}", 2)
    made = text_lookup.response(around, KEY, pack_row(columns, 5))
    assert made == b"n: %d\r\n%b" % (len(body), body)
    damaged = pack_row(columns, 5)[:-1] + b"!"
    with pytest.raises(DamagedRow):
        text_lookup.response(around, KEY, damaged)
    full = pack_row(columns, 5, b"a" * 600)
    assert text_lookup.response(around, KEY, full) is None


@needs_it
@pytest.mark.parametrize("odd", [(), (b"",), (b"", b"", b""), ("", b""), (b"", bytearray(b"'a'"))])
def test_what_is_no_body_is_an_error(odd: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        native._native.cut(*odd)  # type: ignore[union-attr,arg-type]


@needs_it
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (((b"", b"", b"", 0), KEY), TypeError),
        (((b"", b"", b""), KEY, b""), TypeError),
        (([b"", b"", b"", 0], KEY, b""), TypeError),
        (((b"", b"", b"", b""), KEY, b""), TypeError),
        (((b"", b"", "", 0), KEY, b""), TypeError),
        (((b"", b"", b"", True), KEY, b""), TypeError),
        (((b"", b"", b"", 0), KEY, None), TypeError),
        (((b"", b"", b"", -1), KEY, b""), ValueError),
        (((b"", b"", b"", 2**64), KEY, b""), OverflowError),
    ],
)
def test_what_is_no_response_is_an_error(odd: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native._native.response(*odd)  # type: ignore[union-attr,arg-type]


@needs_it
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (({},), TypeError),
        (({}, "'a'"), TypeError),
        (([], b"'a'"), TypeError),
        (({b"''": None}, b"'a'"), TypeError),
        (({b"''": (3, 1)}, b"'a'"), TypeError),
        (({b"''": ("3", 1, None)}, b"'a'"), TypeError),
        (({b"''": (3, 0, None)}, b"'a'"), ValueError),
        (({b"''": (2**64, 1, None)}, b"'a'"), OverflowError),
        (({b"''": (3, 2**64, None)}, b"'a'"), OverflowError),
    ],
)
def test_what_is_nothing_known_is_an_error(odd: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native._native.known_text(*odd)  # type: ignore[union-attr]


@needs_it
def test_nothing_is_held() -> None:
    body, stored, big = b"K = 'a'", pack_row(b"[1]", 5), 10**6
    meaning = ["meaning"]
    known = {b"K = ''": (7, 4, meaning)}
    before = [sys.getrefcount(each) for each in (body, stored, KEY, big, meaning)]
    for _ in range(9):
        native.cut(body, body)
        assert native.known_text(known, body)
        assert native.known_text(known, body + b" ") is None
        native.response((body, body, body, big), KEY, stored)
        native.response((body, body, body, big), KEY, stored[:-1])
    assert [sys.getrefcount(each) for each in (body, stored, KEY, big, meaning)] == before
