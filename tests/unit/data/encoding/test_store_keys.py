"""Bytes of changelog and store: murmur2 against Kafka's own class, orders, rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.data.rows import key_columns

from standpipe.data.encoding import store_keys
from standpipe.data.encoding.store_keys import UnfitKey
from standpipe.model import BatchId, Commit, LeaseEpoch

GOLDEN = json.loads((Path(__file__).parent / "golden_murmur2.json").read_text())["values"]


def test_murmur2_is_kafkas() -> None:
    for text, expected, of_4, of_7 in GOLDEN:
        data = bytes.fromhex(text)
        assert store_keys.murmur2(data) == expected, text
        assert store_keys.partition_of(data, 4) == of_4, text
        assert store_keys.partition_of(data, 7) == of_7, text
    assert len(GOLDEN) > 250


def test_commit_header_is_three_big_endian_longs() -> None:
    commit = Commit(lease_epoch=LeaseEpoch(2), batch=BatchId(3), attempt=2**64 - 1)
    data = store_keys.commit_header(commit)
    assert data == b"\0" * 7 + b"\2" + b"\0" * 7 + b"\3" + b"\xff" * 8
    assert store_keys.parse_commit_header(data) == commit


@pytest.mark.parametrize("data", [b"", b"\0" * 23, b"\0" * 25])
def test_a_header_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not 24"):
        store_keys.parse_commit_header(data)
    with pytest.raises(ValueError, match="not 8"):
        store_keys.parse_rowtime_header(data)


@pytest.mark.parametrize("rowtime_ms", [0, 1, -1, 1_357_000_000_000])
def test_rowtime_header(rowtime_ms: int) -> None:
    assert store_keys.parse_rowtime_header(store_keys.rowtime_header(rowtime_ms)) == rowtime_ms


TYPES = ("STRING", "BIGINT", "DOUBLE", "BOOLEAN", "BYTES", "DECIMAL(9, 3)")
VALUES = st.tuples(
    st.text(max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False).map(lambda number: number + 0.0),
    st.booleans(),
    st.binary(max_size=5),
    st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-3)),
)


def sql_order(values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


@given(VALUES, VALUES, st.integers(0, 2**60), st.integers(0, 2**60))
def test_store_keys_sort_as_their_values(
    left: tuple[object, ...], right: tuple[object, ...], left_ms: int, right_ms: int
) -> None:
    keys = [store_keys.store_key(v, TYPES, ms) for v, ms in ((left, left_ms), (right, right_ms))]
    values = [(*sql_order(left), left_ms), (*sql_order(right), right_ms)]
    assert (keys[0] < keys[1]) == (values[0] < values[1])
    assert (keys[0] == keys[1]) == (values[0] == values[1])


@given(VALUES, st.lists(st.integers(0, 2**60), max_size=2).map(tuple))
def test_store_keys_can_be_read_back(
    values: tuple[object, ...], window_ms: tuple[int, ...]
) -> None:
    key = store_keys.store_key(values, TYPES, *window_ms)
    assert store_keys.parse_store_key(key, TYPES, len(window_ms)) == (values, window_ms)
    assert store_keys.window_at_end(key, len(window_ms)) == window_ms


def test_a_prefix_covers_the_windows_of_its_key_only() -> None:
    prefix = store_keys.store_prefix(("a",), ("STRING",))
    assert store_keys.store_key(("a",), ("STRING",), 5).startswith(prefix)
    assert not store_keys.store_key(("a\0",), ("STRING",), 5).startswith(prefix)
    assert not store_keys.store_key(("ab",), ("STRING",), 5).startswith(prefix)


@pytest.mark.parametrize(
    ("length", "shortened", "why"),
    [
        (501, False, "501 + 2 for the end of a string = 503"),
        (502, True, "one more leaves no room for a window's start"),
        (5000, True, ""),
    ],
)
def test_long_keys_are_cut_and_hashed(length: int, shortened: bool, why: str) -> None:
    text = "x" * length
    key = store_keys.store_key((text,), ("STRING",), 7)
    full = store_keys.full_store_key((text,), ("STRING",), 7)
    assert (key != full) == shortened, why
    assert len(key) <= store_keys.KEY_BYTES_MAX
    assert key[-8:] == full[-8:], "the window's start stays in order"
    assert key != store_keys.store_key((text + "y",), ("STRING",), 7)
    convert = store_keys.store_key_from_raw(key_columns("STRING"), "KAFKA", bounds=1)
    assert convert(store_keys.windowed_key(text.encode(), 7)) == (key, full if shortened else b"")
    assert store_keys.parse_store_key(full, ("STRING",), 1) == ((text,), (7,))


def test_a_session_has_its_end_behind_its_start() -> None:
    text = "x" * 494  # and 2 for its end: one more than leaves room for a session
    key = store_keys.store_key((text,), ("STRING",), 7, 9)
    assert len(key) == store_keys.KEY_BYTES_MAX
    assert store_keys.window_at_end(key, 2) == (7, 9)
    assert key.startswith(store_keys.store_prefix((text,), ("STRING",), 2))
    convert = store_keys.store_key_from_raw(key_columns("STRING"), "KAFKA", bounds=2)
    full = store_keys.full_store_key((text,), ("STRING",), 7, 9)
    assert convert(store_keys.session_key(text.encode(), 7, 9)) == (key, full)
    short = store_keys.store_key(("x",), ("STRING",), 7, 9)
    assert convert(store_keys.session_key(b"x", 7, 9)) == (short, b"")


@pytest.mark.parametrize(
    ("types", "values", "key_format"),
    [
        (("STRING",), ("a\0ü",), "KAFKA"),
        (("INTEGER",), (-5,), "KAFKA"),
        (("BIGINT",), (-5,), "KAFKA"),
        (("DOUBLE",), (-5.5,), "KAFKA"),
        (("STRING",), ("a",), "JSON"),
        (("STRING", "INTEGER"), ("a", 5), "JSON"),
        (("STRING", "INTEGER"), ("a", 5), "DELIMITED"),
    ],
)
@pytest.mark.parametrize("windowed", [False, True])
def test_raw_keys_become_store_keys(
    types: tuple[str, ...], values: tuple[object, ...], key_format: str, windowed: bool
) -> None:
    columns = key_columns(*types)
    raw = store_keys.encode_key(values, columns, key_format)
    assert raw is not None
    convert = store_keys.store_key_from_raw(columns, key_format, bounds=int(windowed))
    given_key = store_keys.windowed_key(raw, 9) if windowed else raw
    assert convert(given_key) == (store_keys.store_key(values, types, *[9] * windowed), b"")


@settings(max_examples=examples(75))
@given(
    type_=st.sampled_from(["STRING", "BIGINT", "DOUBLE"]),
    bounds=st.integers(0, 2),
    number=st.integers(-(2**31), 2**31 - 1),
    texts=st.lists(st.text(), min_size=1, max_size=4),
)
@example(type_="STRING", bounds=0, number=0, texts=["x" * (store_keys.PREFIX_BYTES_MAX - 2)])
@example(type_="STRING", bounds=1, number=0, texts=["a", "x" * (store_keys.PREFIX_BYTES_MAX - 1)])
@example(type_="STRING", bounds=2, number=0, texts=["a", "b\0c"])
def test_many_keys_become_what_each_becomes(
    type_: str, bounds: int, number: int, texts: list[str]
) -> None:
    columns = key_columns(type_)
    wrap = (lambda raw: raw, store_keys.windowed_key, store_keys.session_key)[bounds]
    values = texts if type_ == "STRING" else [number + n for n in range(3)]
    raws = [wrap(store_keys.encode_key((v,), columns, "KAFKA"), *[7] * bounds) for v in values]
    one = store_keys.store_key_from_raw(columns, "KAFKA", bounds=bounds)
    expected = [one(raw) for raw in raws]
    found = store_keys.store_keys_from_raw(columns, "KAFKA", bounds=bounds)(raws)
    are_plain = all(v.isascii() and "\0" not in v for v in texts)
    if found is None:
        assert any(full for _, full in expected) or (type_ == "STRING" and not are_plain)
    else:
        assert [(key, b"") for key in found] == expected


@pytest.mark.parametrize(
    ("type_", "data"), [("STRING", b"\xff"), ("INTEGER", b"12345"), ("BIGINT", b"1234")]
)
def test_raw_keys_of_another_shape_are_refused(type_: str, data: bytes) -> None:
    with pytest.raises(UnfitKey):
        store_keys.store_key_from_raw(key_columns(type_), "KAFKA", bounds=0)(data)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ((None,), ("STRING",)),
        ((5,), ("STRING",)),
        ((2**63,), ("BIGINT",)),
        ((True,), ("BIGINT",)),
        ((1.5,), ("BIGINT",)),
        ((Decimal(10) ** 39,), ("DECIMAL(38, 0)",)),
        ((Decimal("1E99999999999999"),), ("DECIMAL(38, 0)",)),  # MemoryError, if written in full
    ],
)
def test_values_that_are_no_store_key(values: tuple[object, ...], types: tuple[str, ...]) -> None:
    with pytest.raises(UnfitKey):
        store_keys.store_key(values, types)


@pytest.mark.parametrize("data", [b"", b"ab", b"\0" * 9])
def test_bytes_that_are_no_store_key(data: bytes) -> None:
    with pytest.raises(UnfitKey):
        store_keys.parse_store_key(data, ("BIGINT",), 0)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("ARRAY<INTEGER>", b"5"),
        ("ARRAY<INTEGER>", b'{"A":1}'),
        ("ARRAY<STRING>", b'"ab"'),
        ("ARRAY<INTEGER>", b"[1E99999999999999]"),
        ("ARRAY<DECIMAL(4, 2)>", b"[1E99999999999999]"),
        ("ARRAY<DECIMAL(4, 2)>", b"[1E-99999999999999]"),
        ("STRUCT<`A` INTEGER>", b"5"),
        ("STRUCT<`A` INTEGER>", b"[1]"),
        ("STRUCT<`A` ARRAY<INTEGER>>", b'{"A":3}'),
        ("DECIMAL(4, 2)", b"1E99999999999999"),
    ],
)
def test_what_others_write_as_a_key_of_a_topic_is_refused(type_: str, data: bytes) -> None:
    # TypeError, AttributeError or MemoryError ended the tailers of all holders, again and again
    with pytest.raises(UnfitKey):
        store_keys.store_key_from_raw(key_columns(type_), "JSON", bounds=0)(data)
