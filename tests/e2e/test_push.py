"""Push queries with a real Kafka and a real node of two workers: what is sent, and what ends it."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import confluent_kafka.admin
import msgspec
import psutil
import pytest
from tests.e2e.forked import fork
from tests.e2e.processes import thread_names
from tests.e2e.test_serve import Cluster, Node, Reply, ask, json_bytes, request, send

from standpipe.local.cluster.broker import Broker
from standpipe.node import configuration
from standpipe.session_token import (
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
)

pytestmark = pytest.mark.e2e

ARRAY = "application/vnd.ksql.v1+json"
LINES = "application/vnd.ksqlapi.delimited.v1"
QUERIES_MAX = 3
EARLIEST = {"auto.offset.reset": "earliest"}
SESSION = {LEVEL_PROPERTY: "session"}
TOKENS = {"ksql.query.push.v2.continuation.tokens.enabled": "true"}
WAIT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Node]:
    """A node of control and two workers, which share its port."""
    folder = tmp_path_factory.mktemp("push")
    made = Cluster.make(folder, 1, **{"ksql.max.push.queries": QUERIES_MAX}).nodes[0]
    made.config = msgspec.structs.replace(made.config, bootstrap_servers=broker.bootstrap_servers)
    node_file = Path(made.config.data_dir) / "node.json"
    configuration.save(node_file, made.config)
    log = made.config.paths.logs / "control.log"
    control = fork("standpipe.node.controller.main", [f"--node-file={node_file}"], log)
    try:
        made.start(0)
        made.start(1)
        made.wait_ready()
        # the two share a port, and each answers some once it listens: one may have the map before
        # the other, or all 20 go to the first while the second is not there yet
        eventually(lambda: listeners(made.port()) == 2, "both listen")
        asked = range(20)
        eventually(
            lambda: all(ask(made.port(), "/info").status == 200 for _ in asked), "a map at both"
        )
        yield made
    finally:
        made.stop()
        control.terminate()
        control.wait(5)


def listeners(port: int) -> int:
    sockets = psutil.net_connections("tcp")
    return sum(each.status == psutil.CONN_LISTEN and each.laddr[1] == port for each in sockets)


def eventually(look: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def ksql(node: Node, text: str) -> Reply:
    reply = ask(node.port(), "/ksql", json_bytes({"ksql": text}))
    assert reply.status == 200, reply.body
    return reply


def stream(node: Node, name: str) -> None:
    topic = f"WITH (KAFKA_TOPIC='{name.lower()}', VALUE_FORMAT='JSON', PARTITIONS=2)"
    ksql(node, f"CREATE STREAM {name} (ID STRING KEY, N BIGINT) {topic};")


def insert(node: Node, name: str, *numbers: int) -> None:
    rows = (f"INSERT INTO {name} (ID, N) VALUES ('k{n}', {n});" for n in numbers)
    ksql(node, "".join(rows))


class Push:
    """A client of one push query."""

    def __init__(self, node: Node, text: str, path: str, media: str, **options: Any) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", node.port(), timeout=WAIT_S)
        body = {"sql": text} if path == "/query-stream" else {"ksql": text}
        body |= options
        headers = {"accept": media, "content-type": ARRAY}
        self.connection.request("POST", path, json_bytes(body), headers)
        self.reply = self.connection.getresponse()
        self.media = media

    def line(self) -> Any:
        """The next item; None: the answer is over."""
        text = self.reply.readline()
        if self.media == ARRAY:
            text = text.strip().removeprefix(b"[").removesuffix(b",").removesuffix(b"]")
        return json.loads(text) if text else None

    def lines(self, count: int) -> list[Any]:
        return [self.line() for _ in range(count)]

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def push(node: Node, text: str, properties: dict[str, str] | None = None, **more: Any) -> Push:
    """Over /query-stream, in lines."""
    made = Push(node, text, "/query-stream", LINES, properties=properties or {}, **more)
    assert made.reply.status == 200, made.reply.read()
    return made


def query(node: Node, text: str, properties: dict[str, str] | None = None) -> Push:
    """Over /query, as one JSON array."""
    made = Push(node, text, "/query", ARRAY, streamsProperties=properties or {})
    assert made.reply.status == 200, made.reply.read()
    return made


def served(node: Node) -> list[str]:
    return [path.name for path in node.config.paths.push.glob("*/*")]


def consumers(node: Node) -> int:
    """Threads that librdkafka has in the node's workers: a consumer has several."""
    names = [name for worker in node.workers for name in thread_names(worker.pid)]
    return sum(name.startswith("rdk:") for name in names)


def test_a_stream_is_followed(node: Node) -> None:
    """By default from now on; the header says id, names and types; rows come as they are made."""
    stream(node, "FOLLOWED")
    insert(node, "FOLLOWED", 1)
    with push(node, "SELECT ID, N * 2 AS D FROM FOLLOWED WHERE N > 2 EMIT CHANGES;") as asked:
        header = asked.line()
        assert header.pop("queryId").startswith("transient_FOLLOWED_")
        assert header == {"columnNames": ["ID", "D"], "columnTypes": ["STRING", "BIGINT"]}
        insert(node, "FOLLOWED", 2, 3)
        assert asked.line() == ["k3", 6]
        insert(node, "FOLLOWED", 4)
        assert asked.line() == ["k4", 8]


def test_what_one_worker_has_acknowledged_the_other_knows(node: Node) -> None:
    """Their topic is there, so CREATE returns at once; each request is a connection of its own."""
    stream(node, "KNOWN")
    for number in range(20):
        topic = "WITH (KAFKA_TOPIC='known', VALUE_FORMAT='JSON')"
        ksql(node, f"CREATE STREAM KNOWN_{number} (ID STRING KEY, N BIGINT) {topic};")
        insert(node, f"KNOWN_{number}", number)


def test_limit_ends_the_answer(node: Node) -> None:
    """From the beginning, at both paths and in each form."""
    stream(node, "LIMITED")
    insert(node, "LIMITED", 5, 5, 5)
    text = "SELECT N, ROWPARTITION - ROWPARTITION AS Z FROM LIMITED EMIT CHANGES LIMIT 2;"
    with push(node, text, EARLIEST) as asked:
        assert asked.lines(4)[1:] == [[5, 0], [5, 0], None]
    with query(node, text, EARLIEST) as asked:
        header, *rows = asked.lines(5)
        assert header["header"]["schema"] == "`N` BIGINT, `Z` INTEGER"
        row = {"row": {"columns": [5, 0]}}
        assert rows == [row, row, {"finalMessage": "Limit Reached"}, None]
    body = {"sql": text, "properties": EARLIEST}
    reply = ask(node.port(), "/query-stream", json_bytes(body), accept="application/json")
    assert reply.headers["transfer-encoding"] == "chunked"
    with Push(node, text, "/query-stream", "application/json", properties=EARLIEST) as asked:
        assert json.loads(asked.reply.read())[1:] == [[5, 0], [5, 0]]
    eventually(lambda: served(node) == [], "all are over")


def test_an_array_becomes_rows(node: Node) -> None:
    """Live, and in a pull query of what is there by now."""
    topic = "WITH (KAFKA_TOPIC='baskets', VALUE_FORMAT='JSON', PARTITIONS=1)"
    ksql(node, f"CREATE STREAM BASKETS (ID STRING KEY, ITEMS ARRAY<STRUCT<S STRING>>) {topic};")
    many = "ARRAY[STRUCT(S := 'a'), STRUCT(S := 'b')]"
    for key, items in (("k1", many), ("k2", "NULL"), ("k3", "ARRAY[STRUCT(S := 'c')]")):
        ksql(node, f"INSERT INTO BASKETS (ID, ITEMS) VALUES ('{key}', {items});")
    text = "SELECT ID, EXPLODE(ITEMS)->S FROM BASKETS"
    rows = [["k1", "a"], ["k1", "b"], ["k3", "c"]]
    with push(node, f"{text} EMIT CHANGES LIMIT 3;", EARLIEST) as asked:
        header, *found = asked.lines(5)
        assert header["columnNames"] == ["ID", "S"]
        assert found == [*rows, None]
    reply = ask(node.port(), "/query", json_bytes({"ksql": f"{text};"}))
    assert [each["row"]["columns"] for each in reply.json if "row" in each] == rows


def test_tombstones_of_a_table(node: Node, broker: Broker) -> None:
    """/query says them, with the key alone; a row that leaves the WHERE is taken back too."""
    ksql(
        node,
        "CREATE TABLE KEPT (ID STRING PRIMARY KEY, N BIGINT) WITH (KAFKA_TOPIC='kept',"
        " VALUE_FORMAT='JSON', PARTITIONS=1);",
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in ((b"a", b'{"N":5}'), (b"a", b'{"N":1}'), (b"a", b'{"N":6}'), (b"a", None)):
        producer.produce("kept", value, key)
    assert producer.flush(10) == 0
    text = "SELECT N, ID FROM KEPT WHERE N > 2 EMIT CHANGES LIMIT 4;"
    gone = {"row": {"columns": [None, "a"], "tombstone": True}}
    with query(node, text, EARLIEST) as asked:
        assert asked.lines(6)[1:] == [
            {"row": {"columns": [5, "a"]}},
            gone,
            {"row": {"columns": [6, "a"]}},
            gone,
            {"finalMessage": "Limit Reached"},
        ]
    with push(node, text, EARLIEST) as asked:
        assert asked.lines(4)[1:] == [[5, "a"], [6, "a"], None], "no word for it: ksqlDB's too"


def test_a_token_goes_on_where_a_client_stopped(node: Node) -> None:
    stream(node, "RESUMED")
    insert(node, "RESUMED", 1, 2, 3)
    text = "SELECT N FROM RESUMED EMIT CHANGES;"
    with push(node, text, EARLIEST | TOKENS) as asked:
        items = asked.lines(1)
        while len([item for item in items if isinstance(item, list)]) < 3:
            items.append(asked.line())
        token = asked.line()["continuationToken"]
    insert(node, "RESUMED", 4)
    name = "request.ksql.query.push.continuation.token"
    with push(node, text, requestProperties={name: token}) as asked:
        assert asked.lines(2)[1] == [4], "neither before it nor after it is a row lost or doubled"
    with Push(node, text, "/query-stream", LINES, requestProperties={name: "no token"}) as asked:
        assert asked.reply.status == 400
    stream(node, "UNLIKE")
    other = "SELECT N FROM UNLIKE EMIT CHANGES;"
    with Push(node, other, "/query-stream", LINES, requestProperties={name: token}) as asked:
        assert asked.reply.status == 400
        assert b"the continuation token belongs to " in asked.reply.read()


def token_after(asked: Push, rows: int) -> str:
    """The session's token that follows so many rows."""
    seen, items = 0, iter(asked.line, None)
    for item in items:
        seen += isinstance(item, list) or "row" in item
        token = item.get("consistencyToken") if isinstance(item, dict) else None
        if token and seen == rows:
            return token["consistencyToken"] if isinstance(token, dict) else token
    raise AssertionError("the answer has ended")


def test_a_session_goes_on_behind_what_was_pushed(node: Node) -> None:
    """In each layout, with a token of any of them, whatever the request says of its beginning."""
    stream(node, "SEEN")
    eventually(lambda: served(node) == [], "none of another test")
    insert(node, "SEEN", 1, 2, 3)
    text = "SELECT N FROM SEEN EMIT CHANGES;"
    with push(node, text, EARLIEST | SESSION) as asked:
        token = token_after(asked, 3)
    for number, properties in enumerate((EARLIEST, {}), start=4):
        insert(node, "SEEN", number)
        eventually(lambda: served(node) == [], "places are free")
        given = {**properties, TOKEN_PROPERTY: token}
        with push(node, text, given) as asked:
            header, first, row = asked.lines(3)
            assert (header["columnNames"], list(first)) == (["N"], ["consistencyToken"])
            assert row == [number], "neither before it nor after it is a row lost or doubled"
            later = token_after(asked, 0)
        with query(node, text, given) as asked:
            assert list(asked.line()) == ["header"]
            assert list(asked.line()["consistencyToken"]) == ["consistencyToken"]
            assert asked.line() == {"row": {"columns": [number]}}
            assert token_after(asked, 0) == later, "the same place, whoever has shown it"
        token = later
    eventually(lambda: served(node) == [], "places are free")
    body = {"sql": text.replace(";", " LIMIT 2;"), "properties": EARLIEST | SESSION}
    reply = ask(node.port(), "/query-stream", json_bytes(body), accept="application/json")
    assert reply.status == 200
    items = reply.json
    assert len([item for item in items if isinstance(item, list)]) == 2
    assert list(items[-1]) == ["consistencyToken"], "also as it ends"


def test_session_tokens_that_do_not_fit(node: Node, broker: Broker) -> None:
    """Forged, of a topic that is gone, and of one whose records retention has removed."""
    stream(node, "GONE")
    insert(node, "GONE", 1, 2, 3)
    text = "SELECT N FROM GONE EMIT CHANGES;"
    places = {
        "Kafka's partition ended at": SessionToken(streamed={TopicKey("gone"): {0: 10**6}}),
        "The topic was created again": SessionToken(streamed={TopicKey("gone", "A" * 22): {0: 0}}),
        "of cluster 'elsewhere'": SessionToken({TableKey("elsewhere", "T_1"): SeenBatch(1, 1, 1)}),
    }
    eventually(lambda: served(node) == [], "none of another test")
    refused = {said: token.text() for said, token in places.items()} | {"be read": "nonsense"}
    for said, token in refused.items():
        check_refused(node, text, token, said)
    with push(node, text, EARLIEST | SESSION) as asked:
        begin, token = token_after(asked, 0), token_after(asked, 3)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    all_of = [confluent_kafka.TopicPartition("gone", number, -1) for number in range(2)]
    for removed in admin.delete_records(all_of).values():
        removed.result(30)
    check_refused(node, text, begin, "Retention or compaction has removed what comes there")
    insert(node, "GONE", 4)
    with push(node, text, {TOKEN_PROPERTY: token}) as asked:
        assert asked.lines(3)[2] == [4], "it was behind all that was removed"


def check_refused(node: Node, text: str, token: str, said: str) -> None:
    given = {TOKEN_PROPERTY: token}
    eventually(lambda: served(node) == [], "places are free")
    with Push(node, text, "/query-stream", LINES, properties=given) as asked:
        error = json.loads(asked.reply.read())
    assert (asked.reply.status, error["error_code"]) == (400, 40006), error
    assert said in error["message"]


def test_refusals(node: Node) -> None:
    stream(node, "REFUSED")
    for text, code, said in (
        ("SELECT COUNT(*) FROM REFUSED EMIT CHANGES;", 50311, "no shared pipeline is registered"),
        ("SELECT N, COUNT(*) FROM REFUSED EMIT CHANGES;", 40001, "GROUP BY"),
        ("SELECT * FROM NOWHERE EMIT CHANGES;", 40001, "does not exist"),
    ):
        with Push(node, text, "/query", ARRAY) as asked:
            assert asked.reply.status == code // 100
            error = json.loads(asked.reply.read())
            assert (error["error_code"], said in error["message"]) == (code, True)
    wrong = {"auto.offset.reset": "sometime"}
    text = "SELECT * FROM REFUSED EMIT CHANGES;"
    with Push(node, text, "/query", ARRAY, streamsProperties=wrong) as asked:
        assert json.loads(asked.reply.read())["error_code"] == 40000
    eventually(lambda: served(node) == [], "nothing is left of them, nor of another test")


def test_close_query_at_any_worker(node: Node) -> None:
    """Whichever of the two workers is asked, on a connection of its own each time."""
    stream(node, "CLOSED")
    for _ in range(6):
        with query(node, "SELECT * FROM CLOSED EMIT CHANGES;") as asked:
            query_id = asked.line()["header"]["queryId"]
            reply = ask(node.port(), "/close-query", json_bytes({"queryId": query_id}))
            assert (reply.status, reply.body) == (200, b"")
            assert asked.lines(2) == [{"finalMessage": "Query Completed"}, None]
        eventually(
            lambda q=query_id: q not in served(node), "its place is left after its last word"
        )
        reply = ask(node.port(), "/close-query", json_bytes({"queryId": query_id}))
        assert (reply.status, reply.json["error_code"]) == (400, 40000)
        assert reply.json["message"] == f"No query with id {query_id}"
    hostile = ask(node.port(), "/close-query", json_bytes({"queryId": "../../meta.json"}))
    assert hostile.status == 400
    assert (Path(node.config.data_dir) / "run").exists()


def test_too_many(node: Node) -> None:
    """The bound is the node's, whichever worker serves them; a place that is left is free."""
    stream(node, "MANY")
    text = "SELECT * FROM MANY EMIT CHANGES;"
    asked = [push(node, text) for _ in range(QUERIES_MAX)]
    try:
        with Push(node, text, "/query-stream", LINES) as refused:
            assert refused.reply.status == 400
            error = json.loads(refused.reply.read())
        assert (error["error_code"], error["message"]) == (
            40003,
            "Maximum number of push queries exceeded",
        )
        asked.pop().close()
        eventually(lambda: len(served(node)) == QUERIES_MAX - 1, "a place is free")
        asked.append(push(node, text))
    finally:
        for each in asked:
            each.close()
    eventually(lambda: served(node) == [], "all are gone")


def test_a_client_that_goes_away(node: Node) -> None:
    """With a FIN or a reset, while it is served: its consumer goes with it, and nothing leaks."""
    stream(node, "LEFT_ALONE")
    eventually(lambda: served(node) == [], "none of another test")
    before = 0

    def settled() -> bool:
        nonlocal before
        before, now = consumers(node), before
        return before == now

    time.sleep(0.5)  # consumers of the tests before may be on their way out
    eventually(settled, "threads of other tests end")
    for number in range(QUERIES_MAX * 3):
        asked = push(node, "SELECT * FROM LEFT_ALONE EMIT CHANGES;")
        asked.line()
        if number % 2:
            linger = struct.pack("ii", 1, 0)
            asked.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        asked.close()
        asked.reply.close()
        eventually(lambda: served(node) == [], "the query ends with its client")
    eventually(lambda: consumers(node) <= before, "its consumer too")


@pytest.mark.parametrize("count", [1, 3000])
def test_a_client_that_goes_away_behind_requests_that_it_queued(node: Node, count: int) -> None:
    """Only the last of its requests was told, and reading was paused: five such clients kept five
    queries, and their consumers, until the worker ended."""
    stream(node, f"LEFT_BEHIND_{count}")
    eventually(lambda: served(node) == [], "none of another test")
    body = json_bytes({"sql": f"SELECT * FROM LEFT_BEHIND_{count} EMIT CHANGES;"})
    asked = request("/query-stream", body, content_type=ARRAY)
    for number in range(QUERIES_MAX * 2):
        with send(node.port(), asked + (request("/info") * count if number % 2 else b"")) as client:
            assert client.recv(12) == b"HTTP/1.1 200"
            if not number % 2:
                client.sendall(request("/info") * count)
            assert len(served(node)) == 1
            if number % 3 == 0:
                client.shutdown(socket.SHUT_WR)
                eventually(lambda: served(node) == [], "it has ended its half")
        eventually(lambda: served(node) == [], "the query ends with its client")


def test_a_slow_reader_does_not_fill_the_node(node: Node, broker: Broker) -> None:
    """Behind by 100 MB, it costs the node a few; when it reads on, everything is there."""
    stream(node, "LARGE")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50}
    )
    rows, padding = 20_000, "x" * 5_000
    for number in range(rows):
        value = json_bytes({"N": number, "PAD": padding})
        while True:
            try:
                producer.produce("large", value, b"k")
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    ksql(
        node,
        "CREATE STREAM PADDED (ID STRING KEY, N BIGINT, PAD STRING) WITH (KAFKA_TOPIC='large',"
        " VALUE_FORMAT='JSON');",
    )
    before = [_resident(worker.pid) for worker in node.workers]
    with push(node, f"SELECT N, PAD FROM PADDED EMIT CHANGES LIMIT {rows};", EARLIEST) as asked:
        asked.line()
        time.sleep(3)  # time for it to run ahead, were it not held
        grown = [_resident(w.pid) - b for w, b in zip(node.workers, before, strict=True)]
        assert max(grown) < 40_000_000, grown
        lookup = ask(node.port(), "/info")
        assert lookup.status == 200, "others are served meanwhile"
        assert [asked.line()[0] for _ in range(rows)] == list(range(rows))
        assert asked.line() is None


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_never_reads_can_be_closed(node: Node) -> None:
    """Its worker waits for room in the socket; closing does not."""
    text = "SELECT N, PAD FROM PADDED EMIT CHANGES;"
    eventually(lambda: served(node) == [], "none of another test")
    with push(node, text, EARLIEST):
        (query_id,) = served(node)
        time.sleep(1)  # until the socket is full
        assert ask(node.port(), "/close-query", json_bytes({"queryId": query_id})).status == 200
        eventually(lambda: served(node) == [], "it ends although nobody reads")


def test_print(node: Node) -> None:
    """From the beginning and live; every second, three of them; names count as written."""
    stream(node, "PRINTED")
    insert(node, "PRINTED", 1, 1, 1, 1)
    with Push(node, "PRINT printed FROM BEGINNING;", "/query", LINES) as asked:
        assert asked.reply.status == 200
        first = [asked.reply.readline().decode() for _ in range(6)]
        assert first[:2] == ["Key format: KAFKA_STRING\n", "Value format: JSON or KAFKA_STRING\n"]
        shown = r"rowtime: [\d/]{10} [\d:]{8}\.\d{3} Z, key: k1, value: {.N.:1}, partition: [01]\n"
        assert [line for line in first[2:] if not re.fullmatch(shown, line)] == []
        insert(node, "PRINTED", 2)
        assert "key: k2" in asked.reply.readline().decode()
        assert len(served(node)) == 1, "it counts as a push query"
    text = "PRINT 'printed' FROM BEGINNING INTERVAL 2 LIMIT 2;"
    with Push(node, text, "/query", "*/*") as asked:
        assert asked.reply.getheader("content-type") == LINES
        assert len(asked.reply.read().splitlines()) == 4
    with Push(node, "PRINT PRINTED;", "/query", LINES) as asked:
        error = json.loads(asked.reply.read())
        assert error["error_code"] == 40000
        assert error["message"].endswith("Did you mean:\n\tPRINT 'printed';")
    with Push(node, "PRINT printed;", "/query", ARRAY) as asked:
        assert asked.reply.status == 406
    eventually(lambda: served(node) == [], "all are over")


def test_the_prompt_shows_rows_live_and_ctrl_c_ends_just_the_query(
    node: Node, tmp_path: Path
) -> None:
    """In a terminal of its own: SET and DEFINE hold, rows come, Ctrl-C, the next statement runs."""
    stream(node, "TYPED")
    insert(node, "TYPED", 41)
    leader, follower = os.openpty()

    def take_terminal() -> None:
        """So that ^C is a signal, also where whoever runs the tests ignores it (nohup … &)."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        fcntl.ioctl(0, termios.TIOCSCTTY)

    command = [sys.executable, "-m", "standpipe", "sql", "--server", f"127.0.0.1:{node.port()}"]
    prompt = subprocess.Popen(
        command,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
    )
    os.close(follower)
    screen = bytearray()

    def shows(*texts: bytes) -> None:
        def look() -> bool:
            if select.select([leader], [], [], 0)[0]:
                screen.extend(os.read(leader, 65536))
            return all(text in screen for text in texts)

        eventually(look, f"{texts} in {bytes(screen[-500:])!r}")
        screen.clear()

    try:
        shows(b"standpipe> ")
        os.write(leader, b"SET 'auto.offset.reset'='earliest';\r")
        shows(b"standpipe> ")
        os.write(leader, b"DEFINE more = '1000'; DEFINE name = 'TYPED';\r")
        shows(b"standpipe> ")
        os.write(leader, b"SELECT ID, N + ${more} AS M FROM ${name} EMIT CHANGES;\r")
        shows(b"k41", b"1041")
        insert(node, "TYPED", 42)
        shows(b"1042")
        os.write(leader, b"\x03")
        shows(b"cancelled", b"standpipe> ")
        eventually(lambda: served(node) == [], "the query is gone")
        os.write(leader, b"UNDEFINE more; SHOW VARIABLES;\r")
        shows(b"NAME", b"TYPED", b"standpipe> ")
        os.write(leader, b"PRINT typed FROM BEGINNING LIMIT 1;\r")
        shows(b"Key format: KAFKA_STRING", b"partition: ")

        def has_ended() -> bool:
            """Ctrl-D counts once the prompt is back."""
            with suppress(OSError):  # the terminal goes with its process
                os.write(leader, b"\x04")
                if select.select([leader], [], [], 0)[0]:
                    os.read(leader, 65536)
            return prompt.poll() is not None

        eventually(has_ended, "Ctrl-D ends the prompt")
        assert prompt.returncode == 0
    finally:
        prompt.kill()
        prompt.wait(5)
        os.close(leader)


def test_a_dropped_stream_ends_its_queries(node: Node) -> None:
    stream(node, "DROPPED")
    with query(node, "SELECT * FROM DROPPED EMIT CHANGES;") as asked:
        asked.line()
        ksql(node, "DROP STREAM DROPPED;")
        assert "was dropped" in asked.line()["errorMessage"]["message"]
        assert asked.line() is None


def test_a_killed_worker_leaves_no_query_behind(node: Node) -> None:
    """Its clients see the connection end; the next worker of its number frees their places."""
    stream(node, "KILLED")
    eventually(lambda: served(node) == [], "none of another test")
    with push(node, "SELECT * FROM KILLED EMIT CHANGES;") as asked:
        asked.line()
        (path,) = node.config.paths.push.glob("*/*")
        number = int(path.parent.name.removeprefix("worker-"))
        node.workers[number].kill()
        node.workers[number].wait(10)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            asked.reply.read()
    replacement = node.start(number)
    node.workers[number] = node.workers.pop()
    assert node.workers[number] is replacement
    eventually(lambda: served(node) == [], "its places are free")
    log = node.config.paths.logs / f"worker-{number}.log"
    eventually(lambda: log.read_text().count("worker serves") == 2, "it is back")


def test_a_node_that_leaves_ends_them_politely(node: Node) -> None:
    """The last test of this node: SIGTERM to its workers, as the parent sends it."""
    stream(node, "LAST")
    insert(node, "LAST", 1)
    text = "SELECT N FROM LAST EMIT CHANGES;"
    eventually(lambda: served(node) == [], "none of another test")
    with query(node, text, EARLIEST | TOKENS) as asked:
        assert [row for row in asked.lines(3) if "row" in row] == [{"row": {"columns": [1]}}]
        for worker in node.workers:
            worker.send_signal(signal.SIGTERM)
        items = iter(asked.line, None)
        *_, token, last = list(items)
        assert "continuationToken" in token["continuationToken"]
        assert "another node" in last["finalMessage"]
    for worker in node.workers:
        assert worker.wait(60) == 0
