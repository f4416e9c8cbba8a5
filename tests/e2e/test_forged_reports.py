"""Whoever knows the secret can name itself after any node; what it reports must still be possible.

Three nodes with control and workers, and a real Kafka whose topics have as many records as the
nodes' status pages say. No tailer, no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.e2e.liveness_cluster import PARTITIONS, LivenessCluster, WholeNode, until
from tests.e2e.test_serve import ask

from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import Source

KEY = "k1"
ROWS: dict[str, list[object]] = {f"k{i}": [i] for i in range(40)}
BOUND = "ksql.query.pull.max.allowed.offset.lag"
END = 100  # of every partition, as the status pages say
FORGED = 10**12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"), any_port())
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def cluster(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivenessCluster]:
    made = LivenessCluster(
        tmp_path_factory.mktemp("forged"),
        keys={"standpipe.forward.hedge.load.percent": 0},
        bootstrap_servers=broker.bootstrap_servers,
    )
    # first, or true reports would be refused while the topic is shorter than they say
    made.start(ROWS, lambda table: fill(broker, table))
    yield made
    made.stop()


def fill(broker: Broker, table: Source) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(PARTITIONS):
        for _ in range(END):
            producer.produce(table.topic, b"{}", b"k", partition)
    assert producer.flush(60) == 0


def refused_count(node: WholeNode) -> float:
    text = ask(node.port(), "/metrics").body.decode()
    name = "standpipe_lag_reports_refused_total "
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def answers_bounded(cluster: LivenessCluster, node: WholeNode) -> bool:
    return cluster.ask(node, KEY, **{BOUND: 0}).status == 200


def lag_there(cluster: LivenessCluster, at: WholeNode, of: WholeNode) -> object:
    """The position that one node knows of another's replica of the key; None: nothing."""
    stores = cluster.cluster(at)[of.node_id]["hostStoreLags"]["stateStoreLags"]
    number = str(cluster.partition(KEY))
    told = (store["lagByPartition"].get(number) for store in stores.values())
    return next((lag["currentOffsetPosition"] for lag in told if lag), None)


def forged(cluster: LivenessCluster, sender: WholeNode, position: int, end: int) -> dict[str, Any]:
    """A full report in the name of a member, of a session that is newer than its own."""
    users = cluster.users
    assert users is not None
    number = cluster.partition(KEY)
    lag = [users.table_id, users.generation, number, position, end, 3, 1, 0, 0]
    delta = {"session": 2**62, "base": 0, "through": 1, "digest": None, "changes": [lag]}
    incarnation = next(
        node.incarnation for node in cluster.snapshot(0).nodes if node.node_id == sender.node_id
    )
    extra = {"node_id": sender.node_id, "incarnation": incarnation, "lags": delta}
    return {"ksqlHost": "x:1", "hostStoreLags": {"stateStoreLags": {}}, "standpipe": extra}


@pytest.mark.parametrize(
    ("position", "end", "why"),
    [
        (END, FORGED, "one forged end refused all bounded reads, until control was restarted"),
        (FORGED, END, "a position beyond the log"),
        (END, 2 * END, "an end that is only somewhat too far"),
        (FORGED, FORGED, "caught up, beyond the log"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(
    cluster: LivenessCluster, position: int, end: int, why: str
) -> None:
    number = cluster.partition(KEY)
    active, standby = cluster.holders(number)
    entry = cluster.outsider(number)
    for node in cluster.nodes:
        until("a bounded answer", lambda n=node: answers_bounded(cluster, n))
    for victim in (standby, entry):
        before = refused_count(victim)
        report = forged(cluster, active, position, end)
        assert cluster.post(victim, "/lag", report, active.node_id).status_code == 200
        until("it is refused", lambda v=victim, b=before: refused_count(v) > b)
        for _ in range(20):
            reply = cluster.ask(victim, KEY, **{BOUND: 0})
            assert reply.status == 200, f"{why}: {reply.body.decode()}"
        log = (victim.config.paths.logs / "control.log").read_text()
        assert "lag report refused" in log
        assert f'"peer": "{active.node_id}"' in log
        until("its own reports", lambda v=victim: lag_there(cluster, v, active) == END)


def test_a_forged_session_does_not_shut_out_the_node(cluster: LivenessCluster) -> None:
    """What it says is possible, so nothing is refused; but it is not said again."""
    active, standby = cluster.holders(cluster.partition(KEY))
    until("its own reports", lambda: lag_there(cluster, standby, active) == END)
    report = forged(cluster, active, 1, 1)
    assert cluster.post(standby, "/lag", report, active.node_id).status_code == 200
    until("the forged one", lambda: lag_there(cluster, standby, active) != END)
    until("its own reports again", lambda: lag_there(cluster, standby, active) == END)


def test_nobody_reports_in_the_name_of_another(cluster: LivenessCluster) -> None:
    """The same on a connection of another node, of an operator, and of a name that is no node."""
    active, standby = cluster.holders(cluster.partition(KEY))
    other = cluster.outsider(cluster.partition(KEY))
    report = forged(cluster, active, END, FORGED)
    beat = {"hostInfo": active.config.public, "timestamp": 1}
    for sender in (other.node_id, "", "rogue"):
        for path in ("/lag", "/reportlag"):
            answer = cluster.post(standby, path, report, sender)
            assert (answer.status_code, active.node_id in answer.text) == (401, True)
        assert cluster.post(standby, "/heartbeat", beat, sender).status_code == 401
    assert answers_bounded(cluster, standby)
    joins = {"node_id": active.node_id, "public": "x:1", "internal": "x:2", "peer": "x:3"}
    for taker in (standby, active):  # one may lead, the other would send it on as itself
        for sender in (other.node_id, "", "rogue"):
            answer = cluster.post(taker, "/register", {**joins, "incarnation": "forged"}, sender)
            assert answer.status_code == 401, answer.text
    known = {node.node_id: node.public for node in cluster.snapshot(1).nodes}
    assert known[active.node_id] == active.config.public
