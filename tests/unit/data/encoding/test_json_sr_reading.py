"""Connect's forms of maps and unions, brought into that of JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.json_sr_reading import to_json
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.data.encoding.source_values import to_key_values, to_values
from standpipe.model import Column, Source
from standpipe.sql.types.types import parse_type

BRANCH = "IO.CONFLUENT.CONNECT.JSON.ONEOF.FIELD."
UNION = f"STRUCT<`{BRANCH}0` BIGINT, `{BRANCH}1` STRING, `{BRANCH}2` STRUCT<X MAP<STRING, INT>>>"


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
        (UNION, b"1", {f"{BRANCH}0": 1, f"{BRANCH}1": None, f"{BRANCH}2": None}),
        (UNION, b'"a"', {f"{BRANCH}0": None, f"{BRANCH}1": "a", f"{BRANCH}2": None}),
        (UNION, b'{"x":[{"key":"a","value":1}]}',
         {f"{BRANCH}0": None, f"{BRANCH}1": None, f"{BRANCH}2": {"X": {"a": 1}}}),
        (UNION, b'{"%b1":"a"}' % BRANCH.encode(),
         {f"{BRANCH}0": None, f"{BRANCH}1": "a", f"{BRANCH}2": None}),
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
        (UNION, b"true"),
        (UNION, b"1.5"),
        (UNION, b'{"y":1}'),
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


def test_a_union_at_the_root_has_a_column_for_each_branch() -> None:
    of = source(**{f"{BRANCH}0": "BIGINT", f"{BRANCH}1": "STRUCT<ID INT>"})
    assert cells(of, b"5") == [5, None]
    assert cells(of, b'{"id":1}') == [None, {"ID": 1}]


@pytest.mark.parametrize(("of", "is_same"), [("ARRAY<STRUCT<A INT>>", True), (UNION, False)])
def test_most_types_have_jsons_form_already(of: str, is_same: bool) -> None:
    assert (to_json(parse_type(of)) is None) is is_same
