"""control/ddl/query_states.py: TERMINATE, PAUSE, RESUME, with ksqlDB's texts."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.control.ddl.propose import Request, judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import Command, SetQueryState, TerminateQuery
from standpipe.errors import StatementError
from standpipe.model import LogIndex

STREAM = (
    "CREATE STREAM S (ID STRING KEY, V INT)"
    " WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"
)
SOURCE_TABLE = (
    "CREATE SOURCE TABLE X (ID STRING PRIMARY KEY, V INT)"
    " WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;"


def judged(sql: str, catalog: Catalog) -> Command:
    command = judge(Request(ksql=sql, request_id="r1"), catalog, {"s": 1})
    assert not isinstance(command, StatementReply)
    return command


def after(*statements: str) -> Catalog:
    catalog = EMPTY
    for sql in statements:
        command = msgspec.structs.replace(judged(sql, catalog), request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


CATALOG = after(STREAM, SOURCE_TABLE, TABLE)


def test_the_query_of_a_source_table_is_not_terminated() -> None:
    """Without it the table would stay, and no statement could start it again."""
    with pytest.raises(StatementError) as refused:
        judged("TERMINATE CST_X_2;", CATALOG)
    assert refused.value.message == (
        "Cannot terminate query 'CST_X_2' because it is linked to a source table."
    )
    assert refused.value.hint == "DROP TABLE X ends it."


@pytest.mark.parametrize("verb", ["PAUSE", "RESUME"])
def test_it_may_be_started_again(verb: str) -> None:
    """ksqlDB refuses that; here it is how a query that has failed is tried again."""
    command = judged(f"{verb} CST_X_2;", CATALOG)
    assert isinstance(command, SetQueryState)
    assert command.query_ids == ("CST_X_2",)


@pytest.mark.parametrize("verb", ["TERMINATE", "PAUSE"])
def test_all_queries_include_it(verb: str) -> None:
    """In ksqlDB as well."""
    command = judged(f"{verb} ALL;", CATALOG)
    assert isinstance(command, TerminateQuery | SetQueryState)
    assert set(command.query_ids) == {"CST_X_2", "CTAS_T_3"}


@pytest.mark.parametrize("verb", ["TERMINATE", "PAUSE", "RESUME"])
def test_any_other_query_may_be_named(verb: str) -> None:
    command = judged(f"{verb} CTAS_T_3;", CATALOG)
    assert isinstance(command, TerminateQuery | SetQueryState)
    assert command.query_ids == ("CTAS_T_3",)
