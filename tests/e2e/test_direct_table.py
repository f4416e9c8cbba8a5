"""Direct tables: other programs produce, nodes follow their topics. A real Kafka, two nodes, no
Spark and no pipeline."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping

import msgspec
import pytest
from confluent_kafka import Producer
from tests.e2e.cluster import WAIT_S_MAX, TestCluster, start, wait_until

from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.control.metadata.topic_reconciler import CreateTopic, DeleteTopic
from standpipe.errors import StandpipeError, StatementError
from standpipe.local.client import status
from standpipe.model import NodeId

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    running = start(tmp_path_factory.mktemp("direct"), nodes=2, pipelines=0)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def kafka(direct: TestCluster) -> KafkaAdmin:
    return KafkaAdmin(direct.bootstrap_servers)


def follow(direct: TestCluster, kafka: KafkaAdmin, name: str, more: str = "") -> None:
    """A compacted topic of two partitions, and a table that follows it."""
    kafka.carry_out(CreateTopic(name.lower(), 2, COMPACTED))
    declare(direct, name, more)


def declare(direct: TestCluster, name: str, more: str = "") -> None:
    direct.sql(
        f"CREATE SOURCE TABLE {name} (ID STRING PRIMARY KEY, N INTEGER, AT TIMESTAMP)"
        f" WITH (KAFKA_TOPIC='{name.lower()}', VALUE_FORMAT='JSON', APPLY='DIRECT'{more});"
    )


class Program:
    """A producer that is not ours."""

    def __init__(self, direct: TestCluster, topic: str, **more: str) -> None:
        given = {"bootstrap.servers": direct.bootstrap_servers, "partitioner": "murmur2_random"}
        self.producer, self.topic = Producer({**given, **more}), topic

    def put(self, key: str, value: Mapping[str, object] | bytes | None, flush: bool = True) -> None:
        raw = msgspec.json.encode(value) if isinstance(value, Mapping) else value
        self.producer.produce(self.topic, raw, key.encode())
        if flush:
            assert self.producer.flush(30) == 0


def test_produced_changed_and_deleted(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "PRICES")
    program = Program(direct, "prices")
    for number in range(20):
        program.put(f"k{number}", {"n": number, "at": 1_600_000_000_000}, flush=False)
    program.put("k3", {"N": "33"})
    one = "SELECT ID, N, AT FROM PRICES WHERE ID = '{}';"
    answer = direct.wait_for_rows(one.format("k3"), [["k3", 33, None]])
    assert answer.fresh.batch is None
    direct.wait_for_rows(one.format("k4"), [["k4", 4, "2020-09-13T12:26:40.000"]])
    program.put("k4", None)
    direct.wait_for_rows(one.format("k4"), [])
    direct.wait_for_rows("SELECT COUNT(*) FROM PRICES;", [[19]])


def test_its_lag_is_known_and_bounds_hold(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "BOUNDED", ", ACCEPTABLE_SOURCE_LAG_MS=60000")
    Program(direct, "bounded").put("a", {"N": 1})
    one = "SELECT N FROM BOUNDED WHERE ID = 'a';"
    direct.wait_for_rows(one, [[1]])

    def are_known() -> bool:
        try:
            fresh = direct.pull(one).fresh
        except StandpipeError:  # of a table with a bound: it is not known that the rows keep it
            return False
        return None not in (fresh.replica_lag_ms, fresh.source_lag_ms)

    wait_until(are_known, "Kafka to say where the topic ends")
    bound = {"ksql.query.pull.max.allowed.offset.lag": "0"}
    wait_until(lambda: _answers(direct, one, bound), "a read without lag")
    (entity,) = direct.sql("SHOW LAG BOUNDED;")
    (table,) = entity["tables"]
    assert (table["queryId"], table["batch"]) == (None, None)
    wait_until(lambda: source_lag_ms(direct, "BOUNDED") is not None, "its source lag")


def source_lag_ms(direct: TestCluster, name: str) -> int | None:
    """Of SHOW LAG. None: not known at this instant, as while Kafka is slow to say where it ends."""
    (entity,) = direct.sql(f"SHOW LAG {name};")
    return entity["tables"][0]["sourceLagMs"]


def _answers(direct: TestCluster, text: str, properties: Mapping[str, str]) -> bool:
    try:
        return bool(direct.pull(text, properties).rows)
    except StandpipeError:
        return False


def test_a_replay_does_not_take_a_row_back(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "VERSIONED", ", VERSION_COLUMN='N'")
    program = Program(direct, "versioned")
    program.put("a", {"N": 5})
    program.put("a", {"N": 4})
    program.put("after", {"N": 1})
    direct.wait_for_rows("SELECT N FROM VERSIONED WHERE ID = 'after';", [[1]])
    direct.wait_for_rows("SELECT N FROM VERSIONED WHERE ID = 'a';", [[5]])
    program.put("a", None)
    program.put("a", {"N": 4})
    direct.wait_for_rows("SELECT N FROM VERSIONED WHERE ID = 'a';", [[4]])


def test_what_cannot_be_read_is_left_out(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "MIXED")
    program = Program(direct, "mixed")
    program.put("a", {"N": 1})
    program.put("a", b"{")
    program.put("a", {"N": "x"})
    program.put("b", {"N": 2})
    direct.wait_for_rows("SELECT ID, N FROM MIXED;", [["a", 1], ["b", 2]])
    said = [
        line
        for plan in direct.local.plans
        for log in (plan.data_directory / "logs").glob("*")
        for line in log.read_text().splitlines()
        if "records left out" in line and "MIXED" in line
    ]
    assert said, "an operator can see it"


def test_a_transaction_shows_when_it_is_committed(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "BANK")
    program = Program(direct, "bank", **{"transactional.id": "t1"})
    producer = program.producer
    producer.init_transactions(60)
    producer.begin_transaction()
    program.put("a", {"N": 1})
    producer.commit_transaction(60)
    direct.wait_for_rows("SELECT N FROM BANK WHERE ID = 'a';", [[1]])
    producer.begin_transaction()
    program.put("a", {"N": 2})
    producer.abort_transaction(60)
    producer.begin_transaction()
    program.put("b", {"N": 3})
    bound = {"ksql.query.pull.max.allowed.offset.lag": "0"}
    wait_until(lambda: _answers(direct, "SELECT N FROM BANK WHERE ID = 'a';", bound), "no lag")
    assert direct.pull("SELECT N FROM BANK WHERE ID = 'b';").rows == ()
    producer.commit_transaction(60)
    direct.wait_for_rows("SELECT ID, N FROM BANK;", [["a", 1], ["b", 3]])


def test_a_node_that_was_killed_continues(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "KEPT")
    program = Program(direct, "kept")
    program.put("a", {"N": 1})
    one = "SELECT N FROM KEPT WHERE ID = 'a';"
    direct.wait_for_rows(one, [[1]])
    node = NodeId("node-1")
    direct.local.kill_node(node)
    program.put("a", {"N": 2})
    direct.wait_for_rows(one, [[2]])
    direct.local.restart_node(node)
    direct.local.wait_until_ready()
    program.put("a", {"N": 3})

    def served_by_itself() -> bool:
        try:
            answer = direct.pull_from(node, one)
        except StandpipeError:
            return False
        return answer.rows == ((3,),) and answer.fresh.served_by == node

    wait_until(served_by_itself, "the row, from the node that was killed")


def test_a_topic_made_again_is_refused_until_the_table_is(
    direct: TestCluster, kafka: KafkaAdmin
) -> None:
    follow(direct, kafka, "AGAIN")
    Program(direct, "again").put("a", {"N": 1})
    one = "SELECT N FROM AGAIN WHERE ID = 'a';"
    direct.wait_for_rows(one, [[1]])
    kafka.carry_out(DeleteTopic("again"))
    wait_until(lambda: "again" not in kafka.partition_counts(), "the topic's end")
    kafka.carry_out(CreateTopic("again", 2, COMPACTED))

    def is_refused() -> bool:
        try:
            direct.pull(one)
        except StandpipeError:
            return True
        return False

    wait_until(is_refused, "that no replica takes the new topic for the old one")
    Program(direct, "again").put("a", {"N": 2})
    node = direct.local.plans[0]
    direct.local.kill_node(node.node_id)
    killed = time.time()
    shutil.rmtree(node.data_directory / "state")
    direct.local.restart_node(node.node_id)
    direct.local.wait_until_ready()

    def new_stores() -> list[str]:
        """States of the table's replicas at the node, whose stores are as new as the topic."""
        written = node.data_directory / "run" / "tailer.json"
        if not written.exists() or written.stat().st_mtime < killed:
            return []
        lines = json.loads(written.read_bytes())["replicas"]
        return [line["state"] for line in lines if line["table"] == "AGAIN"]

    def are_lost() -> bool:
        states = new_stores()
        assert "RUNNING" not in states
        return states == ["DATA_LOSS"] * 2

    wait_until(are_lost, "that new stores do not take it, either", lambda: str(new_stores()))
    assert is_refused()
    direct.sql("DROP TABLE AGAIN;")
    declare(direct, "AGAIN")
    direct.wait_for_rows(one, [[2]])


def test_what_reads_batches_is_refused(direct: TestCluster, kafka: KafkaAdmin) -> None:
    follow(direct, kafka, "REFUSED")
    for sql in (
        "CREATE TABLE T AS SELECT * FROM REFUSED;",
        "INSERT INTO REFUSED (ID) VALUES ('a');",
    ):
        with pytest.raises(StatementError):
            direct.sql(sql)
    direct.wait_for_rows("SELECT * FROM REFUSED WHERE ID = 'a';", [])
    for level in ("session", "linearizable"):
        body = {
            "ksql": "SELECT * FROM REFUSED WHERE ID = 'a';",
            "streamsProperties": {"standpipe.read.consistency": level},
        }
        with SyncClient(timeout_s=20.0) as http:
            origin = direct.addresses[0][1]
            reply = http.request("POST", origin, "/query", body=msgspec.json.encode(body))
        assert reply.status == 400, reply.body
        assert b"has no batches" in reply.body

    def are_held_twice() -> bool:
        roles = {each.role for each in status.gather(direct.addresses).replicas}
        return roles == {"active", "standby"}

    wait_until(are_held_twice, "both nodes to show their replicas, also the one that was killed")


def test_a_steady_stream_is_followed_all_the_time(direct: TestCluster, kafka: KafkaAdmin) -> None:
    """Each end that Kafka tells may be behind what was read meanwhile, which is no loss."""
    follow(direct, kafka, "STEADY")
    program, one = Program(direct, "steady"), "SELECT N FROM STEADY WHERE ID = 'k{}';"
    answered, least_s, until = 0, time.monotonic() + 10, time.monotonic() + WAIT_S_MAX
    number = 0
    while time.monotonic() < least_s or number <= 1_000 or answered <= 10:
        assert time.monotonic() < until, (number, answered)
        for _ in range(20):
            number += 1
            program.put(f"k{number % 50}", {"N": number}, flush=False)
        program.producer.poll(0.02)
        answered += _answers(direct, one.format(number % 50), {})
    assert program.producer.flush(30) == 0
    direct.wait_for_rows(one.format(number % 50), [[number]])
    wait_until(lambda: source_lag_ms(direct, "STEADY") is not None, "no partition is lost")


def test_small_transactions_are_followed(direct: TestCluster, kafka: KafkaAdmin) -> None:
    """The log never ends with a record: markers of transactions are between them."""
    follow(direct, kafka, "PAID")
    program = Program(direct, "paid", **{"transactional.id": "paid"})
    program.producer.init_transactions(30)
    for number in range(100):
        program.producer.begin_transaction()
        program.put("a", {"N": number}, flush=False)
        program.producer.commit_transaction(30)
        time.sleep(0.02)
    direct.wait_for_rows("SELECT N FROM PAID WHERE ID = 'a';", [[99]])
