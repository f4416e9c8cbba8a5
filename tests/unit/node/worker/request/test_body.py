"""Request bodies as tables, and arbitrary bytes."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.routing.bounds import AskedBounds
from standpipe.errors import BadRequest
from standpipe.node.worker.request import body as body_module
from standpipe.node.worker.request.body import (
    PROPERTIES_MAX,
    Lookup,
    is_known_property,
    parse_lookup,
    parse_statements,
)
from standpipe.session_token import LEVEL_PROPERTY
from standpipe.sql.plans import PARTITION_PROPERTY

LAG = "ksql.query.pull.max.allowed.offset.lag"
SOURCE_LAG = "standpipe.query.pull.max.allowed.source.lag.ms"
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
        ({"ksql": "a", "streamsProperties": {LAG: 7}},
         Lookup("a", {LAG: "7"}, AskedBounds(7)), "number"),
        ({"ksql": "a", "streamsProperties": {LAG: "10000"}},
         Lookup("a", {LAG: "10000"}, AskedBounds(10000)), "text, as ksqlDB's `curl` has it"),
        ({"sql": "a", "properties": {LAG: 0}},
         Lookup("a", {LAG: "0"}, AskedBounds(0)), "0 is a bound"),
        ({"sql": "a", "properties": {"acceptable.offset.lag": "5"}},
         Lookup("a", {"acceptable.offset.lag": "5"}, AskedBounds(5)), "KLIP-12's name"),
        ({"sql": "a", "properties": {LAG: MAX}},
         Lookup("a", {LAG: str(MAX)}, AskedBounds(MAX)), "largest"),
        ({"sql": "a", "properties": {SOURCE_LAG: 5}},
         Lookup("a", {SOURCE_LAG: "5"}, AskedBounds(source_lag_ms_max=5)), "in time"),
        ({"sql": "a", "properties": {PARTITION_PROPERTY: "3"}},
         Lookup("a", {PARTITION_PROPERTY: "3"}, partition=3), "one partition"),
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
        (f'{{"sql":"a","properties":{{"{PARTITION_PROPERTY}":-1}}}}', "0 or more", "no partition"),
        (
            f'{{"sql":"a","properties":{{"{PARTITION_PROPERTY}s":1}}}}',
            f"mean '{PARTITION_PROPERTY}'",
            "a misspelt partition",
        ),
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
        ("ksql.create.or.replace.enabled", True),
        ("ksql.suppress.enabled", True),
        ("ksql.suppress.buffer", False),
        ("ksql.nonsense", False),
        ("", False),
        ("standpipe.nonsense", False),
    ],
)
def test_known_properties(name: str, known: bool) -> None:
    assert is_known_property(name) is known


def test_properties_that_were_read_before_are_told_apart() -> None:
    """They are remembered, and 1, True and 1.0 are equal in Python."""
    name = "ksql.query.pull.max.allowed.offset.lag"
    for _ in range(2):
        for value, text in ((1, "1"), ("1", "1"), ("2", "2")):
            body = json.dumps({"ksql": "Q", "properties": {name: value}}).encode()
            asked = parse_lookup(body)
            assert (asked.properties[name], asked.bounds.lag_records_max) == (text, int(text))
        for wrong in (True, 1.0, [1], {"a": 1}):
            body = json.dumps({"ksql": "Q", "properties": {name: wrong}}).encode()
            with pytest.raises(BadRequest):
                parse_lookup(body)
    for wide in range(600):
        body = json.dumps({"ksql": "Q", "properties": {name: wide}}).encode()
        assert parse_lookup(body).bounds.lag_records_max == wide


def test_little_is_remembered_of_each_request() -> None:
    """Names, values and their number are the client's choice."""
    body_module._recent.clear()
    for properties in (
        {f"max.{number}": "" for number in range(PROPERTIES_MAX)},
        {"max." + "x" * 10_000: ""},
        {"max.x": "x" * 10_000},
    ):
        parse_lookup(json.dumps({"ksql": "Q", "properties": properties}).encode())
        assert body_module._recent == {}
    parse_lookup(b'{"ksql": "Q", "properties": {"max.x": "1"}}')
    assert len(body_module._recent) == 1


@pytest.mark.parametrize("place", ["properties", "streamsProperties", "requestProperties"])
def test_a_token_is_seen_wherever_it_stands(place: str) -> None:
    """Beside properties of the other spelling, too: it must not be ignored."""
    other = "properties" if place != "properties" else "streamsProperties"
    asked = {"ksql": "Q", place: {LEVEL_PROPERTY: "session"}, other: {"max.x": "1"}}
    assert parse_lookup(json.dumps(asked).encode()).session == ""


@pytest.mark.parametrize(("given", "text"), [("false", "K = ${a}"), ("true", "K = 7")])
def test_variables_can_be_switched_off(given: str, text: str) -> None:
    asked = {
        "ksql": "K = ${a}",
        "sessionVariables": {"a": "7"},
        "streamsProperties": {"ksql.variable.substitution.enable": given},
    }
    assert parse_lookup(json.dumps(asked).encode()).text == text


@pytest.mark.parametrize(
    "properties",
    [
        '{"max.x":' + "[" * 900 + "]" * 900 + "}",
        '{"max.x":' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        json.dumps({"max.x": [[]] * 100_000}),
        json.dumps({f"max.{number}": 1 for number in range(PROPERTIES_MAX + 1)}),
        json.dumps({"k" * 500_000: 1}),
        json.dumps({LAG: "9" * 500_000}),
        json.dumps({LEVEL_PROPERTY: "x" * 500_000}),
    ],
)
def test_properties_are_few_and_plain_and_no_error_repeats_them(properties: str) -> None:
    """As texts, deep ones took more stack than there was, and the answer was 500; wide ones, many
    and long ones took the loop of the lookups for as long."""
    for place in ("properties", "streamsProperties"):
        with pytest.raises(BadRequest) as refused:
            parse_lookup(f'{{"ksql": "Q", "{place}": {properties}}}'.encode())
        assert len(refused.value.message) < 1_000


@pytest.mark.parametrize("value", ["[" * 900 + "]" * 900, json.dumps([[]] * 100_000), "{}"])
def test_properties_of_statements_are_plain(value: str) -> None:
    with pytest.raises(BadRequest):
        parse_statements(f'{{"ksql": "Q", "streamsProperties": {{"max.x": {value}}}}}'.encode())


def test_a_long_name_is_not_compared_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took 0.1 s at 1 MB."""
    compared: list[str] = []

    def compare(name: str, *_: object, **__: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr(body_module.difflib, "get_close_matches", compare)
    for name in ("ksql.short", "ksql.long" * 100):
        with pytest.raises(BadRequest):
            body_module.check_properties({name: 1})
    assert compared == ["ksql.short"]


def test_a_request_property_that_is_read_is_plain() -> None:
    body = json.dumps({"ksql": "Q", "requestProperties": {LEVEL_PROPERTY: ["session"], "x": [1]}})
    with pytest.raises(BadRequest, match="neither a text"):
        parse_lookup(body.encode())
