"""Connect's form of maps, brought into that of JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.json_sr_reading import to_json
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.data.encoding.source_values import to_key_values, to_values
from standpipe.model import Column, Source
from standpipe.sql.types.types import parse_type


def source(**columns: str) -> Source:
    made = [Column(name=name, type=of, is_key=name == "K") for name, of in columns.items()]
    return Source(
        name="S", kind="STREAM", columns=tuple(made), topic="t", partitions=1,
        key_format="JSON_SR", value_format="JSON_SR", statement="",
    )  # fmt: skip


def cells(of: Source, value: bytes) -> list[Any]:
    return to_values(of, of.value_columns)(framed(7, value))


@pytest.mark.parametrize(
    ("of", "value", "cell"),
    [
        ("INT", b"1", 1),
        ("INT", b'"1"', 1),
        ("STRING", b'{"a":1}', '{"a":1}'),
        ("MAP<STRING, INT>", b'{"a":1}', {"a": 1}),
        ("MAP<STRING, INT>", b'[{"key":"a","value":1},{"key":"b"}]', {"a": 1, "b": None}),
        ("MAP<STRING, INT>", b'[{"key":1,"value":1},{"key":true}]', {"1": 1, "true": None}),
        ("MAP<STRING, INT>", b"[]", {}),
        ("ARRAY<MAP<STRING, INT>>", b'[[{"key":"a","value":1}],{"b":2},null]',
         [{"a": 1}, {"b": 2}, None]),
        ("MAP<STRING, MAP<STRING, INT>>", b'[{"key":"a","value":[{"key":"b","value":1}]}]',
         {"a": {"b": 1}}),
        ("STRUCT<M MAP<STRING, INT>, N INT>", b'{"m":[{"key":"a","value":1}],"N":2}',
         {"M": {"a": 1}, "N": 2}),
        ("STRUCT<`io.confluent.connect.json.OneOf.field.0` STRUCT<A INT>>",
         b'{"io.confluent.connect.json.OneOf.field.0":{"a":1,"new":2}}',
         {"io.confluent.connect.json.OneOf.field.0": {"A": 1}}),
    ],
)  # fmt: skip
def test_values(of: str, value: bytes, cell: Any) -> None:
    assert cells(source(V=of), b'{"v":%b}' % value) == [cell]
    bare = msgspec.structs.replace(source(V=of), wrap_single_value=False)
    assert cells(bare, value) == [cell]
    assert cells(source(V=of), b'{"V":null}') == [None]


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("INT", b'"x"'),
        ("MAP<STRING, INT>", b'[{"value":1}]'),
        ("MAP<STRING, INT>", b'[{"key":null,"value":1}]'),
        ("MAP<STRING, INT>", b'[{"key":{},"value":1}]'),
        ("MAP<STRING, INT>", b'["a"]'),
        ("MAP<STRING, INT>", b'"a"'),
        ("ARRAY<MAP<STRING, INT>>", b'{"a":1}'),
        ("STRUCT<M MAP<STRING, INT>>", b'"a"'),
        ("INT", b""),
        ("MAP<STRING, INT>", b"[" * 100_000),
    ],
)
def test_unreadable(of: str, value: bytes) -> None:
    with pytest.raises(UnreadableValue):
        cells(source(V=of), b'{"V":%b}' % value)


def test_a_value_without_a_frame() -> None:
    with pytest.raises(UnreadableValue, match="does not begin with 0"):
        to_values(source(V="INT"), source(V="INT").value_columns)(b'{"V":1}')


def test_keys() -> None:
    assert to_key_values(source(K="BIGINT", V="INT"))(framed(1, b"5")) == [5]


def test_columns_that_differ_only_in_case_are_read_each_as_its_own_type() -> None:
    entry = "STRUCT<`key` STRING, `value` INT>"
    of = source(m=f"ARRAY<{entry}>", M="MAP<STRING, INT>")
    entries, as_map = [{"key": "a", "value": 1}], {"a": 1}
    value = msgspec.json.encode({"m": entries, "M": entries})
    assert cells(of, value) == [entries, as_map]
    assert cells(of, msgspec.json.encode({"m": entries})) == [entries, as_map], "m, in any case"
    assert cells(of, b'{"M":{"k":1},"m":[]}') == [[], {"k": 1}]
    two = source(ab=f"ARRAY<{entry}>", AB="MAP<STRING, INT>")
    assert cells(two, msgspec.json.encode({"aB": entries})) == [entries, as_map], "neither's name"
    within = source(S=f"STRUCT<`m` ARRAY<{entry}>, `M` MAP<STRING, INT>>")
    assert cells(within, b'{"S":%b}' % value) == [{"m": entries, "M": as_map}]


NAMES = st.sampled_from(["m", "M", "aB", "AB", "ab"])
ROWS = st.dictionaries(NAMES, st.one_of(st.none(), st.just({}), st.just({"m": 1, "ab": 2})))


@given(st.lists(NAMES, min_size=1, unique=True), ROWS)
@settings(max_examples=examples(100), deadline=None)
def test_values_without_connects_maps_are_read_as_json(
    names: list[str], row: dict[str, Any]
) -> None:
    """JSON decides which value a name in another case gives."""
    kinds = ["MAP<STRING, INT>", "STRUCT<`M` STRING, `ab` INT>"]
    made = {name: kinds[number % 2] for number, name in enumerate(names)}
    of = source(**made, s=f"STRUCT<{', '.join(f'`{name}` {kind}' for name, kind in made.items())}>")
    value = msgspec.json.encode({**row, "s": row})
    as_json = msgspec.structs.replace(of, value_format="JSON")
    assert cells(of, value) == to_values(as_json, as_json.value_columns)(value)


@pytest.mark.parametrize(
    ("of", "is_same"),
    [("ARRAY<STRUCT<A INT>>", True), ("ARRAY<STRUCT<A MAP<STRING, INT>>>", False)],
)
def test_most_types_have_jsons_form_already(of: str, is_same: bool) -> None:
    assert (to_json(parse_type(of)) is None) is is_same


def test_json_sr_reading_makes_no_field_that_has_no_value() -> None:
    read = to_json(parse_type("ARRAY<STRUCT<M MAP<STRING, INT>, `a` INT, A INT, B INT>>"))
    assert read is not None
    assert read([{}, {"A": 1}, {"m": [], "B": None}]) == [
        {},
        {"a": 1, "A": 1},
        {"M": {}, "B": None},
    ]
