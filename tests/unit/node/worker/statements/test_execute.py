"""The pure parts of /ksql: what a worker refuses, errors that control sent, partial failures."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed
from tests.samples import sample_stream
from tests.unit.node.workers import USERS, Worker

from standpipe.adapters.http.peer_client import PeerClient, Response
from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.kafka.refusals import KafkaAccessDenied
from standpipe.control.ddl import propose
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog, from_snapshot, to_snapshot
from standpipe.control.metadata.commands import DropSource, SetFeatureLevel
from standpipe.errors import (
    BadRequest,
    BodyTooLarge,
    KafkaUnavailable,
    LogUnavailable,
    NoReplica,
    OutcomeUnknown,
    QueryOnStatementEndpoint,
    ServerError,
    StandpipeError,
    StatementError,
    TooManyRequests,
)
from standpipe.model import Column, LogIndex, NodeId
from standpipe.node.topic_partitions import KafkaTopics
from standpipe.node.worker.request import cluster_view
from standpipe.node.worker.request.cluster_view import ClusterView, Map
from standpipe.node.worker.request.control_client import error_of
from standpipe.node.worker.statements import execute
from standpipe.node.worker.statements.execute import LogBehind, StatementFailed
from standpipe.node.worker.statements.judge import RequestSession, judge_all
from standpipe.sql.plans import DescribePlan, SetPropertyPlan, ShowPlan
from standpipe.sql.schemas.registry import SchemaRegistryMissing
from standpipe.sql.syntax import parser

TOPICS = {"t": 2}
STREAM = "CREATE STREAM S (ID STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"
REPLACED = "CREATE OR REPLACE TABLE T AS SELECT ID, SUM(V) AS N FROM S GROUP BY ID EMIT CHANGES;"
READS_IT = "CREATE TABLE U AS SELECT ID, N + 1 AS M FROM T EMIT CHANGES;"


def logged(*texts: str, level: int = 5) -> Catalog:
    """The catalog of a cluster that has carried out these statements."""
    catalog = apply(EMPTY, LogIndex(1), SetFeatureLevel(level=level))
    for text in texts:
        request = propose.Request(ksql=text, request_id=text)
        command = propose.judge(request, catalog, TOPICS)
        assert not isinstance(command, StatementReply)
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def at_the_worker(catalog: Catalog, text: str) -> list[object]:
    """The plans of a request as a worker judges it, by the snapshot that control publishes."""
    snapshot = to_snapshot(
        catalog,
        node_id=NodeId("a"),
        leader=NodeId("a"),
        service_id="s",
        query_statuses=(),
        published_boot_ms=1,
        quorum_sync_ms=0,
    )
    session, kafka = RequestSession({}, {}), KafkaTopics(lambda: TOPICS)
    judged = judge_all(parser.parse(text), from_snapshot(snapshot), session, kafka)
    return [one.plan for one in judged]


DOOMED = apply(logged(STREAM), LogIndex(9), DropSource(name="S", delete_topic=True))


@pytest.mark.parametrize(
    ("catalog", "text", "refusal"),
    [
        (DOOMED, STREAM, "Topic t is being deleted"),
        (logged(STREAM, TABLE, REPLACED), READS_IT, "T is being replaced by generation 2"),
    ],
    ids=["over a doomed topic", "over a table with a successor"],
)
def test_a_statement_is_refused_by_the_worker_as_by_the_leader(
    catalog: Catalog, text: str, refusal: str
) -> None:
    with pytest.raises(StatementError, match=refusal) as by_leader:
        propose.judge(propose.Request(ksql=text, request_id="r"), catalog, TOPICS)
    with pytest.raises(StatementError) as by_worker:
        at_the_worker(catalog, f"SHOW STREAMS; {text}")
    assert by_worker.value.message == by_leader.value.message


def test_a_statement_that_the_feature_level_has_no_form_of_is_refused_by_the_worker() -> None:
    text = "CREATE TYPE A AS STRUCT<B INT>;"
    assert at_the_worker(logged(level=2), text)
    with pytest.raises(BadRequest, match="needs feature level 2"):
        at_the_worker(logged(level=1), text)


def test_a_table_with_bounds_in_ms_is_refused_by_the_worker_below_their_level() -> None:
    text = TABLE.replace("TABLE T AS", "TABLE T WITH (ACCEPTABLE_REPLICA_LAG_MS=500) AS")
    assert at_the_worker(logged(STREAM, level=11), text)
    with pytest.raises(StatementError, match=r"ACCEPTABLE_REPLICA_LAG_MS .* feature level 11"):
        at_the_worker(logged(STREAM, level=10), text)


def test_each_statement_is_judged_after_those_before_it() -> None:
    text = f"SET 'auto.offset.reset'='earliest'; {STREAM} DESCRIBE S; SHOW STREAMS;"
    kinds = [type(plan) for plan in at_the_worker(EMPTY, text)]
    assert (kinds[0], kinds[2:]) == (SetPropertyPlan, [DescribePlan, ShowPlan])


def test_a_session_is_a_value() -> None:
    before = RequestSession({"a": "1"}, {})
    unset = SetPropertyPlan(name="a", value=None)
    assert before.after(unset).properties == {}
    assert before.properties == {"a": "1"}


def test_a_source_that_another_worker_has_just_acknowledged_is_known(tmp_path: Path) -> None:
    """INSERT at once after CREATE STREAM, on another connection, was refused by chance."""
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a"], {}, source=changed(USERS, name="OTHER"))
    statements = worker.statements()

    async def described() -> dict[str, Any]:
        (entity,) = await statements.carry_out(b'{"ksql": "DESCRIBE USERS;"}')
        return msgspec.json.decode(entity)

    with pytest.raises(StandpipeError, match="USERS"):
        asyncio.run(described())
    Worker(tmp_path, "a", {}).publish(["a"], {}, epoch=2)  # as control does
    assert asyncio.run(described())["sourceDescription"]["name"] == "USERS"
    statements.lanes.close()


class Rows(RowProducer):
    """Takes each row."""

    def __init__(self) -> None:
        super().__init__("")
        self.values: list[Any] = []

    async def send(
        self, topic: str, key: bytes | None, value: bytes | None, at_ms: int
    ) -> WrittenRow:
        self.values.append((key, msgspec.json.decode(value or b"")))
        return WrittenRow(topic, 0, 0)


def test_each_statement_of_a_request_has_values_of_its_own(tmp_path: Path) -> None:
    """The second row had the UUID of the first one, and took its place in a table."""
    worker = Worker(tmp_path, "a", {})
    columns = (Column(name="ID", type="STRING", is_key=True), Column(name="R", type="DOUBLE"))
    worker.publish(["a"], {}, source=sample_stream(columns=columns))
    statements = worker.statements()
    statements.producer = rows = Rows()
    text = "INSERT INTO S VALUES (UUID(), RANDOM()); INSERT INTO S VALUES (UUID(), RANDOM());"
    assert asyncio.run(statements.carry_out(msgspec.json.encode({"ksql": text}))) == []
    (first, one), (second, other) = rows.values
    assert first != second
    assert one["R"] != other["R"]
    statements.lanes.close()


def test_lookups_have_their_turn_between_two_sources_that_are_shown(tmp_path: Path) -> None:
    """500 tables of 20 partitions held the loop of a worker for 0.2 s."""
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a"], {})
    statements = worker.statements()
    view = statements.map.view
    many = tuple(changed(USERS, name=f"T{number}") for number in range(50))
    listed = ClusterView.of(changed(view.snapshot, sources=many))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> Any:
        other = asyncio.create_task(turn())
        plan = ShowPlan(what="TABLES", extended=True)
        shown = await statements._show(plan, "SHOW TABLES EXTENDED;", RequestSession({}, {}))
        other.cancel()
        return msgspec.json.decode(msgspec.json.encode(shown))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Map, "view", listed)
        shown = asyncio.run(story())
    assert [each["name"] for each in shown["sourceDescriptions"]] == [each.name for each in many]
    assert turns >= len(many)
    statements.lanes.close()


class Control(PeerClient):
    """Logs statements, and publishes nothing: the map of the node stays behind."""

    def __init__(self, log_index: int = 10**9, read_index: int = 0) -> None:
        super().__init__()
        self._log_index, self._read_index = log_index, read_index
        self.texts: list[str] = []

    async def request(self, address: str, target: str, **how: Any) -> Response:
        if target == "/read-index":
            return Response(200, {}, b'{"log_index": %d}' % self._read_index)
        text = msgspec.json.decode(how["body"])["ksql"]
        self.texts.append(text)
        entity = {"@type": "currentStatus", "statementText": text}
        answer = {"log_index": self._log_index, "entities": [entity]}
        return Response(200, {}, msgspec.json.encode(answer))


LAG = "ksql.query.pull.max.allowed.offset.lag"
SELECT = "SELECT * FROM USERS WHERE ID = 'k';"
MADE = "CREATE STREAM S (ID STRING KEY) WITH (KAFKA_TOPIC='t', PARTITIONS=1, VALUE_FORMAT='JSON');"


def answered(folder: Path, control: PeerClient, text: str, **more: object) -> list[str]:
    """The types of the entities that a worker answers, which knows the table USERS."""
    worker = Worker(folder, "a", {})
    worker.publish(["a"], {})
    statements = worker.statements()
    statements.control = control
    try:
        entities = asyncio.run(statements.carry_out(msgspec.json.encode({"ksql": text, **more})))
    finally:
        statements.lanes.close()
    return [msgspec.json.decode(each)["@type"] for each in entities]


def test_a_statement_that_is_logged_is_not_to_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map of its node is late; sent again, INSERT INTO … SELECT would double all rows."""
    monkeypatch.setattr(cluster_view, "CATCH_UP_S_MAX", 0.02)
    with pytest.raises(StatementFailed, match="Do not send it again") as failed:
        answered(tmp_path, Control(), MADE)
    assert isinstance(failed.value.cause, OutcomeUnknown)
    assert failed.value.cause.retry_after_s is None


def test_a_statement_that_waits_for_the_newest_catalog_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_view, "CATCH_UP_S_MAX", 0.02)
    control = Control(read_index=10**9)
    asked = {"standpipe.consistency": "linearizable"}
    with pytest.raises(LogUnavailable, match="Nothing was logged: try again"):
        answered(tmp_path, control, MADE, streamsProperties=asked)
    assert control.texts == []


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("SET 'standpipe.consistency'='linearisable';", "is local or linearizable, not 'linearis"),
        ("SET 'standpipe.consistancy'='linearizable';", "Did you mean 'standpipe.consistency'?"),
        ("UNSET 'standpipe.consistancy';", "Did you mean 'standpipe.consistency'?"),
        ("EXPLAIN NO_SUCH_QUERY;", "Query with id:NO_SUCH_QUERY does not exist"),
        (f"SET '{LAG}'='many'; EXPLAIN ROUTE {SELECT}", "'many' is not a number of records"),
    ],
)
def test_what_is_known_before_is_refused_before_anything_is_done(
    tmp_path: Path, text: str, refusal: str
) -> None:
    """The CREATE before it was carried out, and then the request was answered 400."""
    control = Control()
    with pytest.raises((BadRequest, StatementError), match=re.escape(refusal)):
        answered(tmp_path, control, f"{MADE} {text}")
    assert control.texts == []


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "ksql.streams.num.stream.threads", "ksql.lambdas.enabled", "cache.max"],
)
def test_what_a_request_may_carry_may_be_set(tmp_path: Path, name: str) -> None:
    text = f"SET '{name}'='1'; SHOW STREAMS;"
    assert answered(tmp_path, Control(), text) == ["streams"]
    given = {"streamsProperties": {name: "1"}}
    assert answered(tmp_path / "beside", Control(), "SHOW STREAMS;", **given) == ["streams"]


def test_an_explain_of_a_query_that_a_statement_before_it_makes(tmp_path: Path) -> None:
    catalog = logged(STREAM)
    assert at_the_worker(catalog, f"{TABLE} EXPLAIN CTAS_T_{catalog.index + 1};")


@pytest.mark.parametrize("value", ["linearizable", "Linearizable"])
def test_a_set_of_linearizable_holds_before_anything_is_judged(tmp_path: Path, value: str) -> None:
    """DESCRIBE was judged against the catalog of before, and refused what was acknowledged."""
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a"], {}, source=changed(USERS, name="OTHER"))

    class Publishing(Control):
        async def request(self, address: str, target: str, **how: Any) -> Response:
            assert target == "/read-index"
            Worker(tmp_path, "a", {}).publish(["a"], {}, epoch=2)  # it has USERS
            return await super().request(address, target, **how)

    statements = worker.statements()
    statements.control = Publishing()
    text = f"SET 'standpipe.consistency'='{value}'; DESCRIBE USERS;"
    (entity,) = asyncio.run(statements.carry_out(msgspec.json.encode({"ksql": text})))
    assert msgspec.json.decode(entity)["sourceDescription"]["name"] == "USERS"
    statements.lanes.close()


@pytest.mark.parametrize("number", [None, -1, 0, 1])
def test_a_sequence_number_that_this_node_has(tmp_path: Path, number: int | None) -> None:
    given = {"commandSequenceNumber": number}
    assert answered(tmp_path, Control(), "SHOW STREAMS;", **given) == ["streams"]


def test_a_sequence_number_is_waited_for(tmp_path: Path) -> None:
    """A statement at another node, then one that needs it here: the number was ignored."""
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a"], {}, source=changed(USERS, name="OTHER"))
    statements = worker.statements()

    async def story() -> list[msgspec.Raw]:
        body = {"ksql": "DESCRIBE USERS;", "commandSequenceNumber": 2}
        described = asyncio.create_task(statements.carry_out(msgspec.json.encode(body)))
        await asyncio.sleep(0.03)
        assert not described.done()
        Worker(tmp_path, "a", {}).publish(["a"], {}, epoch=2)  # as control does
        return await described

    (entity,) = asyncio.run(story())
    assert msgspec.json.decode(entity)["sourceDescription"]["name"] == "USERS"
    assert statements._numbered == 0
    statements.lanes.close()


def test_a_sequence_number_that_no_statement_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds neither a thread nor, for long, its request; and few wait at once."""
    monkeypatch.setattr(execute, "NUMBERED_S_MAX", 0.1)
    monkeypatch.setattr(execute, "NUMBERED_MAX", 2)
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a"], {})
    statements = worker.statements()
    body = msgspec.json.encode({"ksql": "SHOW STREAMS;", "commandSequenceNumber": 10**12})

    async def story() -> None:
        all_three = [statements.carry_out(body) for _ in range(3)]
        first, second, third = await asyncio.gather(*all_three, return_exceptions=True)
        assert isinstance(third, TooManyRequests)
        for late in (first, second):
            assert isinstance(late, LogBehind)
            assert (late.status, late.code, late.retry_after_s) == (503, 50301, 1)
            assert late.message.endswith("command sequence number: 1000000000000")

    asyncio.run(story())
    assert statements._numbered == 0
    statements.lanes.close()


@pytest.mark.parametrize(
    "sent",
    [
        StatementError("no", statement="S;", line=2, column=3, hint="try"),
        LogUnavailable("away"),
        KafkaUnavailable("away"),
        BadRequest("bad"),
        BodyTooLarge("large"),
        NoReplica("none", verdicts={"0": "away"}),
        SchemaRegistryMissing("no registry", statement="S;", line=1, column=2),
        QueryOnStatementEndpoint("no", statement="S;"),
        KafkaAccessDenied("no right", principal="User:x", operation="Create", resource="topic:t"),
    ],
)
def test_errors_survive_the_way_from_control(sent: StandpipeError) -> None:
    body = msgspec.json.decode(msgspec.json.encode(sent.body()))
    received = error_of(body, "S;")
    assert (type(received), received.body()) == (type(sent), sent.body())
    assert (received.status, received.retry_after_s) == (sent.status, sent.retry_after_s)


@pytest.mark.parametrize(
    "body",
    [{}, {"error_code": 99999}, {"error_code": "x", "message": 1}, {"standpipe": ["x"]}],
)
def test_errors_of_unknown_kinds(body: dict[str, object]) -> None:
    assert type(error_of(body, "")) is ServerError


def test_partial_failure_names_what_was_done() -> None:
    done = [{"@type": "streams"}]
    body = StatementFailed(KafkaUnavailable("away"), "INSERT …;", done).body()
    assert body == {
        "@type": "statement_error",
        "error_code": 50308,
        "message": "away",
        "statementText": "INSERT …;",
        "entities": done,
    }
