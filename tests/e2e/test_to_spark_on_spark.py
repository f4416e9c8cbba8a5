"""Does the SQL that we emit mean to Spark what the statement means to ksqlDB?

Each statement runs over batch DataFrames that stand for the views of a pipeline. The last column of
a table says which of ksqlDB's rules the row holds (source: its function reference).
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from standpipe.model import Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan
from standpipe.sql.syntax.parser import parse

pytestmark = pytest.mark.e2e

STREAM = """
CREATE STREAM S (K STRING KEY, I INT, L BIGINT, D DOUBLE, C DECIMAL(6, 2), T STRING, B BOOLEAN)
    WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
SCHEMA = StructType(
    [
        StructField("K", StringType()),
        StructField("I", IntegerType()),
        StructField("L", LongType()),
        StructField("D", DoubleType()),
        StructField("C", DecimalType(6, 2)),
        StructField("T", StringType()),
        StructField("B", BooleanType()),
        StructField("ROWTIME", LongType()),
        StructField("__ORDER", LongType()),
    ]
)
ROWS = [
    # K, I, L, D, C, T, B, ROWTIME, __ORDER
    ("a", 1, 10, 1.5, Decimal("1.10"), "x", True, 1_000, 1),
    ("a", 3, 30, 2.5, Decimal("2.20"), None, False, 2_500, 2),
    ("a", None, None, None, None, "y", None, 2_000, 3),
    ("n", None, None, None, None, None, None, 9_000, 4),
    (None, 5, 50, 5.0, Decimal("5.00"), "lost", True, 9_500, 5),
    ("w", 2147483647, 9223372036854775807, 1e300, Decimal("9.99"), "it's \\ ${HOME}", True, 100, 7),
    ("w", 1, 1, 0.5, Decimal("0.01"), "earlier", True, 200, 6),
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    return (
        frame.withColumn("__TS", F.timestamp_millis("ROWTIME"))
        .withColumn("ROWPARTITION", F.lit(0))
        .withColumn("ROWOFFSET", F.col("__ORDER"))
        .cache()
    )


def plan_of(statement: str) -> CreateTableAsPlan:
    sources: dict[str, Source] = {}
    for each in parse(STREAM + statement):
        plan = analyze(each, sources, Context(next_index=1))
        if isinstance(plan, CreateSourcePlan):
            sources[plan.source.name] = plan.source
    assert isinstance(plan, CreateTableAsPlan)
    return plan


def run(spark: SparkSession, rows: DataFrame, statement: str) -> list[dict[str, object]]:
    plan = plan_of(statement)
    (view,) = [each.view for each in plan.query.plan.inputs]
    rows.createOrReplaceTempView(view)
    result = spark.sql(plan.query.plan.sql)
    declared = [column.name for column in plan.source.columns]
    bounds = ["WINDOWSTART", "WINDOWEND"] if plan.source.window else []
    keys = len(plan.source.key_columns)
    assert result.columns == [
        *declared[:keys], *bounds, *declared[keys:], "__ROWTIME", "__LIVE",
    ]  # fmt: skip
    return [row.asDict() for row in result.collect()]


def values(
    spark: SparkSession, rows: DataFrame, expressions: list[str]
) -> dict[object, dict[str, object]]:
    """Key → expression → value, all in one query: a Spark job costs more than the rest."""
    listed = ", ".join(f"{each} AS V{index}" for index, each in enumerate(expressions))
    result = run(spark, rows, f"CREATE TABLE R AS SELECT K, {listed} FROM S GROUP BY K;")
    return {
        row["K"]: {each: row[f"V{index}"] for index, each in enumerate(expressions)}
        for row in result
    }


#: a text of this many characters, from within Spark
_LONG = "RPAD('a', {}, 'a')"
_MAX = WORK_MAX

LIMITS: list[tuple[str, str, object, str]] = [
    ("MAX(LEN(LPAD('x', 2000000000, 'ab')))", "n", None, "it ended the JVM of all queries"),
    (f"MAX(LEN(LPAD('x', {_MAX}, 'ab')))", "n", _MAX, "the limit of pull queries"),
    (f"MAX(LEN(RPAD('x', {_MAX + 1}, 'ab')))", "n", None, "and one more"),
    ("MAX(LEN(LPAD(T, I, 'z')))", "a", 1, "the limit is each row's"),
    (f"MAX(LEN(CONCAT({_LONG.format(_MAX - 1)}, 'b')))", "n", _MAX, "all arguments together"),
    (f"MAX(LEN({_LONG.format(_MAX)} || 'b'))", "n", None, "and one more"),
    (f"MAX(LEN({_LONG.format(_MAX)} + 'b'))", "n", None, "the same as +"),
    (f"MAX(LEN(CONCAT_WS({_LONG.format(_MAX // 2)}, 'a', 'b', 'c')))", "n", None, "separators"),
    ("MAX(LEN(CONCAT_WS('-', T, T)))", "a", 3, "a short one"),
    (f"MAX(LEN(REPLACE({_LONG.format(10**6)}, 'a', 'bbbbb')))", "n", None, "5 million"),
    (f"MAX(LEN(REPLACE({_LONG.format(10**6)}, 'aa', 'bbbb')))", "n", 2 * 10**6, "counted"),
    (f"MAX(LEN(REPLACE({_LONG.format(10**6)}, 'b', 'ccccccccc')))", "n", 10**6, "not guessed"),
    (f"MAX(LEN(REPLACE({_LONG.format(_MAX)}, 'a', 'b')))", "n", _MAX, "no longer than before"),
    ("MAX(ARRAY_LENGTH(GENERATE_SERIES(1, 2000000000)))", "n", None, "items count as well"),
    ("MAX(ARRAY_LENGTH(GENERATE_SERIES(1, 2000000000, 1000000)))", "n", 2000, "by the step"),
    (
        "MAX(ARRAY_LENGTH(GENERATE_SERIES(-9223372036854775807, 9223372036854775807)))",
        "n",
        None,
        "no overflow on the way to the limit",
    ),
    ("MAX(ARRAY_LENGTH(GENERATE_SERIES(3, 1)))", "n", 3, "downwards"),
    ("MAX(ARRAY_LENGTH(GENERATE_SERIES(1, 3, 0)))", "n", None, "Spark would end the query"),
    ("MAX(ARRAY_LENGTH(GENERATE_SERIES(1, 3, -1)))", "n", None, "a step that leads away"),
    (
        "MAX(LEN(REDUCE(GENERATE_SERIES(1, 40), 'x', (s, x) => s + s)))",
        "n",
        None,
        "a text that doubles 40 times",
    ),
]

EXPRESSIONS: list[tuple[str, str, object, str]] = [
    ("COUNT(*)", "a", 3, "counts rows"),
    ("COUNT()", "a", 3, "COUNT() is COUNT(*)"),
    ("COUNT(I)", "a", 2, "skips null"),
    ("COUNT(I)", "n", 0, "of nothing: 0"),
    ("SUM(I)", "a", 4, "skips null"),
    ("SUM(I)", "n", 0, "starts at 0, so all-null is 0"),
    ("SUM(I)", "w", -2147483648, "an INTEGER sum wraps as Java's"),
    ("SUM(L)", "w", -9223372036854775808, "a BIGINT sum wraps as well"),
    ("SUM(D)", "n", 0.0, "starts at 0.0"),
    ("SUM(C)", "a", Decimal("3.30"), "keeps the scale"),
    ("SUM(C)", "n", Decimal("0.00"), "zero at the type's scale"),
    ("AVG(I)", "a", 2.0, "a DOUBLE, nulls skipped"),
    ("AVG(D)", "n", 0.0, "of nothing: 0.0, not null"),
    ("MIN(I)", "a", 1, ""),
    ("MAX(T)", "a", "y", "text as well"),
    ("MAX(L)", "n", None, "of nothing: null"),
    ("LATEST_BY_OFFSET(T)", "a", "y", "the last that is not null"),
    ("LATEST_BY_OFFSET(I)", "a", 3, "nulls are skipped"),
    ("LATEST_BY_OFFSET(I, false)", "a", None, "unless asked not to be"),
    ("LATEST_BY_OFFSET(T)", "w", "it's \\ ${HOME}", "arrival order, not that of the rows"),
    ("EARLIEST_BY_OFFSET(T)", "w", "earlier", ""),
    ("EARLIEST_BY_OFFSET(T)", "n", None, "null if there is none"),
    ("MAX(ROWTIME)", "a", 2500, "ROWTIME can be aggregated"),
    ("COUNT(*) * 2 + 1", "a", 7, "arithmetic over aggregates"),
    ("SUM(I) / 3", "a", 1, "integers divide as integers"),
    ("SUM(I) / 0", "a", None, "no error that stops the query"),
    ("SUM(-7 / 2)", "n", -3, "towards zero, as Java's"),
    ("SUM(-7 % 3)", "n", -1, "the sign of the dividend"),
    ("SUM(D / 2)", "a", 2.0, "doubles divide as doubles"),
    ("MAX(C * C)", "a", Decimal("4.8400"), "decimal scale adds up"),
    ("MAX(C + I)", "a", Decimal("5.20"), "INTEGER widens to DECIMAL"),
    ("SUM(CASE WHEN B THEN 1 ELSE 0 END)", "a", 1, "null is not true"),
    ("SUM(CASE I WHEN 1 THEN 10 WHEN 3 THEN 20 END)", "a", 30, "simple CASE, no ELSE"),
    ("MAX(CAST(I AS STRING))", "a", "3", "CAST"),
    ("MAX(CAST(T AS INT))", "a", None, "text that is no number is null"),
    ("LATEST_BY_OFFSET(UCASE(T))", "a", "Y", ""),
    ("LATEST_BY_OFFSET(CONCAT('<', T, '>'))", "a", "<y>", ""),
    ("LATEST_BY_OFFSET(CONCAT(T, 'z'))", "n", "z", "CONCAT takes null for nothing"),
    ("LATEST_BY_OFFSET(T || 'z')", "a", "yz", ""),
    ("MAX(LEN(T))", "w", 14, "characters"),
    ("MAX(SUBSTRING(T, 1, 4))", "w", "it's", "from 1"),
    ("MAX(TRIM(' \t b '))", "n", "b", "all blanks, as Java's trim"),
    ("MAX(COALESCE(T, 'none'))", "n", "none", ""),
    ("MAX(IFNULL(I, 0))", "n", 0, ""),
    ("MAX(ABS(-I))", "a", 3, ""),
    ("MAX(ROUND(D))", "a", 3, "half up, a BIGINT"),
    ("MAX(ROUND(-D))", "a", -1, "half up is towards positive: round(-1.5) = -1"),
    ("MAX(ROUND(-D, 0))", "a", -1.0, "with a scale as well"),
    ("MAX(ROUND(D, 0))", "a", 3.0, "of positives: up"),
    ("MAX(ROUND(C, 1))", "a", Decimal("2.20"), "a DECIMAL keeps its type"),
    ("MAX(CHR(I + 22908))", "a", "\u597f", "any code point"),
    ("MAX(CHR(-1))", "a", None, "that there is"),
    ("MAX(LOG(1))", "n", 0.0, "natural: LOG(E) would be 1"),
    ("MAX(TO_JSON_STRING(CAST('16:43:40' AS TIME)))", "n", '"16:43:40"', "a TIME is text"),
    ("MAX(CAST(SPLIT_TO_MAP('a:1', '/', NULL) AS STRING))", "n", None, "by null"),
    ("MAX(CAST(SPLIT_TO_MAP('a:1', ':', ':') AS STRING))", "n", None, "by what parts entries"),
    ("MAX(TO_JSON_STRING(ARRAY[STRUCT(B := 1, A := true)]))", "n", '[{"A":true,"B":1}]', "sorted"),
    ("MAX(INITCAP(' oNE-two  t\u00fc '))", "n", "One-two  T\u00fc ", "words of ASCII blanks"),
    ("MAX(INSTR('a', CAST(NULL AS STRING)))", "n", 0, "no place"),
    ("MAX(CAST(ARRAY_SORT(ARRAY[1, 2], 'down') AS STRING))", "n", None, "not a direction"),
    ("MAX(ELT(0, T, 'z'))", "a", None, "there is no element 0"),
    ("MAX(LOG(15, 0))", "a", float("-inf"), "as Java's"),
    ("MAX(ENCODE('Hi\u00fc', 'utf8', 'hex'))", "n", "4869c3bc", "small digits"),
    ("MAX(ENCODE('Hi\u00fc', 'utf8', 'ascii'))", "n", "Hi\ufffd\ufffd", "what is no ASCII"),
    ("MAX(ENCODE('4a4', 'hex', 'utf8'))", "n", None, "half a byte"),
    ("MAX(ENCODE('0x44a', 'hex', 'utf8'))", "n", "\x04J", "goes behind 0x"),
    ("MAX(JSON_CONCAT('', '1'))", "n", None, "no JSON, no result"),
    ("MAX(JSON_CONCAT('null', 'null'))", "n", "[null,null]", "null is JSON"),
    ("MAX(CAST(FROM_UNIXTIME(10) AS STRING))", "n", "1970-01-01T00:00:00.010", "ISO"),
    ("MAX(CAST(PARSE_DATE('2003-12-24x', 'yyyy-MM-dd') AS STRING))", "n", "2003-12-24", "a prefix"),
    (
        "MAX(CAST(SPLIT_TO_MAP('a:1//b:2/', '/', ':') AS STRING))",
        "n",
        "{a=1, b=2}",
        "blanks are out",
    ),
    ("MAX(CAST(SPLIT_TO_MAP('a:1', '', ':') AS STRING))", "n", None, "by nothing"),
    ("MAX(CAST(TRANSFORM(ARRAY[1, I], x => x + 1) AS STRING))", "n", None, "a null fails it whole"),
    ("MAX(CAST(FILTER(ARRAY[1, 3], x => x % 3 = 0) AS STRING))", "n", "[3]", "without one: not"),
    ("MAX(REDUCE(CAST(NULL AS ARRAY<INT>), 2, (s, x) => s + x))", "n", 2, "of nothing: the start"),
    (
        "MAX(CAST(ARRAY_DISTINCT(ARRAY[MAP('a' := 1), MAP('a' := 1)]) AS STRING))",
        "n",
        "[{a=1}]",
        "maps are compared",
    ),
    (
        "MAX(ARRAY_LENGTH(ARRAY_EXCEPT(ARRAY[MAP('a':=1), MAP('b':=2)], ARRAY[MAP('a':=1)])))",
        "n",
        1,
        "by what they hold",
    ),
    (
        "MAX(TIMESTAMPTOSTRING(1500000000000, 'HH:mm zzz', 'America/Los_Angeles'))",
        "n",
        "19:40 PDT",
        "the zone's own name, in summer",
    ),
    (
        "MAX(FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'HH:mm ''z'' XXX', 'America/Los_Angeles'))",
        "n",
        "16:00 z -08:00",
        "its offset, in winter",
    ),
    (
        "MAX(TIMESTAMPTOSTRING(CAST(NULL AS BIGINT), 'HH z', 'UTC'))",
        "n",
        None,
        "of nothing: nothing",
    ),
    ("MAX(TIMESTAMPTOSTRING(9223372036854775807, 'yyyy'))", "n", None, "no instant of Spark's"),
    (
        "MAX(CAST(TIMESTAMPADD(DAYS, 2147483647, FROM_UNIXTIME(0)) AS STRING))",
        "n",
        None,
        "beyond them",
    ),
    ("MAX(FLOOR(D))", "a", 2.0, "keeps DOUBLE"),
    ("MAX(CEIL(C))", "a", Decimal("3"), "a DECIMAL loses its scale"),
]


@pytest.fixture(scope="module")
def computed(spark: SparkSession, rows: DataFrame) -> dict[object, dict[str, object]]:
    return values(spark, rows, [expression for expression, *_ in EXPRESSIONS])


@pytest.mark.parametrize(("expression", "key", "expected", "why"), LIMITS)
def test_what_is_larger_than_the_limit_is_null(
    spark: SparkSession, rows: DataFrame, expression: str, key: str, expected: object, why: str
) -> None:
    """One by one: Spark computes constants beforehand and prints them with its plan, 4 MB each."""
    assert values(spark, rows, [expression])[key][expression] == expected, why


@pytest.mark.parametrize(("expression", "key", "expected", "why"), EXPRESSIONS)
def test_expression(
    computed: dict[object, dict[str, object]], expression: str, key: str, expected: object, why: str
) -> None:
    got = computed[key][expression]
    assert got == expected, why
    assert type(got) is type(expected), why


def test_text_arrives_as_it_is(spark: SparkSession, rows: DataFrame) -> None:
    texts = [
        "it's",
        "\\",
        "\\n",
        "a\nb",
        "${HOME}",
        "${env:PATH}",
        "'; DROP TABLE x; --",
        '"',
        "`",
        "日本",
    ]
    literals = ["'" + text.replace("'", "''") + "'" for text in texts]
    found = values(spark, rows, [f"MAX({literal})" for literal in literals])["n"]
    assert list(found.values()) == texts


def test_rows_without_a_key_are_skipped_and_rowtime_is_the_newest(
    spark: SparkSession, rows: DataFrame
) -> None:
    result = run(spark, rows, "CREATE TABLE R AS SELECT K, COUNT(*) N FROM S GROUP BY K;")
    assert {row["K"]: (row["N"], row["__ROWTIME"]) for row in result} == {
        "a": (3, 2_500),
        "n": (1, 9_000),
        "w": (2, 200),
    }


def test_having_makes_rows_that_are_not_live(spark: SparkSession, rows: DataFrame) -> None:
    statement = "CREATE TABLE R AS SELECT K, MAX(I) M FROM S GROUP BY K HAVING MAX(I) > 2;"
    result = run(spark, rows, statement)
    assert {row["K"]: row["__LIVE"] for row in result} == {"a": True, "n": False, "w": True}


def test_where_is_before_grouping(spark: SparkSession, rows: DataFrame) -> None:
    statement = (
        "CREATE TABLE R AS SELECT K, COUNT(*) N FROM S WHERE I > 1 AND T IS NULL GROUP BY K;"
    )
    assert [(row["K"], row["N"]) for row in run(spark, rows, statement)] == [("a", 1)]


def test_windows_are_aligned_with_the_epoch(spark: SparkSession, rows: DataFrame) -> None:
    statement = (
        "CREATE TABLE R AS SELECT K, WINDOWSTART AS FROM_MS, COUNT(*) N FROM S"
        " WINDOW TUMBLING (SIZE 2 SECONDS) WHERE K = 'a' GROUP BY K;"
    )
    result = run(spark, rows, statement)
    keyed = {(row["WINDOWSTART"], row["WINDOWEND"]): (row["FROM_MS"], row["N"]) for row in result}
    assert keyed == {(0, 2_000): (0, 1), (2_000, 4_000): (2_000, 2)}


def test_several_keys_and_a_computed_one(spark: SparkSession, rows: DataFrame) -> None:
    statement = (
        "CREATE TABLE R WITH (KEY_FORMAT='JSON') AS"
        " SELECT COUNT(*) N, I % 2 ODD, K, I % 2 + 10 AS NEXT FROM S GROUP BY K, I % 2;"
    )
    result = run(spark, rows, statement)
    found = {(row["K"], row["ODD"]): (row["N"], row["NEXT"]) for row in result}
    assert found == {("a", 1): (2, 11), ("w", 1): (2, 11)}, "a null in any key skips the row"
