"""Where statements end, and what may follow."""

import pytest

from standpipe.local.cli import sql_text


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
    ("text", "expected", "why"),
    [
        ("SELECT * \\\nFROM S;", "SELECT * \nFROM S;", "as in ksqlDB's CLI"),
        ("A \\ \t\n\\\nB;", "A \n\nB;", "blanks behind it are not seen"),
        ("A \\ B;", "A \\ B;", "no end of a line: the node refuses it"),
        ("SELECT 'a\\\nb';", "SELECT 'a\\\nb';", "a text keeps it"),
        ("A -- b \\\nC;", "A -- b \\\nC;", "a comment, too"),
        ("A;\\", "A;\\", "no line follows"),
    ],
)
def test_without_continuations(text: str, expected: str, why: str) -> None:
    assert sql_text.without_continuations(text) == expected, why


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
        ("FROM sco", "`scores`", "a name that needs quotes"),
        ("FROM `sco", "scores`", "its first quote is there"),
        ("FROM `air", "AIRCRAFT", "the others need none"),
    ],
)
def test_completions(before: str, first: str | None, why: str) -> None:
    found = sql_text.completions(before, ["AIRCRAFT", "TAILNUM", "`scores`"])
    assert (found[0] if found else None) == first, why


@pytest.mark.parametrize(
    ("text", "is_live", "why"),
    [
        ("SELECT * FROM T EMIT CHANGES;", True, "a push query"),
        ("SELECT COUNT(*) FROM S GROUP BY K EMIT FINAL;", True, "one on windows that are over"),
        ("-- all\nselect * from t emit /* now */\n changes limit 3;", True, "in any spelling"),
        ("PRINT t;", True, "PRINT"),
        ("SELECT * FROM T WHERE K = ' EMIT CHANGES ';", False, "quoted"),
        ("SELECT `EMIT`, CHANGES FROM T;", False, "names"),
        ("CREATE TABLE T AS SELECT * FROM S EMIT CHANGES;", False, "a statement"),
        ("", False, "nothing"),
    ],
)
def test_is_live(text: str, is_live: bool, why: str) -> None:
    assert sql_text.is_live(text) is is_live, why


@pytest.mark.parametrize(
    ("text", "setting", "why"),
    [
        ("SET 'auto.offset.reset' = 'earliest';", ("auto.offset.reset", "earliest"), "SET"),
        ("-- x\nset 'a'='it''s'", ("a", "it's"), "in any spelling"),
        ("UNSET 'a';", ("a", None), "UNSET"),
        ("SET 'a';", None, "no sentence"),
        ("SHOW TABLES;", None, "another statement"),
    ],
)
def test_setting(text: str, setting: tuple[str, str | None] | None, why: str) -> None:
    assert sql_text.setting(text) == setting, why


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("RUN SCRIPT '/a/b.sql';", "/a/b.sql"),
        ("-- first\nrun  script 'it''s.sql'", "it's.sql"),
        ("RUN SCRIPT x;", None),
        ("SELECT 'RUN SCRIPT';", None),
    ],
)
def test_script(text: str, path: str | None) -> None:
    assert sql_text.script(text) == path
