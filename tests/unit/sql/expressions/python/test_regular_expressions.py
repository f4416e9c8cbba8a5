"""REGEXP_* of pull queries: their meaning, and that no pattern and no text takes long."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.unit.sql.expressions.test_evaluator_functions import value

from standpipe.errors import NotComputable, StatementError
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.expressions.python.regular_expressions import FUNCTIONS


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("REGEXP_EXTRACT('(.*) (.*)', 'steven zhang', 2)", "zhang", ""),
        ("REGEXP_EXTRACT('x', 'abc')", None, "no match"),
        ("REGEXP_EXTRACT('(a)|b', 'b', 1)", None, "a group that took no part"),
        ("REGEXP_EXTRACT('a', 'a', 1)", None, "no such group"),
        ("REGEXP_EXTRACT('a', 'a', -1)", None, ""),
        ("REGEXP_EXTRACT(NULL, 'a')", None, ""),
        ("REGEXP_EXTRACT_ALL('a*', 'baa')", ["", "aa", ""], "empty ones, too"),
        ("REGEXP_EXTRACT_ALL('$', 'b')", [""], "once"),
        ("REGEXP_EXTRACT_ALL('.', 'é😀')", ["é", "😀"], "characters, not bytes"),
        ("REGEXP_EXTRACT_ALL('a*', 'é😀a')", ["", "", "a", ""], "... where nothing fits, too"),
        ("REGEXP_SPLIT_TO_ARRAY('aabcda', '(ab|cd)')", ["a", "", "a"], ""),
        ("REGEXP_SPLIT_TO_ARRAY(',a,', ',')", ["", "a", ""], "Guava's: all empty parts"),
        ("REGEXP_SPLIT_TO_ARRAY('abc', '')", ["a", "b", "c"], "Java's: no empty part"),
        ("REGEXP_SPLIT_TO_ARRAY('', '')", [""], ""),
        ("REGEXP_SPLIT_TO_ARRAY('aaa', 'a*')", [], "Java's: what is empty at the end is cut off"),
        (r"REGEXP_SPLIT_TO_ARRAY('ab cd', '\b')", ["ab", " ", "cd"], ""),
        ("REGEXP_REPLACE('baababaa', '(ab)+', 'cat')", "bacataa", ""),
        ("REGEXP_REPLACE('ab', '(a)(b)', '$2$1$0')", "baab", ""),
        ("REGEXP_REPLACE('ab', '(?<n>a)', '${n}$12')", "aa2b", "as many digits as name a group"),
        (r"REGEXP_REPLACE('a', 'a', '\$1')", "$1", "escaped"),
        ("REGEXP_REPLACE('a', 'a', '$1')", None, "no such group"),
        ("REGEXP_REPLACE('b', 'a', '$1')", "b", "... is noticed at the first match, as in Java"),
        ("REGEXP_REPLACE('a', 'a', '$')", None, ""),
    ],
)
def test_the_result(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


@pytest.mark.parametrize(
    "pattern", ["a" * 100_000, "(" * 100_000, "\\Q" + "." * 100_000, "|" * 8_001]
)
def test_a_pattern_that_is_too_long_is_null_and_is_not_kept(pattern: str) -> None:
    """128 of two megabytes each, one for each row of a scan, would stay until the worker ends."""
    references = sys.getrefcount(pattern)
    assert FUNCTIONS["REGEXP_EXTRACT"].compute(pattern, "a") is None
    assert sys.getrefcount(pattern) == references


def test_a_literal_is_refused_with_its_position() -> None:
    with pytest.raises(StatementError, match="a lookahead") as refused:
        value("REGEXP_EXTRACT('(?=a)', 'a')")
    assert (refused.value.line, refused.value.column) == (1, 23)


def computed(name: str, *given: Any) -> Any:
    """As the evaluator does it: the work that is known before, then the function."""
    made = FUNCTIONS[name]
    assert made.work is not None
    wanted = made.work(*given)
    if wanted > WORK_MAX:
        raise NotComputable(str(wanted))
    if made.takes_budget:
        return made.compute(*given, budget=[WORK_MAX - wanted])
    return made.compute(*given)


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("REGEXP_EXTRACT", ("(a|b)*a(a|b){90}c", "ab" * 10_000), "many states for each character"),
        ("REGEXP_EXTRACT_ALL", ("a.*b|a", "a" * 100_000), "each match reads to the end"),
        ("REGEXP_EXTRACT_ALL", ("(?:a.*$|a)", "a\n" * 50_000 + "b"), ""),
        ("REGEXP_SPLIT_TO_ARRAY", ("a" * 100_000, "a.*b|a"), ""),
        ("REGEXP_REPLACE", ("a" * 5_000, "a", "b" * 2_000), "10 MB of a row of 5 KB"),
        ("REGEXP_REPLACE", ("a " * 50_000, " ", "b"), "each match takes some time by itself"),
    ],
)
def test_what_takes_too_many_steps_is_refused(name: str, given: tuple[Any, ...], why: str) -> None:
    with pytest.raises(NotComputable):
        computed(name, *given)


@pytest.mark.parametrize(
    ("name", "given", "size"),
    [
        ("REGEXP_EXTRACT_ALL", (r"\S+", "word " * 2_500), 2_500),
        ("REGEXP_SPLIT_TO_ARRAY", ("word  word " * 1_250, r"\s+"), 2_501),
        ("REGEXP_REPLACE", ("a b " * 1_500, r"\s", ""), 3_000),
        ("REGEXP_EXTRACT_ALL", ('"[^"]*"', 'x="y" ' * 200), 200),
        ("REGEXP_EXTRACT_ALL", ("(a+)+$", "a" * 100_000 + "!"), 0),
    ],
)
def test_what_is_usual_is_not(name: str, given: tuple[Any, ...], size: int) -> None:
    assert len(computed(name, *given)) == size
