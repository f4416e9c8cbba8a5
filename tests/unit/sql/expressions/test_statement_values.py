"""RANDOM(), UUID() and the clock as literals of one statement."""

from __future__ import annotations

import uuid

import pytest

from standpipe.sql.expressions.statement_values import StatementValues, are_in, in_text, in_tree
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import InsertValues
from standpipe.sql.syntax.parser import parse

VALUES = StatementValues(now_ms=86_400_000 * 3 + 5, seed=b"s" * 16)


@pytest.mark.parametrize(
    ("text", "made", "why"),
    [
        ("SELECT UNIX_TIMESTAMP() FROM T;", "SELECT 259200005 FROM T;", ""),
        ("SELECT unix_date( ) FROM T;", "SELECT 3 FROM T;", "in any case"),
        ("SELECT 'UUID()' FROM T;", "SELECT 'UUID()' FROM T;", "quoted"),
        ('SELECT "UUID()", `UUID()` FROM T;', 'SELECT "UUID()", `UUID()` FROM T;', ""),
        ("SELECT 1 -- UUID()\n FROM T;", "SELECT 1 -- UUID()\n FROM T;", "a comment"),
        ("SELECT 1 /* ' */, UNIX_DATE() FROM T;", "SELECT 1 /* ' */, 3 FROM T;", ""),
        ("UNIX_DATE() /* UNIX_DATE()", "3 /* UNIX_DATE()", "one that is not closed"),
        ("UNIX_DATE() /* ' /* UUID() '", "3 /* ' /* UUID() '", "which is searched once"),
        ("SELECT UNIX_DATE(D) FROM T;", "SELECT UNIX_DATE(D) FROM T;", "it has an argument"),
        ("SELECT MY_UUID() FROM T;", "SELECT MY_UUID() FROM T;", "another name"),
    ],
)
def test_in_text(text: str, made: str, why: str) -> None:
    assert in_text(text, VALUES) == made, why
    assert are_in(text) or made == text


@pytest.mark.parametrize(
    ("text", "is_pull", "why"),
    [
        ("SELECT UUID() FROM T;", True, ""),
        ("SELECT UUID() FROM T EMIT CHANGES;", False, "its rows have values of their own"),
        ("SELECT K, UUID() FROM T GROUP BY K emit\n final;", False, "in any case"),
        ("SELECT UUID() FROM T EMIT /* all */ CHANGES;", False, "a comment between"),
        ("SELECT UUID() FROM T WHERE A = 'EMIT CHANGES';", True, "quoted"),
        ("SELECT UUID() FROM T -- EMIT CHANGES\n;", True, "a comment"),
        ("SELECT UUID() AS EMIT FROM T;", True, "a name"),
    ],
)
def test_a_push_query_keeps_its_calls(text: str, is_pull: bool, why: str) -> None:
    assert are_in(text) is is_pull, why


@pytest.mark.parametrize(
    ("text", "has_calls", "why"),
    [
        ("EXPLAIN SELECT UUID() AS U FROM T;", False, "a pull query"),
        ("EXPLAIN ROUTE SELECT * FROM T WHERE ID = UUID();", False, ""),
        ("EXPLAIN SELECT UUID() AS U FROM T EMIT CHANGES;", True, "row by row"),
        ("EXPLAIN CREATE STREAM S AS SELECT UUID() AS U FROM T;", True, "by Spark"),
        ("CREATE STREAM S AS SELECT UUID() AS U FROM T;", True, "by Spark"),
    ],
)
def test_what_is_explained_has_the_values_it_would_have(
    text: str, has_calls: bool, why: str
) -> None:
    made = in_tree(parse(text)[0], VALUES)
    assert any(isinstance(each, ast.FunctionCall) for each, _ in ast.walk(made)) is has_calls, why


def test_each_call_has_a_value_and_the_same_seed_gives_it_again() -> None:
    text = "SELECT UUID() AS A, UUID() AS B, RANDOM() AS C FROM T;"
    made = in_text(text, VALUES)
    assert made == in_text(text, VALUES)
    assert made != in_text(text, StatementValues(VALUES.now_ms, b"t" * 16))
    (query,) = parse(made)
    assert isinstance(query, ast.Query)
    values = [node.value for node, _ in ast.walk(query.items) if isinstance(node, ast.LiteralValue)]
    texts = {value for value in values if isinstance(value, str)}
    assert len(texts) == 2
    assert {uuid.UUID(text).version for text in texts} == {4}
    (number,) = (value for value in values if not isinstance(value, str))
    assert isinstance(number, float)
    assert 0 <= number < 1


def test_an_insert_has_them_wherever_they_are_nested() -> None:
    text = "INSERT INTO T VALUES (UUID(), ARRAY[UNIX_TIMESTAMP()], UNIX_DATE(D) + UNIX_DATE());"
    (insert,) = parse(text)
    assert isinstance(insert, InsertValues)
    made = in_tree(insert, VALUES)
    literals = [node for node, _ in ast.walk(made.values) if isinstance(node, ast.LiteralValue)]
    assert {each.kind for each in literals} == {"STRING", "BIGINT", "INTEGER"}
    assert {each.value for each in literals} >= {259200005, 3}
    calls = [node for node, _ in ast.walk(made.values) if isinstance(node, ast.FunctionCall)]
    assert [each.name for each in calls] == ["UNIX_DATE"], "it has an argument"
