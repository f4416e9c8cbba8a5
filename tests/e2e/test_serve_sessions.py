"""Sessions over real workers: replicas fall behind, nodes die, and reads never go back. No Kafka.

The test is the tailer of all nodes. Each batch writes its number into some keys, so that a value
says which batch wrote it; the judge of `tests/sim/session_histories.py` knows nothing else.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Self

import msgspec
import pytest
from rich.console import Console
from tests.e2e.test_serve import (
    PARTITIONS,
    USERS,
    Cluster,
    Node,
    ask,
    json_bytes,
    partition,
    status,
)
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes, violations

import standpipe
from standpipe.adapters.clock import Clock
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.client import Client, NodesUnreachable, ServerRefused, TokenRefused
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.local.cli.prompt import SqlSession
from standpipe.local.client.rest_client import NodesClient
from standpipe.model import BatchId, LeaseEpoch, Offset
from standpipe.session_token import (
    ENABLE_PROPERTY,
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
)

KEYS = tuple(f"k{number}" for number in range(24))
KEYS_OF = {
    number: [key for key in KEYS if partition(key) == number] for number in range(PARTITIONS)
}
WAIT_S = 60
ROUTING_MS = 700


class Replica:
    """The store and the page of one replica, as its tailer keeps them."""

    def __init__(self, node: Node, number: int) -> None:
        self.identity = StoreIdentity.of(USERS.replica_id(number))
        self.node, self.number, self.batch = node, number, -1
        self.store = StoreWriter(node.config.paths.state / "T1-1" / str(number), self.identity)
        self.page = StatusWriter(page_path(node.config.paths.run, USERS.replica_id(number)))
        self.confirmed_boot_ms = 1

    def apply(self, batch: int, keys: list[str]) -> None:
        """One transaction; the page comes later."""
        puts = [
            (store_key((key,), ("STRING",)), pack_row(json_bytes([batch, "x"]), 5)) for key in keys
        ]
        meta = StoreMeta(
            identity=self.identity,
            position=Offset(batch + 1),
            batch=BatchId(batch),
            lease_epoch=LeaseEpoch(1),
        )
        self.store.apply(puts, [], meta)
        self.batch = batch

    def show(self, newest: int) -> None:
        """Write the page. Kafka confirms a replica that is at the newest batch."""
        if self.batch == newest:
            self.confirmed_boot_ms = Clock().boot_ms()
        page = status(
            position=self.batch + 1, committed_end=newest + 1, batch=self.batch, lease_epoch=1
        )
        self.page.write(msgspec.structs.replace(page, confirmed_boot_ms=self.confirmed_boot_ms))


class Tailers:
    """The tailers of all nodes in one thread. `behind`: node -> batches that it is kept behind."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.writes = Writes()
        self.batches: list[list[str]] = []
        self.behind: dict[str, int] = {}
        self.is_paused = False
        self._replicas = [
            Replica(node, number)
            for number in range(PARTITIONS)
            for node in cluster.holders(number)
        ]
        self._random = random.Random(7)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self.commit(KEYS)
        self.follow()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for replica in self._replicas:
            replica.store.close()

    def commit(self, keys: tuple[str, ...] | list[str]) -> None:
        """The next batch."""
        self.writes.add(len(self.batches), keys)
        self.batches.append(list(keys))

    def follow(self) -> None:
        """Each replica applies what its node is not kept from."""
        newest = len(self.batches) - 1
        for replica in self._random.sample(self._replicas, len(self._replicas)):
            kept = self.behind.get(replica.node.config.node_id, 0)
            for batch in range(replica.batch + 1, max(newest - kept, 0) + 1):
                mine = KEYS_OF[replica.number]
                replica.apply(batch, [key for key in self.batches[batch] if key in mine])
            replica.show(newest)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                if not self.is_paused:
                    self.commit(self._random.sample(KEYS, 6))
                self.follow()
            time.sleep(0.01)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is committed or applied meanwhile."""
        with self._lock:
            yield


class Reader(threading.Thread):
    """Reads keys until it is told to stop, through any node. `kind`: what it asks for."""

    def __init__(self, cluster: Cluster, name: str, is_over: threading.Event, *, session: bool):
        super().__init__()
        self.name, self.is_over = name, is_over
        self.addresses = [node.config.public for node in cluster.nodes]
        self.client = standpipe.connect(
            self.addresses, session=session, finds_members=False, timeout_s=1.5
        )
        self.random = random.Random(name)
        self.answers: list[SessionAnswer] = []
        self.refused: list[str] = []
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with self.client:
                while not self.is_over.is_set():
                    self.read()
        except BaseException as fault:
            self.fault = fault

    def read(self) -> None:
        keys = self.random.sample(KEYS, self.random.choice([1, 1, 3]))
        begin = time.monotonic()
        try:
            if self.random.random() < 0.05:
                found = {row["ID"]: row["N"] for row in self.client.query("SELECT * FROM USERS;")}
                values = {key: found.get(key, NO_VALUE) for key in KEYS}
                where = "a scan"
            else:
                listed = ", ".join(f"'{key}'" for key in keys)
                rows = self.client.query(f"SELECT * FROM USERS WHERE ID IN ({listed});")
                found = {row["ID"]: row["N"] for row in rows}
                values = {key: found.get(key, NO_VALUE) for key in keys}
                where = rows.freshness.served_by
        except (ServerRefused, NodesUnreachable) as error:
            self.refused.append(error.message)
            return
        answer = SessionAnswer(self.name, begin, time.monotonic(), values, where)
        self.answers.append(answer)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    keys = {
        "ksql.query.pull.routing.timeout.ms": ROUTING_MS,
        "ksql.query.pull.forwarding.timeout.ms": 300,
        "standpipe.query.pull.scan.timeout.ms": ROUTING_MS,
    }
    made = Cluster.make(tmp_path, 3, replicas=3, **keys)
    made.publish()
    yield made
    made.stop()


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_reads_never_go_back_while_nodes_die(cluster: Cluster) -> None:
    """node-1 is held behind; the other two die one after the other, so that it has to answer.

    Readers without a session do read older rows then: the test would notice.
    """
    behind, over = cluster.nodes[1].config.node_id, threading.Event()
    with Tailers(cluster) as tailers:
        cluster.start()
        sessions = [Reader(cluster, f"session {n}", over, session=True) for n in range(3)]
        others = [Reader(cluster, f"eventual {n}", over, session=False) for n in range(2)]
        readers = [*sessions, *others]
        try:
            for reader in readers:
                reader.start()
            more(readers, 40)
            tailers.behind[behind] = 60
            until(lambda: len(tailers.batches) > 80, "batches")
            more(readers, 40)
            cluster.nodes[0].workers[0].kill()  # the active of some partitions, standby of others
            more(readers, 40)
            tailers.is_paused = True
            newest = len(tailers.batches) - 1
            until(lambda: all(seen_by(one) >= newest - 12 for one in sessions), "they see it")
            cluster.nodes[2].workers[0].kill()
            before = [len(one.refused) for one in sessions]
            more(others, 40)
            until(
                lambda: all(
                    len(one.refused) > was for one, was in zip(sessions, before, strict=True)
                ),
                "refusals",
            )
            status, _, body = read(cluster.nodes[1], sessions[0].client.session_token)
            assert (status, b"Level session: wanted batch" in body) == (503, True), body
            tailers.behind.clear()
            more(readers, 40)
        finally:
            over.set()
            for reader in readers:
                reader.join()
        assert [reader.fault for reader in readers] == [None] * len(readers)
        in_session = [answer for reader in sessions for answer in reader.answers]
        assert violations(tailers.writes, in_session) == []
        assert violations(tailers.writes, [a for reader in others for a in reader.answers])


def more(readers: list[Reader], count: int) -> None:
    """Wait until each has so many more answers."""
    wanted = [len(reader.answers) + count for reader in readers]
    until(
        lambda: all(
            len(reader.answers) >= least or reader.fault is not None
            for reader, least in zip(readers, wanted, strict=True)
        ),
        f"answers: {[(one.name, len(one.answers), one.refused[-1:]) for one in readers]}",
    )


def seen_by(reader: Reader) -> int:
    """The newest batch of its newest token."""
    token = reader.client.session_token
    assert token is not None
    return max((mark.batch for mark in SessionToken.parse(token).marks.values()), default=-1)


@pytest.fixture
def settled(cluster: Cluster) -> Iterator[Tailers]:
    """A cluster whose tailers stand still."""
    with Tailers(cluster) as tailers:
        tailers.is_paused = True
        cluster.start()
        yield tailers


def read(node: Node, token: str | None, **properties: object) -> tuple[int, list[object], bytes]:
    """Status, rows and token item of one key, as curl would get them."""
    given = properties if token is None else {**properties, TOKEN_PROPERTY: token}
    body = {"sql": f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';", "properties": given}
    reply = ask(node.port(), "/query-stream", json_bytes(body))
    if reply.status != 200:
        return reply.status, [], reply.body
    _, *lines = reply.body.splitlines()
    is_token = lines and lines[-1].startswith(b'{"consistencyToken"')
    rows = [json.loads(line) for line in lines[: -1 if is_token else None]]
    return reply.status, rows, lines[-1] if is_token else b""


def test_every_node_speaks_tokens(settled: Tailers) -> None:
    """Each read twice, so that both paths answer."""
    newest = len(settled.batches) - 1
    until(lambda: all(replica.batch == newest for replica in settled._replicas), "caught up")
    mark = SeenBatch(1, newest, 1)
    for node in settled.cluster.nodes:
        for properties in ({ENABLE_PROPERTY: True}, {LEVEL_PROPERTY: "session"}):
            for _ in range(2):
                status, rows, item = read(node, None, **properties)
                assert (status, len(rows)) == (200, 1)
                text = json.loads(item)["consistencyToken"]
                assert dict(SessionToken.parse(text).marks) == {
                    TableKey("cluster-of-tests", "T1"): mark
                }
                assert read(node, text)[:2] == (200, rows), "it is sent back as it is"
        assert read(node, None) == (200, rows, b""), "nobody asked"
        for bad, said in (
            ("nonsense", b"cannot be read"),
            (token_of(0, cluster="elsewhere"), b"is of cluster 'elsewhere'"),
            (token_of(newest + 1), b"Kafka had nothing newer after the read arrived"),
        ):
            # 503: a replica has not yet said that Kafka has nothing newer
            deadline = time.monotonic() + WAIT_S
            while (answer := read(node, bad))[0] == 503 and time.monotonic() < deadline:
                pass
            status, _, body = answer
            assert (status, json.loads(body)["error_code"]) == (400, TokenRefused.code), body
            assert said in body
        for path, statement in (
            ("/ksql", "SHOW TABLES;"),
            ("/query", "SELECT * FROM EVENTS;"),
            ("/query", "PRINT 'events';"),
        ):
            body = {"ksql": statement, "streamsProperties": {TOKEN_PROPERTY: text}}
            reply = ask(node.port(), path, json_bytes(body))
            assert reply.status == 400, statement
            assert "read level session is for pull queries on tables" in str(reply.json["message"])


def token_of(batch: int, *, cluster: str = "cluster-of-tests") -> str:
    return SessionToken({TableKey(cluster, "T1"): SeenBatch(1, batch, 1)}).text()


def test_a_session_goes_on_in_another_client(settled: Tailers) -> None:
    addresses = [node.config.public for node in settled.cluster.nodes]
    with standpipe.connect(addresses, session=True) as first:
        assert first.get("USERS", id=KEYS[0]) is not None
        seen = first.session_token
    assert seen
    with standpipe.connect(addresses, session=seen) as second:
        assert second.session_token == seen
        assert all(second.get_many("USERS", KEYS))
    with (
        pytest.raises(TokenRefused),
        standpipe.connect(addresses, session=token_of(10**6)) as third,
    ):
        third.get("USERS", id=KEYS[0])
    with standpipe.connect(addresses) as fourth:
        assert fourth.session_token is None


def test_the_prompt_keeps_a_session(settled: Tailers) -> None:
    out = StringIO()
    with NodesClient([settled.cluster.nodes[0].config.public]) as client:
        prompt = SqlSession(client, Console(file=out), as_json=True)
        prompt.run(f"SET '{LEVEL_PROPERTY}' = 'session'; SHOW TABLES;")
        query = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
        prompt.run(query)
        assert prompt._session is not None
        seen = prompt._session.token
        assert seen
        prompt.run(f"{query} SHOW TABLES;")
        assert prompt._session.token == seen
        prompt.run(f"UNSET '{LEVEL_PROPERTY}';")
        assert prompt._session is None
        prompt.run(query)
    assert "consistencyToken" not in out.getvalue()


def test_clients_share_no_session(settled: Tailers) -> None:
    addresses = [node.config.public for node in settled.cluster.nodes]
    clients: list[Client] = [standpipe.connect(addresses, session=True) for _ in range(2)]
    clients[0].get("USERS", id=KEYS[0])
    assert clients[0].session_token
    assert not clients[1].session_token
    for client in clients:
        client.close()
