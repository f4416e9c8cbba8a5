"""JSON in texts, as ksqlDB's functions have it. Beside Spark: tests/e2e/both_ways.py."""

from __future__ import annotations

import pytest
from tests.unit.sql.expressions.test_evaluator_functions import value

DEEP = "[" * 200 + "]" * 200


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize(
    ("text", "path", "result", "why"),
    [
        ('{"a":{"b":[1,2.50,"x"]}}', "$.a.b[1]", "2.50", "numbers keep their digits"),
        ('{"a":{"b":[1,2.50,"x"]}}', "$.a.b[2]", "x", "a text is itself"),
        ('{"b": 1, "a": {"c" : 2}}', "$", '{"b":1,"a":{"c":2}}', "keys keep their order"),
        ('{"a":null}', "$.a", "null", "Spark has NULL here"),
        ('{"a":1}', "$.b", None, ""),
        ('{"a":[1]}', "$.a[-1]", None, ""),
        ('{"a":[1]}', "$.a[*]", None, "no wildcards"),
        ('{"x y":1}', '$["x y"]', "1", ""),
        ('{"x-y":1}', "$.x-y", None, "names of letters, digits and _"),
        ('{"x_9":1}', "$.x_9", "1", ""),
        ('{"x:y":1,"@z":2}', "$.x:y", "1", "... behind a point also : and @"),
        ('{"x:y":1,"@z":2}', "$[@z]", None, "... but not in brackets"),
        ('{"x\\"y\\\\":1}', '$["x\\"y\\\\"]', "1", "quotes and backslashes"),
        ('{"x\\\\y":1}', '$["x\\y"]', None, "a backslash escapes nothing else"),
        ('{"a":1}}', "$.a", "1", "what follows the first value is not read"),
        ("{'a':1}", "$.a", None, "Spark reads it"),
        ("1e5", "$", "1E+5", "a BigDecimal"),
    ],
)
def test_extract(text: str, path: str, result: str | None, why: str) -> None:
    assert value(f"EXTRACTJSONFIELD({quoted(text)}, {quoted(path)})") == result, why


@pytest.mark.parametrize(
    ("text", "is_json"),
    [("1", True), ("abc", False), ('"abc"', True), ("", False), ("[1] x", True), ("1x", False),
     ("NaN", False), ("null", True), ("truex", False), (DEEP, True), (f"[{DEEP}]", False),
     ("[" * 60_000, False), ("1" * 1_001, False), ("1e999999999", False),
     ("-1.5E+99999999999999999999", False), ("1e-999999999", True)],
)  # fmt: skip
def test_is_json(text: str, is_json: bool) -> None:
    assert value(f"IS_JSON_STRING({quoted(text)})") is is_json


@pytest.mark.parametrize(
    ("call", "result", "why"),
    [
        ("IS_JSON_STRING(NULL)", False, ""),
        ("""JSON_ARRAY_CONTAINS('["a", bad', 'a')""", True, "it reads no further"),
        ("JSON_ARRAY_CONTAINS('[2.0]', 2)", False, "an integer is no DOUBLE"),
        ("JSON_ARRAY_CONTAINS('[2.0]', 2E0)", True, ""),
        ("JSON_ARRAY_CONTAINS('[3000000000, 1]', 1)", False, "no INTEGER: ksqlDB ends there"),
        ("JSON_ARRAY_CONTAINS('[1, null]', CAST(NULL AS INTEGER))", True, ""),
        ("JSON_ARRAY_CONTAINS('[\"1\"]', 1)", False, ""),
        ("JSON_ARRAY_LENGTH('[1, [2, 3]]')", 2, ""),
        ("JSON_ARRAY_LENGTH('{}')", None, ""),
        ("""JSON_CONCAT('{"b":1,"a":2}', '{"b":1E3}')""", '{"b":1000,"a":2}', "merged, plain"),
        ("JSON_CONCAT('[1]', '{}', '4')", "[1,{},4]", ""),
        ("JSON_CONCAT('null', 'null')", "[null,null]", ""),
        ("JSON_CONCAT('[1, 2]')", "[1,2]", ""),
        ("JSON_CONCAT('1')", "[1]", ""),
        ("""JSON_CONCAT('{"a" : 1}')""", '{"a":1}', ""),
        ("JSON_CONCAT('1E10000', '1')", None, "too many digits, as in Jackson"),
        ("JSON_CONCAT('1', '')", None, ""),
        ("""JSON_ITEMS('[{"a" : 1}]')""", ['{"a":1}'], ""),
        ("""JSON_ITEMS('[1, "x", null, [2]]')""", ["1", '"x"', "null", "[2]"], "of any kind"),
        ("JSON_ITEMS('{}')", None, "no array"),
        ("""JSON_KEYS('{"b":1,"a":2,"b":3}')""", ["b", "a"], ""),
        (
            """JSON_RECORDS('{"a":"x","b":[1],"c":null}')""",
            {"a": "x", "b": "[1]", "c": "null"},
            "a text is itself",
        ),
        ("TO_JSON_STRING(ARRAY[1, NULL])", "[1,null]", ""),
        ("TO_JSON_STRING('it''s \"x\"')", '"it\'s \\"x\\""', ""),
        ("TO_JSON_STRING(1E7)", "1.0E7", "as Java writes it"),
        ("TO_JSON_STRING(CAST('2020-02-29' AS DATE))", '"2020-02-29"', ""),
        ("TO_JSON_STRING(CAST(NULL AS STRING))", "null", ""),
        (
            "TO_JSON_STRING(STRUCT(B := 1, A := ARRAY[STRUCT(D := 2, C := true)]))",
            '{"A":[{"C":true,"D":2}],"B":1}',
            "in the order of the names",
        ),
    ],
)
def test_the_result(call: str, result: object, why: str) -> None:
    assert value(call) == result, why


UNFINISHED = ("[", "{", '{"a"', '{"a":', "[1,", '"', "-", "1.", "1e", "tru", '"\\', '"\\u12')


@pytest.mark.parametrize("text", UNFINISHED)
def test_what_is_not_finished_is_null_and_no_error(text: str) -> None:
    for name in ("JSON_KEYS", "JSON_ITEMS", "JSON_RECORDS", "JSON_ARRAY_LENGTH"):
        assert value(f"{name}({quoted(text)})") is None
    assert value(f"JSON_ARRAY_CONTAINS({quoted(text)}, 7)") is False
