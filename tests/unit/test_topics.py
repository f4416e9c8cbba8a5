"""Which topics a clause of a statement may name. One forged fence in the progress topic stopped a
table for good, so internal topics are refused in every clause."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from tests.samples import sample_stream, sample_table

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.ddl.insert_rows import insert_target
from standpipe.sql.plans import Plan
from standpipe.sql.syntax import variables
from standpipe.topics import TopicRules, processing_log_topic, progress_topic

RULES = TopicRules(service_id="shop_")
INTERNAL = {
    "shop__progress": "ours: batches are committed in it",
    "shop_ksql_processing_log": "ours: samples of bad records",
    "default__progress": "of another service with the usual id",
    "billing__progress": "of another service, by its end",
    "billing-ksql_processing_log": "of another service, or of ksqlDB",
    "__consumer_offsets": "Kafka's",
    "__transaction_state": "Kafka's",
    "__share_group_state": "Kafka's, of a newer release",
    "CST_USERS_4-changelog": "the changelog of a CREATE SOURCE TABLE",
    "CTAS_T_12-changelog": "the changelog of a table's next generation",
    "_confluent-ksql-default_query_CTAS_T_0-Aggregate-changelog": "of ksqlDB's state",
    "_schemas": "of a schema registry",
}
FREE = ("orders", "progress", "shop_progress_report", "a-changelog", "_private", "CTAS_T")

#: every clause that names a topic; {} is the topic, or its source where it is named O
CLAUSES = {
    "create stream": "CREATE STREAM N (ID STRING KEY, V INT) WITH"
    " (KAFKA_TOPIC='{}', PARTITIONS=1, VALUE_FORMAT='JSON');",
    "create over": "CREATE STREAM N (ID STRING KEY, V INT) WITH"
    " (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON');",
    "create table": "CREATE TABLE N (ID STRING PRIMARY KEY, V INT) WITH"
    " (KAFKA_TOPIC='{}', PARTITIONS=1, VALUE_FORMAT='JSON');",
    "create source stream": "CREATE SOURCE STREAM N (ID STRING KEY, V INT) WITH"
    " (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON');",
    "create source table": "CREATE SOURCE TABLE N (ID STRING PRIMARY KEY, V INT) WITH"
    " (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON');",
    "ctas": "CREATE TABLE N WITH (KAFKA_TOPIC='{}') AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;",
    "csas": "CREATE STREAM N WITH (KAFKA_TOPIC='{}') AS SELECT * FROM S;",
    "print": "PRINT '{}' FROM BEGINNING;",
    "assert": "ASSERT TOPIC '{}' TIMEOUT 1 SECONDS;",
    "assert not": "ASSERT NOT EXISTS TOPIC '{}';",
    "insert values": "INSERT INTO O VALUES ('k', 1);",
    "insert select": "INSERT INTO O SELECT * FROM S;",
    "delete topic": "DROP STREAM O DELETE TOPIC;",
    "explain": "EXPLAIN CREATE STREAM N WITH (KAFKA_TOPIC='{}') AS SELECT * FROM S;",
}


def sources(topic: str, *, has_old: bool = True) -> Mapping[str, Source]:
    """S, and O of an older release, which had no such rule."""
    return {"S": sample_stream()} | ({"O": sample_stream(name="O", topic=topic)} if has_old else {})


def planned(sql: str, topic: str, rules: TopicRules = RULES, **properties: str) -> Plan:
    (statement,) = variables.parse(sql, {"TOPIC": topic})
    context = Context(properties=properties, topics={topic: 1, "s": 1}, next_index=7, rules=rules)
    return analyze(statement, sources(topic, has_old=" O " in sql), context)


def test_the_names_of_topics_module_are_internal() -> None:
    names = (progress_topic("x"), processing_log_topic("x"))
    assert all(TopicRules(service_id="x", internal=()).is_internal(name) for name in names)


@pytest.mark.parametrize("clause", CLAUSES)
@pytest.mark.parametrize("topic", INTERNAL)
def test_no_clause_names_an_internal_topic(clause: str, topic: str) -> None:
    with pytest.raises(StatementError, match="is internal: ") as refused:
        planned(CLAUSES[clause].replace("{}", topic), topic)
    assert f"'{topic}'" in refused.value.message, INTERNAL[topic]


@pytest.mark.parametrize("clause", CLAUSES)
@pytest.mark.parametrize("topic", FREE)
def test_any_other_topic_may_be_named(clause: str, topic: str) -> None:
    planned(CLAUSES[clause].replace("{}", topic), topic)


@pytest.mark.parametrize("clause", [name for name, sql in CLAUSES.items() if "{}" in sql])
def test_a_variable_is_no_way_around(clause: str) -> None:
    with pytest.raises(StatementError, match="is internal: "):
        planned(CLAUSES[clause].replace("{}", "${topic}"), "shop__progress")
    with pytest.raises(StatementError, match="is internal: "):
        planned(CLAUSES[clause].replace("{}", "shop_${topic}"), "_progress")


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_the_prefix_of_the_session_is_no_way_around(kind: str) -> None:
    select = "SELECT K, COUNT(*) AS C FROM S GROUP BY K" if kind == "TABLE" else "SELECT * FROM S"
    with pytest.raises(StatementError, match="names that begin with __"):
        planned(f"CREATE {kind} N AS {select};", "x", **{"ksql.output.topic.name.prefix": "__"})


def test_rows_of_a_stream_go_into_no_internal_topic() -> None:
    """/inserts-stream reads its target once and again whenever the catalog changes."""
    with pytest.raises(StatementError, match="this cluster commits its batches in it"):
        insert_target("o", sources("shop__progress"), RULES)
    assert insert_target("o", sources("orders"), RULES).topic == "orders"


@pytest.mark.parametrize("clause", CLAUSES)
def test_with_prefixes_nothing_else_may_be_named(clause: str) -> None:
    sql, rules = CLAUSES[clause], TopicRules.of("shop_", "", "pub-, eu.")
    for topic in ("pub-orders", "eu.orders"):
        planned(sql.replace("{}", topic), topic, rules)
    for topic in ("orders", "PUB-orders", "xpub-orders", "eu"):
        with pytest.raises(StatementError, match=r"standpipe\.topics\.prefixes lets") as refused:
            planned(sql.replace("{}", topic), topic, rules)
        assert "'pub-', 'eu.'" in refused.value.message


def test_an_operator_may_free_a_name_of_others_but_none_of_ours() -> None:
    rules = TopicRules.of("shop_", "*ksql_processing_log", "")
    assert rules.refusal("upload_progress") == ""
    assert rules.refusal("shop__progress") != ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"topic": "t"}, "the topic of a CREATE TABLE … AS"),
        ({"topic": "CTAS_T_9-changelog", "public_topic": "t"}, "and of its later generation"),
    ],
)
def test_only_its_query_writes_the_topic_of_a_table(changes: dict[str, str], why: str) -> None:
    table = sample_table(query_id="CTAS_T_4", table_id="T_4", is_materialized=True, **changes)
    known = {"S": sample_stream(), "O": sample_stream(name="O", topic="t"), "T": table}
    context = Context(rules=RULES)
    for sql in (CLAUSES["insert values"], CLAUSES["insert select"]):
        (statement,) = variables.parse(sql, {})
        with pytest.raises(StatementError, match="is that of table T, which query CTAS_T_4 writes"):
            analyze(statement, known, context)
    with pytest.raises(StatementError, match="is that of table T"):
        insert_target("O", known, RULES)
    read_only = msgspec.structs.replace(table, query_id=None)
    (statement,) = variables.parse(CLAUSES["insert values"], {})
    assert analyze(statement, {**known, "T": read_only}, context), why
