"""POST /inserts-stream of a real worker, into a real Kafka, over HTTP/2."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any

import pytest
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded
from tests.e2e.test_http2 import curl
from tests.e2e.test_serve import Node, ask
from tests.e2e.test_serve_statements import broker, consume, ksql, node
from tests.unit.adapters.http.test_http2_server import Client

from standpipe.local.cluster.broker import Broker
from standpipe.session_token import LEVEL_PROPERTY, TOKEN_PROPERTY, SessionToken

pytestmark = pytest.mark.e2e
__all__ = ["broker", "node"]  # fixtures

TYPES = (
    "ID STRING KEY, T BOOLEAN, I INTEGER, L BIGINT, D DOUBLE, P DECIMAL(6, 2), S STRING, X BYTES, "
    "DAY DATE, OCLOCK TIME, AT TIMESTAMP, A ARRAY<INTEGER>, M MAP<STRING, BIGINT>, "
    "R STRUCT<F INTEGER, `g` STRING>"
)
VALUES = (
    "'same', true, 1, 9007199254740993, 1.5e0, 1.10, 'ü', 'AAE=', '2020-01-02', '12:30:01', "
    "'2020-01-02T03:04:05.678', ARRAY[1, 2], MAP('k' := CAST(5 AS BIGINT)), "
    "STRUCT(F := 1, `g` := 'x')"
)
ROW = {
    "id": "same",
    "t": True,
    "i": 1,
    "l": 9007199254740993,
    "d": 1.5,
    "p": "1.1",
    "s": "ü",
    "x": "AAE=",
    "day": "2020-01-02",
    "oclock": "12:30:01",
    "at": "2020-01-02T03:04:05.678",
    "a": [1, 2],
    "m": {"k": 5},
    "r": {"f": 1, "`g`": "x"},
}


def create(node: Node, name: str, columns: str = "ID STRING KEY, N INTEGER") -> None:
    reply = ksql(
        node,
        f"CREATE STREAM {name} ({columns}) "
        f"WITH (KAFKA_TOPIC='{name.lower()}', VALUE_FORMAT='JSON', PARTITIONS=4);",
    )
    assert reply.status == 200, reply.body


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_a_row_is_what_insert_into_makes_of_it(node: Node, broker: Broker) -> None:
    """Of every type, byte for byte; and one without its values."""
    create(node, "ALL_TYPES", TYPES)
    reply = ksql(node, f"INSERT INTO ALL_TYPES VALUES ({VALUES});")
    assert reply.status == 200, reply.body
    line, answer = curl(
        node,
        "/inserts-stream",
        body=lines({"target": "all_types"}, ROW, {"ID": "null", "S": None, "ROWTIME": 1000}),
    )
    assert line == "2 200", answer
    assert [json.loads(ack) for ack in answer.splitlines()] == [
        {"seq": 0, "status": "ok"},
        {"seq": 1, "status": "ok"},
    ]
    records = consume(broker, "all_types", 3)
    first, second = [record for record in records if record.key() == b"same"]
    assert first.value() == second.value()
    assert first.partition() == second.partition()
    (nothing,) = [record for record in records if record.key() == b"null"]
    assert set(json.loads(nothing.value()).values()) == {None}
    assert nothing.timestamp()[1] == 1000


def test_a_bad_row_is_the_last(node: Node, broker: Broker) -> None:
    create(node, "SOME_BAD")
    rows = ({"ID": "a", "N": 1}, {"ID": "b", "N": "no"}, {"ID": "c", "N": 3})
    line, answer = curl(
        node,
        "/inserts-stream",
        "--header",
        "accept: application/json",
        body=lines({"target": "SOME_BAD"}, *rows),
    )
    assert line == "2 200"
    assert json.loads(answer) == [
        {"seq": 0, "status": "ok"},
        {
            "@type": "InsertError",
            "error_code": 40000,
            "message": "Can't coerce a field of type STRING (no) into type INTEGER",
            "seq": 1,
            "status": "error",
        },
    ]
    assert [record.key() for record in consume(broker, "some_bad", 1)] == [b"a"]


def test_refusals(node: Node) -> None:
    body = lines({"target": "NOBODY"})
    line, answer = curl(node, "/inserts-stream", body=body)
    assert (line, json.loads(answer)["error_code"]) == ("2 400", 40001)
    reply = ask(node.port(), "/inserts-stream", body)
    assert (reply.status, reply.json["error_code"]) == (400, 40004)
    assert ask(node.port(), "/inserts-stream", method="GET").status == 405


def test_many_rows_both_ways_at_once(node: Node, broker: Broker) -> None:
    """More than fits into windows and buffers, acknowledged in order."""
    create(node, "MANY")
    rows = 20_000
    body = lines({"target": "MANY"}, *({"ID": f"k{i}", "N": i} for i in range(rows)))
    line, answer = curl(node, "/inserts-stream", body=body)
    assert line == "2 200"
    assert [json.loads(ack)["seq"] for ack in answer.splitlines()] == list(range(rows))
    found = {json.loads(record.value())["N"] for record in consume(broker, "many", rows)}
    assert found == set(range(rows))


async def _until_stopped(node: Node) -> tuple[list[dict[str, Any]], int]:
    """Rows one by one until the node says goodbye. The acknowledgements, and rows sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port())
    try:
        async with asyncio.timeout(120):
            return await _insert_until_stopped(node, Client(reader, writer))
    finally:
        writer.close()


async def _insert_until_stopped(node: Node, client: Client) -> tuple[list[dict[str, Any]], int]:
    stream = client.open("/inserts-stream")
    client.h2.send_data(stream, lines({"target": "DRAINED"}))
    client.push()
    await client.take(ResponseReceived, stream)  # before the first row
    sent, is_asked_to_end = 0, False
    acks = b""
    while not any(isinstance(event, StreamEnded) for event in client.seen):
        if not any(isinstance(event, ConnectionTerminated) for event in client.seen):
            client.h2.send_data(stream, lines({"ID": "k", "N": sent}))
            client.push()
            sent += 1
        assert await client.read(), "cut off before the answer was whole"
        got = [event for event in client.seen if isinstance(event, DataReceived)]
        acks = b"".join(event.data for event in got)
        if not is_asked_to_end and acks.count(b"\n") >= 4:
            node.workers[0].send_signal(signal.SIGTERM)
            is_asked_to_end = True
    return [json.loads(ack) for ack in acks.splitlines()], sent


def test_a_worker_that_ends_acknowledges_what_it_took(node: Node, broker: Broker) -> None:
    create(node, "DRAINED")
    acks, sent = asyncio.run(_until_stopped(node))
    assert len(acks) >= 4
    assert [ack["seq"] for ack in acks] == list(range(len(acks)))
    assert all(ack["status"] == "ok" for ack in acks)
    records = consume(broker, "drained", len(acks))
    assert len(records) == len(acks) <= sent
    assert node.workers[0].wait(60) == 0
    node.start()
    until = time.monotonic() + 60
    while not _answers(node):
        assert time.monotonic() < until
        time.sleep(0.05)


def _answers(node: Node) -> bool:
    try:
        return ask(node.port(), "/info").status == 200
    except OSError:
        return False


def test_a_session_gets_what_it_wrote(node: Node, broker: Broker) -> None:
    """By both ways to insert: the offsets that Kafka gave the rows, and the id of their topic."""
    create(node, "IN_SESSION")
    session = {LEVEL_PROPERTY: "session"}
    rows = [{"ID": f"k{i}", "N": i} for i in range(20)]
    first = {"target": "IN_SESSION", "properties": session}
    line, answer = curl(node, "/inserts-stream", body=lines(first, *rows))
    assert line == "2 200", answer
    *acks, last = [json.loads(each) for each in answer.splitlines()]
    assert [ack["status"] for ack in acks] == ["ok"] * len(rows)
    text = "INSERT INTO IN_SESSION VALUES ('k0', 7); INSERT INTO IN_SESSION VALUES ('x', 8);"
    given = {TOKEN_PROPERTY: last["consistencyToken"]}
    body = json.dumps({"ksql": text, "streamsProperties": given}).encode()
    reply = ask(node.port(), "/ksql", body)
    assert reply.status == 200, reply.body
    (entity,) = json.loads(reply.body)
    token = SessionToken.parse(entity["consistencyToken"]["consistencyToken"])
    ((key, ends),) = token.writes.items()
    written: dict[int, int] = {}
    for record in consume(broker, "in_session", len(rows) + 2):
        written[record.partition()] = max(written.get(record.partition(), 0), record.offset() + 1)
    assert (key.topic, ends) == ("in_session", written)
    assert len(key.topic_id) == 22
    body = json.dumps({"ksql": "SHOW STREAMS;", "streamsProperties": given}).encode()
    assert ask(node.port(), "/ksql", body).status == 400, "a token must not be ignored"
