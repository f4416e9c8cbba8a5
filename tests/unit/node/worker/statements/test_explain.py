"""EXPLAIN's answers."""

from __future__ import annotations

import pytest

from standpipe.config import registry
from standpipe.control.ddl.propose import Request, judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, to_snapshot
from standpipe.errors import StatementError
from standpipe.model import LogIndex, NodeId
from standpipe.node.worker.statements.explain import explained
from standpipe.node.worker.statements.show import AnswerTime, Scene
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.plans import ExplainPlan
from standpipe.sql.syntax.parser import parse

STATEMENTS = (
    "CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, FORMAT='JSON');",
    "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY k;",
)


def scene() -> Scene:
    catalog = EMPTY
    for number, sql in enumerate(STATEMENTS):
        command = judge(Request(ksql=sql, request_id=str(number)), catalog, {})
        assert not isinstance(command, StatementReply)
        catalog = apply(catalog, LogIndex(number + 1), command)
    snapshot = to_snapshot(
        catalog,
        node_id=NodeId("a"),
        leader=NodeId("a"),
        service_id="x_",
        query_statuses=(),
        published_boot_ms=0,
        quorum_sync_ms=0,
    )
    return Scene(
        snapshot=snapshot, settings=registry.load({}), instant=AnswerTime(boot_ms=0, unix_ms=0)
    )


def explain(text: str) -> dict[str, object]:
    known = scene()
    (statement,) = parse(text)
    plan = analyze(statement, {s.name: s for s in known.snapshot.sources}, Context(next_index=9))
    assert isinstance(plan, ExplainPlan)
    found = explained(known, plan, text)["queryDescription"]
    assert isinstance(found, dict)
    return found


def test_a_running_query() -> None:
    found = explain("EXPLAIN ctas_t_2;")
    assert (found["id"], found["sources"], found["sinks"]) == ("CTAS_T_2", ["S"], ["T"])
    assert (found["windowType"], found["state"]) == ("TUMBLING", "UNRESPONSIVE")
    assert [field["name"] for field in found["fields"]] == ["K", "WINDOWSTART", "WINDOWEND", "N"]
    assert "GROUP BY" in found["topology"]


def test_a_statement_that_is_not_carried_out() -> None:
    found = explain("EXPLAIN CREATE STREAM r AS SELECT k, v + 1 AS w FROM s;")
    assert (found["id"], found["sinks"]) == ("CSAS_R_9", ["R"])
    assert [field["name"] for field in found["fields"]] == ["K", "W"]


def test_a_pull_query() -> None:
    found = explain("EXPLAIN SELECT k, n FROM t WHERE k = 'a';")
    assert (found["queryType"], found["sources"]) == ("PULL", ["T"])


def test_no_such_query() -> None:
    with pytest.raises(StatementError, match="Query with id:CTAS_X does not exist"):
        explain("EXPLAIN ctas_x;")


def test_a_push_query_that_spark_would_run() -> None:
    found = explain("EXPLAIN SELECT COUNT(*) AS n FROM s GROUP BY k EMIT CHANGES;")
    assert (found["queryType"], found["sources"], found["sinks"]) == ("PUSH", ["S"], [])
    assert "GROUP BY" in str(found["topology"])
