"""Lags over several real workers: a table's bounds in ms, and SHOW LAG. No Kafka, no Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.e2e.test_serve import (
    EVENTS,
    PARTITIONS,
    ROWS,
    USERS,
    Cluster,
    Node,
    Reply,
    ask,
    json_bytes,
    partition,
    select,
    status,
)

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.config import lags
from standpipe.data.commit.covered_offsets import ToldEnds, TopicOffsets
from standpipe.local.cli.prompt import SqlSession
from standpipe.local.client.rest_client import NodesClient
from standpipe.model import Health, NodeId, ReplicaStatus
from standpipe.model_liveness import KnownLag, KnownLags, Liveness, PeerLiveness
from standpipe.node.covered_files import ends_path
from standpipe.node.liveness.wire import lag_of

pytestmark = pytest.mark.e2e

BOUND_MS = 10_000
BOUNDED = msgspec.structs.replace(USERS, time_bounds=(BOUND_MS, None))
KEY = "k1"
NUMBER = partition(KEY)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # no hedges: the tests say who answers
    patient = {
        "standpipe.forward.hedge.load.percent": 0,
        "ksql.query.pull.forwarding.timeout.ms": 20_000,
        "ksql.query.pull.routing.timeout.ms": 30_000,
    }
    made = Cluster.make(tmp_path_factory.mktemp("lags"), 3, **patient)
    made.sources = (EVENTS, BOUNDED)
    made.fill(ROWS)
    made.publish()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cluster(lasting: Cluster) -> Cluster:
    """Three nodes that live through all tests; all pages are new at the beginning of each."""
    for number in range(PARTITIONS):
        for node in lasting.holders(number):
            node.write_status(USERS, number, page())
    return lasting


def page(age_ms: int = 0, **changed: int) -> ReplicaStatus:
    """Of a replica that had all that was committed `age_ms` ago."""
    at_ms = Clock().boot_ms() - age_ms
    known = {"known_boot_ms": at_ms, "beat_boot_ms": Clock().boot_ms(), "source_boot_ms": at_ms}
    confirmed = status(confirmed_boot_ms=at_ms)
    return msgspec.structs.replace(confirmed, **{**known, **changed})


def read(node: Node, **properties: object) -> Reply:
    body = json_bytes({"ksql": select(KEY), "streamsProperties": properties})
    return ask(node.port(), "/query", body)


def test_a_tables_bound_in_ms_is_kept_at_every_node(cluster: Cluster) -> None:
    """Nobody asks for a bound. The entry may be the active, the standby, or hold no replica."""
    active, standby = cluster.holders(NUMBER)
    active.write_status(USERS, NUMBER, page(2 * BOUND_MS))
    for entry in cluster.nodes:
        for _ in range(3):  # the third time, the entry knows the text
            reply = read(entry)
            assert (reply.status, reply.headers["standpipe-served-by"]) == (
                200,
                standby.config.node_id,
            ), reply.body
    standby.write_status(USERS, NUMBER, page(3 * BOUND_MS))
    for entry in cluster.nodes:
        reply = read(entry)
        assert (reply.status, reply.json["error_code"]) == (503, 50306)
        assert f"exceeds maximum allowed replica lag {BOUND_MS} ms" in reply.body.decode()
        asked = {lags.REPLICA_LAG_MAX.name: 4 * BOUND_MS}
        assert read(entry, **asked).status == 200, "the request's goes before the table's"


def test_rows_that_grow_old_are_no_longer_answered(cluster: Cluster) -> None:
    """Nothing is written meanwhile: no page, no map. Bodies are known by then."""
    entry = cluster.holders(NUMBER)[0]
    answered, young_ms = 0, 1_500
    while answered <= 2:  # a machine that stood still meanwhile: again, from a younger age
        assert young_ms < BOUND_MS, "it is answered while it is young"
        answered = answers_until_it_is_old(cluster, entry, young_ms)
        young_ms *= 2
    assert read(entry).json["error_code"] == 50306


def answers_until_it_is_old(cluster: Cluster, entry: Node, young_ms: int) -> int:
    """How many reads are answered of rows that are too old in `young_ms`."""
    for node in cluster.holders(NUMBER):
        node.write_page(USERS, NUMBER, page(BOUND_MS - young_ms))
    until = time.monotonic() + 60
    answered = 0
    while read(entry).status == 200:
        answered += 1
        assert time.monotonic() < until, "it grows old"
    return answered


def test_describe_and_route_show_it(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    text = f"DESCRIBE USERS; EXPLAIN ROUTE {select(KEY)}"
    described, route = json.loads(ask(node.port(), "/ksql", json_bytes({"ksql": text})).body)
    assert described["sourceDescription"]["standpipe"]["bounds"] == {
        "offsetLagMax": None,
        "replicaLagMsMax": BOUND_MS,
        "sourceLagMsMax": None,
    }
    assert (route["maxAllowedReplicaLagMs"], route["maxAllowedSourceLagMs"]) == (BOUND_MS, None)


def show_lag(node: Node, text: str = "SHOW LAG USERS;") -> Any:
    reply = ask(node.port(), "/ksql", json_bytes({"ksql": text}))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)[0]


def hear(node: Node, peers: list[Node], health: Health = Health.ALIVE) -> None:
    """What the node's control tells of its peers' replicas: each lacks 5 of 100 records."""
    now_ms = Clock().boot_ms()
    told = page(100, position=95, committed_end=100)
    known = tuple(
        KnownLag(
            node_id=peer.config.node_id,
            lag=lag_of(USERS.replica_id(NUMBER), told, now_ms),
            at_boot_ms=now_ms,
            reported_boot_ms=now_ms,
        )
        for peer in peers
    )
    verdicts = tuple(
        PeerLiveness(node_id=peer.config.node_id, health=health, beat_boot_ms=now_ms - 60_000)
        for peer in peers
    )
    paths = node.config.paths
    published.write(paths.liveness, Liveness(published_boot_ms=now_ms, peers=verdicts))
    published.write(paths.lags, KnownLags(published_boot_ms=now_ms, known=known))


def until_shown(node: Node, look: Any, renew: Callable[[], object] = lambda: None) -> Any:
    """Workers look at the files every 20 ms; what control does not `renew` is too old after 3 s."""
    until = time.monotonic() + 60
    while True:
        renew()
        found = show_lag(node)
        shown = {(each["partition"], each["node"]): each for each in found["replicas"]}
        if look(shown) or time.monotonic() > until:
            return shown
        time.sleep(0.02)


def test_show_lag_of_own_and_other_replicas(cluster: Cluster) -> None:
    active, standby = cluster.holders(NUMBER)
    me, peer = active.config.node_id, standby.config.node_id

    def kafka_answers() -> None:
        active.write_page(USERS, NUMBER, page())

    # a machine that stood still: the end that it knows is too old
    shown = until_shown(active, lambda found: found[NUMBER, me]["offsetLag"] == 0, kafka_answers)
    assert len(shown) == 2 * PARTITIONS, "also those of which nothing is known"
    assert (shown[NUMBER, me]["offsetLag"], shown[NUMBER, me]["role"]) == (0, "ACTIVE")
    assert shown[NUMBER, peer]["offsetLag"] is None, "nobody has reported it: it is not 0"
    shown = until_shown(
        active,
        lambda found: found[NUMBER, peer]["state"] is not None,
        lambda: hear(active, [standby]),
    )
    assert (shown[NUMBER, peer]["offsetLag"], shown[NUMBER, peer]["state"]) == (5, "RUNNING")
    assert 100 <= shown[NUMBER, peer]["sourceLagMs"] < 60_000
    shown = until_shown(
        active,
        lambda found: "heartbeats" in (found[NUMBER, peer]["unknown"].get("offsetLag") or ""),
        lambda: hear(active, [standby], Health.DOWN),
    )
    assert (shown[NUMBER, peer]["offsetLag"], shown[NUMBER, peer]["state"]) == (None, None)
    assert "its host sends no heartbeats" in shown[NUMBER, peer]["unknown"]["offsetLag"]


def test_show_lag_while_kafka_is_silent(cluster: Cluster) -> None:
    """The tailer lives and writes its page, but the end that it knows is a minute old."""
    active = cluster.holders(NUMBER)[0]
    active.write_status(USERS, NUMBER, page(60_000))
    told = ToldEnds(
        asked_boot_ms=Clock().boot_ms() - 60_000, topics={"events": TopicOffsets(offsets={0: 5})}
    )
    published.write(ends_path(active.config.paths.status), told)
    found = show_lag(active)
    (row,) = (
        each
        for each in found["replicas"]
        if (each["partition"], each["node"]) == (NUMBER, active.config.node_id)
    )
    assert (row["offsetLag"], row["committedEnd"]) == (None, None)
    assert row["replicaLagMs"] >= 60_000
    assert row["unknown"]["offsetLag"].startswith("Unknown since 20")
    assert "Kafka has not confirmed" in row["unknown"]["offsetLag"]
    table = found["tables"][0]
    assert table["sourceBacklogRecords"] is None
    assert "Kafka has not said where" in table["unknown"]["sourceBacklogRecords"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("SHOW LAG EVENTS;", "is a stream"), ("SHOW LAG USER;", "Did you mean USERS")],
)
def test_show_lag_of_what_has_no_replicas(cluster: Cluster, text: str, words: str) -> None:
    reply = ask(cluster.nodes[0].port(), "/ksql", json_bytes({"ksql": text}))
    assert (reply.status, reply.json["error_code"]) == (400, 40001)
    assert words in reply.body.decode()


def test_the_prompt_shows_lags(cluster: Cluster, tmp_path: Path) -> None:
    for as_json in (False, True):
        out = StringIO()
        with NodesClient([cluster.nodes[0].config.public]) as client:
            SqlSession(client, Console(file=out, width=140), as_json=as_json).run("SHOW LAG;")
        text = out.getvalue()
        if as_json:
            assert len(json.loads(text)["replicas"]) == 2 * PARTITIONS
        else:
            assert "USERS/0" in text
            assert NodeId("node-0") in text
            assert "holds no replica" not in text
