"""Where a push query starts, and which map ends it; the rest is tested with a real Kafka."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.samples import sample_stream

from standpipe.data.query.record_rows import writer_of
from standpipe.errors import BadRequest, ServerError
from standpipe.model import (
    Assignment,
    Column,
    LogIndex,
    NodeId,
    QueryStatus,
    Snapshot,
    Source,
)
from standpipe.node.worker.push import push_query
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.push_query import check_source, new_query_id, starts_at_end
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.computing_turn import ComputingTurn
from standpipe.node.worker.request.head import Form
from standpipe.sql.lookup.push import push
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.parser import parse

STREAM = sample_stream(topic="t", columns=(Column(name="V", type="BIGINT"),))
TABLE = replace(STREAM, name="T", kind="TABLE", query_id="Q")


def snapshot_of(*sources: Source) -> Snapshot:
    return Snapshot(
        stamp=1, node_id=NodeId("n"), service_id="", cluster_id="", log_index=LogIndex(1),
        leader=NodeId(""), nodes=(), sources=sources, queries=(), assignment=Assignment(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "said", "why"),
    [
        ([STREAM, TABLE], None, "control publishes once a second"),
        ([STREAM, TABLE, replace(TABLE, name="U", topic="u", query_id="R")], None, "another topic"),
        ([TABLE], "S was dropped", "the source itself"),
        ([STREAM], "another query writes t", "its table was dropped: nothing is committed more"),
        ([STREAM, replace(TABLE, query_id="R")], "another query writes t", "made anew"),
        ([STREAM, replace(TABLE, takes_inserts=True)], "another query writes t", "INSERT INTO"),
    ],
)
def test_what_ends_a_query_on_the_topic_of_a_table(
    after: list[Source], said: str | None, why: str
) -> None:
    view = ClusterView.of(snapshot_of(*after))
    ends = pytest.raises(ServerError, match=said) if said else nullcontext()
    with ends:
        check_source(STREAM, writer_of("t", snapshot_of(STREAM, TABLE)), view)


def test_it_waits_for_its_turn_to_open_and_lets_others_compute_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, seen = ComputingTurn(), dict[str, bool]()

    def ends(*_: object) -> dict[int, int]:
        seen["while it asks Kafka"] = turn.is_taken
        return {0: 7, 1: 7, 2: 7}

    def tail(*_: object) -> None:
        seen["while it computes"] = turn.is_taken

    monkeypatch.setattr(push_query, "log_ends", ends)
    monkeypatch.setattr(push_query, "TopicTail", tail)
    catalog: Any = SimpleNamespace(view=ClusterView.of(snapshot_of(STREAM)))
    (query,) = parse("SELECT * FROM S EMIT CHANGES;")
    assert isinstance(query, Query)
    answer = push_query.PushAnswer(
        plan=push(query, {"S": STREAM}),
        properties={},
        form=PushForm(Form.LINES),
        query_id="transient_S_7",
        map=catalog,
        kafka="",
        turn=turn,
    )
    answer.open()
    assert seen == {"while it asks Kafka": False, "while it computes": True}
    assert not turn.is_taken


TRANSIENT_ID = "transient_S_7"
TRANSIENT = replace(STREAM, name=TRANSIENT_ID, query_id=TRANSIENT_ID, topic="c")


@pytest.mark.parametrize(
    ("transients", "state", "said"),
    [
        ((TRANSIENT,), "RUNNING", None),
        ((TRANSIENT,), "RETRYING", None),
        ((TRANSIENT,), "FAILED", "has failed: OUT_OF_TIME: too bad"),
        ((), "RUNNING", "has ended: it was terminated"),
        ((), "FAILED", "has ended"),
    ],
)
def test_what_ends_a_push_query_that_spark_runs(
    transients: tuple[Source, ...], state: Any, said: str | None
) -> None:
    """A client must not wait for ever for rows of a query that has stopped."""
    status = QueryStatus(
        query_id=TRANSIENT_ID, state=state, reason="OUT_OF_TIME", message="too bad"
    )
    snapshot = replace(snapshot_of(STREAM), transients=transients, query_statuses=(status,))
    begun = replace(snapshot, transients=(TRANSIENT,))
    writer = writer_of("c", begun)
    assert writer == TRANSIENT_ID, "only its committed rows are shown"
    ends = pytest.raises(ServerError, match=said) if said else nullcontext()
    with ends:
        check_source(TRANSIENT, writer, ClusterView.of(snapshot))


@pytest.mark.parametrize("query_id", [None, "CSAS_TRANSIENT_S_7_2"])
def test_a_users_stream_with_the_name_of_such_a_query_is_a_stream(query_id: str | None) -> None:
    stream = replace(TRANSIENT, query_id=query_id)
    snapshot = snapshot_of(stream)
    check_source(stream, writer_of("c", snapshot), ClusterView.of(snapshot))
    with pytest.raises(ServerError, match="was dropped or recreated"):
        check_source(stream, None, ClusterView.of(snapshot_of(STREAM)))


@pytest.mark.parametrize(
    ("properties", "at_end", "why"),
    [
        ({}, True, "ksqlDB's default for push queries"),
        ({"auto.offset.reset": "Latest"}, True, "said"),
        ({"auto.offset.reset": "earliest"}, False, "said"),
        ({"ksql.streams.auto.offset.reset": "earliest"}, False, "its long name"),
    ],
)
def test_starts_at_end(properties: dict[str, str], at_end: bool, why: str) -> None:
    assert starts_at_end(properties) is at_end, why


def test_no_other_start() -> None:
    with pytest.raises(BadRequest, match="earliest or latest"):
        starts_at_end({"auto.offset.reset": "none"})


def test_ids_are_names_of_files() -> None:
    """Whatever the source is called."""
    one, two = new_query_id("../Ä" * 200), new_query_id("../Ä" * 200)
    assert one != two
    assert "/" not in one
    assert len(one) < 120
