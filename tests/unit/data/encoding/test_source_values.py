"""Values of other programs, column type by column type."""

from __future__ import annotations

import msgspec
import pytest
from tests.samples import WIDE_ITEMS, json_items, sample_table

from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.data.encoding.source_values import array_of, to_cells, to_values
from standpipe.model import Column


def read(type_: str, text: str) -> bytes:
    """A cell from JSON to the store."""
    columns = (Column(name="K", type="STRING", is_key=True), Column(name="V", type=type_))
    value = b'{"V":%b}' % text.encode()
    return array_of(to_cells(sample_table(columns=columns))(value))


@pytest.mark.parametrize(
    ("type_", "text", "kept", "why"),
    [
        ("BOOLEAN", "true", "true", ""),
        ("INTEGER", "7", "7", ""),
        ("INTEGER", '"-7"', "-7", "numbers may be text"),
        ("INTEGER", "2.7", "2", "truncated, as in ksqlDB"),
        ("INTEGER", "2147483647", "2147483647", "the largest"),
        ("BIGINT", "-9223372036854775808", "-9223372036854775808", "the smallest"),
        ("TIMESTAMP", "1600000000000", "1600000000000", ""),
        ("DATE", "18000", "18000", ""),
        ("TIME", "1", "1", ""),
        ("DOUBLE", "1", "1.0", ""),
        ("DOUBLE", '"1e3"', "1000.0", ""),
        ("DECIMAL(5, 2)", "1.5", "1.50", "at its scale"),
        ("DECIMAL(5, 2)", '"1.005"', "1.01", "rounded half up, exactly"),
        ("DECIMAL(5, 2)", "-0.001", "0.00", "there is no negative zero"),
        ("STRING", '"a"', '"a"', ""),
        ("STRING", "7", '"7"', "any value has a text"),
        ("STRING", '{"a":[1.50]}', '"{\\"a\\":[1.50]}"', "with all its digits"),
        ("BYTES", '"AQI="', '"AQI="', ""),
        ("ARRAY<INTEGER>", '[1,null,"2"]', "[1,null,2]", ""),
        ("MAP<STRING, DOUBLE>", '{"a":1,"b":null}', '{"a":1.0,"b":null}', ""),
        (
            "STRUCT<A INTEGER, `b` STRING>",
            '{"a":1,"B":2}',
            '{"A":1,"b":"2"}',
            "names as they are declared",
        ),
        ("STRUCT<A INTEGER>", "{}", '{"A":null}', "every field is there"),
        ("INTEGER", "null", "null", ""),
    ],
)
def test_a_cell_is_kept_as_its_type(type_: str, text: str, kept: str, why: str) -> None:
    assert read(type_, text) == b"[%b]" % kept.encode(), why


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("BOOLEAN", '"true"'),
        ("BOOLEAN", "1"),
        ("INTEGER", "true"),
        ("INTEGER", '"x"'),
        ("INTEGER", '"1_000"'),
        ("INTEGER", '" 7"'),
        ("INTEGER", "2147483648"),
        ("BIGINT", "9223372036854775808"),
        ("BIGINT", "1e999999999"),
        ("TIMESTAMP", "9223372036854775807"),
        ("DOUBLE", "1e999"),
        ("DOUBLE", '"NaN"'),
        ("DOUBLE", "[1]"),
        ("DECIMAL(5, 2)", "1000"),
        ("DECIMAL(5, 2)", "999.995"),
        ("DECIMAL(5, 2)", "1e999999999"),
        ("BYTES", '"?"'),
        ("BYTES", "7"),
        ("ARRAY<INTEGER>", "{}"),
        ("ARRAY<INTEGER>", '["x"]'),
        ("MAP<STRING, INTEGER>", "[]"),
        ("STRUCT<A INTEGER>", '"A"'),
        ("STRING", "[" * 100_000 + "]" * 100_000),
    ],
)
def test_what_is_no_value_of_the_type(type_: str, text: str) -> None:
    with pytest.raises(UnreadableValue):
        read(type_, text)


TWO = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="N", type="INTEGER"),
    Column(name="b", type="STRING"),
)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b'{"N":1,"b":"x"}', b'[1,"x"]'),
        (b'{"n":1,"B":"x","more":2}', b'[1,"x"]'),
        (b'{"n":1,"N":2}', b"[2,null]"),
        (b'{"n":1,"N":null}', b"[null,null]"),
        (b"{}", b"[null,null]"),
    ],
)
def test_names_match_exactly_or_in_any_case(value: bytes, kept: bytes) -> None:
    assert array_of(to_cells(sample_table(columns=TWO))(value)) == kept


@pytest.mark.parametrize("value", [b"", b" ", b"null", b"[1,2]", b"7", b'{"N":', b"\xff"])
def test_what_is_no_object(value: bytes) -> None:
    with pytest.raises(UnreadableValue):
        to_cells(sample_table(columns=TWO))(value)


def test_a_single_value_without_an_object() -> None:
    convert = to_cells(sample_table(wrap_single_value=False))
    assert array_of(convert(b'"7"')) == b"[7]"
    with pytest.raises(UnreadableValue):
        convert(b'{"N":7}')


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        ("BIGINT", (7).to_bytes(8, "big"), b"[7]"),
        ("INTEGER", (7).to_bytes(4, "big"), b"[7]"),
        ("STRING", "ö".encode(), '["ö"]'.encode()),
        ("BYTES", b"\1\2", b'["AQI="]'),
    ],
)
def test_the_kafka_format(type_: str, value: bytes, kept: bytes) -> None:
    columns = (TWO[0], Column(name="V", type=type_))
    convert = to_cells(sample_table(columns=columns, value_format="KAFKA"))
    assert array_of(convert(value)) == kept


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("BIGINT", b"\0" * 7),
        ("DOUBLE", bytes.fromhex("7ff8000000000000")),
        ("STRING", b"\xff"),
    ],
)
def test_what_the_kafka_format_cannot_be(type_: str, value: bytes) -> None:
    columns = (TWO[0], Column(name="V", type=type_))
    with pytest.raises(UnreadableValue):
        to_cells(sample_table(columns=columns, value_format="KAFKA"))(value)


def test_other_formats_and_no_columns() -> None:
    with pytest.raises(ValueError, match="DELIMITED"):
        to_cells(sample_table(value_format="DELIMITED"))
    assert to_cells(sample_table(columns=TWO[:1]))(b"anything") == []
    assert msgspec.json.decode(array_of([])) == []


LINE = tuple(
    Column(name=name, type=of)
    for name, of in zip("ABCDE", ("INTEGER", "STRING", "DOUBLE", "BOOLEAN", "BYTES"), strict=True)
)


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b'7,"a,b",1.5,TRUE,AQI=', [7, "a,b", 1.5, True, "AQI="]),
        (b",,,,", [None] * 5),
        (b'"7","""",NaN,false,', [7, '"', "nan", False, None]),
        (b"7.0,,,,", None),
        (b" 7,,,,", None),
        (b",,,yes,", None),
        (b",,,,?", None),
        (b"7,a,1.5,true", None),
        (b"7,a,1.5,true,AQI=,", None),
        (b'7,"a', None),
        (b"", None),
        (b"\xff,,,,", None),
    ],
)
def test_a_line_that_is_shown(line: bytes, cells: list[object] | None) -> None:
    """Tables are not followed in this format, but streams are read in it."""
    read = to_values(sample_table(value_format="DELIMITED"), LINE)
    if cells is None:
        with pytest.raises(UnreadableValue):
            read(line)
        return
    assert [str(each) if each != each else each for each in read(line)] == cells


def test_what_is_shown_may_be_a_number_that_json_has_not() -> None:
    columns = (Column(name="V", type="ARRAY<DOUBLE>"),)
    read = to_values(sample_table(columns=columns), columns)
    assert read(b'{"V":["Infinity",1e999,-1]}') == [[float("inf"), float("inf"), -1.0]]
    with pytest.raises(UnreadableValue):
        to_cells(sample_table(columns=columns))(b'{"V":["Infinity"]}')


#: 18,000 bytes that would make 300,000 fields
SHORT_ITEMS = json_items("{}", 6_000)
#: 69,000 bytes of as many items, each with one of its fifty fields
SPARSE_ITEMS = json_items('{"FIELD_007":1234}', 6_000)


@pytest.mark.parametrize("type_", [WIDE_ITEMS, f"ARRAY<{WIDE_ITEMS}>"])
@pytest.mark.parametrize("format_", ["JSON", "JSON_SR"])
def test_few_bytes_make_few_fields(type_: str, format_: str) -> None:
    source = sample_table(columns=(Column(name="V", type=type_),), value_format=format_)
    read = to_values(source, source.value_columns)
    before, after = (b"[", b"]") if type_ != WIDE_ITEMS else (b"", b"")
    frame = bytes(5) if format_ == "JSON_SR" else b""
    with pytest.raises(UnreadableValue, match="more fields than its bytes allow"):
        read(frame + b'{"V":%b%b%b}' % (before, SHORT_ITEMS, after))
    (cell,) = read(frame + b'{"v":%b%b%b}' % (before, SPARSE_ITEMS, after))
    items = cell[0] if before else cell
    assert len(items) == 6_000
    assert len(items[0]) == 50, "every field is there"


def test_source_values_count_the_fields_of_all_columns() -> None:
    columns = tuple(Column(name=name, type=WIDE_ITEMS) for name in "AB")
    half = json_items("{}", 800)  # 62,000 fields with their names
    read = to_cells(sample_table(columns=columns))
    assert len(read(b'{"A":%b}' % half)[0]) == 800
    with pytest.raises(UnreadableValue, match="more fields"):
        read(b'{"A":%b,"B":%b}' % (half, half))


def test_source_values_of_a_row_that_lacks_a_column_are_counted_once() -> None:
    columns = tuple(Column(name=name, type=WIDE_ITEMS) for name in "AB")
    assert to_cells(sample_table(columns=columns))(b'{"A":%b}' % json_items("{}", 800))[1] is None
