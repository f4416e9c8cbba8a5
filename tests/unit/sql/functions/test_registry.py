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
        ("SQRT", ["INT"], ["DOUBLE"], "DOUBLE", "else the one that it widens to"),
        ("SQRT", ["INT"], ["DOUBLE"], "DOUBLE", "an argument may widen"),
        ("CONCAT", ["STRING"] * 4, ["STRING"] * 4, "STRING", "variadic"),
        ("COALESCE", ["INT", "BIGINT"], ["BIGINT", "BIGINT"], "BIGINT", "T widens"),
        ("IFNULL", ["STRING", "NULL"], ["STRING", "STRING"], "STRING", "null is of any type"),
        ("CEIL", ["DECIMAL(5, 2)"], ["DECIMAL(5, 2)"], "DECIMAL(5, 2)", "the scale stays"),
        ("ARRAY_CONTAINS", ["ARRAY<INT>", "INT"], ["ARRAY<INTEGER>", "INTEGER"], "BOOLEAN", ""),
        ("MAP_KEYS", ["MAP<STRING, INT>"], ["MAP<STRING, INTEGER>"], "ARRAY<STRING>", ""),
        ("COUNT", [], [], "BIGINT", "COUNT(*)"),
        ("SUM", ["INT"], ["INTEGER"], "INTEGER", "an INTEGER sum stays one"),
        ("AVG", ["BIGINT"], ["DOUBLE"], "DOUBLE", ""),
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
        ("CONCAT", [], "Valid alternatives are:\nCONCAT(STRING...)"),
        ("GREATEST", ["BOOLEAN"] * 2, "'greatest' does not accept parameters (BOOLEAN, BOOLEAN)."),
        ("LEAST", ["INT", "ARRAY<INT>"], "does not accept parameters (INTEGER, ARRAY<INTEGER>)."),
        ("SUM", ["STRING"], "Function 'SUM' does not accept parameters (STRING)."),
        ("LATEST_BY_OFFSET", [], "Function 'LATEST_BY_OFFSET' does not accept parameters ()."),
    ],
)
def test_not_accepted(name: str, arguments: list[str], message: str) -> None:
    with pytest.raises(NotAccepted) as caught:
        resolve(name, [parse_type(each) for each in arguments])
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
