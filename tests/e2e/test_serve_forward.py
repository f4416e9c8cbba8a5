"""Reads over several real workers: forwards, refusals, and nodes that die or hang. No Kafka."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.test_serve import (
    PARTITIONS,
    ROWS,
    SECRET,
    USERS,
    Cluster,
    Node,
    Reply,
    Wire,
    ask,
    json_bytes,
    partition,
    pull,
    request,
    select,
    send,
    status,
)
from tests.sealed_http import Line, dialled

from standpipe.adapters.sealed.handshake import PEER, PeerIdentity
from standpipe.model import NodeId, ReplicaState

#: of clusters that are broken: longer than a sound node of a busy machine stands still
FORWARD_MS = 3_000


def send_as_peer(node: Node, data: bytes) -> Line:
    """Bytes that a peer of the node sends."""
    line = dialled(("127.0.0.1", node.port("peer")), PeerIdentity(SECRET, NodeId("n9"), PEER))
    line.sendall(data)
    return line


def ask_as_peer(node: Node, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    with send_as_peer(node, request(path, body, **headers)) as client:
        return Wire(client).reply()


def pull_as_peer(node: Node, text: str, **headers: str) -> Reply:
    return ask_as_peer(node, "/query", json_bytes({"ksql": text}), headers)


def make(folder: Path, **keys: object) -> Cluster:
    keys = {
        "ksql.query.pull.forwarding.timeout.ms": FORWARD_MS,
        "ksql.query.pull.routing.timeout.ms": 10 * FORWARD_MS,
        **keys,
    }
    made = Cluster.make(folder, 3, **keys)
    made.fill(ROWS)
    made.publish()
    made.start()
    return made


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A hedge or a retry would let another replica answer where the machine is busy, and the
    # tests say who.
    patient = {
        "standpipe.forward.hedge.load.percent": 0,
        "ksql.query.pull.forwarding.timeout.ms": 20_000,
        "ksql.query.pull.routing.timeout.ms": 30_000,
    }
    made = make(tmp_path_factory.mktemp("forward"), **patient)
    yield made
    made.stop()


@pytest.fixture
def cluster(lasting: Cluster) -> Iterator[Cluster]:
    """Three nodes that live through all tests; status pages are as new after each."""
    yield lasting
    for number in range(PARTITIONS):
        for node in lasting.holders(number):
            node.write_status(USERS, number, status())


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of which a test kills or breaks some."""
    made = make(tmp_path)
    yield made
    made.stop()


def outsider(cluster: Cluster, key: str) -> Node:
    """A node that holds no replica of the key."""
    holders = cluster.holders(partition(key))
    return next(node for node in cluster.nodes if node not in holders)


def rows(reply: Reply) -> list[object]:
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()[1:]]


def ask_for(node: Node, key: str) -> Reply:
    return pull(node.port(), select(key), "/query-stream")


def from_active(entry: Node, active: Node, key: str) -> Reply:
    """The active's answer; until it comes, a standby may give the same row: by a hedge where the
    machine is busy, or because a path that failed is passed over until its probe."""
    until = time.monotonic() + 60
    while (reply := ask_for(entry, key)).headers["standpipe-role"] != "active":
        assert rows(reply) == [[key, *ROWS[key]]], "a standby has the same row"
        assert time.monotonic() < until
        time.sleep(0.05)
    assert rows(reply) == [[key, *ROWS[key]]]
    assert reply.headers["standpipe-served-by"] == active.config.node_id
    return reply


def test_every_node_answers_every_key(cluster: Cluster) -> None:
    for node in cluster.nodes:
        for key in ROWS:
            from_active(node, cluster.holders(partition(key))[0], key)


def test_gathered_from_all_nodes(cluster: Cluster) -> None:
    listed = ", ".join(f"'{key}'" for key in ROWS)
    for node in cluster.nodes:
        reply = pull(node.port(), f"SELECT * FROM USERS WHERE ID IN ({listed});", "/query-stream")
        assert sorted(map(json.dumps, rows(reply))) == sorted(
            json.dumps([key, *columns]) for key, columns in ROWS.items()
        )
        assert reply.headers["standpipe-served-by"].count("node-") > 1


def test_in_the_order_of_keys_from_all_nodes(cluster: Cluster) -> None:
    """Pages of three, each through another node, show every row once; and they are counted."""
    for turn in range(len(cluster.nodes)):
        seen: list[list[object]] = []
        while True:
            node = cluster.nodes[(turn + len(seen)) % len(cluster.nodes)]
            after = f" AFTER '{seen[-1][0]}'" if seen else ""
            text = f"SELECT * FROM USERS ORDER BY ID{after} LIMIT 3;"
            page = rows(pull(node.port(), text, "/query-stream"))
            seen += page
            if len(page) < 3:
                break
        assert seen == [[key, *ROWS[key]] for key in sorted(ROWS)]
        counted = pull(cluster.nodes[turn].port(), "SELECT COUNT(*) FROM USERS;", "/query-stream")
        assert rows(counted) == [[len(ROWS)]]


def test_killed_active(mortal: Cluster) -> None:
    """Not one read fails, with no retry by the client."""
    key = "k1"
    active, standby = mortal.holders(partition(key))
    entry = outsider(mortal, key)
    from_active(entry, active, key)
    active.workers[0].kill()
    for _ in range(50):
        reply = ask_for(entry, key)
        assert rows(reply) == [[key, *ROWS[key]]]
        assert reply.headers["standpipe-served-by"] == standby.config.node_id
        assert reply.headers["standpipe-role"] == "standby"
    hosts = ask(entry.port(), "/clusterStatus").json["clusterStatus"]
    assert isinstance(hosts, dict)
    dead = hosts[active.config.public]
    assert (dead["hostAlive"], dead["activeStandbyPerQuery"], dead["hostStoreLags"]) == (
        False,
        {},
        {},
    )
    active.workers[0].wait()
    active.workers.clear()
    active.start()
    active.wait_ready()
    from_active(entry, active, key)  # a probe finds it again, no read has to


def test_stopped_active(mortal: Cluster) -> None:
    """SIGSTOP: the first read waits for it, the others are not sent there."""
    key = "k1"
    active, standby = mortal.holders(partition(key))
    entry = outsider(mortal, key)
    ask_for(entry, key)
    os.kill(active.workers[0].pid, signal.SIGSTOP)
    waits: list[float] = []
    for _ in range(20):
        started = time.monotonic()
        reply = ask_for(entry, key)
        waits.append(time.monotonic() - started)
        assert rows(reply) == [[key, *ROWS[key]]]
        assert reply.headers["standpipe-served-by"] == standby.config.node_id
    assert 1000 * statistics.median(waits[1:]) < FORWARD_MS, "most of them waited for it"
    os.kill(active.workers[0].pid, signal.SIGCONT)
    from_active(entry, active, key)


def forwarded_in(node: Node, outcome: str) -> float:
    text = ask(node.port(), "/metrics").body.decode()
    name = f'standpipe_pull_forwarded_in_total{{outcome="{outcome}"'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_a_stopped_target_works_on_nothing_that_nobody_waits_for(mortal: Cluster) -> None:
    """Reads pile up in its sockets; half of their senders give up before it goes on."""
    key = "k1"
    active, _ = mortal.holders(partition(key))
    headers = {"standpipe-forwarded": "1"}
    headers |= {"standpipe-partition": str(partition(key)), "standpipe-deadline-ms": "300"}
    read = request("/query-stream", json_bytes({"sql": select(key)}), **headers)
    with send_as_peer(active, read) as client:
        assert Wire(client).reply().status == 200
    answered = forwarded_in(active, "answered")
    waiting = [send_as_peer(active, b"") for _ in range(20)]
    os.kill(active.workers[0].pid, signal.SIGSTOP)
    for each in waiting:
        each.sendall(read)
    for each in waiting[::2]:
        each.close()
    time.sleep(0.5)  # it stands still for longer than a moment
    os.kill(active.workers[0].pid, signal.SIGCONT)
    for each in waiting[1::2]:
        with each:
            assert Wire(each).reply().status == 200, "who waits gets an answer"
    until = time.monotonic() + 60
    while forwarded_in(active, "abandoned") < 10 and time.monotonic() < until:
        time.sleep(0.05)
    assert forwarded_in(active, "abandoned") == 10
    assert forwarded_in(active, "answered") == answered + 10


def test_all_replicas_dead(mortal: Cluster) -> None:
    key = "k1"
    for node in mortal.holders(partition(key)):
        node.workers[0].kill()
        node.workers[0].wait()
    reply = ask_for(outsider(mortal, key), key)
    assert (reply.status, reply.json["error_code"]) == (503, 50306)
    extras = reply.json["standpipe"]
    assert isinstance(extras, dict)
    assert [verdict["node"] for verdict in extras["verdicts"]] == [
        node.config.node_id for node in mortal.holders(partition(key))
    ]
    assert all("Path failed" in verdict["why"] for verdict in extras["verdicts"])
    whole = ", ".join(f"'{each}'" for each in ROWS)
    reply = pull(outsider(mortal, key).port(), f"SELECT * FROM USERS WHERE ID IN ({whole});")
    assert reply.status == 503, "a part that is missing is an error, never a short answer"


def test_target_enforces_the_bound(cluster: Cluster) -> None:
    """The entry node knows no lag of its peers; the target refuses with its own numbers."""
    key = "k1"
    active, standby = cluster.holders(partition(key))
    active.write_status(USERS, partition(key), status(committed_end=200))
    body = json_bytes(
        {"ksql": select(key), "streamsProperties": {"ksql.query.pull.max.allowed.offset.lag": 50}}
    )
    entry = outsider(cluster, key)
    reply = ask(entry.port(), "/query", body)
    assert reply.headers["standpipe-served-by"] == standby.config.node_id
    standby.write_status(USERS, partition(key), status(committed_end=300))
    for node in cluster.nodes:
        reply = ask(node.port(), "/query", body)
        assert (reply.status, reply.json["error_code"]) == (503, 50306)
        assert "lag 100 exceeds" in reply.body.decode()
        assert "lag 200 exceeds" in reply.body.decode()


def test_not_ready_anywhere(cluster: Cluster) -> None:
    key = "k1"
    page = status(ReplicaState.BOOTSTRAP, position=50, committed_end=-1)
    for node in cluster.holders(partition(key)):
        node.write_status(USERS, partition(key), page)
    for node in cluster.nodes:
        reply = ask_for(node, key)
        assert (reply.status, reply.json["error_code"]) == (503, 50305)
        assert "Progress: 50 %" in str(reply.json["message"])


def test_damaged_store_goes_to_the_other_replica(mortal: Cluster) -> None:
    key = "k1"
    active, standby = mortal.holders(partition(key))
    folder = active.config.paths.state / "T1-1" / str(partition(key))
    for path in folder.iterdir():
        path.unlink()
    for node in mortal.nodes:
        assert ask_for(node, key).headers["standpipe-served-by"] == standby.config.node_id


@pytest.mark.parametrize("secret", [None, "", "wrong", SECRET + "x"])
def test_peer_lane_wants_the_secret(cluster: Cluster, secret: str | None) -> None:
    peer = cluster.nodes[0].port("peer")
    headers = {} if secret is None else {"standpipe-secret": secret}
    head = request("/query", b"x" * 100, **headers)[:-100]  # the body is never sent
    with send(peer, head) as client:
        reply = Wire(client).reply()
        assert (reply.status, reply.json["error_code"]) == (401, 40100)


def test_peer_lane_never_forwards(cluster: Cluster) -> None:
    key = "k1"
    for _ in range(2):
        reply = pull_as_peer(outsider(cluster, key), select(key), **{"standpipe-forwarded": "1"})
        assert (reply.status, reply.json["error_code"]) == (503, 50306)
        assert "NOT_OWNER" in str(reply.json["message"])


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"standpipe-table": "T1-2"}, "another generation of the table"),
        ({"standpipe-partition": str(PARTITIONS)}, "a partition without the key"),
    ],
)
def test_target_checks_what_it_is_asked_for(
    cluster: Cluster, terms: dict[str, str], why: str
) -> None:
    key = "k1"
    headers = {"standpipe-forwarded": "1", **terms}
    for _ in range(2):
        reply = pull_as_peer(cluster.holders(partition(key))[0], select(key), **headers)
        assert reply.status == 503, why
        assert "NOT_OWNER" in str(reply.json["message"])


@pytest.mark.parametrize(
    ("end", "lag_max", "status", "why"),
    [
        (10**6, 10, 503, "the sender knows more than this node was told"),
        (10**6, None, 200, "no bound was asked for"),
        (0, 10, 200, "the sender knows less"),
    ],
)
def test_a_lag_counts_against_what_the_sender_knows(
    cluster: Cluster, end: int, lag_max: int | None, status: int, why: str
) -> None:
    """A target whose tailer cannot reach Kafka seems to have everything, to itself."""
    key = "k1"
    headers = {"standpipe-forwarded": "1", "standpipe-committed-end": str(end)}
    properties = {} if lag_max is None else {"ksql.query.pull.max.allowed.offset.lag": lag_max}
    target = cluster.holders(partition(key))[0]
    body = json_bytes({"ksql": select(key), "streamsProperties": properties})
    reply = ask_as_peer(target, "/query", body, headers)
    assert reply.status == status, why
    if status == 503:
        assert f"exceeds maximum allowed lag {lag_max}" in str(reply.json["message"])


def test_clients_cannot_ask_for_local_answers(cluster: Cluster) -> None:
    """On the public lane the forward's headers mean nothing."""
    reply = pull(outsider(cluster, "k1").port(), select("k1"), standpipe_forwarded="1")
    assert reply.status == 200


def test_standby_reads_off(tmp_path: Path) -> None:
    keys = {
        "ksql.query.pull.enable.standby.reads": False,
        "ksql.query.pull.forwarding.timeout.ms": FORWARD_MS,
    }
    cluster = Cluster.make(tmp_path, 2, **keys)
    cluster.fill(ROWS)
    cluster.publish()
    cluster.start()
    try:
        active, standby = cluster.holders(partition("k1"))
        assert ask_for(standby, "k1").headers["standpipe-served-by"] == active.config.node_id
        active.workers[0].kill()
        active.workers[0].wait()
        reply = ask_for(standby, "k1")
        assert (reply.status, reply.json["error_code"]) == (503, 50306)
        assert "not the active host" in reply.body.decode()
    finally:
        cluster.stop()
