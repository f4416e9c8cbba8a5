"""Regular expressions in Spark: in linear time, as in a pull query, and as Java reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.expressions.like import LikePattern
from standpipe.sql.expressions.python.regular_expressions import FUNCTIONS
from standpipe.sql.functions.pattern_parts import UnsupportedPattern
from standpipe.sql.functions.regular_expressions import linear

pytestmark = pytest.mark.e2e

TEXTS = (
    "", "a", "aab", "aaab aab ba", "abcabc", "ABab", "a,b,,c", " x  y ", "a\nb\r\nc\u2028d", "äÖß",
    "😀a😀", "12.5 and 7", "2020-02-29T12:34", "a.b.a", "x_y-z]", "key=value&k=v", "\t\u00a0\x0b",
    "ba\n", "xAx", "a-b", "Σας", "a" * 40,
)  # fmt: skip
PATTERNS = (
    "", "a", "b", "a*", "a+?", "a{2,3}?", "(a+)+", "(a|aa)+", "(.*)*x", "(?:.*)*x",
    "((a{2}){2}){2}", ".", r"\s+",
    r"(\w)(\w*)", "[^a-c]", "(?i)ab|c", "(?i)[a-x]+", "(?i:A)a", "(?i)a(?-i)b", "^.", "^",
    "(a)|(b)",
    "(a)?b", "[", "(?=a)", r"(a)\1", r"\p{L}+", r"\P{Lu}", r"\pN", r"\Qa.\E|\.", r"\Q.", "(?s).+",
    ",",
    r"\d+(\.\d+)?", r"[\h\v]+", r"[\H]", r"\V+", "😀", "[😀-🙏]", "x{2,1}", "(?<n>a)b?", "()",
    "a++",
    "[a&&b]", "[a[b]]", "(?:a|(b))", r"[^\W_]", r"\R", "(?d).+", "[]a-]+", "[a-]+", "[^]]",
    r"\x41|a",
    r"\u0061\x{62}", r"\p{Alpha}+", r"\P{Alpha}", r"\p{Punct}", r"\p{IsL}", r"\p{IsLatin}", "a**",
    "a{1001}", "a|", "|a", "(|a)b", "a||b", "[a-z&]+", r"[\d-z]", r"[\]\[]", r"\07", r"\0101",
    r"\cA",
    r"\e|\a", r"\t|\n", "=([^&]*)", "(a)(b)(c)", "a(?#c)", "(?x)a", "(?m)^b", "(?u)a", "(?U)a",
    "(a",
    "a)", "]", "}", "{", "a{", "a{,2}", r"\z", r"\A", r"\Z", r"\G", r"\X", r"\k<n>",
    r"\N{DIGIT ONE}",
    "(a*)(b*)", "(?:a*b)*", "([ab]+,?)+", "z?", "(?:aa|a)(?:ab|b)", "(a+|b)*c", "-", "[--0]",
    "[+--]",
)  # fmt: skip
#: what Java's engine does not come back from, not within the life of a cluster
EVIL = ("(a+)+$", "(a|aa)+$", "(?:.*)*x", "(?:a*)*b", "(?:a|a?)+$", r"(\w+\s?)+$",
        "((a{1,9}){1,9}){1,9}b",
        "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x", "(?:a?){60}a{60}", "^(([a-z])+.)+[A-Z]([a-z])+$",
        "a*a*a*a*a*a*a*a*b")  # fmt: skip


def _pieces(chance: random.Random, depth: int) -> str:
    """A random pattern that Java accepts."""
    kind = chance.randrange(9 if depth else 5)
    if kind < 3:
        return chance.choice(("a", "b", ".", "x", ",", r"\d", r"\w", "é"))
    if kind == 3:
        return chance.choice(("[ab]", "[^a]", r"[\s,]", "[a-c]", r"\p{L}", "(?i:B)"))
    if kind == 4:
        return chance.choice(("^", r"\b", "a", "b"))
    if kind == 5:
        return f"({_pieces(chance, depth - 1)})"
    if kind == 6:
        return f"(?:{_pieces(chance, depth - 1)}|{_pieces(chance, depth - 1)})"
    if kind == 7:
        return _pieces(chance, depth - 1) + _pieces(chance, depth - 1)
    inner = f"(?:[ab]{_pieces(chance, depth - 1)})"
    return inner + chance.choice(("*", "+", "?", "{1,2}", "*?", "+?", "{2}"))


def _random_patterns() -> Iterator[str]:
    chance = random.Random(27)
    for _ in range(250):
        yield _pieces(chance, 4)


def _has_group(pattern: str) -> bool:
    try:
        return linear(pattern).groups > 0
    except UnsupportedPattern:
        return False


def _asked(spark: SparkSession, rows: Sequence[tuple[str, str]], select: str) -> list[Any]:
    given = [(pattern, text, _has_group(pattern)) for pattern, text in rows]
    table = spark.createDataFrame(given, "pattern STRING, text STRING, has_group BOOLEAN")
    table = table.repartition(1)
    table.createOrReplaceTempView("asked")
    return spark.sql(f"SELECT pattern, text, {select} FROM asked").collect()


def _ours(name: str, *given: Any) -> Any:
    made = FUNCTIONS[name]
    return made.compute(*given, **({"budget": [WORK_MAX]} if made.takes_budget else {}))


def test_spark_and_the_evaluator_agree(spark: SparkSession) -> None:
    rows = [(p, t) for p in (*PATTERNS, *EVIL, *_random_patterns()) for t in TEXTS]
    found = _asked(
        spark,
        rows,
        "standpipe_regexp_extract(pattern, text, 0) AS e0,"
        " standpipe_regexp_extract(pattern, text, 1) AS e1,"
        " standpipe_regexp_extract_all(pattern, text, 0) AS a0,"
        " standpipe_regexp_extract_all(pattern, text, 2) AS a2,"
        " standpipe_regexp_split(pattern, text, '') AS s,"
        " standpipe_regexp_replace(pattern, text, '<$0>') AS r0,"
        " standpipe_regexp_replace(pattern, text, '[$1]') AS r1",
    )
    assert len(found) == len(rows)
    differ = [
        (each.pattern, each.text, name, each[name], ours)
        for each in found
        for name, ours in (
            ("e0", _ours("REGEXP_EXTRACT", each.pattern, each.text)),
            ("e1", _ours("REGEXP_EXTRACT", each.pattern, each.text, 1)),
            ("a0", _ours("REGEXP_EXTRACT_ALL", each.pattern, each.text)),
            ("a2", _ours("REGEXP_EXTRACT_ALL", each.pattern, each.text, 2)),
            ("s", _ours("REGEXP_SPLIT_TO_ARRAY", each.text, each.pattern)),
            ("r0", _ours("REGEXP_REPLACE", each.text, each.pattern, "<$0>")),
            ("r1", _ours("REGEXP_REPLACE", each.text, each.pattern, "[$1]")),
        )
        if each[name] != ours
    ]
    assert differ == [], len(differ)
    assert sum(each.a0 is not None for each in found) > len(found) / 2


def test_what_is_accepted_means_what_it_means_in_java(spark: SparkSession) -> None:
    """Spark's own functions run on Java's engine: none of these patterns is evil there."""

    def is_linear(pattern: str) -> bool:
        try:
            return bool(linear(pattern).text)
        except UnsupportedPattern:
            return False

    def is_known(pattern: str, text: str) -> bool:
        """$ also fits before a last line break in Java, \\b knows other alphabets before Java 19,
        and an empty match splits a character beyond the BMP."""
        is_open = linear(pattern).may_be_empty and max(text, default="") > "\uffff"
        return "$" in pattern or ("\\b" in pattern and not text.isascii()) or is_open

    patterns = [each for each in (*PATTERNS, *_random_patterns()) if is_linear(each)]
    texts = [each for each in TEXTS if len(each) < 30]
    found = _asked(
        spark,
        [(p, t) for p in patterns for t in texts if not is_known(p, t)],
        "standpipe_regexp_extract_all(pattern, text, 0) AS ours,"
        " regexp_extract_all(text, pattern, 0) AS java,"
        " coalesce(standpipe_regexp_extract(pattern, text, 1), '') AS our_group,"
        " if(has_group, regexp_extract(text, pattern, 1), '') AS java_group",
    )
    assert len(found) > 3_000
    assert [each for each in found if each.ours != each.java] == []
    assert [each for each in found if each.our_group != each.java_group] == []


def test_no_evil_pattern_holds_a_task(spark: SparkSession) -> None:
    """On Java's engine the first of these rows alone would outlive the test by some 10^20 years."""
    texts = ("a" * 60 + "!", "a" * 5_000 + "!", "a" * 1_000_000 + "!")
    found = _asked(
        spark,
        [(p, t) for p in EVIL for t in texts],
        "length(text) AS size,"
        " standpipe_regexp_extract(pattern, text, 0) AS e,"
        " size(standpipe_regexp_extract_all(pattern, text, 0)) AS a,"
        " length(standpipe_regexp_replace(pattern, text, '')) AS r,"
        " size(standpipe_regexp_split(pattern, text, '')) AS s",
    )
    small = {each.pattern: each for each in found if each.size == 61}
    assert small["(a+)+$"].e is None
    assert small["(a+)+$"].r == 61
    assert small["(?:a?){60}a{60}"].e == "a" * 60
    assert len(small) == len(EVIL)


@pytest.mark.parametrize(
    ("pattern", "text", "why"),
    [
        ("(a.*b|a)", "a" * 200_000, "each match reads to the end to find that no longer one fits"),
        ("((a{9}){9}){9}", "a" * 1_000_000, "many states for each character"),
        ("a" * 1_001, "a", "a pattern that takes long to read"),
        ("(a{1000}){1000}", "a", "a million states: RE2/J would make them all"),
        ("(" * 41 + ")" * 41, "a", "the reader's stack"),
    ],
)  # fmt: skip
def test_what_takes_too_many_steps_is_null(
    spark: SparkSession, pattern: str, text: str, why: str
) -> None:
    (found,) = _asked(
        spark, [(pattern, text)], "standpipe_regexp_extract_all(pattern, text, 0) AS a"
    )
    assert found.a is None, why


LIKES = ("", "a", "%", "a%", "%a", "%a%", "_", "a_b%", "%a%b%", "%a_%_b", "a%b%c", "%%", "!%",
         "a!_%",
         "!", "%!", "!!%", "😀%a_", "%_😀%", "_%_%_")  # fmt: skip


@pytest.mark.parametrize("escape", ["", "!"])
def test_like_means_the_same_in_spark(spark: SparkSession, escape: str) -> None:
    texts = (*TEXTS, "a%b", "a_b!", "!", "%", "a!b")
    found = _asked(
        spark,
        [(p, t) for p in LIKES for t in texts],
        f"standpipe_like(pattern, text, '{escape}') AS is_like",
    )
    differ = [
        each
        for each in found
        if LikePattern(each.pattern, escape or None).matches(each.text) is not each.is_like
    ]
    assert differ == []
    assert any(each.is_like for each in found)


def test_no_like_holds_a_task(spark: SparkSession) -> None:
    """Spark's own LIKE is an expression with `.*` for each %: a power of the text's length."""
    found = _asked(
        spark,
        [("%a" * 50 + "b", "a" * 1_000_000), ("%" + "_" * 5_000 + "b%", "a" * 1_000_000)],
        "standpipe_like(pattern, text, '') AS is_like",
    )
    assert [each.is_like for each in found] == [False, None]
