"""Many rows at once: placed, shown with their windows, read into columns, as Python does it."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.examples import examples
from tests.unit.data.encoding.native_rows_fuzz import (
    ARROW_KINDS,
    TYPES,
    columns_alike,
    placed_alike,
    run,
    values_taken_alike,
    windowed,
    windows_alike,
)
from tests.unit.data.encoding.test_native import needs_it
from tests.unit.data.rows import HOUR_MS

from standpipe.data.encoding import native
from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.arrow import has_compiled_reader, rows_to_arrow, to_arrow
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.sql.plans import PullPlan


@needs_it
@pytest.mark.parametrize("seed", range(3))
def test_random_rows_are_refused_or_laid_out_alike(seed: int) -> None:
    count = examples(700, thorough=5_000)
    taken, refused = run(seed, count)
    assert min(taken, refused) > count // 20


@needs_it
@pytest.mark.parametrize(
    ("type_", "value", "is_taken"),
    [
        ("STRING", "", True),
        ("STRING", "é", True),
        ("STRING", "a\0", False),
        ("STRING", "x" * 502, False),
        ("STRING", 7, False),
        ("STRING", None, False),
        ("STRING", ("a",), False),
        ("BIGINT", 2**63 - 1, True),
        ("BIGINT", 2**63, False),
        ("BIGINT", "7", False),
        ("BIGINT", True, False),
        ("INTEGER", -(2**31), True),
        ("INTEGER", 2**31, False),
    ],
)
def test_which_values_are_taken(type_: str, value: object, is_taken: bool) -> None:
    assert values_taken_alike(type_, [], 4)
    assert values_taken_alike(type_, [value], 4) is is_taken


@needs_it
def test_keys_are_no_work_for_the_collector_and_let_go() -> None:
    """A batch makes thousands of them, and collections of young objects took as long as they."""
    values = ["a" * 3, "b" * 3]
    before = [*map(sys.getrefcount, values)]
    found = native.values_by_partition(values, 0, 1)
    assert found is not None
    assert not any(map(gc.is_tracked, found[0][0]))
    assert [*map(sys.getrefcount, values)] == [count + 1 for count in before]
    del found
    assert native.values_by_partition([*values, "\0"], 0, 1) is None
    assert [*map(sys.getrefcount, values)] == before


@needs_it
@pytest.mark.parametrize(
    ("values", "rows", "is_placed"),
    [
        (["a", "b"], [b'["a",1]', b'["b",2]'], True),
        (["a", "b"], [b'["b",2]'], True),
        (["a", "b"], [], True),
        (["a", "ab"], [b'["ab"]'], True),
        (["a", "b"], [b'["b",2]', b'["a",1]'], False),
        (["a"], [b'["a",1]', b'["a",1]'], False),
        (["a"], [b'["b",1]'], False),
        (["a"], [b"null"], False),
        (["a"], [b""], False),
        (["a"], [b'["a"'], False),
        (["a"], [b"[a,1]"], False),
        (['"'], [b'["\\"",1]'], False),
        ([], [b'["a"]'], False),
    ],
)
def test_rows_are_placed(values: list[object], rows: list[bytes], is_placed: bool) -> None:
    """False: they are left to Python, which places them, or says what is wrong."""
    assert placed_alike("STRING", values, rows) is is_placed


@needs_it
def test_rows_are_placed_by_numbers() -> None:
    assert placed_alike("BIGINT", [7, -1, 77], [b"[7]", b"[77,1]"])
    assert not placed_alike("BIGINT", [7], [b'["7"]'])
    assert native.placed({}, [(2**64,)], [b"[1]"], 1) is None
    assert native.placed({}, [("7",)], [b"[7]"], 1) is None
    assert native.placed({}, [(7,)], [b'["7"]'], 0) is None


@needs_it
def test_what_is_placed_is_held_once_more_and_let_go() -> None:
    value, row = "a" * 3, b'["aaa",%d]' % 7
    keys, rows = ((value,),), (row,)
    found = {value: b"null"}
    before = [sys.getrefcount(each) for each in (value, row)]
    for _ in range(5):
        assert native.placed(found, keys, rows, 0)
    assert [sys.getrefcount(each) for each in (value, row)] == [before[0], before[1] + 1]
    assert native.placed(found, (("b",), ("\n",)), rows, 0) is None
    del found
    assert [sys.getrefcount(each) for each in (value, row)] == [before[0] - 1, before[1]]


def plan(*, is_session: bool = False, added: int = 0, **more: Any) -> PullPlan:
    source = windowed(is_session=is_session, added=added)
    none: dict[str, Any] = {"schema": "", "column_names": (), "column_types": ()}
    return PullPlan(source=source, keys=(("a",),), **none, **more)


HOURS = [
    (store_key(("a",), ("STRING",), hour * HOUR_MS), pack_row(b"[%d]" % hour, 5))
    for hour in range(-1, 3)
]
SESSION = store_key(("a",), ("STRING",), 7, 9)


@needs_it
@pytest.mark.parametrize(
    ("asked", "pairs", "is_shown", "why"),
    [
        (plan(), HOURS, True, ""),
        (plan(), [], True, "none"),
        (plan(window_end_low_ms=7), HOURS, True, "a bound that the range has met"),
        (plan(added=2), HOURS, True, "rows from before the columns were added"),
        (plan(added=1), [(HOURS[0][0], pack_row(b"[1,2]", 5, b"", 1))], True, ""),
        (plan(is_session=True), [(SESSION, pack_row(b"[1]", 5))], True, ""),
        (plan(is_session=True, window_end_low_ms=8), [(SESSION, pack_row(b"[1]", 5))], False, ""),
        (plan(is_session=True), [(SESSION[-15:], pack_row(b"[1]", 5))], False, "a short key"),
        (plan(projection=(0,)), HOURS, False, "some columns"),
        (plan(), [(HOURS[0][0], pack_row(b"[]", 5))], False, "no value columns"),
        (plan(), [(HOURS[0][0], pack_row(b"[1]", 5, b"a" * 600))], False, "its key is in it"),
        (plan(), [(HOURS[0][0], pack_row(b"[1,2]", 5, b"", 1))], False, "an unknown column"),
        (plan(), [(HOURS[0][0], pack_row(b"[1]", 5)[:-1])], False, "cut off"),
        (plan(), [(HOURS[0][0], b"")], False, "nothing"),
        (plan(), [(HOURS[0][0][-7:], pack_row(b"[1]", 5))], False, "a short key"),
        (plan(), [(b"\xff" * 9, pack_row(b"[1]", 5))], False, "its end is beyond 64 bits"),
    ],
)
def test_windows_are_shown(
    asked: PullPlan, pairs: list[tuple[bytes, bytes]], is_shown: bool, why: str
) -> None:
    assert windows_alike(asked, pairs) is is_shown, why


@needs_it
def test_many_columns_that_rows_lack_are_null() -> None:
    found = native.windows(b'["a"', HOURS[1:2], HOUR_MS, 127)
    assert found == [b'["a",0,3600000,0' + b",null" * 127 + b"]"]
    with pytest.raises(ValueError, match="added: 0 to 127"):
        native.windows(b"", [], HOUR_MS, 128)


@needs_it
@pytest.mark.parametrize("odd", [(), (b"k",), [b"k", b"v"], ("k", b"v"), (b"k", bytearray(9)), 7])
def test_an_odd_pair_has_no_window(odd: Any) -> None:
    assert native.windows(b"[", [odd], HOUR_MS) is None


ROWS = [
    b'["a",1,-1,0.5,true]',
    b"[null,null,null,null,null]",
    '["é",999999999999999999,2147483647,-0.0,false]'.encode(),
]


@needs_it
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 9, 17])
def test_columns_are_filled(count: int) -> None:
    rows = [ROWS[number % 3] for number in range(count)]
    assert columns_alike(TYPES, rows)
    assert columns_alike(TYPES, [ROWS[0]] * count), "no nulls"
    assert columns_alike(TYPES, [ROWS[1]] * count), "nulls only"


@needs_it
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_a_table_is_written_to_the_same_bytes(count: int) -> None:
    """However it was made."""

    def written(table: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    for rows in ([ROWS[number % 3] for number in range(count)], [ROWS[0]] * count):
        read = to_arrow("abcde", TYPES, reader_of(TYPES).rows(rows))
        filled = rows_to_arrow("abcde", TYPES, rows)
        filled.validate(full=True)
        assert written(filled) == written(read)
    assert has_compiled_reader(TYPES)


@needs_it
@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        ("STRING", '"\\u0061"'),
        ("STRING", "7"),
        ("BIGINT", "1.0"),
        ("BIGINT", "9223372036854775807"),
        ("BIGINT", "-0"),
        ("INTEGER", "2147483648"),
        ("DOUBLE", '"NaN"'),
        ("DOUBLE", "-0"),
        ("DOUBLE", "1e400"),
        ("DOUBLE", "0." + "1" * 38),
        ("BOOLEAN", "1"),
    ],
)
def test_an_odd_cell_is_left_to_python(type_: str, cell: str) -> None:
    odd = f"[{cell}]".encode()
    assert not columns_alike([type_], [odd])
    assert not columns_alike([type_], [b"[null]", odd])


@needs_it
def test_other_columns_and_rows_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_to_arrow("a", ["DATE"], [b"[1]"]) is None
    assert rows_to_arrow("a", ["BIGINT"], []) is None
    assert not has_compiled_reader(["BIGINT", "ARRAY<BIGINT>"])
    assert native.arrow_columns([b"[1]", b"[1,2]"], b"\1") is None
    assert native.arrow_columns([b"[1] "], b"\1") is None
    no_bytes: list[Any] = ["[1]"]
    assert native.arrow_columns(no_bytes, b"\1") is None
    assert native.arrow_columns([b"[1]"], b"") is None
    assert native.arrow_columns([b"[" + b"1," * 64 + b"1]"], b"\1" * 65) is None
    with pytest.raises(ValueError, match="kinds: 0 to 4"):
        native.arrow_columns([], bytes([len(ARROW_KINDS)]))
    monkeypatch.setattr(native, "_native", None)
    assert native.arrow_columns([b"[1]"], b"\1") is None
    assert native.windows(b"[", [], HOUR_MS) is None
    assert native.placed({}, [], [], 0) is None
    assert native.values_by_partition([], 0, 1) is None
