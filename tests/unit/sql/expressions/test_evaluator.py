"""Expressions over a row, against what SQL says of NULL, of integers and of text."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from tests.samples import sample_table

from standpipe.errors import NotComputable, StatementError
from standpipe.model import Column
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast import Query, SelectItem

COLUMNS = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="N", type="INTEGER"),
    Column(name="D", type="DOUBLE"),
    Column(name="S", type="STRUCT<`A` INTEGER>"),
    Column(name="L", type="ARRAY<STRING>"),
    Column(name="T", type="TIMESTAMP"),
    Column(name="U", type="STRING"),  # NULL in the row
)
SOURCE = sample_table(name="X", columns=COLUMNS, topic="x")
ROW = ["a%b", 7, 0.5, {"A": 3}, ["p", "q"], 86_400_000, None, 12_000]


def value(text: str) -> Any:
    (query,) = parser.parse(f"SELECT {text} FROM x;")
    assert isinstance(query, Query)
    item = query.items[0]
    assert isinstance(item, SelectItem)
    evaluator = Evaluator(PullNames.of(SOURCE, None), "SELECT")
    evaluator.type(item.expression)
    return evaluator.compile(item.expression)(ROW)


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("n + 1", 8, ""),
        ("-n / 2", -3, "integers divide towards zero"),
        ("-n % 2", -1, "and the remainder has the sign of the dividend"),
        ("n / 0", None, "no exception ends a scan"),
        ("2147483647 + n", -2147483642, "INTEGER wraps, as Java's int"),
        ("d * n", 3.5, ""),
        ("n + LEN(u)", None, "NULL in, NULL out"),
        ("u = 'x' OR n = 7", True, "true decides"),
        ("NOT (u = 'x')", True, "nothing compares with NULL (ksqlDB)"),
        ("CAST(NULL AS BOOLEAN) AND n = 7", None, "unknown stays unknown"),
        ("u = 'x' AND n = 8", False, "false decides"),
        ("n NOT IN (1, 7)", False, ""),
        ("n IN (1.5, 7.0)", True, "compared as numbers, whatever their types"),
        ("n IN (NULL, 7)", True, "nothing compares with NULL"),
        ("n NOT IN (NULL, 8)", True, "... and ksqlDB's NOT IN is not unknown then"),
        ("n IN (LEN(k) + 4, 8)", True, "an expression beside literals"),
        ("n IN ('8', '7')", True, "a text literal takes the type of the others"),
        ("n NOT IN ('7', 9)", False, ""),
        ("n IN (6, '7.00')", True, ""),
        ("d IN ('0.5')", True, ""),
        ("'2' IN (1, 2)", True, "or they become text"),
        ("(n = 7) IN ('y')", True, "a prefix of yes"),
        ("l IN (ARRAY['p', NULL], ARRAY['p', 'q'])", True, ""),
        ("s IN (STRUCT(a := '3'))", True, "also within"),
        ("ARRAY[n, '4.000']", [7, 4], "a list of the constructor is read alike"),
        ("u IN ('x', 'y')", False, "NULL is in no list"),
        ("t IN ('1970-01-01', '1970-01-02')", True, "text becomes a time"),
        ("n NOT BETWEEN 8 AND 9", True, ""),
        ("u IS NULL", True, ""),
        ("u IS DISTINCT FROM k", True, ""),
        ("k LIKE 'a%'", True, ""),
        ("k LIKE 'a!%b' ESCAPE '!'", True, "an escaped % is a per cent sign"),
        ("k LIKE 'a_'", False, ""),
        ("s->a", 3, ""),
        ("l[2]", "q", "from 1"),
        ("l[-1]", "q", "or from the end"),
        ("l[3]", None, ""),
        ("CASE WHEN n > 5 THEN 'much' ELSE 'little' END", "much", ""),
        ("CAST(n AS STRING) + '!'", "7!", ""),
        ("CAST(k AS INT)", None, "text that is no number"),
        ("CONCAT(k, u, 'z')", "a%bz", "CONCAT skips NULL"),
        ("COALESCE(u, k)", "a%b", ""),
        ("t > '1970-01-01T12:00'", True, "text becomes a TIMESTAMP beside one"),
        ("TIMESTAMPTOSTRING(ROWTIME, 'yyyy-MM-dd''T''HH:mm:ss.SSS Z', 'UTC')",
         "1970-01-01T00:00:12.000 +0000", ""),
        ("ARRAY[n, 1]", [7, 1], ""),
        ("MAP('x' := n)", {"x": 7}, ""),
        ("1234567890123456789012345678.5 + 1.5", Decimal("1234567890123456789012345680.0"),
         "a DECIMAL has up to 38 digits"),
        ("ROUND(12345678901234567890123456789012.55, 1)",
         Decimal("12345678901234567890123456789012.60"), "also in a function"),
        ("9999999999999999999999999999.5 * 9999999999999999999999999999.5", None, "too many"),
    ],
)  # fmt: skip
def test_values(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("REPLACE(REPLACE(k, 'a', '{x}'), 'x', '{x}')", "REPLACE would work on 9000002"),
        ("CONCAT(REPLACE('{x}', 'x', '{x}'), 'b')", "REPLACE would work on 9000000"),
        ("'{x}' LIKE '%{_}%'", "LIKE would work on 9036040"),
        ("'{x}' LIKE CONCAT('%', '{_}%')", "LIKE would work on 9036040"),
        (
            "REPLACE(REPLACE(REPLACE(k, 'a', '{x}'), 'x', '{x}'), 'x', '{x}')",
            "REPLACE would work on 9000002 characters of a row; 1398101 are allowed",
        ),
    ],
)
def test_texts_do_not_grow_without_end(text: str, refusal: str) -> None:
    """A few words made 225 MB on the event loop."""
    with pytest.raises(NotComputable, match=refusal):
        value(text.replace("{x}", "x" * 3_000).replace("{_}", "_a" * 1_500 + "b_"))


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("EXP(1000)", math.inf, "Java's result: Python raises"),
        ("POWER(10, 400)", math.inf, ""),
        ("POWER(-10, 401)", -math.inf, "an odd exponent keeps the sign"),
        ("POWER(0, -1)", math.inf, ""),
        ("ARRAY_CONTAINS(CAST(NULL AS ARRAY<STRING>), 'a')", False, "no array has no elements"),
        ("REPLACE(k, '', '-')", "-a-%-b-", "its length is counted as it is made"),
        ("CONCAT_WS('-', k, u, k)", "a%b-a%b", ""),
    ],
)
def test_edges_of_functions(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


def test_what_cannot_be_computed_is_refused_by_name() -> None:
    with pytest.raises(StatementError, match=r"The function UUID\(\) in a pull query"):
        value("UUID()")
    with pytest.raises(StatementError, match=r"The function UNIX_TIMESTAMP\(\) in a pull query"):
        value("UNIX_TIMESTAMP()")


@pytest.mark.parametrize("unit", ["MILLISECONDS", "MILLISECOND", "millisecond"])
def test_milliseconds_are_a_unit_in_the_singular_as_well(unit: str) -> None:
    assert value(f"TIMESTAMPADD({unit}, 5, t)") == 86_400_005


@pytest.mark.parametrize("unit", ["DAY", "HOUR", "MINUTE", "SECOND"])
def test_any_other_unit_in_the_singular_is_a_column(unit: str) -> None:
    with pytest.raises(StatementError, match=f"column '{unit}' cannot be resolved"):
        value(f"TIMESTAMPADD({unit}, 5, t)")
