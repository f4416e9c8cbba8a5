"""Values of a table topic become JSON arrays, cell by cell, undecoded."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import table

from standpipe.data.encoding.row_values import (
    UnreadableValue,
    count_beyond,
    own_columns_to_array,
    to_array,
    to_arrays,
)
from standpipe.model import Column, Source


def source(*names_types: tuple[str, str], **more: object) -> Source:
    columns = [Column(name=name, type=type_) for name, type_ in names_types]
    key = Column(name="K", type="STRING", is_key=True)
    return msgspec.structs.replace(table(), columns=(key, *columns), **more)  # type: ignore[arg-type]


AB = source(("A", "BIGINT"), ("B", "STRING"))


@pytest.mark.parametrize(
    ("value", "array", "why"),
    [
        (b'{"A":1,"B":"x"}', b'[1,"x"]', ""),
        (b'{"B":"x","A":1}', b'[1,"x"]', "the table's order"),
        (b'{"A":1}', b"[1,null]", "absent is null"),
        (b"{}", b"[null,null]", ""),
        (b'{"a":1,"b":"x"}', b'[1,"x"]', "no such name: without regard to case"),
        (b'{"a":2,"A":1,"B":null}', b"[1,null]", "the exact name wins"),
        (b'{"A":1.50,"B":{"c":[1, 2]},"Z":0}', b'[1.50,{"c":[1, 2]}]', "cells stay as written"),
        (b' { "A" : 1 , "B" : "x" } ', b'[1,"x"]', "space between tokens"),
        (b'{"A":[1,\n2],"B":"x"}', b'[[1,2],"x"]', "a row is one line"),
        (b'{"A":12345678901234567890123,"B":0}', b"[12345678901234567890123,0]", "no rounding"),
    ],
)
def test_objects(value: bytes, array: bytes, why: str) -> None:
    assert to_array(AB)(value) == array, why


DEEP = b"[" * 10_000 + b"]" * 10_000


@pytest.mark.parametrize(
    "value",
    [b'{"A":1,"B":%b}' % DEEP, b'{"A":1,"B":"x","C":%b}' % DEEP, b'{"a":1,"b":"x","c":%b}' % DEEP],
    ids=["a cell", "beside the cells", "names in small letters"],
)
def test_what_is_nested_too_deep_is_unreadable_and_ends_nobody(value: bytes) -> None:
    """One such record ended the tailer of a topic that others write, each time that it started."""
    with pytest.raises(UnreadableValue):
        to_array(AB)(value)
    convert = to_arrays(AB)
    assert convert is not None
    assert convert([value]) is None
    bare = source(("A", "STRING"), wrap_single_value=False)
    with pytest.raises(UnreadableValue):
        to_array(bare)(DEEP)


@pytest.mark.parametrize("value", [b"", b"[]", b"5", b"null", b'{"A":}', b'{"A":1}x', b"\xff"])
def test_what_is_no_object_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableValue):
        to_array(AB)(value)


#: as our writer makes them, and as it does not
_VALUES = st.sampled_from(
    [
        b'{"A":1,"B":"x"}',
        b'{"B":"y","A":2.50}',
        b'{"A":null,"B":null}',
        b'{"A":1}',
        b'{"a":1,"b":"x"}',
        b'{"A":[1,\n2],"B":"x"}',
        b'{"A":1,"B":"x"}\r',
        b'{"A":1,"B":"x"}{"A":1,"B":"x"}',
        b'{"A":1,',
        b'"B":"x"}',
        b"",
        b"null",
    ]
)


@given(st.lists(st.one_of(st.just(b'{"A":1,"B":"x"}'), _VALUES), min_size=1, max_size=4))
def test_many_values_become_what_each_becomes(values: list[bytes]) -> None:
    many = to_arrays(AB)
    assert many is not None
    found = many(values)
    if found is None:
        plain = {b'{"A":1,"B":"x"}', b'{"B":"y","A":2.50}', b'{"A":null,"B":null}'}
        assert not plain.issuperset(values), "those go at once"
    else:
        assert found == [to_array(AB)(value) for value in values]


@pytest.mark.parametrize("name", ['q"', "back\\slash", "tab\t"])
def test_a_name_that_json_has_to_escape(name: str) -> None:
    """Such a table ended its tailers: msgspec's structs take no such name."""
    table_ = source((name, "BIGINT"), ("B", "STRING"))
    value = json.dumps({"B": "x", name: 1}).encode()
    assert to_array(table_)(value) == b'[1,"x"]'
    assert to_arrays(table_) is None, "one by one"
    with pytest.raises(UnreadableValue):
        to_array(table_)(b"[]")


def test_only_objects_go_at_once() -> None:
    assert to_arrays(source(("A", "STRING"), wrap_single_value=False)) is None
    assert to_arrays(source(("A", "STRING"), value_format="DELIMITED")) is None
    assert to_arrays(source()) is None


def test_a_single_column_may_be_bare() -> None:
    bare = to_array(source(("A", "STRING"), wrap_single_value=False))
    assert bare(b'"x"') == b'["x"]'
    with pytest.raises(UnreadableValue):
        bare(b"x")
    assert to_array(source(("A", "STRING")))(b'{"A":"x"}') == b'["x"]'
    assert to_array(source())(b"{}") == b"[]"


@pytest.mark.parametrize(
    ("value", "array"),
    [
        (b'1;"a;""b""";2.5;true;aGk=', b'[1,"a;\\"b\\"",2.5,true,"aGk="]'),
        (b";;;;", b"[null,null,null,null,null]"),
    ],
)
def test_delimited(value: bytes, array: bytes) -> None:
    columns = (("A", "BIGINT"), ("B", "STRING"), ("C", "DOUBLE"), ("D", "BOOLEAN"), ("E", "BYTES"))
    convert = to_array(source(*columns, value_format="DELIMITED", value_delimiter=";"))
    assert convert(value) == array
    for bad in (b"1;2", b"x;a;1;true;aGk=", b'"'):
        with pytest.raises(UnreadableValue):
            convert(bad)


def test_a_format_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="AVRO"):
        to_array(source(("A", "STRING"), value_format="AVRO"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.booleans())
def test_cells_mean_what_they_meant(a: object, b: object, pretty: bool) -> None:
    value = json.dumps({"A": a, "B": b}, indent=1 if pretty else None).encode()
    array = to_array(AB)(value)
    assert json.loads(array) == [a, b]
    assert b"\n" not in array


@pytest.mark.parametrize(
    ("value", "array", "why"),
    [
        (b'{"A":1,"B":null}', b"[1,null]", "all that it has"),
        (b'{"B":{"x":[1]},"A":"y"}', b'[{"x":[1]},"y"]', "in its order, as it is the table's"),
        (b'{"A":\n[1,\r\n2]}', b"[[1,2]]", "on one line"),
        (b"{}", b"[]", ""),
    ],
)
def test_a_row_of_its_record_alone(value: bytes, array: bytes, why: str) -> None:
    assert own_columns_to_array(value) == array, why


@pytest.mark.parametrize("value", [b"[1]", b"", b'{"A":}', DEEP])
def test_what_is_no_object_has_no_columns(value: bytes) -> None:
    with pytest.raises(UnreadableValue):
        own_columns_to_array(value)


@pytest.mark.parametrize(
    ("cells", "first", "beyond"),
    [(1, 1, 0), (3, 1, 2), (0, 1, None), (1, 2, None), (128, 1, 127), (129, 1, None)],
)
def test_how_many_columns_were_added(cells: int, first: int, beyond: int | None) -> None:
    array = b"[%b]" % b",".join([b"1"] * cells)
    if beyond is not None:
        assert count_beyond(array, first) == beyond
        return
    with pytest.raises(UnreadableValue, match=f"not {first} columns and those that were added"):
        count_beyond(array, first)
