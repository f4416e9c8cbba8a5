"""`spark.read.format("standpipe")` on real Kafka, real nodes and real Spark.

The rows that `Standpipe.read` gets from Kafka are what it must get from the nodes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from tests.e2e.cluster import TestCluster, start
from tests.e2e.processes import descendants
from tests.e2e.test_frame_rows_on_spark import ROWS as EVERY_TYPE

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.client.core.nodes import SUSPECT_S_MAX
from standpipe.control.metadata.topic_reconciler import CreateTopic
from standpipe.local.cluster import jvm
from standpipe.model import NodeId
from standpipe.spark import Standpipe
from standpipe.spark_source.source import StandpipeSource

PROGRAM = Path(__file__).with_name("connect_program.py")
PARTITIONS = 3
EVENTUAL = ("consistency", "eventual")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    running = start(tmp_path_factory.mktemp("format"), nodes=3, pipelines=0)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """As a user's own, which was told nothing of Standpipe."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = jvm.archive_options("spark", jvm.find_java())
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", " ".join(options))
        .config("spark.jars", ",".join(map(str, jvm.jars("spark"))))  # of `load` and `read`
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/Lima")
        .getOrCreate()
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def program(served: TestCluster, session: SparkSession) -> Standpipe:
    return Standpipe(nodes=nodes_of(served), secret_file=served.local.directory.secret_file)


def nodes_of(served: TestCluster) -> str:
    return ",".join(address for _, address in served.addresses)


def reader(served: TestCluster, session: SparkSession) -> DataFrameReader:
    return session.read.format("standpipe").option("nodes", nodes_of(served))


def sorted_rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=repr)


def load(
    program: Standpipe, served: TestCluster, frame: DataFrame, table: str, **more: Any
) -> None:
    """Returns once each node shows the rows."""
    program.load(frame, table=table, partitions=PARTITIONS, **more)
    for node_id, _ in served.addresses:
        served.wait_for_rows(f"SELECT COUNT(*) FROM {table};", [[frame.count()]], entry=node_id)


def test_every_type_at_every_level(
    served: TestCluster, session: SparkSession, program: Standpipe
) -> None:
    frame = session.sql(f"{EVERY_TYPE} UNION ALL SELECT 'nulls', 1, {', '.join(['NULL'] * 11)}")
    load(program, served, frame, "TYPED", key=["k"])
    wanted = program.read("TYPED", session)
    assert len(wanted.collect()) == 2
    for level in ("snapshot", "eventual", "linearizable"):
        found = reader(served, session).option("consistency", level).load("typed")
        assert found.dtypes == wanted.dtypes, level
        assert sorted_rows(found) == sorted_rows(wanted), level
        partitions = 1 if level == "snapshot" else PARTITIONS
        assert found.rdd.getNumPartitions() == partitions, level


def test_windows(served: TestCluster, session: SparkSession, program: Standpipe) -> None:
    frame = session.sql(
        "SELECT k, window(at, '1 hour') AS window, n FROM VALUES"
        " ('ada', TIMESTAMP'2026-01-02 03:04:05', 1), ('ada', TIMESTAMP'2026-01-02 04:04:05', 2),"
        " ('bob', TIMESTAMP'2026-01-02 03:04:05', 3) AS t(k, at, n)"
    )
    load(program, served, frame, "HOURLY", key=["k"], window_size="1 hour")
    wanted = program.read("HOURLY", session)
    for level in ("snapshot", "eventual"):
        found = reader(served, session).option("consistency", level).load("HOURLY")
        assert found.columns == ["K", "WINDOWSTART", "WINDOWEND", "N"]
        assert found.dtypes == wanted.dtypes
        assert sorted_rows(found) == sorted_rows(wanted)
        assert len(found.where("K = 'ada'").collect()) == 2


def test_a_direct_table_has_no_batches(served: TestCluster, session: SparkSession) -> None:
    KafkaAdmin(served.bootstrap_servers).carry_out(
        CreateTopic("times", 2, {"cleanup.policy": "compact"})
    )
    served.sql(
        "CREATE SOURCE TABLE TIMES (ID STRING PRIMARY KEY, T TIME, S STRUCT<A ARRAY<TIME>>)"
        " WITH (KAFKA_TOPIC='times', VALUE_FORMAT='JSON', APPLY='DIRECT');"
    )
    producer = Producer(
        {"bootstrap.servers": served.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    producer.produce("times", msgspec.json.encode({"T": 1000, "S": {"A": [2000, None]}}), b"a")
    assert producer.flush(30) == 0
    served.wait_for_rows("SELECT COUNT(*) FROM TIMES;", [[1]])
    found = reader(served, session).option(*EVENTUAL).load("TIMES")
    assert found.dtypes == [("ID", "string"), ("T", "int"), ("S", "struct<A:array<int>>")]
    assert found.collect() == [Row(ID="a", T=1000, S=Row(A=[2000, None]))]
    with pytest.raises(Exception, match=r"has no batches(.|\n)*consistency\", \"eventual"):
        reader(served, session).load("TIMES").collect()


@pytest.fixture(scope="module")
def scores(served: TestCluster, session: SparkSession, program: Standpipe) -> str:
    """A table of a few MB: more than one slice of a plan."""
    frame = session.range(60_000).selectExpr(
        "concat('k', id) AS k", "id AS n", "repeat(concat('text ', id), 8) AS text"
    )
    load(program, served, frame, "SCORES", key=["k"])
    return "SCORES"


def test_columns_that_a_schema_names(
    served: TestCluster, session: SparkSession, scores: str
) -> None:
    whole = reader(served, session).load(scores)
    assert whole.rdd.getNumPartitions() > 1, "the rows came in several slices"
    assert whole.where("TEXT = repeat(concat('text ', N), 8)").count() == 60_000
    found = reader(served, session).schema("N BIGINT, K STRING").load(scores)
    assert sorted(found.collect()) == sorted(Row(N=n, K=f"k{n}") for n in range(60_000))
    for schema, says in (
        ("N INT", "is bigint, not int"),
        ("M INT", "no column M(.|\n)*K, N, TEXT"),
    ):
        with pytest.raises(Exception, match=says):
            reader(served, session).schema(schema).load(scores).collect()


def test_a_condition_for_the_nodes(served: TestCluster, session: SparkSession, scores: str) -> None:
    """Keys are looked up, other conditions checked by the nodes; of no partition twice."""
    for level in ("snapshot", "eventual"):
        for condition, wanted in (
            ("K = 'k7'", [7]),
            ("K IN ('k1', 'none', 'k2')", [1, 2]),
            ("K = 'k5' AND N > 5", []),
            ("N < 3", [0, 1, 2]),
        ):
            options = {"consistency": level, "where": condition}
            found = reader(served, session).options(**options).load(scores)
            assert sorted(row["N"] for row in found.collect()) == wanted, options
    wrong = reader(served, session).option("where", "NONE = 1").load(scores)
    with pytest.raises(Exception, match="NONE"):
        wrong.collect()


def test_filters_of_spark(served: TestCluster, session: SparkSession, scores: str) -> None:
    """What was read for one DataFrame is not taken for the rows of another. It would be if filters
    were taken over: PySpark keeps what it planned last for all that was made of one `load`."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reader(served, session).load(scores)
        assert frame.where("K = 'k7'").count() == 1
        assert frame.count() == 60_000
        both = frame.where("K = 'k7'").union(frame.where("K = 'k8'"))
        assert sorted(row["N"] for row in both.collect()) == [7, 8]
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_node_dies_in_the_middle(served: TestCluster, session: SparkSession, scores: str) -> None:
    """It has the request of a task, and has not answered: another replica gives all rows of that
    partition, each once."""
    frame = reader(served, session).option(*EVENTUAL).load(scores)
    frame.explain()  # plans it: from here on tasks alone ask
    victim, address = served.addresses[0]
    node = served.local.nodes[NodeId(victim)]
    node.signal_group(signal.SIGSTOP)
    try:
        action = killed_when_asked(
            frame.collect, address, lambda: served.local.kill_node(NodeId(victim))
        )
        assert sorted(row["N"] for row in action) == list(range(60_000))
        assert reader(served, session).load(scores).count() == 60_000
    finally:
        served.local.kill_node(NodeId(victim))
        served.local.restart_node(NodeId(victim))


def killed_when_asked(
    collect: Callable[[], list[Row]], address: str, kill: Callable[[], None]
) -> list[Row]:
    """The rows of the action whose request that node had when it was killed. A task asks another
    node after a moment: if it was not seen meanwhile, the action is done again."""
    found: list[Row] = []

    def act() -> None:
        found[:] = collect()

    for _ in range(20):
        action = threading.Thread(target=act)
        action.start()
        while action.is_alive():
            if is_asked(address):
                kill()
                action.join()
                return found
        time.sleep(SUSPECT_S_MAX)  # until then, tasks ask the silent node last
    raise AssertionError("no request was seen at the node that stands still")


def is_asked(address: str) -> bool:
    """Whether a process of Spark has a connection to that node, whose request it has sent."""
    port = int(address.rpartition(":")[2])
    for process in descendants(os.getpid()):
        try:
            found = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(each.raddr and each.raddr.port == port for each in found):
            return True
    return False


def test_all_rows_are_of_one_batch(
    served: TestCluster, session: SparkSession, program: Standpipe
) -> None:
    """Each batch gives all rows another number; no read shows two of them."""

    def batch(number: int) -> DataFrame:
        return session.range(300).selectExpr("concat('k', id) AS k", f"{number} AS n")

    load(program, served, batch(0), "MOVING", key=["k"])
    kept = reader(served, session).load("MOVING")
    assert kept.count() == 300
    writing = threading.Thread(
        target=lambda: [
            program.load(batch(number), table="MOVING", key=["k"]) for number in range(1, 4)
        ]
    )
    writing.start()
    shown: list[int] = []
    while writing.is_alive() or shown[-1:] != [3]:
        rows = reader(served, session).load("MOVING").collect()
        assert len(rows) == 300
        (number,) = {row["N"] for row in rows}
        shown.append(number)
    assert len({*shown}) > 1, "it moved meanwhile"
    assert {row["N"] for row in kept.collect()} == {0}, "a DataFrame keeps its rows"


@pytest.mark.parametrize(
    ("options", "table", "says"),
    [
        ({}, "NONE", "NONE"),
        ({"nodes": "127.0.0.1:1", "timeout_s": "1"}, "T", "no node answered in time.*refused"),
        ({"nodes": "here"}, "T", "'here' is not host:port"),
        ({"consistancy": "eventual"}, "T", "did you mean consistency"),
        ({}, "", "no table is named"),
    ],
)
def test_what_is_wrong_is_said(
    served: TestCluster, session: SparkSession, options: dict[str, str], table: str, says: str
) -> None:
    with pytest.raises(Exception, match=says):
        reader(served, session).options(**options).load(table)


def test_a_session_may_register_it(served: TestCluster, session: SparkSession, scores: str) -> None:
    other = session.newSession()
    other.dataSource.register(StandpipeSource)
    assert reader(served, other).load(scores).count() == 60_000


def test_it_only_reads_batches(served: TestCluster, session: SparkSession, scores: str) -> None:
    stream = session.readStream.format("standpipe").option("nodes", nodes_of(served)).load(scores)
    query = stream.writeStream.format("noop").start()
    with pytest.raises(Exception, match=r"reads one batch(.|\n)*read_stream"):
        query.awaitTermination()


def test_under_spark_connect(served: TestCluster, scores: str, tmp_path: Path) -> None:
    """The format works there, and what does not work says what to do instead."""
    pytest.importorskip("grpc", reason="PySpark's Connect client needs grpcio")
    ran = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(jvm.find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "STANDPIPE_NODES": nodes_of(served),
            "STANDPIPE_SECRET_FILE": str(served.local.directory.secret_file),
            "TABLE": scores,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert "connect" in said["session"]
    assert (said["count"], said["eventual"], said["row"], said["where"]) == (
        60_000,
        60_000,
        7,
        2,
    )
    assert "NONE" in said["unknown"]
    assert 'spark.read.format("standpipe"), which works there' in said["read"]
    for name in ("read_stream", "load", "serve"):
        assert "is of Spark Connect" in said[name], name
        assert "spark-submit" in said[name], name
