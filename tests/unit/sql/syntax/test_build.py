"""Every statement of the grammar once: text → the record that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from standpipe.errors import StatementError
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse


def parsed(text: str) -> Any:
    (statement,) = parse(text)
    return statement


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("TERMINATE q_1;", "ControlQuery", {"action": "TERMINATE", "query_id": "Q_1"}),
        ("TERMINATE ALL;", "ControlQuery", {"action": "TERMINATE", "query_id": None}),
        ("PAUSE q;", "ControlQuery", {"action": "PAUSE", "query_id": "Q"}),
        ("RESUME ALL;", "ControlQuery", {"action": "RESUME", "query_id": None}),
        ("LIST ALL TOPICS EXTENDED;", "Show", {"what": "ALL TOPICS", "extended": True}),
        ("show functions;", "Show", {"what": "FUNCTIONS", "extended": False}),
        ("DESCRIBE s EXTENDED;", "Describe", {"name": "S", "extended": True}),
        ("DESCRIBE tables EXTENDED;", "DescribeAll", {"what": "TABLES", "extended": True}),
        ("DESCRIBE `TABLES`;", "Describe", {"name": "TABLES", "extended": False}),
        ("DESCRIBE STREAMS;", "DescribeAll", {"what": "STREAMS", "extended": False}),
        ("DESCRIBE FUNCTION len;", "DescribeFunction", {"name": "LEN"}),
        ("EXPLAIN q_1;", "Explain", {"subject": "Q_1"}),
        ("SET 'a.b'='c';", "SetProperty", {"name": "a.b", "value": "c"}),
        ("UNSET 'a.b';", "SetProperty", {"name": "a.b", "value": None}),
        ("DEFINE v = 'x''y';", "Define", {"name": "V", "value": "x'y"}),
        ("UNDEFINE v;", "Define", {"name": "V", "value": None}),
        ("ALTER SYSTEM 'a'='b';", "AlterSystem", {"name": "a", "value": "b"}),
        ("DROP TYPE IF EXISTS t;", "DropType", {"name": "T", "if_exists": True}),
        ("PRINT 't' FROM BEGINNING;", "PrintTopic", {"topic": "t", "from_beginning": True}),
        ("ASSERT NOT EXISTS TOPIC t TIMEOUT 2 SECONDS;", "AssertTopic",
         {"topic": "T", "exists": False, "timeout_ms": 2_000}),
        ("DROP TABLE IF EXISTS t DELETE TOPIC;", "DropSource",
         {"kind": "TABLE", "name": "T", "if_exists": True, "delete_topic": True}),
        ("INSERT INTO s (a, b) VALUES (1, 'x');", "InsertValues",
         {"target": "S", "columns": ("A", "B")}),
        ("INSERT INTO s SELECT * FROM t;", "InsertSelect", {"target": "S"}),
    ],
)  # fmt: skip
def test_administration(text: str, kind: str, fields: dict[str, object]) -> None:
    statement = parsed(text)
    assert type(statement).__name__ == kind
    assert {name: getattr(statement, name) for name in fields} == fields


#: ksqlDB's grammar: nonReserved
NAMES = (
    *("SHOW", "TABLES", "COLUMN", "COLUMNS", "PARTITIONS", "FUNCTIONS", "FUNCTION", "SESSION"),
    *("STRUCT", "MAP", "ARRAY", "PARTITION", "INTEGER", "DATE", "TIME", "TIMESTAMP", "INTERVAL"),
    *("ZONE", "STRING", "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "EXPLAIN", "ANALYZE"),
    *("TYPE", "TYPES", "SET", "RESET", "IF", "SOURCE", "SINK", "PRIMARY", "KEY", "EMIT", "CHANGES"),
    *("FINAL", "ESCAPE", "REPLACE", "ASSERT", "ALTER", "ADD", "HEADER", "HEADERS", "GRACE"),
    *("PERIOD", "DEFINE", "UNDEFINE", "VARIABLES", "PLUGINS", "SYSTEM", "TIMEOUT", "SCHEMA"),
    *("SUBJECT", "ID"),
)


@pytest.mark.parametrize("name", NAMES)
def test_few_words_are_no_names(name: str) -> None:
    statement = parsed(f"SELECT {name}.{name}, s->{name}, {name} AS {name} FROM {name} AS {name};")
    assert (statement.relation.name, statement.relation.alias) == (name, name)
    assert [each.alias for each in statement.items] == [None, None, name]


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("INT ARRAY", "ARRAY<INTEGER>"),
        ("DECIMAL(4, 2) ARRAY ARRAY", "ARRAY<ARRAY<DECIMAL(4, 2)>>"),
        ("STRUCT<x INT ARRAY, y MAP<STRING, INT ARRAY>>",
         "STRUCT<`X` ARRAY<INTEGER>, `Y` MAP<STRING, ARRAY<INTEGER>>>"),
    ],
)  # fmt: skip
def test_array_may_follow_the_type_of_its_elements(text: str, of: str) -> None:
    assert str(parsed(f"CREATE TYPE t AS {text};").type) == of


def test_create_source() -> None:
    statement = parsed(
        "CREATE OR REPLACE SOURCE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v DECIMAL(4,2),"
        " h BYTES HEADER('k')) WITH (kafka_topic='x', partitions=3, 'Wrap_single_value'=false);"
    )
    creation = statement.creation
    assert (creation.kind, creation.name) == ("TABLE", "T")
    assert (creation.or_replace, creation.if_not_exists, creation.is_source) == (True, True, True)
    assert [(each.name, str(each.type), each.mark) for each in statement.columns] == [
        ("ID", "INTEGER", "PRIMARY KEY"),
        ("V", "DECIMAL(4, 2)", ""),
        ("H", "BYTES", "HEADER"),
    ]
    assert statement.columns[2].header_key == "k"
    assert [(each.name, each.value.value) for each in statement.properties] == [
        ("KAFKA_TOPIC", "x"),
        ("PARTITIONS", 3),
        ("WRAP_SINGLE_VALUE", False),
    ]


def test_create_type_and_alter() -> None:
    assert str(parsed("CREATE TYPE a AS STRUCT<x INT>;").type) == "STRUCT<`X` INTEGER>"
    added = parsed("ALTER STREAM s ADD COLUMN a INT, ADD b STRING;").additions
    assert [(each.name, str(each.type)) for each in added] == [("A", "INTEGER"), ("B", "STRING")]


def test_all_clauses_of_a_query() -> None:
    query: ast.Query = parsed(
        "CREATE TABLE t AS SELECT a.x, b.*, s->*, COUNT(*) AS n FROM s a"
        " LEFT OUTER JOIN u b WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS ON a.x = b.x"
        " WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 1 HOUR, RETENTION 9 DAYS, GRACE PERIOD 2 DAYS)"
        " WHERE a.x > 1 GROUP BY a.x, y + 1 PARTITION BY z HAVING COUNT(*) > 1 EMIT FINAL LIMIT 5;"
    ).query
    assert [type(item).__name__ for item in query.items] == [
        "SelectItem", "Star", "StructStar", "SelectItem",
    ]  # fmt: skip
    (join,) = query.joins
    assert (join.kind, join.relation.name, join.relation.alias) == ("LEFT", "U", "B")
    assert join.within is not None
    assert (join.within.before_ms, join.within.after_ms, join.within.grace_ms) == (1000, 2000, 3000)
    window = query.window
    assert window is not None
    assert (window.kind, window.size_ms, window.advance_ms) == ("HOPPING", 86_400_000, 3_600_000)
    assert (window.retention_ms, window.grace_ms) == (9 * 86_400_000, 2 * 86_400_000)
    assert (len(query.group_by), len(query.partition_by), query.emit) == (2, 1, "FINAL")
    assert query.limit is not None
    assert query.limit.value == 5


@pytest.mark.parametrize(
    "clause",
    [
        "JOIN u b WITHIN {} ON a = b",
        "JOIN u b WITHIN (1 SECOND, {}) ON a = b",
        "JOIN u b WITHIN 1 SECOND GRACE PERIOD {} ON a = b",
        "WINDOW TUMBLING (SIZE {})",
        "WINDOW TUMBLING (SIZE 1 DAY, RETENTION {})",
        "WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD {})",
        "WINDOW HOPPING (SIZE {}, ADVANCE BY 1 DAY)",
        "WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY {})",
        "WINDOW SESSION ({})",
    ],
)
def test_a_duration_fits_into_the_numbers_of_spark_and_of_the_log(clause: str) -> None:
    """The log's encoder failed with an error of the server, not of the statement."""
    query = "SELECT * FROM s {} EMIT CHANGES;"
    parsed(query.format(clause.format("2305843009213693 MILLISECONDS")))
    for duration in ("2305843009213694 MILLISECONDS", "9223372036854775807 DAYS"):
        with pytest.raises(StatementError, match="longer than 2305843009213693 ms"):
            parsed(query.format(clause.format(duration)))


@pytest.mark.parametrize(
    ("tail", "alias", "why"),
    [
        ("", None, ""),
        ("a", "A", "without AS"),
        ("AS emit", "EMIT", "after AS any name will do"),
        ("EMIT CHANGES", None, "EMIT begins a clause"),
        ("PARTITION BY x", None, "PARTITION too"),
        ("ORDER", "ORDER", "ORDER is an ordinary name"),
    ],
)
def test_what_may_be_an_alias(tail: str, alias: str | None, why: str) -> None:
    assert parsed(f"SELECT * FROM s {tail};").relation.alias == alias, why
