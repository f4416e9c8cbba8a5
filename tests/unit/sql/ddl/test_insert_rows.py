"""JSON rows as INSERT INTO … VALUES would have read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from tests.samples import WIDE_ITEMS, json_items, sample_stream

from standpipe.errors import BadRequest, StatementError
from standpipe.model import Column, Source, Window
from standpipe.sql.ddl.insert_rows import RowReader, identifier, insert_target
from standpipe.topics import TopicRules

D = Decimal


def stream(*columns: Column, **changes: Any) -> Source:
    source = sample_stream(columns=columns)
    return msgspec.structs.replace(source, **changes)


def fitted(type_: str, value: object) -> object:
    return RowReader(stream(Column(name="V", type=type_))).plan({"V": value}).values[0]


DEEP = "STRUCT<`A` ARRAY<INTEGER>, `M` MAP<STRING, DOUBLE>, `q` DECIMAL(4, 1)>"


@pytest.mark.parametrize(
    ("type_", "value", "expected", "why"),
    [
        ("BOOLEAN", True, True, "itself"),
        ("INTEGER", 2**31 - 1, 2**31 - 1, "the largest"),
        ("BIGINT", 5, 5, "widens"),
        ("BIGINT", -(2**63), -(2**63), "the smallest"),
        ("DOUBLE", 5, 5.0, "a whole number"),
        ("DOUBLE", D("1e300"), 1e300, "any other number"),
        ("DECIMAL(5, 2)", D("1.005"), D("1.01"), "half up, from the digits that were written"),
        ("DECIMAL(5, 2)", 7, D("7.00"), "at the type's scale"),
        ("DECIMAL(5, 2)", "1.5", D("1.50"), "text keeps what JSON's readers lose"),
        ("STRING", "", "", "empty is not null"),
        ("DATE", "1970-01-02", 1, "text"),
        ("TIME", "00:00:01", 1000, "text"),
        ("TIMESTAMP", "1970-01-01T00:00:01", 1000, "text"),
        ("BYTES", "AAE=", b"\x00\x01", "base64"),
        ("ARRAY<BIGINT>", [1, None], [1, None], "nulls inside stay"),
        ("MAP<STRING, INTEGER>", {"a": 1, "A": None}, {"a": 1, "A": None}, "keys are values"),
        (
            DEEP,
            {"a": [1], "m": {"x": 2}, "`q`": D("1.25"), "other": 1},
            {"A": [1], "M": {"x": 2.0}, "q": D("1.3")},
            "fields are names",
        ),
        (DEEP, {}, {"A": None, "M": None, "q": None}, "fields that are absent are null"),
        ("ARRAY<STRING>", None, None, "null"),
    ],
)
def test_a_value_fits(type_: str, value: object, expected: object, why: str) -> None:
    assert fitted(type_, value) == expected, why
    assert type(fitted(type_, value)) is type(expected), why


@pytest.mark.parametrize(
    ("type_", "value", "kind"),
    [
        ("BOOLEAN", 1, "NUMBER"),
        ("BOOLEAN", "true", "STRING"),
        ("INTEGER", 2**31, "NUMBER"),
        ("INTEGER", D("1.0"), "DOUBLE"),
        ("INTEGER", "1", "STRING"),
        ("INTEGER", True, "BOOLEAN"),
        ("BIGINT", 2**63, "NUMBER"),
        ("DOUBLE", "1", "STRING"),
        ("DOUBLE", D("1e400"), "DOUBLE"),  # infinite as a float, and null as JSON
        ("DOUBLE", D("-1e400"), "DOUBLE"),
        ("ARRAY<DOUBLE>", [1, D("1e400")], "ARRAY"),
        ("MAP<STRING, DOUBLE>", {"a": D("1e400")}, "OBJECT"),
        ("DECIMAL(3, 1)", 100, "NUMBER"),
        ("DECIMAL(3, 1)", "much", "STRING"),
        ("DECIMAL(3, 1)", True, "BOOLEAN"),
        ("STRING", 1, "NUMBER"),
        ("STRING", {}, "OBJECT"),
        ("DATE", 1, "NUMBER"),
        ("DATE", "1970-13-01", "STRING"),
        ("BYTES", "=", "STRING"),
        ("ARRAY<INTEGER>", ["1"], "ARRAY"),
        ("ARRAY<INTEGER>", {}, "OBJECT"),
        ("MAP<STRING, INTEGER>", [], "ARRAY"),
        (DEEP, {"A": 1}, "OBJECT"),
    ],
)
def test_a_value_does_not_fit(type_: str, value: object, kind: str) -> None:
    with pytest.raises(BadRequest) as refused:
        fitted(type_, value)
    expected = f"Can't coerce a field of type {kind} ({value}) into type {type_}"
    assert refused.value.message == expected


K, A, B = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="A", type="INTEGER"),
    Column(name="b", type="INTEGER"),
)


@pytest.mark.parametrize(
    ("fields", "values", "rowtime_ms", "why"),
    [
        ({"k": "x", "a": 1, "`b`": 2}, ("x", 1, 2), None, "names as SQL has them"),
        ({"K": "x", '"b"': 2}, ("x", None, 2), None, "absent is null"),
        ({"K": "x", "A": None, "b": 2}, ("x", None, None), None, "b is B, which is no column"),
        ({"K": "x", "C": []}, ("x", None, None), None, "what is no column is passed over"),
        ({"K": "x", "ROWTIME": 5}, ("x", None, None), 5, "the record's time"),
        ({"K": "x", "rowtime": None}, ("x", None, None), None, "now"),
    ],
)
def test_a_row(
    fields: dict[str, object], values: tuple[object, ...], rowtime_ms: int | None, why: str
) -> None:
    plan = RowReader(stream(K, A, B)).plan(fields)
    assert (plan.values, plan.rowtime_ms) == (values, rowtime_ms), why


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"A": 1}, "Key field must be specified: K"),
        ({"K": None, "A": 1}, "Key field must be specified: K"),
        ({"K": "x", "a": 1, "A": 2}, "Found non-unique columns: K, a, A"),
        ({"K": "x", "ROWTIME": -1}, "Invalid timestamp: -1"),
        (
            {"K": "x", "ROWTIME": "now"},
            "Can't coerce a field of type STRING (now) into type BIGINT",
        ),
    ],
)
def test_a_row_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        RowReader(stream(K, A, B)).plan(fields)
    assert refused.value.message == message


def test_header_columns_cannot_be_filled() -> None:
    header = Column(name="H", type="BYTES", header="h")
    assert RowReader(stream(A, header)).plan({"A": 1, "H": "AA=="}).values == (1, None)


DAY = Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=1)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("t", {}, "Cannot insert values into an unknown stream: `T`"),
        ("`s`", {}, "Cannot insert values into an unknown stream: `s`"),
        ("S", {"kind": "TABLE"}, "Cannot insert into a table"),
        ("S", {"window": DAY}, "Cannot insert values into windowed stream/table!"),
        ("S", {"is_read_only": True}, "Cannot insert values into read-only stream: S"),
        (
            "S",
            {"query_id": "CSAS_S_1"},
            "Cannot insert values into stream `S`: it is written by query CSAS_S_1.",
        ),
    ],
)
def test_a_target_is_refused(text: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(StatementError) as refused:
        insert_target(text, {"S": stream(A, **changes)}, TopicRules())
    assert (refused.value.message, refused.value.code) == (message, 40001)


@pytest.mark.parametrize("text", ["s", "S", "`S`", '"S"'])
def test_a_target_is_found(text: str) -> None:
    assert insert_target(text, {"S": stream(A)}, TopicRules()).name == "S"


@pytest.mark.parametrize(
    ("text", "name"),
    [("a", "A"), ("`a`", "a"), ("`a``b`", "a`b"), ('"a"', "a"), ("`", "`"), ("``", "``"), ("", "")],
)
def test_identifier(text: str, name: str) -> None:
    assert identifier(text) == name


def test_insert_rows_make_no_more_fields_than_their_bytes_allow() -> None:
    reader = RowReader(stream(Column(name="V", type=WIDE_ITEMS)))
    short, sparse = json_items("{}", 6_000), json_items('{"FIELD_007":1234}', 6_000)
    with pytest.raises(BadRequest, match="more fields than its bytes allow") as refused:
        reader.plan({"V": msgspec.json.decode(short)}, len(short))
    assert len(refused.value.message) < 2_000, "the row is not repeated"
    (items,) = reader.plan({"V": msgspec.json.decode(sparse)}, len(sparse)).values
    assert isinstance(items, list)
    assert (len(items), len(items[0])) == (6_000, 50)
