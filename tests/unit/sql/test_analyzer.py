"""`analyze`: every statement is either carried out or refused by name, at its place in its text."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.errors import SqlSyntaxError, StatementError, UnknownName
from standpipe.model import Source
from standpipe.sql.analyzer import _HANDLERS, _NOT_YET, Context, analyze
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
