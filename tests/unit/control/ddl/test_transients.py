"""Push queries that need Spark at the leader, from the text to the command; what others may do."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.control.ddl.test_propose import after, asked

from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.ddl.propose import Request, judge
from standpipe.control.ddl.quotas import Quotas
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.ddl.transients import RETENTION_MS, PushRequest
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    CreateTableAs,
    DropSource,
    SetQueryState,
    TerminateQuery,
    TopicDeleted,
)
from standpipe.errors import StatementError
from standpipe.model import LogIndex, NodeId, TopicSpec
from standpipe.topics import TopicRules

STREAM = (
    "CREATE STREAM CLICKS (U STRING KEY, N INT) WITH"
    " (KAFKA_TOPIC='clicks', PARTITIONS=3, VALUE_FORMAT='DELIMITED');"
)
TABLE = "CREATE TABLE T AS SELECT U, COUNT(*) AS C FROM CLICKS GROUP BY U EMIT CHANGES;"
SELECT = "SELECT COUNT(*) FROM CLICKS GROUP BY U EMIT CHANGES LIMIT 9;"
ID = "transient_CLICKS_77"
STARTS = {"clicks": {0: 5, 1: 0, 2: 8}}
BASE = after(STREAM, TABLE)


def pushed(
    catalog: Catalog, sql: str = SELECT, query_id: str = ID, limits: StatementLimits | None = None
) -> CreateTableAs:
    push = PushRequest(query_id=query_id, node_id=NodeId("n"), starts=STARTS)
    command = judge(replace(asked(sql), push=push), catalog, {}, limits or StatementLimits())
    assert isinstance(command, CreateTableAs)
    return command


RUNNING = apply(BASE, LogIndex(BASE.index + 1), pushed(BASE))


def test_the_command() -> None:
    command = pushed(BASE)
    source, query = command.source, command.query
    assert (query.query_id, query.sink, query.served_by) == (ID, ID, "n")
    assert query.statement == SELECT
    assert query.plan.inputs[0].starts == STARTS["clicks"]
    assert (source.topic, source.partitions, source.is_materialized) == (
        *(f"{ID}-changelog", 1, False),
    )
    assert (source.key_format, source.value_format) == ("JSON", "JSON")
    assert [(each.name, each.is_key) for each in source.columns] == [
        ("KSQL_KEY_0", True),
        ("KSQL_COL_0", False),
    ]
    spec = TopicSpec(name=source.topic, partitions=1, kind="SOURCE", retention_ms=RETENTION_MS)
    assert command.topic == spec
    assert command.receipt is not None
    assert command.receipt.query_id == ID


def test_a_table_is_read_whole_even_over_the_topic_of_a_stream() -> None:
    table = (
        "CREATE TABLE NEWEST (U STRING PRIMARY KEY, N INT) WITH"
        " (KAFKA_TOPIC='clicks', PARTITIONS=3, VALUE_FORMAT='DELIMITED');"
    )
    joined = "SELECT C.N, T.N FROM CLICKS C JOIN NEWEST T ON C.U = T.U EMIT CHANGES;"
    stream, newest = pushed(after(STREAM, table), joined).query.plan.inputs
    assert (stream.starts, newest.starts) == (STARTS["clicks"], msgspec.UNSET)


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param({"old": {0: 5, 1: 0, 2: 8}}, id="recreated over another topic"),
        pytest.param({"clicks": {0: 5, 1: 0}}, id="recreated with one partition more"),
    ],
)
def test_latest_of_a_node_that_did_not_know_the_stream_as_it_is(
    starts: dict[str, dict[int, int]],
) -> None:
    """What is missing would be read from its beginning: the client asked for what is new."""
    push = PushRequest(query_id=ID, node_id=NodeId("n"), starts=starts)
    with pytest.raises(StatementError, match="send the query again"):
        judge(replace(asked(SELECT), push=push), BASE, {})


def test_all_from_the_beginning() -> None:
    push = PushRequest(query_id=ID, node_id=NodeId("n"))
    command = judge(replace(asked(SELECT), push=push), BASE, {})
    assert isinstance(command, CreateTableAs)
    assert command.query.plan.inputs[0].starts is msgspec.UNSET


def test_a_node_must_be_named() -> None:
    """A query that no node serves would be a table whose name no statement may give."""
    push = {"query_id": ID, "node_id": ""}
    body = msgspec.json.encode({"ksql": SELECT, "request_id": "r", "push": push})
    with pytest.raises(msgspec.ValidationError, match="length >= 1"):
        msgspec.json.decode(body, type=Request)


@pytest.mark.parametrize("query_id", ["CTAS_T_2", "transient_CLICKS", "x", "transient_../x_1"])
def test_an_id_of_another_kind_is_refused(query_id: str) -> None:
    with pytest.raises(StatementError, match="no id of a push query"):
        pushed(BASE, query_id=query_id)


@pytest.mark.parametrize("sql", [TABLE, "SELECT * FROM T;", "DROP STREAM CLICKS;"])
def test_another_statement_is_refused(sql: str) -> None:
    with pytest.raises(StatementError, match="It is no push query"):
        pushed(BASE, sql)


def test_its_topic_is_not_of_those_that_statements_may_name() -> None:
    rules = TopicRules("s_", ("*",), ("app-",))
    assert pushed(BASE, limits=StatementLimits(rules=rules)).topic.name == f"{ID}-changelog"


def test_they_are_bounded_in_number() -> None:
    one = StatementLimits(quotas=Quotas(transients_max=1, queries_max=1, sources_max=2))
    assert pushed(BASE, limits=one), "the limits of persistent queries do not count them"
    with pytest.raises(StatementError, match=r"standpipe\.push\.transient\.max allows 1"):
        pushed(RUNNING, query_id="transient_CLICKS_78", limits=one)
    with pytest.raises(StatementError, match="allows 0"):
        pushed(BASE, limits=StatementLimits(quotas=Quotas(transients_max=0)))


def test_one_that_has_ended_counts_until_kafka_has_deleted_its_topic() -> None:
    """Clients that come and go must not make topics faster than that."""
    topic, limits = f"{ID}-changelog", StatementLimits(quotas=Quotas(transients_max=1))
    ended = apply(RUNNING, LogIndex(RUNNING.index + 1), TerminateQuery(query_ids=(ID,)))
    with pytest.raises(StatementError, match="topics of 1 that have ended are still to be deleted"):
        pushed(ended, query_id="transient_CLICKS_78", limits=limits)
    gone = apply(ended, LogIndex(ended.index + 1), TopicDeleted(name=topic))
    assert pushed(gone, query_id="transient_CLICKS_78", limits=limits)
    others = replace(gone, doomed_topics=("clicks", "CTAS_T_2-changelog"))
    assert pushed(others, query_id="transient_CLICKS_78", limits=limits)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM {ID} EMIT CHANGES;",
        f"CREATE STREAM X AS SELECT * FROM `{ID}` EMIT CHANGES;",
        f"INSERT INTO `{ID}` SELECT * FROM CLICKS EMIT CHANGES;",
        f"DROP TABLE `{ID}`;",
        f"DESCRIBE `{ID}`;",
        f"CREATE STREAM X (A INT) WITH (KAFKA_TOPIC='{ID}-changelog', VALUE_FORMAT='JSON');",
        f"PRINT '{ID}-changelog';",
        f"INSERT INTO CLICKS WITH (QUERY_ID='{ID}') SELECT * FROM CLICKS EMIT CHANGES;",
        f"PAUSE `{ID}`;",
        f"RESUME `{ID}`;",
    ],
)
def test_no_statement_can_use_it(sql: str) -> None:
    with pytest.raises(StatementError):
        judge(asked(sql), RUNNING, {f"{ID}-changelog": 1})


def test_its_id_is_not_given_to_another_query() -> None:
    """The same id in the letters that SQL gives it."""
    query = f"INSERT INTO CLICKS WITH (QUERY_ID='{ID.upper()}') SELECT * FROM CLICKS EMIT CHANGES;"
    with pytest.raises(StatementError, match="must not start with"):
        judge(asked(query), BASE, {})


@pytest.mark.parametrize("name", [ID, f"`{ID}`", ID.upper()])
def test_terminate_ends_it(name: str) -> None:
    command = judge(asked(f"TERMINATE {name};"), RUNNING, {})
    assert isinstance(command, TerminateQuery)
    assert command.query_ids == (ID,)


def test_all_means_persistent_queries() -> None:
    (ctas,) = BASE.queries
    for sql, kind in (("TERMINATE ALL;", TerminateQuery), ("PAUSE ALL;", SetQueryState)):
        command = judge(asked(sql), RUNNING, {})
        assert isinstance(command, kind)
        assert command.query_ids == (ctas,)
    alone = apply(after(STREAM), LogIndex(9), pushed(after(STREAM)))
    assert isinstance(judge(asked("TERMINATE ALL;"), alone, {}), StatementReply)


def test_it_keeps_nothing_from_being_dropped_or_replaced() -> None:
    """A client that stays connected must not block statements of others."""
    alone = apply(after(STREAM), LogIndex(9), pushed(after(STREAM)))
    assert isinstance(judge(asked("DROP STREAM CLICKS;"), alone, {}), DropSource)
    over_t = "SELECT C, COUNT(*) FROM T GROUP BY C EMIT CHANGES;"
    reads_t = apply(BASE, LogIndex(BASE.index + 1), pushed(BASE, over_t))
    replaced = TABLE.replace("CREATE TABLE", "CREATE OR REPLACE TABLE").replace(
        "AS C", "AS C, 1 AS D"
    )
    assert judge(asked(replaced), reads_t, {})
