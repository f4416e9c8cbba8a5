"""What is a sentence, where a syntax error points, and that no text whatever can do harm."""

from __future__ import annotations

import string
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.errors import SqlSyntaxError, StatementError
from standpipe.sql.syntax.parser import DEPTH_MAX, parse

FRAGMENTS = (
    "SELECT", "*", "FROM", "T", "WHERE", "ID", "=", "'x'", "1", "1.5", "-", "(", ")", ",", ";",
    "CREATE", "TABLE", "STREAM", "AS", "WITH", "GROUP", "BY", "COUNT", "WINDOW", "TUMBLING", "SIZE",
    "5", "DAYS", "INSERT", "INTO", "VALUES", "NULL", "NOT", "IN", "BETWEEN", "AND", "OR", "CASE",
    "WHEN", "THEN", "END", "ARRAY", "<", ">", "[", "]", "->", "=>", ":=", "`q`", '"Q"', "--c\n",
    "/*c*/", "STRUCT", "MAP", "INT", "KEY", "EMIT", "CHANGES", "LIMIT", "${v}", "\\", "\x00", "é",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "texts", "why"),
    [
        ("", [], "nothing is said"),
        ("-- only a remark", [], "a comment says nothing"),
        ("SHOW TABLES", ["SHOW TABLES"], "the last semicolon may be left out"),
        ("SHOW TABLES;", ["SHOW TABLES;"], ""),
        ("SHOW TABLES; LIST QUERIES ;", ["SHOW TABLES;", "LIST QUERIES ;"], "semicolons stay"),
        (" /* a; b */ SHOW TABLES ; -- c\n", ["SHOW TABLES ;"], "comments around do not"),
        ("SET 'a;b'='--c';", ["SET 'a;b'='--c';"], "no semicolon, no comment inside a string"),
    ],
)
def test_statements_keep_their_text(text: str, texts: list[str], why: str) -> None:
    assert [statement.text for statement in parse(text)] == texts, why


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("SELECT * FROM S1 SORTED BY K;", 1, 25, "line 1:25: Syntax Error\n\nStatement: SELECT"),
        ("SELECT * FROM S1 SORTED BY K;", 1, 25, "Syntax error at or near 'BY' at line 1:25"),
        ("SELECT * FROM\n  T LIMIT heh;", 2, 11, "line 2:11: Syntax Error"),
        ("CREATE STREAM I (K INT (KEY));", 1, 25, "Expecting {'STRING', INTEGER_VALUE}\nStatement"),
        ("SELECT * FROM T WHERE a = b = c;", 1, 29, "near '=' at"),
        ("SELECT * FROM T WHERE a IN ();", 1, 29, "near ')' at"),
        ("SELECT 'open FROM T;", 1, 8, 'near "\'" at line 1:8'),
        ("SELECT a FROM", 1, 14, "near '<EOF>'"),
        ("CREATE STREAM I (K NULL);", 1, 20, "near 'NULL'"),
        ("SHOW TABLES;\n  SHOW NOTHING;", 1, 6, "line 2:8: Syntax Error"),
    ],
)
def test_syntax_errors_point(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.statement in text


def test_the_caret_stands_under_the_word_of_its_own_statement() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse("SHOW TABLES;\n  SHOW NOTHING;")
    assert caught.value.pointed().splitlines()[-2:] == ["  SHOW NOTHING;", "       ^"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("9223372036854775807", None),
        ("9223372036854775808", "line 1:9: Invalid numeric literal: 9223372036854775808"),
        ("-9223372036854775808", None),
        ("-9223372036854775809", "Invalid numeric literal: -9223372036854775809"),
        ("1.7976931348623157E308", None),
        ("-1.7976931348623160E308", "Number overflows DOUBLE: -1.7976931348623160E308"),
        ("9" * 5_000, "Invalid numeric literal"),
    ],
)
def test_the_sign_is_folded_before_the_range_is_checked(number: str, message: str | None) -> None:
    if message is None:
        parse(f"SELECT {number} FROM T;")
        return
    with pytest.raises(StatementError) as caught:
        parse(f"SELECT {number} FROM T;")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("inside", "is_fine", "why"),
    [
        ("(" * 2_400 + "1" + ")" * 2_400, True, "brackets leave no node behind"),
        ("- " * (DEPTH_MAX - 5) + "a", True, "deep, but within the bound"),
        ("- " * DEPTH_MAX + "a", False, "one node a sign: too deep with what is around"),
        ("NOT " * 4_000 + "a", False, ""),
        ("+".join(["a"] * 2_000), False, "leans to the left all the way down"),
        (" OR ".join(["a = 1"] * 1_200), True, "OR takes any number of operands"),
        ("ARRAY[" * 1_200 + "1" + "]" * 1_200, False, ""),
        ("CAST(a AS " + "ARRAY<" * 1_200 + "INT" + ">" * 1_200 + ")", False, "types nest as well"),
    ],
)
def test_nesting_is_bounded(inside: str, is_fine: bool, why: str) -> None:
    text = f"SELECT * FROM T WHERE {inside};"
    if is_fine:
        assert len(parse(text)) == 1, why
        return
    with pytest.raises(StatementError, match="nested deeper"):
        parse(text)


@settings(max_examples=examples(50), deadline=None)
@given(st.text(alphabet=string.printable + "é\x00\u2028", max_size=200))
@example("SELECT * FROM T WHERE a = '\\';--")
def test_no_text_crashes(text: str) -> None:
    with suppress(StatementError):
        parse(text)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30))
def test_no_sequence_of_words_crashes(words: list[str]) -> None:
    with suppress(StatementError):
        parse(" ".join(words))
