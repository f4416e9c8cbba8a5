"""POST /query-batch over real workers: forwards, a killed node, refusals. No Kafka."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.e2e.test_serve import (
    DAYS,
    PARTITIONS,
    ROWS,
    USERS,
    Cluster,
    Reply,
    ask,
    json_bytes,
    partition,
    pull,
    status,
)
from tests.e2e.test_serve_forward import ask_as_peer

LAG_MAX = "ksql.query.pull.max.allowed.offset.lag"
JSON = {"content_type": "application/json"}
ARROW = "application/vnd.apache.arrow.stream"
#: with duplicates, and keys without a row, in no order
WANTED = [*list(ROWS)[::-1], "nobody", "k3", "it's", "k0", "nobody"]
#: a sound node of a busy machine may stand still for a second
PATIENT = {
    "ksql.query.pull.forwarding.timeout.ms": 20_000,
    "ksql.query.pull.routing.timeout.ms": 30_000,
}


def make(folder: Path) -> Cluster:
    made = Cluster.make(folder, 3, **PATIENT)
    made.fill(ROWS)
    made.publish()
    made.start()
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = make(tmp_path_factory.mktemp("batch"))
    yield made
    made.stop()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Cluster]:
    made = make(tmp_path)
    yield made
    made.stop()


def batch(port: int, keys: Sequence[object], table: str = "USERS", **more: object) -> Reply:
    body = json_bytes({"table": table, "keys": keys, **more})
    return ask(port, "/query-batch", body, **JSON)


def rows_of(keys: Sequence[str]) -> list[Any]:
    return [[key, *ROWS[key]] if key in ROWS else None for key in keys]


def test_every_node_answers_every_key(cluster: Cluster) -> None:
    listed = ", ".join("'" + key.replace("'", "''") + "'" for key in WANTED)
    text = f"SELECT * FROM USERS WHERE ID IN ({listed});"
    for node in cluster.nodes:
        reply = batch(node.port(), WANTED)
        assert reply.status == 200, reply.body
        found: Any = reply.json
        assert found["rows"] == rows_of(WANTED)
        by_in = json.loads(pull(node.port(), text, accept="application/vnd.ksql.v1+json").body)[1:]
        shown = [row["row"]["columns"] for row in by_in]
        once = {json.dumps(row): row for row in found["rows"] if row}
        assert sorted(once.values()) == sorted(shown), "as IN finds them"
        parts = {part["partition"]: part["servedBy"] for part in found["freshness"]}
        assert list(parts) == list(range(PARTITIONS))
        for number, served_by in parts.items():
            holders = {each.config.node_id for each in cluster.holders(number)}
            assert served_by in holders
        assert reply.headers["standpipe-served-by"] == ", ".join(dict.fromkeys(parts.values()))


def test_as_arrow(cluster: Cluster) -> None:
    body = json_bytes({"table": "USERS", "keys": WANTED})
    reply = ask(cluster.nodes[0].port(), "/query-batch", body, accept=ARROW, **JSON)
    assert (reply.status, reply.headers["content-type"]) == (200, ARROW)
    with pa.ipc.open_stream(reply.body) as stream:
        table = stream.read_all()
    assert table.column("ID").to_pylist() == WANTED
    assert table.column("N").to_pylist() == [row and row[1] for row in rows_of(WANTED)]
    missing = json.loads(table.schema.metadata[b"standpipe.missing"])
    assert missing == [place for place, key in enumerate(WANTED) if key not in ROWS]


def test_a_killed_node_costs_no_row(mortal: Cluster) -> None:
    """Each partition has a second replica; the first batch after the kill has all rows, too."""
    victim, *others = mortal.nodes
    assert batch(others[0].port(), WANTED).status == 200
    victim.workers[0].send_signal(signal.SIGKILL)
    victim.workers[0].wait(60)
    for node in others:
        for _ in range(3):
            reply: Any = batch(node.port(), WANTED)
            assert reply.status == 200, reply.body
            assert reply.json["rows"] == rows_of(WANTED)
            served_by = {part["servedBy"] for part in reply.json["freshness"]}
            assert victim.config.node_id not in served_by


def test_a_bound_that_no_replica_keeps(mortal: Cluster) -> None:
    number = partition("k0")
    for node in mortal.holders(number):
        node.write_status(USERS, number, status(committed_end=107))
    port = mortal.nodes[0].port()
    reply: Any = batch(port, ["k0", "k1"], properties={LAG_MAX: 6})
    assert (reply.status, reply.json["error_code"]) == (503, 50306)
    assert reply.json["standpipe"]["partitions"] == [number]
    reply = batch(port, ["k0", "k1"], properties={LAG_MAX: 7})
    assert reply.json["rows"] == rows_of(["k0", "k1"])
    lags = {part["partition"]: part["offsetLag"] for part in reply.json["freshness"]}
    assert lags[number] == 7
    assert reply.headers["standpipe-offset-lag"] == "7"


@pytest.mark.parametrize(
    ("headers", "expected", "why"),
    [
        ({"host": "evil.example"}, 421, "another host"),
        ({"origin": "http://evil.example"}, 403, "a web page"),
        ({"content_type": "text/plain"}, 415, "what a page may send"),
        ({"accept": "text/html"}, 406, "no layout of ours"),
        ({}, 200, "a client"),
    ],
)
def test_heads_are_checked_as_those_of_queries(
    cluster: Cluster, headers: dict[str, str], expected: int, why: str
) -> None:
    body = json_bytes({"table": "USERS", "keys": ["k1"]})
    reply = ask(cluster.nodes[0].port(), "/query-batch", body, **{**JSON, **headers})
    assert reply.status == expected, why


def test_other_methods_and_listeners(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    assert ask(node.port(), "/query-batch").status == 405
    body = json_bytes({"table": "USERS", "keys": ["k1"]})
    assert ask_as_peer(node, "/query-batch", body, {}).status == 404, "peers ask by statements"


def test_what_is_refused(cluster: Cluster) -> None:
    port = cluster.nodes[0].port()
    for table, message in ((DAYS.name, "is windowed"), ("EVENTS", "is a stream")):
        reply: Any = batch(port, ["k1"], table)
        assert (reply.status, reply.json["error_code"]) == (400, 40000)
        assert message in reply.json["message"]
    assert batch(port, ["x"] * 4001).status == 400
    assert ask(port, "/query-batch", b" " * 2_000_000, **JSON).status == 413
    assert batch(port, WANTED).status == 200, "the next one is answered"
