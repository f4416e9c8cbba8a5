"""Calls with lambdas for `both_ways.py`: they are not in the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tests.e2e.both_values import KINDS, Kind

#: kinds of the arguments -> calls
_CALLS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("AI",): (
        "TRANSFORM({0}, x => x)",
        "TRANSFORM({0}, x => x + 1)",
        "TRANSFORM({0}, x => 6 / x)",
        "TRANSFORM({0}, x => LN(x * 2))",
        "TRANSFORM({0}, x => COALESCE(x % 2, 7))",
        "TRANSFORM({0}, x => CAST(x AS STRING))",
        "TRANSFORM({0}, x => CASE WHEN x IS NULL THEN 0 ELSE x + 1 END)",
        "TRANSFORM({0}, x => x > 1)",
        "TRANSFORM({0}, x => ARRAY[x, 1])",
        "TRANSFORM(FILTER({0}, x => x IS NOT NULL), x => x * x)",
        "FILTER({0}, x => x > 1)",
        "FILTER({0}, x => NOT x > 1)",
        "FILTER({0}, x => x + 1 > 1)",
        "REDUCE({0}, 0, (s, x) => s + x)",
        "REDUCE({0}, 0, (s, x) => CASE WHEN x IS NULL THEN s ELSE s + x END)",
        "REDUCE({0}, '', (s, x) => s || CAST(x AS STRING))",
    ),
    ("AI", "L"): (
        "TRANSFORM({0}, x => x + {1})",
        "FILTER({0}, x => x < {1})",
        "REDUCE({0}, {1}, (s, x) => s + x)",
        "REDUCE({0}, 0, (s, x) => {1})",
    ),
    ("AD", "D"): (
        "TRANSFORM({0}, x => x / {1})",
        "TRANSFORM({0}, x => x % {1})",
        "REDUCE({0}, {1}, (s, x) => s + x)",
    ),
    ("AS", "S"): (
        "TRANSFORM({0}, x => x + {1})",
        "TRANSFORM({0}, x => UCASE(x))",
        "TRANSFORM({0}, x => LEN(x) + 1)",
        "TRANSFORM({0}, x => REGEXP_REPLACE(x, 'a', {1}))",
        "FILTER({0}, x => x LIKE '%a%')",
        "FILTER({0}, x => x IN ('a', {1}))",
        "REDUCE({0}, {1}, (s, x) => s + x)",
        "REDUCE({0}, {1}, (s, x) => x)",
    ),
    ("AA",): (
        "TRANSFORM({0}, y => TRANSFORM(y, x => x + 1))",
        "TRANSFORM({0}, y => FILTER(y, x => x = ARRAY_LENGTH(y)))",
        "TRANSFORM({0}, y => REDUCE(y, 0, (s, x) => s + x))",
        "FILTER({0}, y => ARRAY_LENGTH(y) > 1)",
        "REDUCE({0}, 0, (s, y) => s + ARRAY_LENGTH(y))",
    ),
    ("MI",): (
        "TRANSFORM({0}, (k, v) => k, (k, v) => v)",
        "TRANSFORM({0}, (k, v) => UCASE(k), (k, v) => v + 1)",
        "TRANSFORM({0}, (k, v) => 'same', (k, v) => v)",
        "TRANSFORM({0}, (k, v) => NULLIF(k, 'a'), (k, v) => v)",
        "TRANSFORM({0}, (k, v) => k, (k, v) => CASE WHEN v IS NULL THEN 0 ELSE v + 1 END)",
        "TRANSFORM({0}, (k, v) => k, (k, v) => NULLIF(v, 1))",
        "FILTER({0}, (k, v) => v > 1)",
        "FILTER({0}, (k, v) => v + 1 > 1)",
        "FILTER({0}, (k, v) => k <> 'a')",
        "REDUCE({0}, 0, (s, k, v) => s + v)",
        "REDUCE({0}, '', (s, k, v) => s + k)",
    ),
    ("ME",): (
        "TRANSFORM({0}, (k, v) => k + 1, (k, v) => v / k)",
        "FILTER({0}, (k, v) => k > v)",
        "REDUCE({0}, 0.5e0, (s, k, v) => s + k)",
    ),
    ("AM",): ("TRANSFORM({0}, m => m['a'])", "FILTER({0}, m => m['b'] = 2)"),
}


def calls() -> Iterator[tuple[str, str, tuple[Kind, ...]]]:
    """(about, text with {0} {1} …, kinds of the arguments)."""
    for kinds, texts in _CALLS.items():
        for text in texts:
            yield text, text, tuple(KINDS[name] for name in kinds)
