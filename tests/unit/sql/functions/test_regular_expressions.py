"""Java's regular expressions as RE2's: what is refused, by name, and how large the rest may be.

That both engines and Java agree: tests/e2e/test_linear_patterns_on_spark.py.
"""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.sql.functions.pattern_parts import SIZE_MAX, Loops, UnsupportedPattern
from standpipe.sql.functions.regular_expressions import linear


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?=a)", "a lookahead near character 1"),
        ("a(?!b)", "a lookahead near character 2"),
        ("(?<=a)b", "a lookbehind"),
        ("(?<!a)b", "a lookbehind"),
        ("(?>a)", "an atomic group"),
        ("a++", "a possessive quantifier"),
        ("a{2}+", "a possessive quantifier"),
        (r"(a)\1", "a reference to a group"),
        (r"(?<n>a)\k<n>", "a reference to a group"),
        ("[a&&b]", "an intersection of classes"),
        ("[a[b]]", "a class within a class"),
        ("[[:alpha:]]", "a class within a class"),
        (r"\Z", r"the escape \Z"),
        (r"\p{IsLatin}", "the class"),
        ("(?m)^a", "the flag m (lines)"),
        ("(?x)a", "the flag x (comments)"),
        (r"(?i)\p{Lu}", "the flag i and the class Lu"),
        ("(?P<n>a)", "a group of a kind that Java has not"),
        ("(a*)*", "a repetition of groups that may be empty"),
        ("(^a?)+", "a repetition of groups that may be empty"),
        ("^*", "a quantifier after what has no width"),
        ("a**", "a quantifier after a quantifier"),
        ("*a", "a quantifier with nothing to repeat"),
        ("a{,2}", "a quantifier with nothing to repeat"),
        ("a{3,2}", "out of order"),
        ("[b-a]", "out of order"),
        ("a{1001}", "more than 1000"),
        ("((a{10}){10}){10}", "more than 1000 states"),
        ("a" * 1001, "more than 1000 characters"),
        ("(" * 41 + ")" * 41, "more than 40 deep"),
        ("()" * 51, "more than 50 groups"),
        ("(a", "a group without an end"),
        ("a)", "a closing parenthesis"),
        ("[a", "a class without an end"),
        ("[]", "a class without an end"),
        ("a\\", "a backslash at its end"),
        (r"\x{110000}", "no character's"),
        (r"\ud83d", "half a character"),
    ],
)
def test_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(UnsupportedPattern, match=re.escape(said)):
        linear(pattern)


@pytest.mark.parametrize(
    ("pattern", "written", "why"),
    [
        ("a.b", r"a[^\x{A}\x{D}\x{85}\x{2028}-\x{2029}]b", "Java's line breaks"),
        ("(?s).", "(?s:.)", ""),
        ("^a$", r"\Aa\z", "the ends of the text"),
        (r"\s", r"[\x{9}-\x{D}\x{20}]", "RE2's knows no vertical tab"),
        (r"[\S]", r"[\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{10FFFF}]", ""),
        ("(?i)k-", r"[kK]\x{2D}", "RE2's flag i also takes the sign for kelvin"),
        ("(?i:a)a|(?i)b|c", "(?:[aA])a|[bB]|[cC]", "to the end of the group"),
        (r"\Q[a]\E+", r"\x{5B}a\x{5D}+", "quoted; the last character is repeated"),
        ("[]a-]", r"[\x{5D}a\x{2D}]", "first, it is a character"),
        ("(?<one>a)", "(a)", "names are kept beside it"),
        (r"\p{Alpha}\pL\P{Lu}", r"[A-Za-z][\p{L}][\P{Lu}]", ""),
    ],
)
def test_written_again(pattern: str, written: str, why: str) -> None:
    assert linear(pattern).text == written, why


@pytest.mark.parametrize(
    ("pattern", "loops", "why"),
    [
        ("[0-9]{3}", Loops.NONE, ""),
        (r"\s+", Loops.TAIL, ""),
        ("a+(b*)", Loops.TAIL, "what follows may be missing"),
        ("a+b", Loops.INNER, "a longer match may turn out to be none at the end of the text"),
        ("(?:a+$|a)", Loops.INNER, "what has no width may not hold there"),
        ("(?:a+){2}", Loops.INNER, "the first is followed by the second"),
        ("(?:a+)?", Loops.TAIL, ""),
    ],
)
def test_how_far_a_match_looks_ahead(pattern: str, loops: Loops, why: str) -> None:
    assert linear(pattern).loops is loops, why


_PIECES = st.sampled_from(
    ["a", "b", ".", "(", ")", "(?:", "|", "*", "+", "?", "{2}", "{3,}", "{1,9}", "[", "]", "^", "-",
     "\\", "d", "p{L}", "\\b", "(?i)", "&&", "é", "\\Q", "\\E", "x{41}", "$"]
)  # fmt: skip


@settings(max_examples=examples(300))
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_what_is_accepted_re2_accepts_and_is_as_small_as_it_says(pattern: str) -> None:
    try:
        found = linear(pattern)
    except UnsupportedPattern:
        return
    options = re2.Options()
    options.log_errors = False
    made = re2.compile(found.text, options)
    assert made.groups == found.groups
    assert found.size <= SIZE_MAX
    assert (made.search("") is not None) <= found.may_be_empty
