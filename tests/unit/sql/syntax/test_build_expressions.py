"""Expressions in the text → their tree, shown by the printer, which brackets every operation."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse
from standpipe.sql.syntax.printer import expression_text


def expression(text: str) -> ast.Expression:
    (query,) = parse(f"SELECT {text} AS X FROM T;")
    assert isinstance(query, ast.Query)
    (item,) = query.items
    assert isinstance(item, ast.SelectItem)
    return item.expression


@pytest.mark.parametrize(
    ("text", "printed", "why"),
    [
        ("a", "A", "names are upper-cased"),
        ("`a`", "`a`", "unless they are quoted"),
        ('"a""b"', '`a"b`', "a doubled quote is one"),
        ("t.a", "T.A", ""),
        ("1R", "`1R`", "a name may begin with a digit"),
        ("'it''s \\ '", "'it''s \\ '", "a backslash is plain"),
        ("-5", "-5", "the sign is part of the number"),
        ("- 5", "-5", ""),
        ("a -5", "(A - 5)", "here it is an operation"),
        ("-a", "-A", ""),
        ("1.50", "1.50", "DECIMAL keeps its scale"),
        ("1 + 2 * 3", "(1 + (2 * 3))", "* binds tighter"),
        ("1 - 2 - 3", "((1 - 2) - 3)", "from the left"),
        ("(1 - 2) * 3", "((1 - 2) * 3)", ""),
        ("a || b + c", "(A || (B + C))", "|| binds loosest"),
        ("a = 1 AND b = 2 OR c = 3", "(((A = 1) AND (B = 2)) OR (C = 3))", "AND before OR"),
        ("a AND b AND c", "((A AND B) AND C)", "printed as if it took two"),
        ("NOT a = 1", "(NOT (A = 1))", "NOT binds looser than ="),
        ("a != 1", "(A <> 1)", "two spellings, one operator"),
        ("a NOT BETWEEN 1 AND 2 AND b", "((A NOT BETWEEN 1 AND 2) AND B)", ""),
        ("a IN (1, -2)", "(A IN (1, -2))", ""),
        ("a NOT LIKE 'x!%' ESCAPE '!'", "(A NOT LIKE 'x!%' ESCAPE '!')", ""),
        ("a IS NOT NULL", "(A IS NOT NULL)", ""),
        ("a IS NOT DISTINCT FROM b", "(A IS NOT DISTINCT FROM B)", ""),
        ("CASE WHEN a THEN 1 ELSE 2 END", "(CASE WHEN A THEN 1 ELSE 2 END)", ""),
        ("CASE a WHEN 1 THEN 2 END", "(CASE A WHEN 1 THEN 2 END)", ""),
        ("CAST(a AS DECIMAL(4,2))", "CAST(A AS DECIMAL(4, 2))", ""),
        ("DATE '2013-01-01'", "CAST('2013-01-01' AS DATE)", "a typed text is a CAST"),
        ("COUNT(*)", "COUNT()", "COUNT(*) is COUNT()"),
        ("s->f->g[1]", "S->F->G[1]", ""),
        ("m['k']", "M['k']", ""),
        ("ARRAY[1, 2]", "ARRAY[1, 2]", ""),
        ("MAP('a':=1)", "MAP('a':=1)", ""),
        ("STRUCT(x:=1, y := 2)", "STRUCT(X:=1, Y:=2)", "':' breaks words"),
        ("FILTER(a, x => x > 1)", "FILTER(A, X => (X > 1))", ""),
        ("REDUCE(m, 0, (s, k, v) => s + v)", "REDUCE(M, 0, (S, K, V) => (S + V))", ""),
        ("map + array + date", "((MAP + ARRAY) + DATE)", "few words are reserved"),
        ("a AT TIME ZONE 'UTC'", "A AT TIME ZONE 'UTC'", ""),
    ],
)
def test_tree(text: str, printed: str, why: str) -> None:
    assert expression_text(expression(text)) == printed, why


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2147483647", "INTEGER", 2147483647),
        ("2147483648", "BIGINT", 2147483648),
        ("-2147483648", "INTEGER", -2147483648),
        ("1E0", "DOUBLE", 1.0),
        (".5e-1", "DOUBLE", 0.05),
        ("true", "BOOLEAN", True),
        ("NULL", "NULL", None),
    ],
)
def test_literals(text: str, kind: str, value: object) -> None:
    literal = expression(text)
    assert isinstance(literal, ast.LiteralValue)
    assert (literal.kind, literal.value) == (kind, value)


def test_equal_expressions_are_equal_wherever_they_stand() -> None:
    assert expression("a + 1") == expression("  a +\n 1")
    assert expression("a").at.offset == 7


def test_a_lambda_takes_names_only() -> None:
    with pytest.raises(StatementError, match="must be names"):
        expression("TRANSFORM(a, (x, 1) => x)")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("int", "INTEGER"),
        ("varchar(STRING)", "STRING"),
        ("ARRAY<MAP<STRING, ARRAY<INT>>>", "ARRAY<MAP<STRING, ARRAY<INTEGER>>>"),
        ("STRUCT<a INT, `b c` STRING>", "STRUCT<`A` INTEGER, `b c` STRING>"),
        ("STRUCT<>", "STRUCT<>"),
        ("STRUCT< >", "STRUCT<>"),
        ("ADDRESS", "ADDRESS"),
    ],
)
def test_types(text: str, printed: str) -> None:
    cast = expression(f"CAST(a AS {text})")
    assert isinstance(cast, ast.Cast)
    assert str(cast.type) == printed
