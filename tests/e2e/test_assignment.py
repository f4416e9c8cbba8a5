"""Copies move while they are read: nodes come, drain, leave and restart, and no read fails.

A whole cluster with real Kafka and Spark. The table is complete before anything moves, so every
answer is known; readers ask on all the time through the three nodes that stay.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from tests.e2e.cluster import TestCluster, start, wait_until

from standpipe.adapters.store.status_page import StatusReader
from standpipe.local.client.internal_client import InternalClient, QuorumRefused
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.node_files import StandaloneNode, write_standalone
from standpipe.local.cluster.ports import any_port
from standpipe.local.demo.flights import Event

KEYS = 300
ROUNDS = 5  # events of each key
PAUSE_S = 0.005
TABLE = (
    "CREATE TABLE VISITS AS SELECT ID, COUNT(*) AS N, SUM(V) AS TOTAL FROM CLICKS "
    "GROUP BY ID EMIT CHANGES;"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """One for all tests of this module; each leaves it with its three nodes."""
    running = start(tmp_path_factory.mktemp("assignment") / "cluster")
    try:
        running.topic("clicks")
        running.sql(
            "CREATE STREAM CLICKS (ID STRING KEY, V BIGINT) "
            "WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON');"
        )
        running.sql(TABLE)
        values = [(f"k{key}", key + turn) for turn in range(ROUNDS) for key in range(KEYS)]
        running.send(
            "clicks",
            [Event(key.encode(), json.dumps({"V": value}).encode(), 1) for key, value in values],
        )
        for key in range(0, KEYS, 7):
            running.wait_for_rows(question(key), [row_of(key)])
        yield running
    finally:
        running.close()


def question(key: int) -> str:
    return f"SELECT * FROM VISITS WHERE ID = 'k{key}';"


def row_of(key: int) -> list[object]:
    return [f"k{key}", ROUNDS, sum(key + turn for turn in range(ROUNDS))]


class Readers:
    """Ask one key after the other through each node in turn; nothing is asked twice."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.count = 0
        self.wrong: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(2)]

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        clients = {a: NodesClient([a], timeout_s=5.0) for a in self.addresses}
        while not self._stop.wait(PAUSE_S):
            key, address = chance.randrange(KEYS), chance.choice(self.addresses)
            try:
                rows = clients[address].pull(question(key)).rows
            except Exception as error:
                self.failed.append(f"{time.monotonic():.1f} {address}: {error}")
                continue
            self.count += 1
            if [list(row) for row in rows] != [row_of(key)]:
                self.wrong.append(f"k{key} through {address}: {rows}")
        for client in clients.values():
            client.__exit__()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def another_node(
    cluster: TestCluster, name: str, directory: Path, **lanes: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A node that joins as an observer. `lanes`: addresses of listeners; others are free."""
    node_file = write_standalone(
        StandaloneNode(
            node_id=name,
            data_directory=directory / name,
            bootstrap_servers=cluster.bootstrap_servers,
            listen=f"127.0.0.1:{any_port()}",
            advertise=f"127.0.0.1:{any_port()}",
            others={plan.node_id: plan.internal for plan in cluster.local.plans},
            secret_file=cluster.local.directory.secret_file,
            workers=1,
        )
    )
    config = json.loads(node_file.read_text())
    for lane in ("public", "internal", "peer"):  # ports that are free, one by one
        address = lanes.get(lane) or f"127.0.0.1:{any_port()}"
        config[lane] = config[f"{lane}_advertised"] = address
    node_file.write_text(json.dumps(config))
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "standpipe.node", "--node-file", str(node_file)],
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def internal(cluster: TestCluster) -> InternalClient:
    secret = cluster.local.directory.secret_file.read_text().strip()
    return InternalClient([plan.internal for plan in cluster.local.plans], secret)


def view(cluster: TestCluster, what_if: str = "") -> dict[str, Any]:
    path = "/assignment" + (f"?what_if={what_if.replace(' ', '+')}" if what_if else "")
    return msgspec.json.decode(internal(cluster).ask("GET", path))


def copies(cluster: TestCluster) -> dict[str, int]:
    """Copies that each node holds or is about to hold."""
    return {
        line["nodeId"]: line["actives"] + line["standbys"] + line["warmups"]
        for line in view(cluster)["nodes"]
    }


def settled(cluster: TestCluster) -> dict[str, Any] | None:
    """The view once nothing moves any more."""
    try:
        seen = view(cluster)
    except QuorumRefused:
        return None
    is_at_rest = not seen["moves"] and not any(line["next"] for line in seen["partitions"])
    return seen if is_at_rest else None


def stay(cluster: TestCluster) -> list[str]:
    """The nodes that a test leaves in the cluster."""
    return [address for _, address in cluster.addresses]


def leave(cluster: TestCluster, name: str, node: subprocess.Popen[bytes]) -> None:
    """Drain a node, stop it, and remove it from the cluster."""
    body = msgspec.json.encode({"node_id": name})
    internal(cluster).ask("POST", "/nodes/drain", body)
    wait_until(
        lambda: not copies(cluster)[name] or None, f"{name} is empty", lambda: str(view(cluster))
    )
    node.send_signal(signal.SIGTERM)
    assert node.wait(30) == 0
    internal(cluster).ask("POST", "/nodes/remove", body)


def test_three_nodes_become_five_and_three_again(cluster: TestCluster, tmp_path: Path) -> None:
    names = ["node-4", "node-5"]
    # the first copies may be placed again, once all nodes are there
    wait_until(lambda: settled(cluster), "nothing moves", lambda: str(view(cluster)))
    with Readers(stay(cluster)) as readers:
        before = copies(cluster)
        assert sum(before.values()) == 8, "4 partitions, 2 copies of each"
        promised = view(cluster, "add node-4, add node-5")
        with (
            another_node(cluster, names[0], tmp_path) as fourth,
            another_node(cluster, names[1], tmp_path) as fifth,
        ):
            wait_until(lambda: set(names) <= set(copies(cluster)) or None, "two more members")
            wait_until(
                lambda: (settled(cluster) and all(copies(cluster)[n] for n in names)) or None,
                "copies on all five",
                lambda: str(view(cluster)),
            )
            spread = copies(cluster)
            assert sum(spread.values()) == 8
            assert max(spread.values()) - min(spread.values()) <= 1
            assert promised["moves"], "the supposition had said that copies would move"
            for name in names:
                internal(cluster).ask(
                    "POST", "/nodes/drain", msgspec.json.encode({"node_id": name})
                )
            wait_until(
                lambda: not any(copies(cluster)[n] for n in names) or None,
                "node-4 and node-5 are empty",
                lambda: str(view(cluster)),
            )
            for process in (fourth, fifth):
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
        for name in names:
            body = msgspec.json.encode({"node_id": name})
            internal(cluster).ask("POST", "/nodes/remove", body)
        assert set(copies(cluster)) == set(before)
    assert readers.count > 200
    assert (readers.failed, readers.wrong) == ([], [])


def test_a_node_whose_workers_cannot_start_gets_no_reads(
    cluster: TestCluster, tmp_path: Path
) -> None:
    """Another program has the port on which its workers would answer peers."""
    name = "node-4"
    pages = tmp_path / name / "run" / "status"
    wait_until(lambda: settled(cluster), "nothing moves", lambda: str(view(cluster)))

    def has_caught_up() -> bool:
        """By its tailer's own pages."""
        told = [StatusReader(page).read() for page in pages.glob("VISITS_*-?")]
        return bool(told) and all(one is not None and one.offset_lag == 0 for one in told)

    def held() -> dict[str, int]:
        return next(line for line in view(cluster)["nodes"] if line["nodeId"] == name)

    with socket.create_server(("127.0.0.1", 0)) as stranger, Readers(stay(cluster)) as readers:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with another_node(cluster, name, tmp_path, peer=address) as node:
            wait_until(lambda: name in copies(cluster) or None, "it is a member")
            wait_until(lambda: has_caught_up() or None, "its tailer has caught up")
            time.sleep(1.5)  # longer than two reports of lags and the leader's next decision
            seen = held()
            assert seen["warmups"] > 0, "copies are made, and stay warm-ups"
            assert (seen["actives"], seen["standbys"]) == (0, 0)
            stranger.close()
            wait_until(lambda: held()["standbys"] + held()["actives"] or None, "it serves")
            leave(cluster, name, node)
    assert readers.count > 100
    assert (readers.failed, readers.wrong) == ([], [])


def test_explain_assignment_shows_the_same(cluster: TestCluster) -> None:
    (entity,) = cluster.sql("EXPLAIN ASSIGNMENT;")
    assert entity["@type"] == "assignment"
    seen = view(cluster)
    for name in ("nodes", "rules", "assignmentEpoch", "moves"):
        assert entity[name] == seen[name]
    assert [line["active"] for line in entity["partitions"]]
    assert all(line["bytes"] > 0 for line in entity["partitions"]), "stores have a size"


def test_what_is_needed_is_not_thrown_away(cluster: TestCluster) -> None:
    ask = internal(cluster).ask
    node = msgspec.json.encode({"node_id": "node-3"})
    with pytest.raises(QuorumRefused, match="node-3 votes: first `standpipe quorum remove-voter"):
        ask("POST", "/nodes/remove", node)
    ask("POST", "/quorum/remove-voter", node)
    with pytest.raises(QuorumRefused, match=r"still holds \d copies: first `standpipe node drain"):
        ask("POST", "/nodes/remove", node)
    with pytest.raises(QuorumRefused, match="node-9 is not a node of this cluster; its nodes are"):
        ask("POST", "/nodes/drain", msgspec.json.encode({"node_id": "node-9"}))
    with pytest.raises(QuorumRefused, match="'burn it' is not a change; use one of: remove NODE"):
        view(cluster, "burn it")
