"""Beats, lags and routing with real processes: KLIP-12's own tests, each mechanism alone, faults.

No timed asserts: how fast it goes is `bench/failover.py`'s question.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.liveness_cluster import SECRET, LivenessCluster, WholeNode, until
from tests.e2e.test_serve import Reply, ask, json_bytes, states_of, status
from tests.sealed_http import ask_sealed

from standpipe.adapters.sealed.handshake import PEER

ROWS: dict[str, list[object]] = {f"k{i}": [i] for i in range(40)}
KEY = "k1"
BOUND = "ksql.query.pull.max.allowed.offset.lag"
#: two standbys: every node holds everything
THREE_COPIES = {"num.standby.replicas": 2}
#: For a busy machine, where a sound process may stand still for a second: that does not make its
#: node count as down (10 beats of 100 ms) or its path as failed, and leaves time for a read.
PATIENT: dict[str, object] = {
    "ksql.heartbeat.missed.threshold.ms": 10,
    "ksql.query.pull.forwarding.timeout.ms": 3_000,
    "ksql.query.pull.routing.timeout.ms": 30_000,
}

Start = Callable[..., LivenessCluster]


def made_in(directory: Path, *, table_with: str = "", **keys: object) -> LivenessCluster:
    # A hedge would let another replica answer where the machine is busy; tests say who.
    dotted = PATIENT | {"standpipe.forward.hedge.load.percent": 0}
    dotted |= {name.replace("__", "."): value for name, value in keys.items()}
    return LivenessCluster(directory, table_with=table_with, keys=dotted)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A cluster of the test's own, whose processes it may stop and kill."""
    made: list[LivenessCluster] = []

    def starting(*, table_with: str = "", **keys: object) -> LivenessCluster:
        cluster = made_in(tmp_path, table_with=table_with, **keys)
        made.append(cluster)
        cluster.start(ROWS)
        return cluster

    yield starting
    for cluster in made:
        cluster.stop()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivenessCluster]:
    """For tests that leave all its processes running, and write the lags that they need."""
    cluster = made_in(tmp_path_factory.mktemp("lasting"), ksql__heartbeat__enable=True)
    try:
        cluster.start(ROWS)
        yield cluster
    finally:
        cluster.stop()


def columns(reply: Reply) -> list[Any]:
    assert reply.status == 200, reply.body
    return [one["row"]["columns"] for one in reply.json[1:]]  # type: ignore[index]


def served_by(
    cluster: LivenessCluster, entry: WholeNode, key: str = KEY, **properties: object
) -> str:
    return answerer(cluster.ask(entry, key, **properties), key)


def answerer(reply: Reply, key: str) -> str:
    assert columns(reply) == [[key, *ROWS[key]]]
    return reply.headers["standpipe-served-by"]


def until_served_by(
    cluster: LivenessCluster,
    entry: WholeNode,
    node: WholeNode,
    why: str = "",
    *,
    key: str = KEY,
    **properties: object,
) -> None:
    """Wait until this node is the one that answers. A node that gets no processor may count as down
    for a moment, or for a minute if that happens again. Another replica answers meanwhile, and each
    answer must have the right row. With a bound on the lag, the entry may refuse meanwhile: a
    report that was made before the test wrote the lags may reach it late."""

    def is_served_by_node() -> bool:
        reply = cluster.ask(entry, key, **properties)
        if BOUND in properties and reply.status == 503:
            assert reply.json["error_code"] == 50306, reply.body
            return False
        return answerer(reply, key) == node.node_id

    until(why or f"an answer of {node.node_id}", is_served_by_node)


def alive_host(cluster: LivenessCluster, entry: WholeNode, node: WholeNode) -> Any:
    """What a node tells of another one, once it counts it as alive."""

    def told() -> Any:
        host = cluster.cluster(entry)[node.node_id]
        return host["hostAlive"] is True and host

    return until(f"{node.node_id} alive", told)


def lag_behind(cluster: LivenessCluster, node: WholeNode, records: int, *, key: str = KEY) -> None:
    cluster.write(node, cluster.partition(key), status(position=1000 - records, committed_end=1000))


# ------------------------------------------------------------------------- KLIP-12, test plan


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_request_is_forwarded_to_a_standby(start: Start, number: signal.Signals) -> None:
    """KLIP-12, 1. Not one read fails, nobody retries, and the active is found down."""
    cluster = start()
    active, standby = cluster.holders(cluster.partition(KEY))
    entry = cluster.outsider(cluster.partition(KEY))
    until_served_by(cluster, entry, active)
    active.signal(number)
    for _ in range(50):
        assert served_by(cluster, entry) == standby.node_id
    for node in (entry, standby):
        until("the active down", lambda n=node: not cluster.alive(n)[active.node_id])
        dead = cluster.cluster(node)[active.node_id]
        assert (dead["activeStandbyPerQuery"], dead["hostStoreLags"]) == ({}, {})
        assert dead["lastStatusUpdateMs"] > 0
        until("the same at /metrics", lambda n=node: is_up(n, active) == 0)
    until("the standby up", lambda: is_up(entry, standby) == 1)
    for node in (entry, standby):
        assert served_by(cluster, node) == standby.node_id
    if number == signal.SIGSTOP:
        active.signal(signal.SIGCONT)
        until("alive again", lambda: cluster.alive(entry)[active.node_id])
        # Who leads now is the assignment's word: a standby that took over need not give it back.
        until("the map's active", lambda: served_by(cluster, entry) == leader_of(cluster))


def is_up(node: WholeNode, peer: WholeNode) -> float | None:
    return states_of(node.port())["standpipe_peer_up"].get((peer.node_id,))


def leader_of(cluster: LivenessCluster) -> str:
    return cluster.holders(cluster.partition(KEY))[0].node_id


def test_forwarded_to_the_most_caught_up_standby(start: Start) -> None:
    """KLIP-12, 2. Also where the entry node holds a replica itself."""
    cluster = start(**THREE_COPIES)
    active, near, far = cluster.holders(cluster.partition(KEY))
    lag_behind(cluster, active, 0)
    lag_behind(cluster, near, 70)
    lag_behind(cluster, far, 700)
    lag_is = {near.node_id: 70, far.node_id: 700}

    def lags_seen() -> bool:
        (partition,) = cluster.get(far, f"/route?table=users&key={KEY}")["partitions"]
        seen = {one["node"]: one["lag_records"] for one in partition["route"]}
        return {node: seen.get(node) for node in lag_is} == lag_is

    until("reports", lags_seen)
    active.kill()
    until("the active down", lambda: not cluster.alive(far)[active.node_id])
    until_served_by(cluster, far, near)
    near.kill()
    until("both down", lambda: not cluster.alive(far)[near.node_id])
    assert served_by(cluster, far) == far.node_id
    reply = cluster.ask(far, KEY)
    assert reply.headers["standpipe-offset-lag"] == "700"


def lags_told(cluster: LivenessCluster, node: WholeNode, bound: str) -> list[int]:
    """Of the replicas that a refusal names, ascending; empty where it is no refusal."""
    reply = cluster.ask(node, KEY, **{bound: "99"})
    told: Any = reply.json.get("standpipe", {}) if reply.status == 503 else {}
    return sorted(one["lag_records"] for one in told.get("verdicts", []))


def test_refused_when_all_lag_more_than_acceptable(start: Start) -> None:
    """KLIP-12, 3. By the request's bound, by KLIP-12's own name, and by the table's."""
    cluster = start(table_with="WITH (ACCEPTABLE_OFFSET_LAG=500) ", **THREE_COPIES)
    for node, lag in zip(cluster.holders(cluster.partition(KEY)), (300, 200, 100), strict=True):
        lag_behind(cluster, node, lag)
    for name in (BOUND, "acceptable.offset.lag"):
        for node in cluster.nodes:
            until("reports", lambda n=node, p=name: lags_told(cluster, n, p) == [100, 200, 300])
            reply = cluster.ask(node, KEY, **{name: "99"})
            assert (reply.status, reply.json["error_code"]) == (503, 50306)
            text = f"SELECT * FROM USERS WHERE ID = '{KEY}';"
            assert str(reply.json["message"]).startswith(
                f"Unable to execute pull query {text}. "
                "All nodes are dead or exceed max allowed lag."
            )
            verdicts: Any = reply.json["standpipe"]
            assert {one["lag_records_max"] for one in verdicts["verdicts"]} == {99}
    active, middle, least = cluster.holders(cluster.partition(KEY))
    until_served_by(cluster, active, least, "the bound itself is allowed", **{BOUND: 100})
    until_served_by(cluster, least, active, "the table's bound allows all")
    for node in (active, middle, least):
        lag_behind(cluster, node, 501)
    for node in cluster.nodes:
        until("the table's bound", lambda n=node: cluster.ask(n, KEY).status == 503)
        assert cluster.ask(node, KEY, **{BOUND: 501}).status == 200, "a request may allow more"


# ------------------------------------------------------------------------- each of them alone


def test_heartbeats_off(start: Start) -> None:
    """Lags come by reports alone; failed paths open breakers; nobody is found down by silence."""
    cluster = start(
        ksql__heartbeat__enable=False,
        ksql__lag__reporting__send__interval__ms=200,
        **THREE_COPIES,
    )
    active, near, far = cluster.holders(cluster.partition(KEY))
    for node, lag in ((active, 0), (near, 70), (far, 700)):
        lag_behind(cluster, node, lag)
    assert cluster.post(far, "/heartbeat", {"hostInfo": "x:1", "timestamp": 1}).status_code == 404
    until_served_by(cluster, far, active, "reports", **{BOUND: 100})
    active.kill()
    until_served_by(cluster, far, near, "the report of the other")
    by_path = {active.node_id: False, near.node_id: True, far.node_id: True}
    until("verdicts by paths", lambda: cluster.alive(far) == by_path)


def test_lag_reports_off(start: Start) -> None:
    """Beats tell who lives; lags of others are unknown, which is neither 0 nor dead."""
    cluster = start(ksql__lag__reporting__enable=False, **THREE_COPIES)
    # The active is the only voter: while it is stopped, no plan can promote the standby.
    voter = cluster.nodes[0]
    key = next(key for key in ROWS if cluster.holders(cluster.partition(key))[0] is voter)
    active, near, far = cluster.holders(cluster.partition(key))
    for node, lag in ((active, 0), (near, 700), (far, 70)):
        lag_behind(cluster, node, lag, key=key)
    for path in ("/lag", "/reportlag"):
        assert cluster.post(far, path, {}).status_code == 404
    peer = alive_host(cluster, far, near)
    assert peer["hostStoreLags"]["stateStoreLags"] == {}
    active.signal(signal.SIGSTOP)
    until("the active down", lambda: not cluster.alive(far)[active.node_id])
    assert served_by(cluster, far, key) == far.node_id, "the own lag is known, the other's is not"
    until_served_by(cluster, near, far, "who enforces it itself", key=key, **{BOUND: 100})


# --------------------------------------------------------------------------- parts of a node


def test_workers_that_hang_while_control_lives(start: Start) -> None:
    cluster = start()
    active, standby = cluster.holders(cluster.partition(KEY))
    entry = cluster.outsider(cluster.partition(KEY))
    os.kill(active.workers[0].pid, signal.SIGSTOP)
    for _ in range(20):
        served_by(cluster, entry)  # not one read fails
    until(
        "a word", lambda: cluster.cluster(entry)[active.node_id]["standpipe"]["workersOk"] is False
    )
    until_served_by(cluster, entry, standby)
    os.kill(active.workers[0].pid, signal.SIGCONT)
    until_served_by(cluster, entry, active)


def test_control_stopped_while_workers_live(start: Start) -> None:
    """Its workers answer on an ageing map; others try it last, and find it when nobody is left."""
    cluster = start()
    active, standby = cluster.holders(cluster.partition(KEY))
    entry = cluster.outsider(cluster.partition(KEY))
    assert active.control is not None
    active.control.send_signal(signal.SIGSTOP)
    until("no beats", lambda: not cluster.alive(entry)[active.node_id])
    until_served_by(cluster, entry, standby)
    assert served_by(cluster, active) == active.node_id
    standby.kill()
    until("the standby down", lambda: not cluster.alive(entry)[standby.node_id])
    assert served_by(cluster, entry) == active.node_id, "no beats is no proof"
    active.control.send_signal(signal.SIGCONT)
    until("beats", lambda: cluster.alive(entry)[active.node_id])


def test_a_node_that_stood_still_condemns_nobody(start: Start) -> None:
    """Its first check after ten seconds is void: it was deaf, they were not silent."""
    cluster = start()
    entry = cluster.nodes[1]
    log = entry.config.paths.logs / "control.log"
    until(
        "steady verdicts, all alive",
        lambda: time.time() - log.stat().st_mtime > 1 and all(cluster.alive(entry).values()),
    )
    before = len(log.read_text())
    entry.signal(signal.SIGSTOP)
    time.sleep(3)
    entry.signal(signal.SIGCONT)
    for _ in range(50):
        assert entry.control is not None
        assert all(cluster.alive(entry).values())
        time.sleep(0.02)
    told = log.read_text()[before:]
    assert "not listening" in told
    assert "peer is down" not in told


# ------------------------------------------------------------------------------- one cluster


def test_route_and_explain_route(lasting: LivenessCluster) -> None:
    """The first of these tests, as nobody may be behind."""
    number = lasting.partition(KEY)
    active, standby = lasting.holders(number)
    entry = lasting.outsider(number)
    wanted = [active.node_id, standby.node_id]

    def shown_in_order() -> Any:
        shown = lasting.get(entry, f"/route?table=USERS&key={KEY}&{BOUND}=5")
        order = [one["node"] for one in shown["partitions"][0]["route"]]
        return order == wanted and shown

    shown = until("a route by the map", shown_in_order)
    (partition,) = shown["partitions"]
    assert partition["partition"] == number
    assert partition["activeHost"] == active.config.public
    assert partition["standbyHosts"] == [standby.config.public]
    assert (shown["maxAllowedOffsetLag"], shown["policy"]) == (5, "active-first")
    assert len(lasting.get(entry, "/route?table=USERS")["partitions"]) == 4
    statement = f"EXPLAIN ROUTE SELECT * FROM USERS WHERE ID = '{KEY}';"
    reply = ask(entry.port(), "/ksql", json_bytes({"ksql": statement}))
    (entity,) = reply.json  # type: ignore[misc]
    assert entity["@type"] == "route"
    assert entity["partitions"][0]["activeHost"] == active.config.public
    for path in (
        "/route",
        "/route?table=NONE",
        "/route?table=EVENTS",
        "/route?table=USERS&key=a&key=b",
    ):
        assert ask(entry.port(), path).status == 400


def test_the_own_lag_counts_against_the_ends_of_others(lasting: LivenessCluster) -> None:
    """The entry's tailer stands still: its own page says that it has everything."""
    active, standby = lasting.holders(lasting.partition(KEY))
    lasting.write(standby, lasting.partition(KEY), status(position=100, committed_end=100))
    lag_behind(lasting, active, 0)
    text = f"SELECT * FROM USERS WHERE ID = '{KEY}';"
    body = json_bytes({"ksql": text, "streamsProperties": {BOUND: 500}})

    def refuses() -> bool:
        reply = ask_sealed(
            standby.config.peer,
            "POST",
            "/query",
            body=body,
            headers={"standpipe-forwarded": "1"},
            secret=SECRET,
            listener=PEER,
        )
        return reply.status == 503 and b"lag 900 exceeds" in reply.body

    until("a refusal by its own numbers", refuses)


def test_bodies_as_ksqldb_sends_them(lasting: LivenessCluster) -> None:
    first, second = lasting.nodes[0], lasting.nodes[1]
    beat = {"hostInfo": second.config.public, "timestamp": 1}
    answer = lasting.post(first, "/heartbeat", beat, second.node_id)
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    info = {"currentOffsetPosition": 5, "endOffsetPosition": 9, "offsetLag": 4}
    lags = {"CTAS_USERS_1#Aggregate-Aggregate-Materialize": {"lagByPartition": {"0": info}}}
    report = {
        "ksqlHost": second.config.public,
        "hostStoreLags": {"stateStoreLags": lags, "updateTimeMs": 7},
    }
    for path in ("/lag", "/reportlag"):
        assert lasting.post(first, path, report, second.node_id).json()["ok"] is True
    assert lasting.post(first, "/heartbeat", {"timestamp": 1}).status_code == 400
    assert lasting.post(first, "/lag", {"ksqlHost": 3}).status_code == 400


def test_cluster_status_has_the_articles_names(lasting: LivenessCluster) -> None:
    number = lasting.partition(KEY)
    active, standby = lasting.holders(number)
    lag_behind(lasting, active, 0)
    lag_behind(lasting, standby, 7)

    def lag_of(entry: WholeNode, node: WholeNode) -> Any:
        stores = lasting.cluster(entry)[node.node_id]["hostStoreLags"].get("stateStoreLags")
        if not stores:
            return None  # it has not reported yet, or counts as down
        (store,) = stores.values()
        return store["lagByPartition"].get(str(number))

    wanted = {"currentOffsetPosition": 993, "endOffsetPosition": 1000, "offsetLag": 7}
    for entry in lasting.nodes:
        until("the standby's lag", lambda n=entry: lag_of(n, standby) == wanted)
        host = alive_host(lasting, entry, standby)
        (held,) = host["activeStandbyPerQuery"].values()
        assert {"topic": "USERS", "partition": number} in held["standByPartitions"]
        assert host["lastStatusUpdateMs"] > 1_600_000_000_000
        assert host["hostStoreLags"]["updateTimeMs"] > 1_600_000_000_000
