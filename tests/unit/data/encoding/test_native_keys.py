"""Keys and rows of a lookup: what is compiled says what Python says, or nothing."""

from __future__ import annotations

import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_keys_fuzz import (
    KINDS,
    TABLES,
    partitioned_alike,
    spliced_alike,
)
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import literal_lookup
from standpipe.sql.declarations.added_columns import ADDED_MAX

INTEGERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1, 0, -1])
LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1])
TEXTS = st.text(alphabet='abN01é€💧\0"\\\n\x7f \ud800', max_size=20)
VALUES = {"STRING": TEXTS, "BIGINT": INTEGERS | LONGS, "INTEGER": INTEGERS}
LISTS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda type_: st.tuples(st.just(type_), st.lists(VALUES[type_], max_size=12))
)


@needs_it
@given(LISTS, st.integers(1, 1000))
def test_keys_have_the_partitions_that_python_gives_them(
    asked: tuple[str, list[object]], count: int
) -> None:
    type_, values = asked
    unusual = {"\0", "\ud800"} & set("".join(map(str, values)))
    assert partitioned_alike(type_, values, count) is not bool(unusual)


@needs_it
@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        ("STRING", "a\0b", "escaped in the store"),
        ("STRING", "x" * 502, "shortened"),
        ("STRING", "é" * 251, "in bytes"),
        ("STRING", "\ud800", "half a character"),
        ("STRING", 7, "another type"),
        ("STRING", None, "a null key"),
        ("BIGINT", 2**63, "beyond"),
        ("BIGINT", -(2**63) - 1, "beyond"),
        ("BIGINT", True, "another type"),
        ("BIGINT", "7", "another type"),
        ("INTEGER", 2**31, "beyond"),
        ("INTEGER", -(2**31) - 1, "beyond"),
    ],
)
def test_an_unusual_key_sends_all_the_other_way(type_: str, value: object, why: str) -> None:
    usual: object = "a" if type_ == "STRING" else 1
    kind = KINDS[type_]
    assert native.keys_by_partition(((usual,), (usual,)), kind, 4) is not None
    assert native.keys_by_partition(((usual,), (value,), (usual,)), kind, 4) is None, why


@needs_it
@pytest.mark.parametrize(("length", "is_usual"), [(501, True), (502, False)])
def test_the_longest_key(length: int, is_usual: bool) -> None:
    assert (native.keys_by_partition((("x" * length,),), 0, 4) is not None) is is_usual


@needs_it
@pytest.mark.parametrize("key", [("a", "b"), (), ["a"], "a", None])
def test_a_key_of_several_columns_is_unusual(key: object) -> None:
    assert native.keys_by_partition((("a",), key), 0, 4) is None  # type: ignore[arg-type]


@needs_it
@pytest.mark.parametrize(("kind", "partitions"), [(-1, 4), (3, 4), (0, 0), (0, -1), (0, 2**31)])
def test_a_call_that_makes_no_sense_is_an_error(kind: int, partitions: int) -> None:
    with pytest.raises(ValueError, match="kind"):
        native.keys_by_partition((), kind, partitions)


@needs_it
@given(
    LISTS,
    st.lists(st.none() | st.binary(max_size=20), max_size=12),
    st.integers(0, 127),
    st.integers(0, 127),
)
def test_rows_are_spliced_as_python_does(
    asked: tuple[str, list[object]], columns: list[bytes | None], own: int, added: int
) -> None:
    """Also where rows lack columns that were added to the table."""
    arrays = [None if each is None else b"[%b]" % each for each in columns]
    spliced_alike(*asked, arrays, min(own, added), added)


@needs_it
@pytest.mark.parametrize(
    ("columns", "own", "added", "row"),
    [
        (b"[1]", 0, 1, b'["a",1,null]'),
        (b"[1]", 0, 2, b'["a",1,null,null]'),
        (b"[1,2]", 1, 2, b'["a",1,2,null]'),
        (b"[1,2]", 1, 1, b'["a",1,2]'),
        (b"[1,2]", 1, 0, None),
        (b"[]", 0, 1, None),
    ],
)
def test_a_row_of_a_table_that_got_columns(
    columns: bytes, own: int, added: int, row: bytes | None
) -> None:
    key = store_key(("a",), ("STRING",))
    found = native.spliced([key], [pack_row(columns, 5, b"", own)], 0, added)
    assert found == (None if row is None else [row])


@needs_it
@pytest.mark.parametrize("added", [-1, ADDED_MAX + 1])
def test_how_many_columns_can_be_added(added: int) -> None:
    around = literal_lookup.Around(b"", b"", b"", 0, is_text=True)
    for call in (
        lambda: native.spliced([], [], 0, added),
        lambda: native.response(around, b"a\0\1", pack_row(b"[1]", 5), added),
    ):
        with pytest.raises(ValueError, match="added: 0 to 127"):
            call()


@needs_it
@pytest.mark.parametrize(
    ("key", "columns", "row"),
    [
        ("a", b"[1]", b'["a",1]'),
        ("", b'["",null]', b'["","",null]'),
        ("é€💧\x7f\u2028", b"[1]", '["é€💧\x7f\u2028",1]'.encode()),
        ("a", b"[]", b'["a"]'),
        ('q"', b"[1]", None),
        ("q\\", b"[1]", None),
        ("q\n", b"[1]", None),
        ("a", b"", None),
        ("a", b"[", None),
        ("a", b"{}", None),
    ],
)
def test_a_row(key: str, columns: bytes, row: bytes | None) -> None:
    stored = store_key((key,), ("STRING",))
    found = native.spliced([stored, stored], [None, pack_row(columns, 5)], 0)
    assert found == (None if row is None else [row])
    if row is not None:
        assert msgspec.json.decode(row)[0] == key


@needs_it
@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row[:-1],
        lambda row: row + b" ",
        lambda row: row[:-2] + b"9]",
        lambda row: b"\0" + row[1:],
        lambda row: row[:12],
        lambda row: row[:4],
        lambda row: b"",
        bytearray,
    ],
)
def test_a_damaged_row_is_left_to_python(spoil) -> None:
    key, row = store_key(("a",), ("STRING",)), pack_row(b"[1]", 5)
    assert native.spliced([key], [row], 0) == [b'["a",1]']
    assert native.spliced([key], [spoil(row)], 0) is None


@needs_it
@pytest.mark.parametrize("flipped", range(13 * 8))
def test_each_bit_of_a_rows_head_counts(flipped: int) -> None:
    row = bytearray(pack_row(b"[1]", 5))
    row[flipped // 8] ^= 1 << flipped % 8
    assert native.spliced([store_key((1,), ("BIGINT",))], [bytes(row)], 1) is None


@needs_it
def test_a_row_with_its_full_key_is_left_to_python() -> None:
    key = store_key(("a",), ("STRING",))
    assert native.spliced([key], [pack_row(b"[1]", 5, b"a" * 600)], 0) is None


@needs_it
@pytest.mark.parametrize(
    ("key", "kind"), [(b"a", 0), (b"", 0), (b"\0\1x", 0), (bytes(7), 1), (bytes(9), 1)]
)
def test_an_odd_store_key_is_left_to_python(key: bytes, kind: int) -> None:
    assert native.spliced([key], [pack_row(b"[1]", 5)], kind) is None


@needs_it
def test_of_each_key_a_row_or_none() -> None:
    assert native.spliced([], [], 0) == []
    assert native.spliced([b"a\0\1"], [], 0) is None


@needs_it
def test_a_key_is_held_once_more_and_let_go() -> None:
    key = ("a" * 3,)
    before = sys.getrefcount(key)
    found = native.keys_by_partition((key, key), 0, 1)
    assert sys.getrefcount(key) == before + 2
    del found
    assert native.keys_by_partition((key, ("\0",)), 0, 1) is None
    assert sys.getrefcount(key) == before


def test_which_tables_have_usual_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TABLES["STRING"]
    (key, *others) = text.columns
    replace = msgspec.structs.replace
    two = replace(text, columns=(key, replace(key, name="K2"), *others))
    assert native.kind_of(two) is None
    assert native.kind_of(replace(text, key_format="JSON")) is None
    dates = replace(text, columns=(replace(key, type="DATE"), *others))
    assert native.kind_of(dates) is None
    if native.IS_COMPILED:
        assert {type_: native.kind_of(table) for type_, table in TABLES.items()} == KINDS
    monkeypatch.setattr(native, "_native", None)
    assert native.kind_of(text) is None
    assert native.keys_by_partition((("a",),), 0, 1) is None
    assert native.spliced([b"a\0\1"], [None], 0) is None
