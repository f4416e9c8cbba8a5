"""Types of expressions and what is wrong with others, seen through WHERE of a CREATE TABLE."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.expressions.scope import Scope
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.spark.expression_sql import expression_sql
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Typed


def expression(text: str) -> ast.Expression:
    (query,) = parse(f"SELECT {text} AS X FROM FLIGHTS;")
    assert isinstance(query, ast.Query)
    (item,) = query.items
    assert isinstance(item, ast.SelectItem)
    return item.expression


@pytest.fixture
def names(sources: dict[str, Source]) -> Scope:
    return Scope.of(sources["FLIGHTS"], "F")


@pytest.fixture
def typed(names: Scope) -> Callable[[str], Typed]:
    def typed(text: str) -> Typed:
        return Typer(names, "SELECT").type(expression(text))

    return typed


@pytest.mark.parametrize(
    ("text", "of", "sql"),
    [
        ("seats", "INTEGER", "`SEATS`"),
        ("f.seats", "INTEGER", "`SEATS`"),
        ("rowtime", "BIGINT", "`ROWTIME`"),
        ("info->y", "STRING", "`INFO`.`Y`"),
        ("seats / 2", "INTEGER", "cast((`SEATS` div (2)) AS INT)"),
        ("miles / 2", "BIGINT", "(`MILES` div (2L))"),
        ("delay / 2", "DOUBLE", "(`DELAY` / (2.0D))"),
        ("seats + miles", "BIGINT", "(cast(`SEATS` AS BIGINT) + `MILES`)"),
        ("fare * 2", "DECIMAL(17, 2)", "cast((`FARE` * (2)) AS DECIMAL(17, 2))"),
        ("fare / 3", "DECIMAL(17, 13)",
         "cast((`FARE` / cast((3) AS DECIMAL(10, 0))) AS DECIMAL(17, 13))"),
        ("delay % miles", "DOUBLE",
         "if(cast(`MILES` AS DOUBLE) = 0, `DELAY` * double('NaN'),\
 (`DELAY` % cast(`MILES` AS DOUBLE)))"),
        ("tail + 'x'", "STRING",
         "if(0L + coalesce(length(`TAIL`), 0) + coalesce(length('x'), 0) > 4194304, NULL,\
 concat(coalesce(`TAIL`, 'null'), 'x'))"),
        ("seats = 1 AND NOT delay < 2", "BOOLEAN",
         "(coalesce(`SEATS` = (1), false) AND (NOT coalesce(`DELAY` < (2.0D), false)))"),
        ("seats IS DISTINCT FROM NULL", "BOOLEAN", "(NOT (`SEATS` <=> cast(NULL AS INT)))"),
        ("seats NOT BETWEEN 1 AND 2", "BOOLEAN",
         "(NOT (coalesce(`SEATS` >= (1), false) AND coalesce(`SEATS` <= (2), false)))"),
        ("seats IN (1, 3000000000)", "BOOLEAN",
         "(coalesce(cast(`SEATS` AS BIGINT) IN ((1L), (3000000000L)), false))"),
        ("tail LIKE 'N!%' ESCAPE '!'", "BOOLEAN", "(`TAIL` LIKE 'N\\\\%')"),
        ("tail LIKE 'a\\b%'", "BOOLEAN", "(`TAIL` LIKE 'a\\\\\\\\b%')"),
        ("CASE seats WHEN 1 THEN NULL ELSE miles END", "BIGINT",
         "(CASE WHEN coalesce(`SEATS` = (1), false) THEN cast(NULL AS BIGINT) ELSE `MILES` END)"),
        ("at > '2013'", "BOOLEAN",
         "coalesce(`AT` > timestamp_millis(1356998400000L), false)"),
        ("CAST('x' AS INT)", "INTEGER", "cast(NULL AS INT)"),
        ("CAST(seats AS STRING)", "STRING", "cast(`SEATS` AS STRING)"),
        ("SQRT(seats)", "DOUBLE", "cast(sqrt(`SEATS`) AS DOUBLE)"),
    ],
)  # fmt: skip
def test_types_and_sql(typed: Callable[[str], Typed], text: str, of: str, sql: str) -> None:
    found = typed(text)
    assert (str(found.type), expression_sql(found)) == (of, sql)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seats = 'x'", "Cannot compare SEATS (INTEGER) to 'x' (STRING) with EQUAL.\nStatement: "),
        ("tags < tags", "Cannot compare TAGS (ARRAY<STRING>) to TAGS (ARRAY<STRING>) with LESS"),
        ("seats = NULL", "not supported: INTEGER = NULL\nUse 'IS NULL' or 'IS NOT NULL' inst"),
        ("fare > NULL", "Comparison with NULL not supported: DECIMAL > NULL\n"),
        ("seats AND TRUE", "Should evaluate to boolean but is SEATS (INTEGER) instead."),
        ("NOT seats", "Should evaluate to boolean but is SEATS (INTEGER) instead."),
        (
            "seats IN (1, TRUE)",
            "operator does not exist: INTEGER = BOOLEAN (true)\nHint: You might",
        ),
        ("CASE WHEN TRUE THEN NULL END", "All case branches have NULL type"),
        ("CASE WHEN TRUE THEN 1 ELSE 'a' END", "Type for the default clause should be the same"),
        ("CAST(tail AS ARRAY<INT>)", "Cast of STRING to ARRAY<INTEGER> is not supported"),
        ("CAST(tail AS FOO)", "Cannot resolve unknown type: FOO"),
        ("seats LIKE 'x'", "Like condition must be between strings"),
        ("-tail", "Cannot negate TAIL"),
        (f"{'9' * 38}.5", "DECIMAL precision must be <= 38: DECIMAL(39,1)"),
        ("seats[1]", "Subscript expression (SEATS[1]) do not apply to INTEGER."),
        (
            "info['X']",
            (
                "Subscript expression (INFO['X']) do not apply to STRUCT<`X` INTEGER, `Y` STRING>."
                " Use the dereference operator for STRUCTS: INFO->'X'"
            ),
        ),
        ("seats->x", "Expected STRUCT type, got: INTEGER"),
        ("tail LIKE 'x' ESCAPE '!!'", "Expected single character escape but got: !!"),
        ("DECIMAL 'x'", "Not a number: DECIMAL 'x'."),
        ("info->z", "Could not find field 'Z' in 'INFO'"),
        ("day = 'x'", "Failed to parse timestamp: x"),
        (
            "ARRAY[NULL]",
            "with all NULL elements (see https://github.com/confluentinc/ksql/issues/4239). As a",
        ),
        ("MAP(NULL := 1)", "Cannot construct a map with all NULL keys (see"),
        ("STRUCT(a := 1, a := 2)", "Duplicate field names found in STRUCT: 'A'."),
        ("UCASE(x => x)", "Function UCASE takes no lambda."),
        ("FILTER(tags, x => 1)", "FILTER's lambda must return BOOLEAN, not INTEGER"),
        ("TRANSFORM(tags, x => y)", "SELECT column 'Y' cannot be resolved."),
        ("LATEST_BY_OFFSET(tail)", "without a GROUP BY clause"),
    ],
)
def test_refusals(typed: Callable[[str], Typed], text: str, message: str) -> None:
    with pytest.raises(StatementError) as caught:
        typed(text)
    assert message in caught.value.message
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("where", "inner"),
    [
        ("seats = 'x'", "Cannot compare SEATS (INTEGER) to 'x' (STRING) with EQUAL."),
        (
            "tail = 'a' AND seats = 'x'",
            "Cannot compare SEATS (INTEGER) to 'x' (STRING) with EQUAL.\nStatement: (SEATS = 'x')",
        ),
        (
            "NOT (tail = NULL OR seats = 1)",
            "Comparison with NULL not supported: STRING = NULL\nUse 'IS NULL' or 'IS NOT NULL'",
        ),
        (
            "seats BETWEEN 'a' AND 2",
            "Cannot compare SEATS (INTEGER) to 'a' (STRING) with GREATER_THAN_OR_EQUAL.",
        ),
        (
            "seats + tail > 1 OR seats = 1",
            "Error processing expression: (SEATS + TAIL). Unsupported arithmetic types. INTEGER ST",
        ),
        ("info->nope = 1", "Could not find field 'NOPE' in 'INFO'. It is STRUCT<`X` INTEGER"),
        ("ucase(seats) = 'A'", "Function 'ucase' does not accept parameters (INTEGER)."),
    ],
)
@pytest.mark.parametrize("clause", ["WHERE", "HAVING"])
def test_a_wrong_type_in_a_filter_shows_the_whole_filter(
    names: Scope, where: str, inner: str, clause: str
) -> None:
    """ksqlDB's FilterTypeValidator. In other clauses the message is the inner one alone."""
    node = expression(where)
    with pytest.raises(StatementError) as caught:
        Typer(names, clause).condition(node)
    assert caught.value.message.startswith(f"Error in {clause} expression: {inner}")
    assert caught.value.message.endswith(f"\nStatement: {expression_text(node)}")
    with pytest.raises(StatementError) as plain:
        Typer(names, "SELECT").type(node)
    assert plain.value.message.startswith(inner)


@pytest.mark.parametrize("where", ["nope = 1", "nope(seats) = 1", "tail LIKE 1", "COUNT(*) > 1"])
def test_what_is_not_about_types_has_no_such_frame(names: Scope, where: str) -> None:
    with pytest.raises(StatementError) as caught:
        Typer(names, "WHERE").condition(expression(where))
    assert "Error in WHERE expression" not in caught.value.message
    assert "Statement" not in caught.value.message
