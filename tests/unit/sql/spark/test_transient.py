"""Push queries that need Spark: what runs for them, and which columns their clients see."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql import analyzer
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.lookup.push import needs_spark, pushed
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan, PushPlan, TransientPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse

DECLARED = """
CREATE STREAM CLICKS (USER STRING KEY, N INT, PAGE STRING)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='DELIMITED');
CREATE TABLE USERS (ID STRING PRIMARY KEY, NAME STRING)
  WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON');
CREATE STREAM VALS (V INT) WITH (KAFKA_TOPIC='vals', FORMAT='KAFKA');
"""
ID = "transient_CLICKS_7"


def declared() -> dict[str, Source]:
    known: dict[str, Source] = {}
    context = Context(topics={"clicks": 2, "users": 2, "vals": 1})
    for statement in parse(DECLARED):
        made = analyze(statement, known, context)
        assert isinstance(made, CreateSourcePlan)
        known[made.source.name] = made.source
    return known


SOURCES = declared()


def planned(sql: str) -> TransientPlan:
    (statement,) = parse(sql)
    assert isinstance(statement, ast.Query)
    assert needs_spark(statement)
    return analyzer.transient(statement, SOURCES, Context(next_index=9), ID)


def schema(sql: str) -> str:
    (statement,) = parse(sql)
    assert isinstance(statement, ast.Query)
    return pushed(planned(sql), statement.limit).schema


@pytest.mark.parametrize(
    ("select", "kind", "keys", "shown"),
    [
        (
            "USER, COUNT(*) FROM CLICKS WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY USER",
            *("TABLE", ["USER"], "`USER` STRING, `KSQL_COL_0` BIGINT"),
        ),
        (
            "COUNT(*) AS C FROM CLICKS GROUP BY USER, PAGE",
            *("TABLE", ["KSQL_KEY_0", "KSQL_KEY_1"], "`C` BIGINT"),
        ),
        (
            "WINDOWSTART, WINDOWEND E, MAX(N) M FROM CLICKS WINDOW SESSION (4 SECONDS) GROUP BY N",
            *("TABLE", ["KSQL_KEY_0"], "`WINDOWSTART` BIGINT, `E` BIGINT, `M` INTEGER"),
        ),
        (
            "SUM(N), USER A, USER B FROM CLICKS GROUP BY USER HAVING SUM(N) > 1",
            *("TABLE", ["A"], "`KSQL_COL_0` INTEGER, `A` STRING, `B` STRING"),
        ),
        (
            "COUNT(*) AS KSQL_KEY_0 FROM CLICKS GROUP BY USER",
            *("TABLE", ["KSQL_KEY_1"], "`KSQL_KEY_0` BIGINT"),
        ),
        ("NAME, COUNT(*) AS C FROM USERS GROUP BY NAME", "TABLE", ["NAME"], None),
        ("COUNT(*), SUM(N) FROM CLICKS", "TABLE", ["KSQL_KEY_0"], None),
        ("COUNT(*) AS C FROM USERS", "TABLE", ["KSQL_KEY_0"], "`C` BIGINT"),
        (
            "WINDOWEND, MAX(N) FROM CLICKS WINDOW TUMBLING (SIZE 1 HOUR) HAVING COUNT(*) > 1",
            *("TABLE", ["KSQL_KEY_0"], "`WINDOWEND` BIGINT, `KSQL_COL_0` INTEGER"),
        ),
        (
            "C.N, U.NAME, C.ROWTIME FROM CLICKS C LEFT JOIN USERS U ON C.USER = U.ID",
            *("STREAM", ["KSQL_KEY_0"], "`N` INTEGER, `NAME` STRING, `C_ROWTIME` BIGINT"),
        ),
        (
            "* FROM CLICKS C JOIN USERS U ON C.USER = U.ID",
            *("STREAM", ["C_USER"]),
            "`C_USER` STRING, `C_N` INTEGER, `C_PAGE` STRING, `U_ID` STRING, `U_NAME` STRING",
        ),
        ("N FROM CLICKS PARTITION BY PAGE", "STREAM", ["KSQL_KEY_0"], "`N` INTEGER"),
        ("N FROM CLICKS PARTITION BY NULL", "STREAM", [], "`N` INTEGER"),
    ],
)
def test_what_runs_and_what_is_shown(
    select: str, kind: str, keys: list[str], shown: str | None
) -> None:
    sql = f"SELECT {select} EMIT CHANGES;"
    plan = planned(sql)
    source, query = plan.source, plan.query
    assert source.kind == kind
    assert [column.name for column in source.key_columns] == keys
    assert (source.partitions, source.is_materialized) == (1, False)
    assert (source.value_format, source.key_format) == ("JSON", "JSON" if keys else "NONE")
    assert (query.query_id, source.query_id, query.sink) == (ID, ID, ID)
    assert query.statement == sql
    assert shown is None or schema(sql) == shown


def test_a_row_of_the_sink_as_the_client_sees_it() -> None:
    sql = "SELECT COUNT(*) AS C, WINDOWEND, USER FROM CLICKS WINDOW TUMBLING (SIZE 1 HOUR)"
    (statement,) = parse(f"{sql} GROUP BY USER, PAGE EMIT CHANGES LIMIT 5;")
    assert isinstance(statement, ast.Query)
    plan = pushed(planned(statement.text), statement.limit)
    # keys, bounds, values
    row = ["ann", "/a", 0, 3_600_000, 7, 3_600_000]
    names = [*("USER", "KSQL_KEY_0"), *("C", "KSQL_SHOWN_WINDOWEND")]
    assert [column.name for column in plan.source.columns] == names
    assert [cell(row) for cell in plan.cells] == [7, 3_600_000, "ann"]
    assert plan.key_cells == (False, False, True), "a tombstone shows what it is of"
    assert plan.limit == 5


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT N, COUNT(*) FROM CLICKS GROUP BY USER EMIT CHANGES;", "not part of GROUP BY"),
        ("SELECT USER FROM CLICKS GROUP BY USER EMIT CHANGES;", "requires aggregate functions"),
        ("SELECT V, COUNT(*) FROM VALS GROUP BY V EMIT CHANGES;", "KAFKA"),
        ("SELECT N, COUNT(*) FROM NONE GROUP BY N EMIT CHANGES;", "NONE"),
        ("SELECT PAGE FROM CLICKS PARTITION BY N EMIT CHANGES LIMIT -1;", "must not be negative"),
        ("SELECT N AS WINDOWEND FROM CLICKS PARTITION BY N EMIT CHANGES;", "WINDOWEND"),
        ("SELECT N FROM CLICKS WINDOW TUMBLING (SIZE 1 HOUR) EMIT CHANGES;", "requires a GROUP"),
        ("SELECT N, COUNT(*) FROM CLICKS EMIT CHANGES;", "not part of GROUP BY: N"),
        ("SELECT N FROM CLICKS HAVING COUNT(*) > 1 EMIT CHANGES;", "HAVING requires a GROUP"),
    ],
)
def test_refusals(sql: str, why: str) -> None:
    with pytest.raises(StatementError, match=why):
        planned(sql)


def test_an_aggregate_without_a_group_is_over_all_rows() -> None:
    said, meant = (
        planned(f"SELECT COUNT(*) AS C FROM CLICKS {clause}EMIT CHANGES;").query.plan
        for clause in ("", "GROUP BY 1 ")
    )
    assert said == meant
    with pytest.raises(StatementError, match="without a GROUP BY"):
        analyze(
            parse("CREATE TABLE T AS SELECT COUNT(*) AS C FROM CLICKS EMIT CHANGES;")[0],
            *(SOURCES, Context()),
        )


def test_a_persistent_query_still_needs_its_key() -> None:
    sql = "CREATE TABLE T AS SELECT COUNT(*) AS C FROM CLICKS GROUP BY USER EMIT CHANGES;"
    with pytest.raises(StatementError, match="Key missing from projection"):
        analyze(parse(sql)[0], SOURCES, Context())
    whole = analyze(parse(sql.replace("SELECT", "SELECT USER,"))[0], SOURCES, Context())
    assert isinstance(whole, CreateTableAsPlan)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM CLICKS EMIT CHANGES;",
        "SELECT N + 1 FROM CLICKS WHERE USER = 'a' EMIT CHANGES LIMIT 3;",
        "SELECT EXPLODE(ARRAY[N]) FROM CLICKS EMIT CHANGES;",
    ],
)
def test_other_push_queries_need_no_spark(sql: str) -> None:
    (statement,) = parse(sql)
    assert isinstance(statement, ast.Query)
    assert not needs_spark(statement)
    assert isinstance(analyze(statement, SOURCES, Context()), PushPlan)
