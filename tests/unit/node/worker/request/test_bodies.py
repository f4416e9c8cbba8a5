"""Request bodies, media types and layouts, as tables; and bytes that nobody meant."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import sample_table

from standpipe.errors import BadRequest
from standpipe.model import Column
from standpipe.node.worker.request.bodies import (
    Form,
    Lookup,
    accepted,
    form_of,
    is_known_property,
    parse_lookup,
    parse_statements,
    render_rows,
    split_lines,
)
from standpipe.sql.plans import PullPlan

LAG = "ksql.query.pull.max.allowed.offset.lag"
MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("body", "expected", "why"),
    [
        ({"ksql": "a"}, Lookup("a"), "the old path's name"),
        ({"sql": "a"}, Lookup("a"), "the new path's name"),
        ({"ksql": "a", "sql": "b"}, Lookup("a"), "both: the old one"),
        ({"ksql": "a", "streamsProperties": {}}, Lookup("a"), "no properties"),
        ({"ksql": "a", "streamsProperties": None}, Lookup("a"), "null is none"),
        ({"ksql": "a", "requestProperties": {"x": 1}}, Lookup("a"), "fields of newer clients"),
        ({"ksql": "a", "streamsProperties": {LAG: 7}}, Lookup("a", {LAG: "7"}, 7), "number"),
        ({"ksql": "a", "streamsProperties": {LAG: "10000"}}, Lookup("a", {LAG: "10000"}, 10000),
         "text, as ksqlDB's `curl` has it"),
        ({"sql": "a", "properties": {LAG: 0}}, Lookup("a", {LAG: "0"}, 0), "0 is a bound"),
        ({"sql": "a", "properties": {"acceptable.offset.lag": "5"}},
         Lookup("a", {"acceptable.offset.lag": "5"}, 5), "KLIP-12's name"),
        ({"sql": "a", "properties": {LAG: MAX}}, Lookup("a", {LAG: str(MAX)}, MAX), "largest"),
        ({"sql": "a", "properties": {"ksql.query.pull.table.scan.enabled": True}},
         Lookup("a", {"ksql.query.pull.table.scan.enabled": "true"}), "Java's spelling of true"),
    ],
)  # fmt: skip
def test_parse_lookup(body: dict[str, object], expected: Lookup, why: str) -> None:
    assert parse_lookup(json.dumps(body).encode()) == expected, why


@pytest.mark.parametrize(
    ("body", "says", "why"),
    [
        ("", "JSON", "empty"),
        ("[]", "JSON", "no object"),
        ("{}", '"ksql"', "no statement"),
        ('{"ksql":null}', '"ksql"', "null is none"),
        ('{"ksql":1}', "ksql", "no text"),
        ('{"ksql":"a","streamsProperties":[]}', "streamsProperties", "no object"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":-1}}}}', "0 or more", "negative"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":"-1"}}}}', "0 or more", "negative text"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":1.5}}}}', "number of records", "fraction"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":true}}}}', "number of records", "boolean"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":"٣"}}}}', "number of records", "not ASCII"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}":{MAX + 1}}}}}', "number", "above BIGINT"),
        (f'{{"ksql":"a","streamsProperties":{{"{LAG}s":1}}}}', f"mean '{LAG}'", "misspelt bound"),
        ("[" * 100_000, "JSON", "deep nesting"),
        ('{"x":' + "[" * 100_000, "JSON", "deep nesting in a field that nobody reads"),
    ],
)
def test_refused_bodies(body: str, says: str, why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_lookup(body.encode())
    assert says in caught.value.message, why


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    read_or_refuse(body)


def read_or_refuse(body: bytes) -> None:
    for parse in (parse_lookup, parse_statements):
        with suppress(BadRequest):
            parse(body)


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ksql", "sql", "properties", LAG, "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_json)
def test_any_json_is_read_or_refused(value: object) -> None:
    read_or_refuse(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (LAG, True),
        ("auto.offset.reset", True),
        ("ksql.streams.auto.offset.reset", True),
        ("ksql.schema.registry.url", True),
        ("ksql.nonsense", False),
        ("", False),
        ("standpipe.nonsense", False),
    ],
)
def test_known_properties(name: str, known: bool) -> None:
    assert is_known_property(name) is known


V1, LINES, JSON = "application/vnd.ksql.v1+json", Form.LINES.value.decode(), "application/json"


@pytest.mark.parametrize(
    ("path", "accept", "form", "why"),
    [
        (b"/query", "", Form.ARRAY, "nothing said"),
        (b"/query", "*/*", Form.ARRAY, "anything"),
        (b"/query", "application/*", Form.ARRAY, "any application type"),
        (b"/query", JSON, Form.ARRAY, "another word on the old path"),
        (b"/query", LINES, Form.LINES, "named"),
        (b"/query-stream", "", Form.LINES, "default of the new path"),
        (b"/query-stream", JSON, Form.OBJECTS, "named"),
        (b"/query-stream", f"{V1}; charset=UTF-8", Form.ARRAY, "parameters are passed over"),
        (b"/query-stream", f"{JSON};q=0.1, {V1};q=0.2", Form.ARRAY, "the best liked"),
        (b"/query-stream", f"{LINES};q=0, {JSON}", Form.OBJECTS, "q=0 forbids"),
        (b"/query-stream", "text/plain", None, "not offered"),
        (b"/query-stream", "text/plain, */*;q=0.1", Form.LINES, "at least anything"),
        (b"/query", f"{V1};q=x", None, "a quality that is no number"),
    ],
)
def test_form_of(path: bytes, accept: str, form: Form | None, why: str) -> None:
    assert form_of(path, accept) is form, why


@given(st.text(max_size=60))
def test_any_accept_header_is_survived(header: str) -> None:
    assert accepted(header, (V1, JSON)) in (None, V1, JSON)


SOURCE = sample_table(
    columns=(Column(name="ID", type="STRING", is_key=True), Column(name='q"\\', type="INT"))
)
PLAN = PullPlan(
    source=SOURCE,
    keys=(),
    schema='`ID` STRING KEY, `q"\\` INTEGER',
    column_names=("ID", 'q"\\'),
    column_types=("STRING", "INTEGER"),
)


@pytest.mark.parametrize("rows", [[], [b'["a",1]'], [b'["a",1]', b'["b",null]']])
@pytest.mark.parametrize("form", list(Form))
def test_layouts_are_json(form: Form, rows: list[bytes]) -> None:
    body = render_rows(form, PLAN, rows, 5)
    wanted = [json.loads(row) for row in rows]
    if form is Form.LINES:
        first, *lines = (json.loads(line) for line in body.splitlines())
        assert lines == wanted
        assert split_lines(body) == rows
    elif form is Form.OBJECTS:
        first, *lines = json.loads(body)
        assert lines == wanted
    else:
        head, *items = json.loads(body)
        assert head == {"header": {"queryId": "query_5", "schema": PLAN.schema}}
        assert [item["row"]["columns"] for item in items] == wanted
        return
    assert first == {
        "queryId": "query_5",
        "columnNames": ["ID", 'q"\\'],
        "columnTypes": ["STRING", "INTEGER"],
    }
