"""Hostile statements and random ones: nothing of them may reach Spark but what the registry emits.

More random ones: `make fuzz`. Not here: how a plan is read (`reach.py`), Spark (tests/e2e).
"""

from __future__ import annotations

import pytest
from tests.sql import fuzz
from tests.sql.reach import reached, strangers

from standpipe.model import SparkPlan
from standpipe.sql.functions import aggregate, registry

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


#: each needs its rows as text, whose type names the fields of a STRUCT
PACKED = (
    "CREATE TABLE t AS SELECT id, MAX(x->y) AS l FROM s WINDOW SESSION (1 HOUR) GROUP BY id;",
    "CREATE TABLE t AS SELECT x, COLLECT_LIST(id) AS l FROM u GROUP BY x;",
    "CREATE STREAM t AS SELECT s.id, s.x, p.maker FROM s LEFT JOIN planes p ON s.id = p.tail;",
    "CREATE TABLE t AS SELECT u.id, u.x, p.maker FROM u JOIN planes p ON u.fk = p.tail;",
)
FIELDS = (
    "it's",
    "a\\",
    "\\' || reflect('a', 'b') || '",
    "$",
    "'>>') AS `z`, reflect('a', 'b') AS x",
    "a`b'",
)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("statement", PACKED)
def test_the_name_of_a_field_stays_in_its_text(statement: str, field: str) -> None:
    """An apostrophe in it ended the text: the driver ran what came behind."""
    of = f"STRUCT<`{field.replace('`', '``')}` STRING, y INT>"
    sources = (
        f"CREATE STREAM s (id STRING KEY, x {of}) WITH (kafka_topic='s', value_format='JSON',"
        " partitions=4, key_format='JSON');"
        f"CREATE TABLE u (id STRING PRIMARY KEY, fk STRING, x {of}) WITH (kafka_topic='u',"
        " format='JSON', partitions=4);"
    )
    (plan,) = reached(sources + statement)
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


@pytest.mark.parametrize("seed", range(3))
def test_random_statements_end_in_a_plan_or_a_refusal(seed: int) -> None:
    """Anything but StandpipeError would be a crash."""
    tried = fuzz.run(seed, 1000)
    assert tried.plans > 20, "the fuzz does not get past the parser"


@pytest.mark.parametrize("depth", [60, 5000])
def test_depth_is_an_error_of_the_statement(depth: int) -> None:
    for text in ("(" * depth + "1" + ")" * depth, "1" + " + 1" * depth, "NOT " * depth + "true"):
        list(reached(f"CREATE STREAM s AS SELECT tail, {text} AS x FROM flights;"))


def test_aggregates_are_in_the_registry() -> None:
    assert {each.name for each in aggregate.FUNCTIONS} <= set(registry.names())
