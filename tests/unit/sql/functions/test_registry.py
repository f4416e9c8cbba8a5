"""Which variant of a function takes which arguments, and that the registry is sound."""

from __future__ import annotations

import string

import pytest

from standpipe.sql.functions import registry
from standpipe.sql.functions.registry import NoSuchFunction, NotAccepted, resolve
from standpipe.sql.types.types import NULL, parse_type


@pytest.mark.parametrize(
    ("name", "arguments", "parameters", "result", "why"),
    [
        ("ABS", ["INT"], ["INTEGER"], "INTEGER", "NUMBER is what was given"),
        ("ABS", ["DECIMAL(4, 2)"], ["DECIMAL(4, 2)"], "DECIMAL(4, 2)", ""),
        ("ROUND", ["INT"], ["INTEGER"], "BIGINT", "the exact variant wins"),
        ("ROUND", ["DECIMAL(4, 2)"], ["DECIMAL(4, 2)"], "DECIMAL(2, 0)", "no scale is left"),
        ("SQRT", ["INT"], ["INTEGER"], "DOUBLE", ""),
        ("FROM_UNIXTIME", ["INT"], ["BIGINT"], "TIMESTAMP", "an argument may widen"),
        ("FORMAT_DATE", ["STRING"] * 2, ["DATE", "STRING"], "STRING", "text becomes a time"),
        ("POWER", ["INT", "INT"], ["INTEGER"] * 2, "DOUBLE", "the exact variant"),
        ("POWER", ["BIGINT", "DOUBLE"], ["DOUBLE"] * 2, "DOUBLE", "the only one after a cast"),
        ("POWER", ["DECIMAL(4, 2)", "INT"], ["DOUBLE"] * 2, "DOUBLE", ""),
        ("GREATEST", ["INT", "NULL", "INT"], ["INTEGER"] * 3, "INTEGER", "NULL is of any type"),
        ("LEAST", ["BIGINT", "DOUBLE"], ["DOUBLE"] * 2, "DOUBLE", ""),
        ("LEAST", ["DATE", "STRING"], ["DATE"] * 2, "DATE", "text beside a time"),
        (
            "GREATEST",
            ["DECIMAL(4, 2)", "DECIMAL(5, 1)"],
            ["DECIMAL(6, 2)"] * 2,
            "DECIMAL(6, 2)",
            "the one that holds both",
        ),
        ("CONCAT", ["STRING"] * 4, ["STRING"] * 4, "STRING", "variadic"),
        ("COALESCE", ["INT", "NULL", "INT"], ["INTEGER"] * 3, "INTEGER", ""),
        ("IFNULL", ["STRING", "NULL"], ["STRING", "STRING"], "STRING", "null is of any type"),
        ("CEIL", ["DECIMAL(5, 2)"], ["DECIMAL(5, 2)"], "DECIMAL(5, 2)", "the scale stays"),
        ("ARRAY_CONTAINS", ["ARRAY<INT>", "INT"], ["ARRAY<INTEGER>", "INTEGER"], "BOOLEAN", ""),
        ("MAP_KEYS", ["MAP<STRING, INT>"], ["MAP<STRING, INTEGER>"], "ARRAY<STRING>", ""),
        ("COUNT", [], [], "BIGINT", "COUNT(*)"),
        ("SUM", ["INT"], ["INTEGER"], "INTEGER", "an INTEGER sum stays one"),
        ("AVG", ["BIGINT"], ["DOUBLE"], "DOUBLE", ""),
        ("AVG", ["DECIMAL(5, 2)"], ["DOUBLE"], "DOUBLE", "ksqlDB accepts none"),
        ("MAX", ["STRING"], ["STRING"], "STRING", ""),
    ],
)
def test_resolve(
    name: str, arguments: list[str], parameters: list[str], result: str, why: str
) -> None:
    given = [NULL if each == "NULL" else parse_type(each) for each in arguments]
    found = resolve(name, given)
    assert [str(each) for each in found.parameters] == parameters, why
    assert str(found.result) == result, why


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("LEN", ["INT"], "Function 'len' does not accept parameters (INTEGER)."),
        ("LEN", [], "Function 'len' does not accept parameters ()."),
        ("COALESCE", ["INT", "STRING"], "does not accept parameters (INTEGER, STRING)."),
        ("IFNULL", ["BIGINT", "INT"], "does not accept parameters (BIGINT, INTEGER)."),
        ("NULLIF", ["DECIMAL(4, 2)", "DECIMAL(2, 1)"], "does not accept parameters"),
        ("ARRAY_CONTAINS", ["ARRAY<BIGINT>", "INT"], "does not accept parameters"),
        ("GREATEST", ["INT", "STRING"], "does not accept parameters (INTEGER, STRING)."),
        ("LEAST", ["TIMESTAMP", "DATE"], "does not accept parameters (TIMESTAMP, DATE)."),
        ("GREATEST", ["INT", "BIGINT"], "'greatest' cannot be resolved due to ambiguous method"),
        ("POWER", ["INT", "BIGINT"], "ambiguous method parameters (INTEGER, BIGINT)."),
        ("ROUND", ["INT", "INT"], "ambiguous method parameters (INTEGER, INTEGER)."),
        ("TRUNC", ["BIGINT", "INT"], "ambiguous method parameters (BIGINT, INTEGER)."),
        ("LOG", ["NULL", "NULL"], "ambiguous method parameters (null, null)."),
        ("ARRAY_JOIN", ["ARRAY<DATE>"], "'array_join' does not accept parameters (ARRAY<DATE>)."),
        ("ARRAY_JOIN", ["ARRAY<ARRAY<INT>>", "STRING"], "does not accept parameters"),
        ("CONCAT", [], "Valid alternatives are:\nCONCAT(STRING...)"),
        ("GREATEST", ["BOOLEAN"] * 2, "'greatest' does not accept parameters (BOOLEAN, BOOLEAN)."),
        ("LEAST", ["INT", "ARRAY<INT>"], "does not accept parameters (INTEGER, ARRAY<INTEGER>)."),
        ("SUM", ["STRING"], "Function 'SUM' does not accept parameters (STRING)."),
        ("LATEST_BY_OFFSET", [], "Function 'LATEST_BY_OFFSET' does not accept parameters ()."),
    ],
)
def test_not_accepted(name: str, arguments: list[str], message: str) -> None:
    with pytest.raises(NotAccepted) as caught:
        resolve(name, [NULL if each == "NULL" else parse_type(each) for each in arguments])
    assert message in str(caught.value)


def test_no_such_function() -> None:
    with pytest.raises(NoSuchFunction, match="Can't find any functions with the name 'LENN'") as it:
        resolve("LENN", [])
    assert it.value.hint == "Did you mean LEN?"


@pytest.mark.parametrize("name", ["REFLECT", "JAVA_METHOD", "INPUT_FILE_NAME", "READ_FILES"])
def test_what_is_not_in_the_registry_does_not_reach_spark(name: str) -> None:
    with pytest.raises(NoSuchFunction):
        resolve(name, [])


@pytest.mark.parametrize("name", registry.names())
def test_every_template_has_a_place_for_every_argument(name: str) -> None:
    for variant in registry.variants(name):
        places = {field for _, field, _, _ in string.Formatter().parse(variant.template) if field}
        count = len(variant.parameters)
        assert places <= {"all", "count", *map(str, range(count))}
        assert "all" in places or places == {str(place) for place in range(count)}
