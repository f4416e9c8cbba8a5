"""What a worker asks for its client's transient query, and that nothing of it stays, with a control
that loses answers."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.unit.control.ddl.test_propose import after
from tests.unit.control.ddl.test_transients import STREAM, TABLE

from standpipe.adapters.http.peer_client import PathFailed, Response
from standpipe.control.ddl.propose import Request, judge
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog, to_snapshot
from standpipe.control.metadata.commands import (
    DropSource,
    IsolateQuery,
    SetFeatureLevel,
    StartPipeline,
)
from standpipe.control.metadata.feature_levels import TRANSIENT
from standpipe.errors import (
    BadRequest,
    LogUnavailable,
    NoPipeline,
    ServerError,
    StandpipeError,
    StatementError,
    TooManyRequests,
)
from standpipe.model import LogIndex, NodeId
from standpipe.node.worker.push import transients
from standpipe.node.worker.push.transients import TransientQueries
from standpipe.node.worker.request.body import PUSH_TOKEN, Lookup
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.sql.plans import PushPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse

SELECT = "SELECT COUNT(*) FROM CLICKS GROUP BY U EMIT CHANGES LIMIT 3;"


def with_pipeline(catalog: Catalog) -> Catalog:
    """At the newest feature level, with a shared pipeline."""
    for command in (SetFeatureLevel(level=TRANSIENT), StartPipeline(pipeline_id="p", version=2)):
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


CATALOG = with_pipeline(after(STREAM, TABLE))
EARLIEST = {"auto.offset.reset": "earliest"}


class Control:
    """A leader behind a connection that may break: `loses` answers, after they were carried out."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.loses = 0
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def request(self, address: str, path: str, **how: Any) -> Response:
        body = how["body"]
        self.asked.append((path, json.loads(body)))
        reply: dict[str, object] = {"log_index": self.catalog.index}
        status = 200
        if path == "/execute":
            try:
                self._execute(body)
            except StatementError as error:
                reply, status = error.body(), 400
            else:
                reply = {"log_index": self.catalog.index, "entities": []}
        if self.loses:
            self.loses -= 1
            raise PathFailed("no answer")
        return Response(status, {}, json.dumps(reply).encode())

    def _execute(self, body: bytes) -> None:
        request = msgspec.json.decode(body, type=Request)
        if request.request_id in self.catalog.applied_requests:
            return
        command = judge(request, self.catalog, {"clicks": 3})
        self.catalog = apply(self.catalog, LogIndex(self.catalog.index + 1), command)  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        return [body["ksql"].split()[0] for path, body in self.asked if path == "/execute"]


class NodeMap:
    """The map of the node, which has what its leader has."""

    def __init__(self, control: Control) -> None:
        self._control = control

    @property
    def view(self) -> ClusterView:
        snapshot = to_snapshot(
            self._control.catalog,
            node_id=NodeId("n"),
            leader=NodeId("n"),
            service_id="s_",
            query_statuses=(),
            published_boot_ms=1,
            quorum_sync_ms=0,
        )
        return ClusterView.of(snapshot)

    def refresh(self) -> bool:
        return True

    async def has(self, index: int, late: StandpipeError) -> None:
        assert self._control.catalog.index >= index


def served_by(control: Control) -> TransientQueries:
    node: Any = NodeMap(control)
    connection: Any = control
    return TransientQueries(node, connection, "a:1", "")


def query_of(text: str = SELECT) -> ast.Query:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    return statement


async def settled(queries: TransientQueries) -> None:
    if queries._ending:
        await asyncio.wait(queries._ending)


async def run(
    control: Control, properties: dict[str, str] | None = None, text: str = SELECT
) -> PushPlan:
    queries, statement = served_by(control), query_of(text)
    asked_for = Lookup(text, EARLIEST if properties is None else properties)
    query_id, wanted = queries.planned(statement, asked_for)
    try:
        async with queries.running(statement, asked_for, query_id, wanted) as plan:
            assert list(control.catalog.transients) == [query_id]
            return plan
    finally:
        await settled(queries)
        assert not queries._served


def test_from_the_client_to_its_end() -> None:
    control = Control(CATALOG)
    plan = asyncio.run(run(control))
    assert (plan.schema, plan.limit) == ("`KSQL_COL_0` BIGINT", 3)
    assert plan.source.partitions == 1
    begin, end = (body for _, body in control.asked)
    assert begin["push"]["starts"] == {}, "earliest"
    assert begin["push"]["node_id"] == "n"
    assert begin["ksql"] == SELECT
    assert end["ksql"] == f"TERMINATE `{plan.source.query_id}`;"
    assert not control.catalog.transients


def test_latest_is_where_the_stream_ends_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where it ends once Spark has started: events of the seconds between would be lost."""
    ends = {0: 4, 1: 0, 2: 9}
    monkeypatch.setattr(transients, "log_ends", lambda *_: ends)
    control = Control(CATALOG)
    asyncio.run(run(control, properties={}))
    (begin, _) = (body for _, body in control.asked)
    assert begin["push"]["starts"] == {"clicks": {"0": 4, "1": 0, "2": 9}}


def test_few_wait_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hear seconds later where the stream ended; a client can ask again."""
    gate = threading.Event()
    monkeypatch.setattr(transients, "log_ends", lambda *_: gate.wait() and {0: 1, 1: 1, 2: 1})
    control = Control(CATALOG)

    async def ask() -> None:
        queries, statement, latest = served_by(control), query_of(), Lookup(SELECT, {})
        query_id, wanted = queries.planned(statement, latest)

        async def one() -> None:
            async with queries.running(statement, latest, query_id, wanted):
                pass

        waiting = [asyncio.create_task(one()) for _ in range(transients.ASKING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="try again"):
            await one()
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert queries._asking == 0
        gate.set()
        await one()
        await settled(queries)

    asyncio.run(ask())
    assert control.texts() == ["SELECT", "TERMINATE"]


def test_a_table_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transients, "log_ends", lambda *_: {0: 4})
    control = Control(CATALOG)
    text = "SELECT C, COUNT(*) FROM T GROUP BY C EMIT CHANGES;"
    asyncio.run(run(control, properties={}, text=text))
    assert control.asked[0][1]["push"]["starts"] == {}


@pytest.mark.parametrize(("loses", "error"), [(1, None), (2, LogUnavailable), (3, LogUnavailable)])
def test_an_answer_is_lost_after_the_statement_was_logged(
    loses: int, error: type[Exception] | None
) -> None:
    """Sent again under the same id, it is carried out once; if no answer comes, it is ended, so
    that the client may repeat it."""

    control = Control(CATALOG)
    control.loses = loses
    if error is None:
        asyncio.run(run(control))
    else:
        with pytest.raises(error):
            asyncio.run(run(control))
    assert not control.catalog.transients
    selects = [body for _, body in control.asked if body["ksql"] == SELECT]
    assert len(selects) == 2
    assert selects[0] == selects[1]


def test_it_is_dropped_before_its_first_row() -> None:

    class Dropping(Control):
        def _execute(self, body: bytes) -> None:
            super()._execute(body)
            drop = DropSource(name="CLICKS")
            self.catalog = apply(self.catalog, LogIndex(self.catalog.index + 1), drop)

    control = Dropping(with_pipeline(after(STREAM)))
    with pytest.raises(ServerError, match="changed or dropped meanwhile"):
        asyncio.run(run(control))


def test_only_what_is_served_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transients, "RENEW_S", 0.0)
    control = Control(CATALOG)
    queries = served_by(control)

    async def serve() -> None:
        renewing = asyncio.create_task(queries.keep_renewed())
        statement, asked_for = query_of(), Lookup(SELECT, EARLIEST)
        query_id, wanted = queries.planned(statement, asked_for)
        async with queries.running(statement, asked_for, query_id, wanted):
            control.loses = 1  # a renewal that fails is tried again
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(renewals(control)) > 2
        await settled(queries)
        await asyncio.sleep(0)
        count = len(renewals(control))
        for _ in range(20):
            await asyncio.sleep(0)
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        assert all(each == [query_id] for each in renewals(control))
        assert len(renewals(control)) == count, "it is not renewed once it has ended"

    asyncio.run(serve())


def test_a_renewal_that_is_refused_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader ends the queries if it goes on: the log must say why."""
    monkeypatch.setattr(transients, "RENEW_S", 0.0)

    class Leaderless(Control):
        async def request(self, address: str, path: str, **how: Any) -> Response:
            return Response(503, {}, b'{"message": "no leader"}')

    async def renew() -> list[Any]:
        queries = served_by(Leaderless(CATALOG))
        queries._served.add("transient_A_1")
        with capture_logs() as logs:
            renewing = asyncio.create_task(queries.keep_renewed())
            for _ in range(20):
                await asyncio.sleep(0)
            renewing.cancel()
        return logs

    logs = asyncio.run(renew())
    assert {each["event"] for each in logs} == {"push queries are not renewed"}
    assert "no leader" in logs[0]["why"]


def renewals(control: Control) -> list[list[str]]:
    return [body["query_ids"] for path, body in control.asked if path == "/pushes/renew"]


def test_without_a_shared_pipeline_it_is_refused_at_once() -> None:
    """The client would wait for rows that nobody computes. A pipeline of an isolated query runs no
    other."""
    catalog = apply(after(STREAM), LogIndex(9), SetFeatureLevel(level=TRANSIENT))
    isolated = apply(catalog, LogIndex(10), IsolateQuery(name="X", is_isolated=True))
    alone = StartPipeline(pipeline_id="own", version=3, isolates="X")
    for each in (catalog, apply(isolated, LogIndex(11), alone)):
        control = Control(each)
        with pytest.raises(NoPipeline, match="`standpipe pipeline`"):
            asyncio.run(run(control))
        assert control.asked == []


def test_a_token_of_an_ended_query_is_refused() -> None:
    queries = served_by(Control(with_pipeline(after(STREAM))))
    with pytest.raises(BadRequest, match="cannot be continued"):
        queries.planned(query_of(), Lookup(SELECT, {PUSH_TOKEN: "x"}))


def test_older_nodes_must_not_see_such_queries() -> None:
    before = apply(after(STREAM), LogIndex(9), SetFeatureLevel(level=TRANSIENT - 1))
    since = apply(before, LogIndex(10), SetFeatureLevel(level=TRANSIENT))
    known = [served_by(Control(each)).are_known for each in (before, since)]
    assert known == [False, True]
