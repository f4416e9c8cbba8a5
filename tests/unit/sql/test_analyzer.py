"""`analyze`: every statement is either carried out or refused by name, at its place in its text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.errors import SqlSyntaxError, StatementError, UnknownName
from standpipe.model import Source
from standpipe.sql.analyzer import _HANDLERS, _NOT_YET, Context, analyze
from standpipe.sql.plans import Plan
from standpipe.sql.syntax import ast, ast_statements
from standpipe.sql.syntax.parser import parse


def kinds_of_statement() -> set[type]:
    return {
        each
        for each in (*vars(ast_statements).values(), ast.Query)
        if isinstance(each, type) and issubclass(each, ast.Statement) and each is not ast.Statement
    }


def test_every_statement_is_known() -> None:
    assert set(_HANDLERS) | set(_NOT_YET) == kinds_of_statement()
    assert not set(_HANDLERS) & set(_NOT_YET)


def test_positions_are_those_in_the_statement(sources: dict[str, Source]) -> None:
    text = "SHOW TABLES;\nSHOW STREAMS; SELECT *\n FROM nowhere WHERE a = 1;"
    *_, query = parse(text)
    with pytest.raises(UnknownName) as caught:
        analyze(query, sources, Context())
    error = caught.value
    assert error.statement == "SELECT *\n FROM nowhere WHERE a = 1;"
    assert (error.line, error.column) == (2, 7)
    assert "Line: 3, Col: 7" in error.message, "ksqlDB counts over the whole request"
    assert error.pointed().splitlines()[1:3] == ["   FROM nowhere WHERE a = 1;", "        ^"]


@pytest.mark.parametrize("name", ["ARRAY", "MAP", "STRUCT"])
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TYPE q AS {};",
        "CREATE STREAM n (v {}) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');",
        "CREATE STREAM n (v MAP<STRING, {}>) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');",
        "CREATE STREAM n AS SELECT tail, CAST(tail AS {}) c FROM flights;",
        "INSERT INTO flights (tail) VALUES (CAST(ARRAY['x'] AS {}));",
    ],
)
def test_a_type_without_its_parts_is_unknown(
    plan: Callable[..., Plan], name: str, text: str
) -> None:
    """It was one whose parts were missing wherever somebody asked for them: IndexError."""
    with pytest.raises(UnknownName, match=f"Cannot resolve unknown type: {name}") as refused:
        plan(text.format(name))
    assert refused.value.line is not None
    assert refused.value.hint.startswith(f"Write {name}<")


@pytest.mark.parametrize("parts", ["(10)", "(10, 2, 1)"])
def test_a_decimal_without_its_scale_is_refused(plan: Callable[..., Plan], parts: str) -> None:
    for text in (
        "CREATE STREAM n AS SELECT tail, CAST(seats AS DECIMAL{}) c FROM flights;",
        "INSERT INTO flights (tail) VALUES (CAST(CAST(1 AS DECIMAL{}) AS STRING));",
    ):
        with pytest.raises(StatementError, match="DECIMAL has a precision and a scale"):
            plan(text.format(parts))


@pytest.mark.parametrize("key", ["ARRAY['a']", "MAP('a' := 1)", "STRUCT(a := 1)"])
def test_a_map_has_no_keys_of_several_values(plan: Callable[..., Plan], key: str) -> None:
    """TypeError in INSERT … VALUES: Python cannot hash a list."""
    text = f"INSERT INTO flights (tail, seats) VALUES ('a', MAP({key} := 1)[{key}]);"
    with pytest.raises(StatementError, match="Keys of a map have a type without others in it"):
        plan(text)


@pytest.mark.parametrize(
    ("pattern", "is_refused"),
    [("x!", True), ("!!!", True), ("!", True), ("x!!", False), ("!%", False), ("", False)],
)
def test_a_pattern_does_not_end_with_its_escape(
    plan: Callable[..., Plan], pattern: str, is_refused: bool
) -> None:
    for text in (
        "CREATE STREAM n AS SELECT * FROM flights WHERE tail LIKE '{}' ESCAPE '!';",
        "SELECT * FROM flights WHERE tail LIKE '{}' ESCAPE '!' EMIT CHANGES;",
    ):
        if is_refused:
            with pytest.raises(StatementError, match="must not end with escape character"):
                plan(text.format(pattern))
        else:
            plan(text.format(pattern))


def test_the_id_of_an_insert_is_that_which_others_name(plan: Callable[..., Plan]) -> None:
    """TERMINATE my_id looks for MY_ID, as an unquoted name is in upper case."""
    text = "CREATE STREAM n AS SELECT tail, seats FROM flights; INSERT INTO n"
    made = plan(f"{text} WITH (QUERY_ID='my_id') SELECT tail, seats FROM departures;")
    assert made.query.query_id == "MY_ID"  # type: ignore[union-attr]


def test_the_first_line_of_a_later_statement(sources: dict[str, Source]) -> None:
    *_, query = parse("SHOW TABLES; SELECT * FROM nowhere;")
    with pytest.raises(UnknownName) as caught:
        analyze(query, sources, Context())
    assert (caught.value.line, caught.value.column) == (1, 15)


WORDS = (
    "SELECT", "*", "FROM", "BY_TAIL", "BY_DAY", "FLIGHTS", "WHERE", "TAIL", "CARRIER", "SEATS", "=",
    "<", "'x'", "1", "-2", "1.5", "NULL", "AND", "OR", "NOT", "IN", "(", ")", ",", "COUNT", "SUM",
    "MAX", "GROUP", "BY", "HAVING", "CREATE", "TABLE", "T", "AS", "WINDOWSTART", "LIMIT", "CASE",
    "WHEN", "THEN", "END", "CAST", "INT", "STRING", "||", "+", "/", "->", "X", "INFO", "TAGS", "[",
    "]", "BETWEEN", "LIKE", "IS", "INSERT", "INTO", "VALUES", "DAY", "AT", "FARE",
)  # fmt: skip
OPENINGS = (
    "SELECT * FROM BY_TAIL WHERE",
    "SELECT * FROM BY_DAY WHERE CARRIER = 'x' AND",
    "CREATE TABLE T AS SELECT TAIL, COUNT(*) FROM FLIGHTS WHERE",
    "CREATE TABLE T AS SELECT TAIL,",
    "INSERT INTO FLIGHTS (SEATS, FARE) VALUES (",
    "",
)
CLOSINGS = (";", "FROM FLIGHTS GROUP BY TAIL;", "GROUP BY TAIL;", ");", "")


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(OPENINGS),
    st.lists(st.sampled_from(WORDS), max_size=9),
    st.sampled_from(CLOSINGS),
)
def test_whatever_parses_is_planned_or_refused(
    sources: dict[str, Source], opening: str, words: list[str], closing: str
) -> None:
    try:
        parsed = parse(" ".join([opening, *words, closing]))
    except SqlSyntaxError:
        return
    for statement in parsed:
        with suppress(StatementError):
            analyze(statement, sources, Context(topics={"t": 1}))
