"""Rows under JSON Schemas: our own, and those of others."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.data.encoding import json_sr_writing
from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.source_values import to_values
from standpipe.model import Column, Source
from standpipe.sql.schemas import json_columns, json_schema
from standpipe.sql.schemas.registry import BadSchema

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
NONE: dict[str, Any] = {"type": "null"}
ENTRIES = {
    "type": "array",
    "connect.type": "map",
    "items": {"properties": {"key": TEXT, "value": NUMBER}},
}


def written(schema: Any, columns: dict[str, str], *row: Any, wraps: bool = True) -> Any:
    named = [Column(name=name, type=of) for name, of in columns.items()]
    of = json_schema.parse(json.dumps(schema))
    return json.loads(json_sr_writing.to_bytes(of, named, wraps=wraps)(row))


def row_of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


@pytest.mark.parametrize(
    ("of", "sql", "value", "expected"),
    [
        ({"type": "boolean"}, "BOOLEAN", True, True),
        ({"type": "integer"}, "BIGINT", 2**53 + 1, 2**53 + 1),
        (NUMBER, "INTEGER", 3, 3),
        (NUMBER, "DOUBLE", 1.5, 1.5),
        (NUMBER, "DECIMAL(5, 2)", Decimal("1.50"), 1.5),
        (TEXT, "STRING", "ü", "ü"),
        ({**TEXT, "connect.type": "bytes"}, "BYTES", b"\0\1", "AAE="),
        ({"oneOf": [NONE, TEXT]}, "STRING", None, None),
        ({"type": ["string", "null"]}, "STRING", "a", "a"),
        ({"items": NUMBER}, "ARRAY<INT>", [1, 2], [1, 2]),
        ({"additionalProperties": NUMBER}, "MAP<STRING, INT>", {"a": 1}, {"a": 1}),
        (ENTRIES, "MAP<STRING, INT>", {"a": 1}, [{"key": "a", "value": 1}]),
        (row_of(x=TEXT), "STRUCT<X STRING>", {"X": "a"}, {"x": "a"}),
        ({"oneOf": [TEXT]}, "STRING", "a", "a"),
    ],
)  # fmt: skip
def test_values(of: Any, sql: str, value: Any, expected: Any) -> None:
    assert written(row_of(c=of), {"C": sql}, value) == {"c": expected}
    assert written(of, {"C": sql}, value, wraps=False) == expected


@pytest.mark.parametrize(
    ("of", "sql", "value", "expected"),
    [
        (NUMBER, "DOUBLE", 1e300, "1.0E300"),
        (NUMBER, "DOUBLE", 1e7, "1.0E7"),
        (NUMBER, "DOUBLE", -0.0, "0.0"),
        (NUMBER, "DECIMAL(5, 2)", Decimal("1.00"), "1.00"),
        (TEXT, "STRING", "\x1f\u2028ü", '"\\u001F\u2028ü"'),
        (row_of(ü=NUMBER), "STRUCT<`ü` DOUBLE>", {"ü": 1.0}, '{"ü":1.0}'),
    ],
)
def test_bytes_are_those_of_jackson(of: Any, sql: str, value: Any, expected: str) -> None:
    """Spark writes with it, and the bytes of a key decide its partition."""
    schema = json_schema.parse(json.dumps(of))
    write = json_sr_writing.to_bytes(schema, [Column(name="C", type=sql)], wraps=False)
    assert write([value]).decode() == expected


def test_null_leaves_out_what_is_not_required() -> None:
    of = row_of(("b",), a=TEXT, b={"oneOf": [NONE, TEXT]})
    assert written(of, {"A": "STRING", "B": "STRING"}, None, None) == {"b": None}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_json_is_null(value: float) -> None:
    of = row_of(("b",), a=NUMBER, b={"oneOf": [NONE, NUMBER]})
    assert written(of, {"A": "DOUBLE", "B": "DOUBLE"}, value, value) == {"b": None}
    with pytest.raises(ValueError, match="is NULL, which its schema does not allow"):
        written(row_of(("c",), c=NUMBER), {"C": "DOUBLE"}, value)


@pytest.mark.parametrize(
    ("of", "sql", "value"),
    [
        (row_of(("c",), c=TEXT), "STRING", None),
        (row_of(c={"items": TEXT}), "ARRAY<STRING>", [None]),
        (row_of(c=ENTRIES), "MAP<STRING, DOUBLE>", {"a": None}),
        (row_of(c=row_of(("x",), x=TEXT)), "STRUCT<X STRING>", {"X": None}),
        (row_of(("c",), c={"oneOf": [TEXT]}), "STRING", None),
        (row_of(("c",), c={"type": ["string"]}), "STRING", None),
    ],
)
def test_null_where_the_schema_has_none(of: Any, sql: str, value: Any) -> None:
    with pytest.raises(ValueError, match="is NULL, which its schema does not allow"):
        written(of, {"C": sql}, value)


@pytest.mark.parametrize(
    ("of", "sql", "message"),
    [
        (row_of(c=TEXT), "INT", "Cannot serialize type INTEGER as string: ->c"),
        (row_of(c=TEXT), "BYTES", "Cannot serialize type BYTES as string"),
        (row_of(c={**TEXT, "connect.type": "bytes"}), "STRING", "Cannot serialize type STRING"),
        (row_of(c={"type": "integer"}), "DOUBLE", "Cannot serialize type DOUBLE as integer"),
        (row_of(c={}), "INT", "as a schema without a type"),
        (row_of(c=TEXT), "ARRAY<INT>", "Cannot serialize type ARRAY<INTEGER> as string"),
        (row_of(d=TEXT), "INT", "no property for C"),
        (row_of(("d",), c=NUMBER, d=TEXT), "INT", "no column has a value for d, which is required"),
        (row_of(c={"oneOf": [TEXT, NUMBER]}), "STRING", "Cannot serialize type STRING as union"),
        (
            row_of(("d",), c=NUMBER, d={"type": ["string", "integer"]}),
            "INT",
            "no column has a value for d, which is required",
        ),
        (TEXT, "INT", "Cannot serialize type STRUCT<`C` INTEGER> as string"),
        (row_of(c={"$ref": "#"}), "INT", "Cannot serialize type INTEGER as object"),
    ],
)
def test_schemas_that_do_not_fit(of: Any, sql: str, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        written(of, {"C": sql}, 1)


def test_a_property_that_makes_no_column_is_left_out() -> None:
    of = row_of(("c",), c=NUMBER, d={"oneOf": [NONE, TEXT, NUMBER]}, e={"items": {}})
    made = json_columns.inferred(
        json_schema.parse(json.dumps(of)), is_key=False, keeps_case=False, unwraps=False
    )
    assert made == [Column(name="C", type="DOUBLE")]
    assert written(of, {"C": "DOUBLE"}, 1.5) == {"c": 1.5}


NAMES = st.sampled_from(["A", "b", "c d", "é", "Key"])
CELLS: st.SearchStrategy[tuple[str, Any, Any]] = st.one_of(
    st.booleans().map(lambda value: ("BOOLEAN", value, value)),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: ("BIGINT", value, value)),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: ("DATE", value, value)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: ("DOUBLE", value, value)),
    st.text(st.characters(blacklist_categories=["Cs"])).map(lambda text: ("STRING", text, text)),
    st.integers(-99999, 99999).map(
        lambda value: ("DECIMAL(5, 2)", Decimal(value).scaleb(-2), Decimal(value).scaleb(-2))
    ),
)


def nested(inner: st.SearchStrategy[tuple[str, Any, Any]]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda cell: (f"ARRAY<{cell[0]}>", [cell[1], None], [cell[2], None])),
        st.tuples(st.text("aé", max_size=2), inner).map(
            lambda pair: (
                f"MAP<STRING, {pair[1][0]}>", {pair[0]: pair[1][1]}, {pair[0]: pair[1][2]}
            )
        ),
        st.tuples(NAMES, inner).map(
            lambda pair: (
                f"STRUCT<`{pair[0]}` {pair[1][0]}>", {pair[0]: pair[1][1]}, {pair[0]: pair[1][2]}
            )
        ),
    )  # fmt: skip


@given(st.dictionaries(NAMES, st.recursive(CELLS, nested, max_leaves=4), min_size=1), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_a_row_under_our_own_schema_is_read_as_it_was_written(
    row: dict[str, tuple[str, Any, Any]], wraps: bool
) -> None:
    wraps = wraps or len(row) > 1
    columns = tuple(Column(name=name, type=of) for name, (of, _, _) in row.items())
    schema = json_schema.parse(json_columns.schema_text(columns, None, wraps=wraps))
    write = json_sr_writing.to_bytes(schema, columns, wraps=wraps)
    source = Source(
        name="S", kind="STREAM", columns=columns, topic="t", partitions=1, key_format="KAFKA",
        value_format="JSON_SR", statement="", wrap_single_value=wraps,
    )  # fmt: skip
    data = framed(1, write([value for _, value, _ in row.values()]))
    assert to_values(source, columns)(data) == [cell for _, _, cell in row.values()]
