"""Hostile statements and random ones: nothing of them may reach Spark but what the registry emits.

What a statement becomes is read as Spark would read it: literals and quoted names are cut out, and
every word that is left must be one that our templates use. Not here: Spark itself (tests/e2e).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from standpipe.errors import StandpipeError
from standpipe.model import Source, SparkPlan
from standpipe.sql import aggregate_functions, functions, plans
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.parser import parse

SETUP = (Path(__file__).parent / "setup.sql").read_text()
FUZZ_COUNT = 3000


def setup() -> dict[str, Source]:
    known: dict[str, Source] = {}
    for statement in parse(SETUP):
        plan = analyze(statement, known, Context(next_index=1))
        assert isinstance(plan, (plans.CreateSourcePlan, plans.CreateTableAsPlan))
        known[plan.source.name] = plan.source
    return known


SOURCES = setup()
_LITERALS = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|X'[0-9a-f]*'")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: words of the emitter's own text, beside those in the functions' templates
_OWN_TEXT = """
SELECT FROM AS WHERE IS NOT NULL GROUP BY AND OR IN LIKE ESCAPE CASE WHEN THEN ELSE END
EXCEPT JOIN ON UNION ALL FILTER INTERVAL SECOND TRUE FALSE CAST COALESCE DIV WINDOW
START UNIX_MILLIS MAX MAX_BY STRUCT ARRAY MAP NAMED_STRUCT EXPLODE ARRAYS_ZIP GREATEST
IF CONCAT ELEMENT_AT TRY_ELEMENT_AT DATE_FROM_UNIX_DATE TIMESTAMP_MILLIS TO_TIMESTAMP
TRANSFORM MAP_FILTER AGGREGATE MAP_ENTRIES MAP_FROM_ENTRIES KEY VALUE BIGINT INT STRING
DOUBLE DECIMAL BOOLEAN BINARY DATE TIMESTAMP D L BD NOTHING
"""
_OWN = frozenset(_OWN_TEXT.split())
_TEMPLATES = {
    word.upper()
    for name in functions.names()
    for variant in functions.variants(name)
    for word in _WORDS.findall(_LITERALS.sub("", variant.template))
}


def reached(statement: str) -> Iterator[SparkPlan]:
    """The plans that a request would hand to Spark; refusals hand over none."""
    known = dict(SOURCES)
    try:
        for parsed in parse(statement):
            plan = analyze(parsed, known, Context(topics={"here": 2}, next_index=7))
            if isinstance(plan, plans.CreateTableAsPlan):
                yield plan.query.plan
    except StandpipeError:
        return


def strangers(plan: SparkPlan) -> set[str]:
    """Words outside of literals and quoted names that no template of ours has."""
    text = _LITERALS.sub(" ", plan.sql)
    assert "${" not in plan.sql, "spark.sql would substitute"
    assert ";" not in text
    assert "--" not in text
    return {word.upper() for word in _WORDS.findall(text)} - _OWN - _TEMPLATES


PAYLOADS = (
    "reflect('java.lang.Runtime', 'getRuntime')", "java_method('java.lang.System', 'exit', 1)",
    "TRANSFORM(tail) USING 'sh'", "(SELECT 1)", "`/etc/passwd`", "parquet.`/etc/passwd`",
    "csv.`file:///etc/passwd`", "input_file_name()", "assert_true(false)", "raise_error('x')",
    "current_user()", "version()", "xpath('<a/>', 'a')", "from_csv('a', 'a INT')", "sleep(10)",
    "'; ADD JAR /tmp/x.jar; --", "' OR '1'='1", "'\\'; DROP TABLE x; --'", "'${spark.secret}'",
    "'$' || '{env:HOME}'", "\u2019 OR 1=1", "tail /* */ ; ADD FILE 'x'", "'a' -- ' OR TRUE",
    "CAST(tail AS STRUCT<`a``; DROP`: INT>)", "tail->`x` FROM other", "x'414243'", "\"tail\"",
    "`tail`` FROM secrets --`", "'\\u0027 OR 1=1'", "'\0'", "e'\\n'", "N'x'", "0x1F", "@@global.x",
    "tail COLLATE UTF8_LCASE", "IDENTIFIER('tail')", "EXECUTE IMMEDIATE 'x'", ":parameter", "?",
)  # fmt: skip
PLACES = (
    "CREATE STREAM s AS SELECT tail, {} AS x FROM flights;",
    "CREATE STREAM s AS SELECT tail, delay FROM flights WHERE {} = 'x';",
    "CREATE TABLE t AS SELECT {} AS k, COUNT(*) AS n FROM flights GROUP BY {};",
    "CREATE TABLE t AS SELECT tail, MAX({}) AS n FROM flights GROUP BY tail;",
    "CREATE STREAM s AS SELECT tail, delay FROM {};",
    "CREATE STREAM s AS SELECT tail, TRANSFORM(tags, x => {}) AS x FROM flights;",
    "CREATE STREAM {} AS SELECT tail, delay FROM flights;",
    "SELECT {} FROM by_tail WHERE tail = {};",
)
ALONE = (
    "ADD JAR '/tmp/x.jar';", "SET spark.jars=/tmp/x;", "RESET;", "CACHE TABLE x;", "USE default;",
    "CREATE TABLE t USING csv LOCATION '/etc';", "INSERT OVERWRITE DIRECTORY '/tmp' SELECT 1;",
    "LOAD DATA INPATH '/etc/passwd' INTO TABLE t;", "CREATE FUNCTION f AS 'x.Y' USING JAR 'x';",
    "WITH a AS (SELECT 1) SELECT * FROM a;", "SELECT 1; DROP TABLE by_tail; --", "VALUES (1);",
    "SELECT * FROM by_tail UNION SELECT 1;", "DESCRIBE FUNCTION EXTENDED reflect;",
)  # fmt: skip
HOSTILE = [place.replace("{}", payload) for place in PLACES for payload in PAYLOADS] + list(ALONE)


def test_there_are_enough() -> None:
    assert len(set(HOSTILE)) >= 300


@pytest.mark.parametrize("statement", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_statement(statement: str) -> None:
    for plan in reached(statement):
        assert strangers(plan) == set()


def test_the_check_would_notice() -> None:
    """A template that let a name through as text would be seen."""
    (plan,) = reached("CREATE STREAM s AS SELECT tail, delay FROM flights;")
    bad = SparkPlan(
        version=1,
        inputs=(),
        sql=plan.sql + " , reflect(secrets)",
        output_mode="update",
        is_windowed=False,
    )
    assert strangers(bad) == {"REFLECT", "SECRETS"}


TOKENS_TEXT = """
SELECT FROM WHERE AND OR NOT IN LIKE BETWEEN CASE WHEN THEN END CREATE TABLE STREAM AS GROUP BY
PARTITION HAVING WINDOW TUMBLING SIZE JOIN ON WITHIN EMIT CHANGES LIMIT flights by_tail tail delay
tags info planes a b COUNT SUM EXPLODE TRANSFORM CAST ( ) , ; . * + - / % || = <> < > := => -> [ ]
' " ` 1 2.5 1E3 'x' 'it''s' -- /* */ ${x}
"""
TOKENS = (*TOKENS_TEXT.split(), "\u00a0", "\u2028", "é", "\\", "\0", "\n")


@pytest.mark.parametrize("seed", range(3))
def test_random_statements_end_in_a_plan_or_a_refusal(seed: int) -> None:
    """Anything but StandpipeError would be a crash. More of them: raise FUZZ_COUNT."""
    chance = random.Random(seed)
    for _ in range(FUZZ_COUNT // 3):
        words = chance.choices(TOKENS, k=chance.randrange(1, 40))
        head = chance.choice(["", "SELECT ", "CREATE STREAM s AS SELECT tail, "])
        for plan in reached(head + " ".join(words)):
            assert strangers(plan) == set()


@pytest.mark.parametrize("depth", [60, 5000])
def test_depth_is_an_error_of_the_statement(depth: int) -> None:
    for text in ("(" * depth + "1" + ")" * depth, "1" + " + 1" * depth, "NOT " * depth + "true"):
        list(reached(f"CREATE STREAM s AS SELECT tail, {text} AS x FROM flights;"))


def test_aggregates_are_in_the_registry() -> None:
    assert {each.name for each in aggregate_functions.AGGREGATES} <= set(functions.names())
