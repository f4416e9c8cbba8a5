"""Expressions that a value out of a column breaks: ksqlDB gives NULL for the column, and goes on.

As literals, most of these values are refused with the statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.e2e.both_values import KINDS, value_sql

from standpipe.errors import NotComputable
from standpipe.model import Column, Source
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.spark.expression_sql import expression_sql
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse

_LEAST: Final = -(2**31)

#: texts with the kinds of `both_values` as columns, and the values of these columns
BREAKING: Final[tuple[tuple[str, Mapping[str, object]], ...]] = (
    # numbers
    ("{I} / {SMALL}", {"I": 1, "SMALL": 0}),
    ("{I} % {SMALL}", {"I": 1, "SMALL": 0}),
    ("{L} / {SMALL}", {"L": 1, "SMALL": 0}),
    ("{L} % {SMALL}", {"L": 1, "SMALL": 0}),
    ("{C} / {SMALL}", {"C": "1.00", "SMALL": 0}),
    ("{C} % {SMALL}", {"C": "1.00", "SMALL": 0}),
    ("{WW} % {SP}", {"WW": "9" * 36 + ".99", "SP": "0." + "0" * 27 + "1"}),
    ("CAST({L} AS DECIMAL(6, 2))", {"L": 10**15}),
    ("CAST({W} AS DECIMAL(6, 2))", {"W": "123456789012345.67890"}),
    ("CAST({D} AS DECIMAL(6, 2))", {"D": 1e300}),
    ("CAST({D} AS DECIMAL(38, 10))", {"D": float("nan")}),
    ("CAST({S} AS INTEGER)", {"S": "x"}),
    ("CAST({S} AS INTEGER)", {"S": "99999999999"}),
    ("CAST({S} AS BIGINT)", {"S": "1.5"}),
    ("CAST({S} AS DOUBLE)", {"S": "0x1F"}),
    ("CAST({S} AS DECIMAL(6, 2))", {"S": "99999"}),
    # dates and times
    ("CAST({S} AS DATE)", {"S": "2020-02-30"}),
    ("CAST({S} AS TIME)", {"S": "24:00"}),
    ("CAST({S} AS TIMESTAMP)", {"S": "2020-13-01"}),
    ("CAST({DT} AS TIMESTAMP)", {"DT": 2147483647}),
    ("CAST({MI} AS MAP<INTEGER, STRING>)[1]", {"MI": {"a": 1}}),
    ("FORMAT_DATE({DT}, {S})", {"DT": 1, "S": "yyyy bb"}),
    ("FORMAT_DATE({DT}, {S})", {"DT": 1, "S": "yyyy-MM-dd'"}),
    ("FORMAT_DATE({DT}, {S})", {"DT": 1, "S": "HH"}),
    ("FORMAT_TIME({TM}, {S})", {"TM": 1, "S": "yyyy"}),
    ("FORMAT_TIMESTAMP({TS}, {S})", {"TS": 1, "S": "{x}"}),
    ("FORMAT_TIMESTAMP({TS}, 'HH', {ZONE})", {"TS": 1, "ZONE": "nowhere/x"}),
    ("TIMESTAMPTOSTRING({L}, {S})", {"L": 1, "S": "]"}),
    ("TIMESTAMPTOSTRING({L}, {S})", {"L": -(2**63), "S": "yyyy"}),
    ("TIMESTAMPTOSTRING({L}, 'HH', {ZONE})", {"L": 1, "ZONE": "+2x"}),
    ("DATETOSTRING({I}, {S})", {"I": 1, "S": "#"}),
    ("PARSE_DATE({S}, 'yyyy-MM-dd')", {"S": "2019-02-xx"}),
    ("PARSE_DATE({TDATE}, {S})", {"TDATE": "2019-02-28", "S": "yyyy'"}),
    ("PARSE_TIME({S}, 'HH:mm')", {"S": "25:00"}),
    ("PARSE_TIME({TTIME}, {S})", {"TTIME": "10:00", "S": "bb"}),
    ("PARSE_TIMESTAMP({S}, 'yyyy-MM-dd HH:mm')", {"S": "2020-02-29"}),
    ("PARSE_TIMESTAMP({TSTAMP}, {S})", {"TSTAMP": "2020", "S": "{"}),
    ("PARSE_TIMESTAMP({S}, 'yyyy', {ZONE})", {"S": "2020", "ZONE": "x"}),
    ("STRINGTODATE({S}, 'yyyyMMdd')", {"S": "20200232"}),
    ("STRINGTOTIMESTAMP({S}, 'yyyyMMdd')", {"S": "tail"}),
    ("CONVERT_TZ({TS}, {ZONE}, 'UTC')", {"TS": 1, "ZONE": "nowhere/x"}),
    ("CONVERT_TZ({TS}, 'UTC', {ZONE})", {"TS": 1, "ZONE": ""}),
    ("TIMESTAMPADD({UNIT}, {I}, {TS})", {"UNIT": "x", "I": 1, "TS": 1}),
    ("DATEADD({UNIT}, {I}, {DT})", {"UNIT": "", "I": 1, "DT": 1}),
    # texts
    ("LPAD({S}, {SMALL}, 'x')", {"S": "a", "SMALL": -1}),
    ("LPAD({S}, {SMALL}, {COMMA})", {"S": "a", "SMALL": 3, "COMMA": ""}),
    ("RPAD({Y}, {SMALL}, {Y})", {"Y": b"", "SMALL": 3}),
    ("CHR({I})", {"I": -1}),
    ("CHR({I})", {"I": 2147483647}),
    ("CHR({S})", {"S": "zz"}),
    ("REGEXP_EXTRACT({REGEX}, {S})", {"REGEX": "[", "S": "a"}),
    ("REGEXP_EXTRACT({REGEX}, {S}, {GROUP})", {"REGEX": "(a)", "S": "a", "GROUP": 9}),
    ("REGEXP_EXTRACT_ALL({REGEX}, {S})", {"REGEX": "(?<", "S": "a"}),
    ("REGEXP_REPLACE({S}, {REGEX}, 'x')", {"S": "a", "REGEX": "x{2,1}"}),
    ("REGEXP_REPLACE({S}, 'a', {NEW})", {"S": "a", "NEW": "$9"}),
    ("REGEXP_REPLACE({S}, 'a', {NEW})", {"S": "a", "NEW": "\\"}),
    ("REGEXP_SPLIT_TO_ARRAY({S}, {REGEX})", {"S": "a", "REGEX": "("}),
    ("ENCODE({S}, {ENC}, 'utf8')", {"S": "a", "ENC": "nonsense"}),
    ("ENCODE({HEXED}, 'hex', 'utf8')", {"HEXED": "zz"}),
    ("TO_BYTES({HEXED}, 'hex')", {"HEXED": "zz"}),
    ("TO_BYTES({S}, {ENC})", {"S": "a", "ENC": "nonsense"}),
    ("FROM_BYTES({Y}, {ENC})", {"Y": b"a", "ENC": "nonsense"}),
    ("INT_FROM_BYTES({Y})", {"Y": b"abc"}),
    ("BIGINT_FROM_BYTES({Y})", {"Y": b"abc"}),
    ("DOUBLE_FROM_BYTES({Y})", {"Y": b"abc"}),
    ("INT_FROM_BYTES({Y}, {ORDER})", {"Y": b"\x80\x00\x00\x01", "ORDER": "x"}),
    ("UUID({Y})", {"Y": b"abc"}),
    ("URL_DECODE_PARAM({ENCODED})", {"ENCODED": "%zz"}),
    ("URL_EXTRACT_PORT({URL})", {"URL": "nothing"}),
    # lists, maps, JSON
    ("{AI}[{SMALL}]", {"AI": [1], "SMALL": 0}),
    ("{AI}[{SMALL}]", {"AI": [1], "SMALL": _LEAST}),
    ("GENERATE_SERIES({I}, {SMALL}, 0)", {"I": 1, "SMALL": 3}),
    ("GENERATE_SERIES(1, 3, {SMALL})", {"SMALL": -1}),
    ("ARRAY_SORT({AI}, {SORT})", {"AI": [1], "SORT": "x"}),
    ("TRANSFORM({MI}, (k, v) => NULLIF(k, 'a'), (k, v) => v)", {"MI": {"a": 1}}),
    ("TRANSFORM({AI}, x => 1 / x)", {"AI": [1, 0]}),
    ("REDUCE({AI}, 1, (s, x) => s / x)", {"AI": [0]}),
    ("EXTRACTJSONFIELD({JSON}, '$.a')", {"JSON": "bad"}),
    ("EXTRACTJSONFIELD({JSON}, {PATH})", {"JSON": "{}", "PATH": "a["}),
    ("JSON_KEYS({JSON})", {"JSON": "[1,"}),
    ("JSON_RECORDS({JSON})", {"JSON": "1x"}),
    ("JSON_CONCAT({JSON}, {JSON})", {"JSON": "bad"}),
    ("GEO_DISTANCE({LAT}, {LAT}, {LAT}, {LAT}, {MILES})", {"LAT": 1.0, "MILES": "x"}),
)


def _named(text: str, values: Mapping[str, object]) -> tuple[ast.Expression, PullNames]:
    columns = tuple((f"{kind}_0", KINDS[kind].type) for kind in values)
    named = text.format_map({kind: f"{kind}_0" for kind in values})
    (statement,) = parse(f"SELECT {named} FROM S;")
    assert isinstance(statement, ast.Query)
    (item,) = statement.items
    assert isinstance(item, ast.SelectItem)
    source = Source(
        name="S",
        kind="STREAM",
        columns=(Column(name="K", type="STRING", is_key=False),),
        topic="s",
        partitions=1,
        key_format="NONE",
        value_format="JSON",
        statement="",
    )
    return item.expression, PullNames(source, "S", columns, 0)


def _cell(kind: str, given: object) -> object:
    return Decimal(str(given)) if KINDS[kind].type.base == "DECIMAL" else given


def by_evaluator(text: str, values: Mapping[str, object]) -> object:
    """The result in a pull query: NULL, where a pull query refuses the row."""
    node, names = _named(text, values)
    compute = Evaluator(names, "SELECT").compile(node)
    try:
        return compute([*(_cell(*each) for each in values.items()), 0])
    except NotComputable:
        return None


def query_for_spark(text: str, values: Mapping[str, object]) -> str:
    """A query of Spark's over one row with the values; its only column is the result."""
    node, names = _named(text, values)
    computed = expression_sql(Typer(names, "SELECT").type(node))
    listed = ", ".join(
        f"{value_sql(_cell(kind, given), KINDS[kind].type)} AS `{kind}_0`"
        for kind, given in values.items()
    )
    return f"SELECT CAST(({computed}) IS NULL AS STRING) AS `none` FROM (SELECT {listed})"


def not_null_in(spark: SparkSession) -> list[str]:
    """The expressions that are not NULL in Spark, or that fail there; none is expected."""
    found: list[str] = []
    for text, values in BREAKING:
        try:
            (row,) = spark.sql(query_for_spark(text, values)).collect()
            said = "it is not NULL" if row["none"] != "true" else ""
        except PySparkException as error:
            said = str(error)[:200]
        if said:
            found.append(f"{text} of {dict(values)}: {said}")
    return found
