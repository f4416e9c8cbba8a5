"""The functions of pull queries, held to the registry; and values where Python and Java differ.

Their meaning beside Spark's is compared by tests/e2e/both_ways.py.
"""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from standpipe.errors import StatementError
from standpipe.sql.expressions.constants import constant
from standpipe.sql.expressions.evaluator_functions import FUNCTIONS
from standpipe.sql.functions import registry
from standpipe.sql.syntax.ast import Query, SelectItem
from standpipe.sql.syntax.parser import parse


def test_each_is_a_scalar_function_of_the_registry() -> None:
    assert set(FUNCTIONS) <= set(registry.names())
    assert not any(map(registry.is_aggregate, FUNCTIONS))
    assert not any(map(registry.is_table_function, FUNCTIONS))


def value(text: str) -> object:
    (query,) = parse(f"SELECT {text} FROM x;")
    assert isinstance(query, Query)
    item = query.items[0]
    assert isinstance(item, SelectItem)
    return constant(item.expression)[1]


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("ABS(-2147483648)", -(2**31), "wraps, as Java's"),
        ("ROUND(-2.5E0)", -2, "half up also below zero"),
        ("ROUND(-1.25, 1)", Decimal("-1.20"), "... of a DECIMAL"),
        ("ROUND(0.49999999999999994E0)", 0, "no half is added"),
        ("TRUNC(0.29E0, 2)", 0.29, "exact"),
        ("CEIL(1E300)", 1e300, "no BIGINT on the way"),
        ("LN(0)", -math.inf, ""),
        ("EXP(1000)", math.inf, ""),
        ("POWER(0, -1)", math.inf, ""),
        ("1E0 / 0", math.inf, "a DOUBLE by zero"),
        ("1E0 / -0.0E0", -math.inf, "... and by the other zero"),
        ("1 / 0", None, "an INTEGER by zero"),
        ("GREATEST(1, 2.5E0, NULL)", 2.5, "of several types"),
        ("CONCAT('a')", "a", "of one text"),
        ("LEN('a😀')", 3, "UTF-16 units"),
        ("INSTR('CORPORATE FLOOR', 'OR', -3)", 5, "from the end"),
        ("INSTR('CORPORATE FLOOR', 'OR', -3, 2)", 2, "the second one"),
        ("INSTR('abc', CAST(NULL AS STRING))", 0, "no place, as for what is not there"),
        ("INSTR('abcbc', 'bc', -2)", 2, "what is found ends there or before"),
        ("INSTR('aaa', 'aa', -1, 2)", 1, "occurrences may overlap"),
        ("INSTR('abc', 'c', 0)", 0, "nothing is at 0"),
        ("INSTR('abc', 'c', 1, 0)", 0, "... nor is there a 0th"),
        ("INSTR('abc', '', 4)", 0, "behind the end"),
        ("INSTR('abc', '', 3, 9)", 3, "an empty text is everywhere"),
        ("INSTR('abc', '', -1)", 4, ""),
        ("INSTR('', '')", 0, "... but in an empty one"),
        ("INSTR('abc', 'c', CAST(NULL AS INTEGER))", None, ""),
        ("SLICE(ARRAY[1, 2, 3], 2, 3)", [2, 3], "both ends are included"),
        ("SLICE(ARRAY[1, 2, 3], 2, NULL)", [2, 3], ""),
        ("SLICE(ARRAY[1, 2, 3], NULL, 1)", [1], ""),
        ("SLICE(ARRAY[1, 2, 3], 4, 3)", [], ""),
        ("SLICE(ARRAY[1, 2, 3], 2, 4)", None, "behind the end"),
        ("SLICE(ARRAY[1, 2, 3], 0, 1)", None, "before the beginning"),
        ("SLICE(ARRAY[1, 2, 3], 3, 1)", None, "backwards"),
        ("INITCAP('  oNE-two\n three ')", "One-two\n Three ", "from the first word on"),
        ("ENCODE('ab', 'UTF8', 'utf8')", None, "from an encoding to itself"),
        ("SPLIT_TO_MAP('a:1:b:2', ':', ':')", None, "what parts entries parts no key"),
        ("ARRAY_SORT(ARRAY[1, 3, 2], 'descending')", [3, 2, 1], ""),
        ("ARRAY_SORT(ARRAY[1, 3, 2], 'descends')", None, "not a direction"),
        ("ARRAY_SORT(ARRAY[1, 3, 2], '')", None, "nor is no text"),
        ("ARRAY_SORT(ARRAY[1, 3, 2], CAST(NULL AS STRING))", None, ""),
        ("LOG(2, 0)", -math.inf, ""),
        ("LOG(0.5E0, 0E0)", math.inf, "a base below 1: both logarithms are negative"),
        ("ROUND(1E0 / 0, 2)", None, "it has no decimal (Java's BigDecimal)"),
        ("TRUNC(0E0 / 0, 2)", None, ""),
        ("ROUND(1E0 / 0)", 2**63 - 1, "Java's Math.round"),
        ("SUBSTRING('abc', -5, 2)", "ab", "a start before the beginning"),
        ("CONCAT('a', CAST(NULL AS STRING), 'b')", "ab", "nulls are left out"),
        ("'a' || CAST(NULL AS STRING)", "a", "the same function"),
        ("TRIM('\u00a0x ')", "\u00a0x", "only what Java's trim removes"),
        ("'a\\b' LIKE 'a\\_'", True, "there is no escape character without ESCAPE"),
        ("ARRAY_CONTAINS(ARRAY[1, 2], 3)", False, ""),
        ("MAP(NULLIF('a', 'a') := 1)", {"null": 1}, "a key that is null is shown as a text"),
        ("MAP(NULLIF(1, 1) := 'x', 7 := 'y')", {7: "y"}, "of another type, it is left out"),
        ("ARRAY_JOIN(ARRAY[1E7, NULL])", "1.0E7,null", "Java's text of a DOUBLE"),
        ("CAST(ARRAY[1.5E0] AS ARRAY<STRING>)", ["1.5"], "by parts"),
        ("CAST(2147483648 AS INT)", -(2**31), "wraps"),
        ("FORMAT_TIMESTAMP(CAST('2020-02-29' AS TIMESTAMP), 'd/M/yy h:mm a')",
         "29/2/20 12:00 AM", "patterns of Java"),
        ("FORMAT_TIMESTAMP(CAST('2020-02-29' AS TIMESTAMP), 'HH:mm', 'GMT+2')", "02:00", "zones"),
        ("DATEADD(DAYS, 1, CAST('2020-02-29' AS DATE))", 18_322, "a unit"),
        ("TO_BYTES('0x4', 'hex')", b"\x04", "an odd number of digits after 0x"),
        ("MASK('Ab 9-ü')", "Xx-n-x", ""),
        ("MASK('Ab 9-ü', 'U', NULL, '0', '*')", "Ub*0*ü", "NULL keeps its characters"),
        ("MASK(CAST(NULL AS STRING), 'U', 'l', '0', '*')", None, ""),
        ("MASK_LEFT('Ab9-', 2, 'U', 'l', '0', '*')", "Ul9-", ""),
        ("MASK_RIGHT('Ab9-', 2, 'U', 'l', '0', '*')", "Ab0*", ""),
        ("MASK_KEEP_LEFT('Ab9-', 3, 'U', 'l', '0', '*')", "Ab9*", ""),
        ("MASK_KEEP_RIGHT('Ab9-', 3, 'U', 'l', '0', '*')", "Ub9-", ""),
        ("MASK_KEEP_RIGHT('Ab9-', -1, 'U', 'l', '0', '*')", None, ""),
        ("UUID(TO_BYTES('00112233445566778899AABBCCDDEEFF', 'hex'))",
         "00112233-4455-6677-8899-aabbccddeeff", ""),
        ("UUID(TO_BYTES('0011', 'hex'))", None, "16 bytes are one"),
        ("URL_EXTRACT_PARAMETER('http://h/?x=a%20b', 'x')", "a b", ""),
    ],
)  # fmt: skip
def test_values(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


@pytest.mark.parametrize("mark", ["''", "'ab'", "'😀'"])
def test_what_masks_is_one_character(mark: str) -> None:
    with pytest.raises(StatementError, match="Must be only single character"):
        value(f"MASK('a', 'X', {mark}, 'n', '-')")
