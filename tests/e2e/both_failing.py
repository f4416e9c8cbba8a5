"""Expressions of which a part fails, for `both_ways.py` (`sql/expressions/failing.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tests.e2e.both_values import KINDS, Kind

#: kinds of the arguments -> expressions
_EXPRESSIONS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("I", "I"): (
        "COALESCE({0} + {1}, 5)",
        "COALESCE(ABS({0} / {1}), 5)",
        "COALESCE(CAST({0} % {1} AS BIGINT), CAST(5 AS BIGINT))",
        "IFNULL(-({0}), {1})",
        "({0} + {1} IS NULL)",
        "({0} * {1} > 5 OR {1} = 1)",
        "({1} = 1 OR {0} * {1} > 5)",
        "(NOT {0} - {1} > 5)",
        "({0} + 1 BETWEEN {1} AND 7)",
        "({0} + 1 NOT BETWEEN 0 AND {1})",
        "({0} IN ({1} + 1, 2))",
        "({0} NOT IN (1, {1} / 2))",
        "({0} + {1} IS DISTINCT FROM 3)",
        "CASE WHEN {0} + {1} > 5 THEN 'more' ELSE 'less' END",
        "CASE WHEN {0} IS NULL THEN 0 ELSE {0} + {1} END",
        "CASE WHEN {0} > 1 THEN COALESCE({1} + 1, 2) WHEN {1} + 1 > 2 THEN {0} ELSE 9 END",
        "CASE {0} + 1 WHEN 2 THEN 'a' WHEN {1} + 1 THEN 'b' ELSE 'c' END",
        "ARRAY[{0} + {1}, 1]",
        "MAP('a' := {0} + {1})",
        "STRUCT(A := {0} + {1}, B := 1)",
        "COALESCE(COALESCE({0} + 1, 2) + {1}, 7)",
        "COALESCE(CASE WHEN {0} > 0 THEN {1} + 1 ELSE {1} END, 7)",
        "(ROUND({0}) = 2 OR {1} = 1)",
        "GREATEST({0} + 1, {1})",
        "CONCAT('a', CAST({0} + {1} AS STRING))",
    ),
    ("C", "C"): ("COALESCE({0} + {1}, CAST(5 AS DECIMAL(7, 2)))", "({0} * {1} IS NOT NULL)"),
    ("D", "I"): ("IFNULL({0} / {1}, 1E0)", "(LN({0} + {1}) > 0 OR {1} = 1)"),
    ("B", "B"): (
        "({0} AND {1})",
        "({0} OR {1})",
        "(NOT {0} OR {1})",
        "(NOT ({0} AND {1}) IS NULL)",
        "CASE WHEN {0} THEN 'a' WHEN {1} THEN 'b' ELSE 'c' END",
        "CASE WHEN NOT {0} THEN 1 END",
        "CASE WHEN {0} AND {1} THEN 1 ELSE 2 END",
        "COALESCE({0} OR {1}, FALSE)",
        "(({0} OR {1}) = FALSE)",
    ),
    ("S", "LIKED"): (
        "({0} LIKE {1} OR TRUE)",
        "(NOT {0} LIKE {1})",
        "CASE WHEN {0} LIKE {1} THEN 'a' ELSE 'b' END",
        "CASE WHEN {0} LIKE 'a%' THEN 'a' WHEN {0} NOT LIKE '%b' THEN 'b' ELSE 'c' END",
        "(({0} LIKE 'a%') IS NULL)",
    ),
    ("TSTAMP", "FSTAMP"): (
        "(STRINGTOTIMESTAMP({0}, 'yyyy-MM-dd HH:mm:ss') > 0 OR TRUE)",
        "CASE WHEN PARSE_TIMESTAMP({0}, 'yyyy-MM-dd HH:mm:ss') IS NULL THEN 1 ELSE 2 END",
        "IFNULL(STRINGTOTIMESTAMP({0}, 'yyyy'), CAST(0 AS BIGINT))",
    ),
    ("AI", "I"): (
        "({0}[{1}] IS NULL)",
        "COALESCE({0}[{1} + 1], 5)",
        "(TRANSFORM({0}, x => x + 1) IS NULL)",
        "COALESCE(TRANSFORM({0}, x => COALESCE(x + 1, 0)), ARRAY[7])",
        "TRANSFORM({0}, x => CASE WHEN x + {1} > 2 THEN 'a' ELSE 'b' END)",
        "FILTER({0}, x => x + 1 > 1 OR x IS NULL)",
        "FILTER({0}, x => x IS NULL OR x + 1 > 1)",
        "REDUCE({0}, 0, (s, x) => COALESCE(s + x, 0))",
        "REDUCE({0}, 0, (s, x) => CASE WHEN x + 1 > 2 THEN s + 1 ELSE s END)",
        "REDUCE({0}, {1} + 1, (s, x) => COALESCE(s, 0) + x)",
        "(REDUCE({0}, 0, (s, x) => COALESCE(s + x, 0)) IS NULL)",
    ),
    ("Z", "I"): ("COALESCE(STRUCT(A := {0}->A + {1})->A, 5)", "COALESCE({0}->A + {1}, 5)"),
    ("S", "S"): ("({0} + {1} = 'anull')", "COALESCE({0} + {1}, 'x')"),
}


def expressions() -> Iterator[tuple[str, str, tuple[Kind, ...]]]:
    """(about, text with {0} {1} …, kinds of the arguments)."""
    for names, texts in _EXPRESSIONS.items():
        for number, text in enumerate(texts):
            kinds = tuple(KINDS[name] for name in names)
            yield f"failing {'/'.join(names)} {number}", text, kinds
