"""LIKE against its dull twin, a regular expression, and on the patterns that made one explode."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.sql.expressions.like import LikePattern


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "fits", "why"),
    [
        ("", None, "", True, "the empty pattern"),
        ("", None, "a", False, "... is no %"),
        ("a_c", None, "a\nc", True, "_ is any character"),
        ("a%a", None, "a", False, "start and end may not share a character"),
        ("a%a", None, "aa", True, ""),
        ("%b%c", None, "abcbc", True, "the last piece is the one at the end"),
        ("%ab_%", None, "abab", True, "a piece with _ is looked for as well"),
        ("a!%", "!", "a%", True, "an escaped % is itself"),
        ("a!%", "!", "ab", False, ""),
        ("a!!", "!", "a!", True, "so is the escape character"),
        ("a!", "!", "a", True, "nothing follows it: it stands for nothing"),
        ("_%_", None, "x", False, "two characters at least"),
    ],
)
def test_like(pattern: str, escape: str | None, text: str, fits: bool, why: str) -> None:
    assert LikePattern(pattern, escape).matches(text) is fits, why


@settings(max_examples=examples(100))
@given(st.text("ab_%!", max_size=8), st.sampled_from([None, "!"]), st.text("ab%!", max_size=10))
def test_like_is_what_a_regular_expression_says(
    pattern: str, escape: str | None, text: str
) -> None:
    expression, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            expression += re.escape(next(characters, ""))
        else:
            expression += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    expected = re.fullmatch(expression, text, re.DOTALL) is not None
    assert LikePattern(pattern, escape).matches(text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 60 + "b", "%a_" * 40 + "b", "_%" * 60 + "b", "%" * 100 + "b"],
    ids=["letters", "wild", "single characters", "per cent signs"],
)
def test_no_pattern_backtracks(pattern: str) -> None:
    """133 bytes of SQL kept every worker of two nodes busy for minutes."""
    like, text = LikePattern(pattern), "a" * 10_000
    assert not like.matches(text)
    assert like.steps(text) <= 3 * len(text)
