"""Where statements end, and what may follow."""

import pytest

from standpipe.local import sql_text


@pytest.mark.parametrize(
    ("text", "statements", "rest", "why"),
    [
        ("a; b;", ["a;", "b;"], "", "two"),
        ("a; b", ["a;"], " b", "the second is not finished"),
        ("a ';' b;", ["a ';' b;"], "", "quoted"),
        ("a 'it''s;' b;", ["a 'it''s;' b;"], "", "a quote inside"),
        ('a ";" b;', ['a ";" b;'], "", "an identifier"),
        ("a `;` b;", ["a `;` b;"], "", "an identifier, too"),
        ("-- no; here\na;", ["-- no; here\na;"], "", "line comment"),
        ("/* ; */ a;", ["/* ; */ a;"], "", "block comment"),
        ("a;\n-- done", ["a;"], "", "a comment is no statement"),
        ("a 'open;", [], "a 'open;", "an open quote swallows the rest"),
        (";;", [], "", "empty statements"),
        ("", [], "", "nothing"),
    ],
)
def test_split(text: str, statements: list[str], rest: str, why: str) -> None:
    assert sql_text.split_statements(text) == (statements, rest), why


@pytest.mark.parametrize(
    ("text", "is_query"),
    [
        ("select 1", True),
        ("-- x\n SELECT 1", True),
        ("PRINT t;", True),
        ("SHOW TABLES;", False),
        ("", False),
    ],
)
def test_is_query(text: str, is_query: bool) -> None:
    assert sql_text.is_query(text) is is_query


@pytest.mark.parametrize(
    ("before", "first", "why"),
    [
        ("SELECT * FROM air", "AIRCRAFT", "a table, in any case"),
        ("sel", "SELECT", "a keyword"),
        ("SELECT * FROM ", None, "no word, no guess"),
        ("WHERE zzz", None, "nothing fits"),
    ],
)
def test_completions(before: str, first: str | None, why: str) -> None:
    found = sql_text.completions(before, ["AIRCRAFT", "TAILNUM"])
    assert (found[0] if found else None) == first, why
