"""Constants and names on their way into Spark SQL: nothing of a user's can get out of its place."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.errors import StatementError
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.spark.expression_sql import (
    constant_sql,
    expression_sql,
    identifier_sql,
    text_sql,
)
from standpipe.sql.types.typed_expression import (
    Constant,
    LambdaVariable,
    Operation,
    Typed,
    TypedColumn,
)
from standpipe.sql.types.types import NULL, STRING, parse_type


@pytest.mark.parametrize(
    ("value", "of", "sql", "why"),
    [
        (5, "INT", "(5)", ""),
        (-5, "BIGINT", "(-5L)", "brackets: `- -5` would be a comment"),
        (1.5, "DOUBLE", "(1.5D)", "1.5 alone is a DECIMAL to Spark"),
        (1e300, "DOUBLE", "(1e+300D)", ""),
        (Decimal("1.50"), "DECIMAL(3, 2)", "(1.50BD)", "the scale stays"),
        (Decimal("1E+3"), "DECIMAL(4, 0)", "(1000BD)", "never with an exponent"),
        (True, "BOOLEAN", "true", ""),
        (b"\x00\xff", "BYTES", "X'00ff'", ""),
        (15706, "DATE", "date_from_unix_date(15706)", ""),
        (1000, "TIMESTAMP", "timestamp_millis(1000L)", ""),
        (3_600_000, "TIME", "(3600000)", "Spark sees the INT of its milliseconds"),
        (None, "STRING", "cast(NULL AS STRING)", "a null has a type"),
    ],
)
def test_constants(value: object, of: str, sql: str, why: str) -> None:
    assert constant_sql(value, parse_type(of)) == sql, why


def test_the_null_of_nothing() -> None:
    assert constant_sql(None, NULL) == "NULL"


@pytest.mark.parametrize(
    ("text", "sql", "why"),
    [
        ("it's", r"'it\'s'", "the quote"),
        ("\\", r"'\\'", "the backslash, which ksqlDB leaves plain"),
        ("\\'", r"'\\\''", "both"),
        ("${HOME}", r"'\u0024{HOME}'", "spark.sql substitutes inside literals too"),
        ("a\nb", r"'a\nb'", ""),
    ],
)
def test_text(text: str, sql: str, why: str) -> None:
    assert text_sql(text) == sql, why


@given(st.text())
def test_a_literal_ends_where_it_should(text: str) -> None:
    inside = text_sql(text)[1:-1]
    index = 0
    while index < len(inside):
        assert inside[index] not in "'$", "neither an end nor a variable"
        index += 2 if inside[index] == "\\" else 1
    assert index == len(inside), "the last backslash does not take the closing quote along"


def test_names() -> None:
    assert identifier_sql("a`b") == "`a``b`"
    with pytest.raises(StatementError):
        identifier_sql("${HOME}")


A, B = TypedColumn(STRING, "A"), TypedColumn(STRING, "B")


def sized(*arguments: Typed) -> Operation:
    return Operation(STRING, "concat({0}, {1})", arguments, "{total}")


def test_a_result_above_the_limit_is_null() -> None:
    assert expression_sql(sized(A, B)) == (
        f"if(0L + coalesce(length(`A`), 0) + coalesce(length(`B`), 0) > {WORK_MAX}, NULL,"
        " concat(`A`, `B`))"
    )


@pytest.mark.parametrize(
    ("argument", "is_bound", "why"),
    [
        (A, False, "a column costs nothing"),
        (Constant(STRING, "x"), False, "nor does a constant"),
        (LambdaVariable(STRING, "S"), False, "nor the variable of a lambda"),
        (LambdaVariable(STRING, "standpipe_bound"), True, "unless it has the name of ours"),
        (TypedColumn(STRING, "standpipe_bound"), True, "or the column has"),
        (Operation(STRING, "upper({0})", (A,)), True, "anything else is computed once"),
    ],
)
def test_what_size_and_result_share_is_computed_once(
    argument: Typed, is_bound: bool, why: str
) -> None:
    sql = expression_sql(sized(argument, B))
    assert sql.count("upper(") <= 1, why
    assert sql.startswith("element_at(transform(array(struct(") is is_bound, why


def test_nested_calls_do_not_multiply_their_text() -> None:
    one = sized(A, B)
    sizes: list[int] = []
    for _ in range(60):
        one = sized(one, B)
        sizes.append(len(expression_sql(one)))
    steps = [after - before for before, after in pairwise(sizes)]
    assert set(steps) == {steps[0]}, "each adds the same"


def test_text_that_does_multiply_is_refused_before_it_is_large() -> None:
    """SPLIT names its separator twice: 40 of them in one another would be a terabyte."""
    one: Typed = A
    for _ in range(40):
        one = Operation(STRING, "if({0} = '', {0}, {0})", (one,))
    with pytest.raises(StatementError, match="too large for Spark"):
        expression_sql(one)


@pytest.mark.parametrize(
    ("template", "names", "sql"),
    [
        ("exists({0}, e -> e <=> {1})", "AB", "exists(`A`, e -> e <=> `B`)"),
        ("exists({0}, e -> e <=> {1})", "Ae", "exists(`A`, standpipe_e -> standpipe_e <=> `e`)"),
        ("exists({0}, e -> e <=> {1})", "AE", "exists(`A`, e -> e <=> `E`)"),
        (
            "f({0}, {1}, (k, l, r) -> if(k = 'k', l, r.k))",
            "kr",
            "f(`k`, `r`, (standpipe_k, l, standpipe_r) -> if(standpipe_k = 'k', l, standpipe_r.k))",
        ),
        (
            "f({0}, k -> struct(k, g({0}) AS k, k.`k`, ke))",
            "k",
            "f(`k`, standpipe_k -> struct(standpipe_k, g(`k`) AS k, standpipe_k.`k`, ke))",
        ),
        ("element_at({0}, e)", "e", "element_at(`e`, e)"),
    ],
)
def test_no_variable_of_a_template_captures_a_column(template: str, names: str, sql: str) -> None:
    # ARRAY_CONTAINS(A, `e`) was true of any list: Spark took the column for the variable
    columns = tuple(TypedColumn(STRING, name) for name in names)
    assert expression_sql(Operation(STRING, template, columns)) == sql


def test_no_variable_captures_a_column_of_its_new_name_either() -> None:
    columns = tuple(TypedColumn(STRING, name) for name in ("e", "standpipe_e"))
    made = expression_sql(Operation(STRING, "exists({0}, e -> e = {1})", columns))
    assert made == "exists(`e`, standpipe_e_ -> standpipe_e_ = `standpipe_e`)"
