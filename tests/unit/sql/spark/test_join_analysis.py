"""Which joins are refused, with ksqlDB's texts, in the order of its passes (Analyzer, then
LogicalPlanner, then JoinNode)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import Plan
from standpipe.sql.spark.join_analysis import JOINED_SOURCES_MAX

WITH = "WITH (KAFKA_TOPIC='here', FORMAT='JSON'{});"
TUMBLING = ", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='10 SECONDS'"
SETUP = "".join(
    (
        f"CREATE STREAM A (K STRING KEY, V INT, W STRING, M MAP<STRING, INT>) {WITH.format('')}",
        f"CREATE STREAM B (K STRING KEY, V INT, W STRING, M MAP<STRING, INT>) {WITH.format('')}",
        f"CREATE STREAM C (K STRING KEY, V INT) {WITH.format('')}",
        f"CREATE STREAM N (K INT KEY, V STRING) {WITH.format('')}",
        f"CREATE TABLE T (K STRING PRIMARY KEY, V INT, F STRING) {WITH.format('')}",
        f"CREATE TABLE U (K STRING PRIMARY KEY, V INT, F STRING) {WITH.format('')}",
        f"CREATE TABLE P (K STRING PRIMARY KEY, L INT PRIMARY KEY, F STRING) {WITH.format('')}",
        f"CREATE STREAM WA (K STRING KEY, V INT) {WITH.format(TUMBLING)}",
        f"CREATE STREAM WN (K INT KEY, V INT) {WITH.format(TUMBLING)}",
        f"CREATE TABLE WT (K STRING PRIMARY KEY, V INT) {WITH.format(TUMBLING)}",
    )
)
IN = "WITHIN 1 HOUR"
MANY = "Invalid join condition: joins on multiple conditions are not yet supported."


def refused(plan: Callable[..., Plan], query: str, kind: str = "STREAM") -> StatementError:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}CREATE {kind} X AS SELECT {query};")
    return refusal.value


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("A.K > B.K", "Only equality join criteria is supported."),
        ("A.K <> B.K", "Only equality join criteria is supported."),
        ("A.K IS NOT DISTINCT FROM B.K", "Only equality join criteria is supported."),
        (
            "A.K = B.K AND A.V = B.V",
            f"{MANY} Got ((A.K = B.K) AND (A.V = B.V)).",
        ),
        ("A.K = B.K AND A.V > B.V", "Unsupported join expression: ((A.K = B.K) AND (A.V > B.V))"),
        ("A.K = B.K AND TRUE", "Unsupported join expression: ((A.K = B.K) AND true)"),
        ("NOT A.K = B.K", "Unsupported join expression: (NOT (A.K = B.K))"),
        ("A.K LIKE B.K", "Unsupported join expression: (A.K LIKE B.K)"),
        ("A.K IN (B.K)", "Unsupported join expression: (A.K IN (B.K))"),
        ("A.K BETWEEN B.K AND B.W", "Unsupported join expression: (A.K BETWEEN B.K AND B.W)"),
        ("A.K IS NULL", "Unsupported join expression: (A.K IS NULL)"),
        ("TRUE", "Unsupported join expression: true"),
    ],
)
def test_a_join_has_one_equality(plan: Callable[..., Plan], on: str, message: str) -> None:
    assert refused(plan, f"* FROM A JOIN B {IN} ON {on}").message == message


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        (f"A JOIN A {IN} ON A.K = A.K", "Can not join 'A' to 'A'"),
        (
            f"A X JOIN A Y {IN} ON X.K = Y.K JOIN B {IN} ON X.K = B.K",
            "Can not join 'A' to 'A': self joins are not yet supported.",
        ),
        (
            f"A JOIN B {IN} ON A.K = B.K JOIN A Z {IN} ON A.K = Z.K",
            "N-way joins do not support multiple occurrences of the same source. Source: 'A'.",
        ),
    ],
)
def test_each_source_is_joined_once(plan: Callable[..., Plan], joined: str, message: str) -> None:
    """Whether it is a self join or one of an n-way join depends on what was there before it."""
    assert message in refused(plan, f"* FROM {joined}").message


@pytest.mark.parametrize(
    ("kind", "joined", "message"),
    [
        ("STREAM", "A JOIN B ON A.K = B.K", "Stream-Stream joins must have a WITHIN clause"),
        ("STREAM", f"A JOIN T {IN} ON A.K = T.K", "provided for a Stream-Table join. These joins"),
        ("TABLE", f"T JOIN U {IN} ON T.K = U.K", "provided for a Table-Table join. These joins"),
        (
            "STREAM",
            "T LEFT JOIN A ON T.K = A.K",
            "only stream-table joins. Got T LEFT [OUTER] JOIN A.",
        ),
        ("STREAM", "A RIGHT JOIN T ON A.K = T.K", "join type encountered: RIGHT [OUTER] JOIN"),
        ("STREAM", "A FULL JOIN T ON A.K = T.K", "stream-table join. Got A [FULL] OUTER JOIN T."),
        ("TABLE", "T RIGHT JOIN U ON T.F = U.K", "RIGHT OUTER JOIN on a foreign key is not"),
        (
            "TABLE",
            "T FULL JOIN U ON T.F = U.K",
            "supported for foreign-key table-table join. Got T [FULL] OUTER JOIN U.",
        ),
    ],
)
def test_kinds_of_joins(plan: Callable[..., Plan], kind: str, joined: str, message: str) -> None:
    assert message in refused(plan, f"* FROM {joined}", kind).message


@pytest.mark.parametrize(
    ("kind", "joined", "message", "why"),
    [
        ("STREAM", "A JOIN T ON A.K = T.V", "join on the table's primary key", "no key of T"),
        ("STREAM", "A FULL JOIN T ON A.V = T.K", "full-outer join not", "the kind comes first"),
        ("TABLE", "T JOIN U ON T.K = U.V", "primary key of the right input table", "no key of U"),
        ("TABLE", "T JOIN U ON T.V = U.K", "Got T.V{INTEGER} = U.K{STRING}.", "tables: both"),
        ("STREAM", "A JOIN N ON A.K = N.K", "Key types differ: STRING vs INTEGER", "no WITHIN"),
        ("STREAM", "A JOIN N ON A.K = N.K", "Got A.K{STRING} = N.K{INTEGER}.", "and the condition"),
        ("STREAM", f"A JOIN T {IN} ON A.V = T.K", "Key types differ: INTEGER vs", "then WITHIN"),
        ("STREAM", "A JOIN B ON A.M = B.M", "Map keys, including types that", "then WITHIN"),
    ],
)
def test_keys_are_checked_before_types_and_these_before_within(
    plan: Callable[..., Plan], kind: str, joined: str, message: str, why: str
) -> None:
    assert message in refused(plan, f"* FROM {joined}", kind).message, why


@pytest.mark.parametrize(
    ("kind", "joined", "message"),
    [
        ("STREAM", "A JOIN B ON A.K = B.K", "syntax-reference.html#create-stream-as-select"),
        ("STREAM", f"A JOIN T {IN} ON A.K = T.K", "(ie. the WITHIN clause) and try to execute"),
        ("TABLE", f"T JOIN U {IN} ON T.K = U.K", "(i.e. the WITHIN clause) and try to execute"),
        ("TABLE", f"T JOIN U {IN} ON T.K = U.K", "to execute your Table-Table join again."),
    ],
)
def test_within_is_for_streams(
    plan: Callable[..., Plan], kind: str, joined: str, message: str
) -> None:
    assert message in refused(plan, f"* FROM {joined}", kind).message


@pytest.mark.parametrize(
    ("kind", "joined", "message"),
    [
        ("STREAM", f"A JOIN WA {IN} ON A.K = WA.K", "`A` is not windowed\n`WA` is TUMBLING"),
        ("STREAM", f"A JOIN WA {IN} ON WA.K = A.K", "`WA` is TUMBLING windowed\n`A` is not"),
        ("STREAM", f"A JOIN WA Z {IN} ON A.K = Z.K", "`A` is not windowed\n`Z` is TUMBLING"),
        ("STREAM", f"A JOIN WN {IN} ON A.K = WN.K", "Can not join windowed source to non-"),
        ("STREAM", f"WA JOIN WN {IN} ON WA.V = WN.V", "Implicit repartitioning of windowed"),
        ("STREAM", f"WA JOIN WN {IN} ON WA.K = WN.V", "Key types differ"),
        ("STREAM", "WA JOIN WT ON WA.K = WT.K", "persistent queries on windowed tables."),
        ("TABLE", "T JOIN WT ON T.K = WT.K", "Can not join windowed source to non-windowed"),
    ],
)
def test_windowed_sources(plan: Callable[..., Plan], kind: str, joined: str, message: str) -> None:
    """Kinds of windows come before all else; messages name the sides as the condition does."""
    assert message in refused(plan, f"* FROM {joined}", kind).message


def test_a_foreign_key_join_shows_all_keys_of_the_left_table(plan: Callable[..., Plan]) -> None:
    both = refused(plan, "P.F, T.V FROM P JOIN T ON P.F = T.K", "TABLE").message
    assert both.startswith("Primary key columns missing in projection.")
    assert both.endswith("left input table (`P`). Missing columns: `K`, `L`.")
    one = refused(plan, "P.K, T.V FROM P JOIN T ON P.F = T.K", "TABLE").message
    assert one.startswith("Primary key column missing in projection.")
    assert one.endswith("Missing column: `L`.")


def test_a_query_joins_so_many_sources(plan: Callable[..., Plan]) -> None:
    """A text of 64 KB names a thousand, and Spark would plan them, and keep their states."""
    names = [f"T{number}" for number in range(JOINED_SOURCES_MAX + 1)]
    tables = "".join(
        f"CREATE TABLE {name} (K STRING PRIMARY KEY, V INT) {WITH.format('')}" for name in names
    )
    first, *others = (f"{name} ON T0.K = {name}.K" for name in names)
    query = f"SELECT T0.K, T0.V FROM {first.partition(' ')[0]} JOIN "
    plan(f"{tables}CREATE TABLE X AS {query}{' JOIN '.join(others[:-1])};")
    with pytest.raises(StatementError, match="reads 21 sources; 20 are allowed"):
        plan(f"{tables}CREATE TABLE X AS {query}{' JOIN '.join(others)};")


@pytest.mark.parametrize(
    ("query", "column", "could"),
    [
        (f"A.K, V FROM A JOIN B {IN} ON A.K = B.K", "V", "A.V or B.V"),
        (f"A.K, V FROM B JOIN A {IN} ON A.K = B.K", "V", "A.V or B.V"),
        (
            f"A.K, V FROM A JOIN B {IN} ON A.K = B.K JOIN T ON A.K = T.K",
            *("V", "A.V, B.V or T.V"),
        ),
        (f"A.K, ROWTIME AS R FROM A JOIN B {IN} ON A.K = B.K", "ROWTIME", "A.ROWTIME or B.ROWTIME"),
        (
            f"A.K, A.V FROM A JOIN B {IN} ON A.K = B.K WHERE ROWTIME > 5",
            *("ROWTIME", "A.ROWTIME or B.ROWTIME"),
        ),
        (
            f"A.K, ROWOFFSET AS R FROM A JOIN B {IN} ON A.K = B.K",
            *("ROWOFFSET", "A.ROWOFFSET or B.ROWOFFSET"),
        ),
        (f"A.K, B.V FROM A JOIN B {IN} ON V = B.V", "V", "A.V or B.V"),
        (f"A.K, B.V FROM A JOIN N B {IN} ON ROWTIME = A.V", "ROWTIME", "A.ROWTIME or B.ROWTIME"),
    ],
)
def test_a_name_of_several_sources_is_ambiguous(
    plan: Callable[..., Plan], query: str, column: str, could: str
) -> None:
    """Sources are named in the order of the alphabet; each has pseudo columns of its own."""
    said = f"Column '{column}' is ambiguous. Could be {could}."
    assert said in refused(plan, query).message


@pytest.mark.parametrize("bound", ["WINDOWSTART", "WINDOWEND"])
def test_a_window_of_several_sources_is_ambiguous(plan: Callable[..., Plan], bound: str) -> None:
    select = f"a.K, {bound} AS W FROM WA a JOIN WB b {IN} ON a.K = b.K"
    source = f"CREATE STREAM WB (K STRING KEY, V INT) {WITH.format(TUMBLING)}"
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}{source}CREATE STREAM X AS SELECT {select};")
    assert f"Could be A.{bound} or B.{bound}." in refusal.value.message


FULL = f"FROM A FULL JOIN B {IN} ON A.K = B.K"


@pytest.mark.parametrize(
    ("query", "kind", "clause"),
    [
        (f"ROWKEY, A.V {FULL} WHERE ROWKEY = 'a'", "STREAM", "WHERE"),
        (f"ROWKEY, A.V {FULL} PARTITION BY ROWKEY", "STREAM", "PARTITION BY"),
        (f"ROWKEY, COUNT(*) {FULL} GROUP BY ROWKEY", "TABLE", "GROUP BY"),
        (f"A.V, MAX(ROWKEY) {FULL} GROUP BY A.V", "TABLE", "SELECT"),
        (f"A.V, COUNT(*) {FULL} GROUP BY A.V HAVING MAX(ROWKEY) > 'a'", "TABLE", "HAVING"),
    ],
)
def test_only_a_projection_sees_a_synthetic_key(
    plan: Callable[..., Plan], query: str, kind: str, clause: str
) -> None:
    said = f"{clause} column 'ROWKEY' cannot be resolved."
    assert said in refused(plan, query, kind).message


@pytest.mark.parametrize("where", ["", "WHERE A.V > 1", "PARTITION BY A.V"])
def test_it_may_stand_in_expressions_of_the_projection(
    plan: Callable[..., Plan], where: str
) -> None:
    select = f"A.V, ROWKEY, UCASE(ROWKEY) AS U {FULL} {where}"
    plan(f"{SETUP}CREATE STREAM X AS SELECT {select};")
