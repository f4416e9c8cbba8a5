"""Reads at level `snapshot` over real Kafka, Spark and three nodes: each answer is of one batch.

A writer adds to all keys of all partitions all the time, so every batch changes nearly every row,
and an answer that mixes two batches shows counts that no batch made together. Each kind of read
goes through each node: keys, scans, pieces of one in the order of the keys, batches of keys, and
the client's `get_many`. Meanwhile tailers stand still, so that their replicas fall behind those of
other partitions, and one is killed. Readers without the level show that the test would notice.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.counted_keys import (
    KEYS,
    Level,
    Reader,
    Writer,
    as_batches,
    batches_of,
    statements,
    tailer_of,
    topic_of,
    values_of,
)
from tests.sim.session_histories import SessionAnswer
from tests.sim.snapshot_histories import snapshot_violations

from standpipe.client import NodesUnreachable, ServerRefused
from standpipe.local.client.rest_client import NodesClient
from standpipe.session_token import LEVEL_PROPERTY

NAME = "SNAP"
SCAN = "SELECT K, N FROM SNAP_COUNTS;"
Rows = list[tuple[str, int]]
#: of each reader, so that tests beside this one get on
PAUSE_S = 0.03
#: answers of all readers at the level, at least; `make read-levels` has a million
ANSWERS_MIN = 500
#: of each kind of read, as `AllWays.kinds` has them; scans take long
SHARES = (1, 3, 1, 1, 3, 3)
#: that each kind of read has at each node, at least
OF_EACH_MIN = 10


class AllWays(Reader):
    """Reads keys, pieces and the whole table, each in all ways."""

    def __init__(self, address: str, name: str, level: Level, is_over: threading.Event) -> None:
        super().__init__(address, name, level, is_over, pause_s=PAUSE_S)
        self.kinds: dict[str, Callable[[Sequence[str]], tuple[Rows, Sequence[str]]]] = {
            "key": lambda keys: (self.queried(in_list(keys[:1])), keys[:1]),
            "keys": lambda keys: (self.queried(in_list(keys)), keys),
            "scan": lambda _: (self.queried(SCAN), KEYS),
            "piece": self.piece,
            "batch": lambda keys: (self.batch(keys), keys),
            "get_many": lambda keys: (self.got(keys), keys),
        }

    def read(self) -> None:
        (kind,) = self.random.choices(list(self.kinds), SHARES)
        keys = self.random.sample(KEYS, self.random.randint(2, len(KEYS)))
        begin = time.monotonic()
        try:
            rows, asked = self.kinds[kind](keys)
        except (ServerRefused, NodesUnreachable):
            self.refused += 1
            return
        values = values_of(rows, asked)
        self.answers.append(SessionAnswer(self.name, begin, time.monotonic(), values, kind))

    def queried(self, text: str) -> Rows:
        return [(row["K"], row["N"]) for row in self.client.query(text)]

    def piece(self, keys: Sequence[str]) -> tuple[Rows, Sequence[str]]:
        """It shows nothing of keys that are not in it, since the limit may have cut them off."""
        rows = self.queried(
            f"SELECT K, N FROM SNAP_COUNTS WHERE K >= '{keys[0]}' ORDER BY K LIMIT 6;"
        )
        return rows, [key for key, _ in rows]

    def got(self, keys: Sequence[str]) -> Rows:
        found = self.client.get_many("SNAP_COUNTS", keys)
        return [(row["K"], row["N"]) for row in found if row is not None]

    def batch(self, keys: Sequence[str]) -> Rows:
        """POST /query-batch, for which the client has no call."""
        asked = {
            "table": "SNAP_COUNTS",
            "keys": list(keys),
            "properties": {LEVEL_PROPERTY: self.level},
        }
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            head = {"content-type": "application/json"}
            connection.request("POST", "/query-batch", json.dumps(asked), head)
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            raise NodesUnreachable(str(error)) from error
        finally:
            connection.close()
        if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise ServerRefused(content.decode())
        assert answer.status == http.HTTPStatus.OK, content
        return [(row[0], row[1]) for row in json.loads(content)["rows"] if row is not None]


def in_list(keys: Sequence[str]) -> str:
    listed = ", ".join(f"'{key}'" for key in keys)
    return f"SELECT K, N FROM SNAP_COUNTS WHERE K IN ({listed});"


class Pauses(threading.Thread):
    """Stops the tailer of one node after the other for a while, and kills one."""

    def __init__(self, cluster: TestCluster, is_over: threading.Event) -> None:
        super().__init__()
        self.cluster, self.is_over = cluster, is_over
        self.count = 0
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over.wait(2):
                with suppress(AssertionError, ProcessLookupError):  # it has just been started again
                    self.pause(self.count % 3)
                self.count += 1
        except BaseException as fault:
            self.fault = fault

    def pause(self, number: int) -> None:
        tailer = tailer_of(self.cluster, number)
        if self.count == 4:
            os.kill(tailer, signal.SIGKILL)
            return
        os.kill(tailer, signal.SIGSTOP)
        try:
            self.is_over.wait(1.5)
        finally:
            os.kill(tailer, signal.SIGCONT)


@pytest.mark.timeout(560)
def test_each_answer_is_of_one_batch(cluster: TestCluster) -> None:
    cluster.sql(statements(NAME))
    over = threading.Event()
    query_id = cluster.query_of("SNAP_COUNTS")
    writer = Writer(cluster, topic_of(NAME), over, at_once=len(KEYS), every_s=0.1)
    addresses = [address for _, address in cluster.addresses]
    snapshot = [AllWays(addresses[n % 3], f"snapshot {n}", "snapshot", over) for n in range(6)]
    eventual = [AllWays(address, f"eventual {address}", "eventual", over) for address in addresses]
    pauses = Pauses(cluster, over)
    readers = [*snapshot, *eventual]
    threads: list[threading.Thread] = [writer, *readers, pauses]
    try:
        writer.start()
        wait_until(lambda: _has_all(addresses), "rows of all keys at all nodes")
        for thread in (*readers, pauses):
            thread.start()
        wait_until(lambda: _is_enough(readers, snapshot, pauses), "answers", lambda: _told(readers))
    finally:
        over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    assert [one.fault for one in (*readers, pauses)] == [None] * (len(readers) + 1)
    batches = batches_of(cluster, query_id, topic_of(NAME))
    writes, judged = as_batches(batches, writer.keys)
    answers = [judged(answer) for reader in snapshot for answer in reader.answers]
    others = [judged(answer) for reader in eventual for answer in reader.answers]
    assert snapshot_violations(writes, answers) == []
    mixed = snapshot_violations(writes, others)
    assert mixed, "the test would notice"
    print(  # figures, which no test asserts
        f"{len(answers)} snapshot reads, p50 {_p50(answers):.1f} ms, {len(others)} eventual, "
        f"p50 {_p50(others):.1f} ms, of which {len(mixed)} mixed batches; {len(batches)} batches, "
        f"{pauses.count} pauses; {_told(readers)}; p50 by kind "
        + ", ".join(
            f"{kind} {_p50([one for one in answers if one.where == kind]):.0f} / "
            f"{_p50([one for one in others if one.where == kind]):.0f} ms"
            for kind in snapshot[0].kinds
        )
    )


def _has_all(addresses: Sequence[str]) -> bool:
    for address in addresses:
        with NodesClient([address]) as client:
            if len(client.pull(SCAN, {LEVEL_PROPERTY: "snapshot"}).rows) < len(KEYS):
                return False
    return True


def _is_enough(readers: Sequence[AllWays], snapshot: Sequence[AllWays], pauses: Pauses) -> bool:
    if any(one.fault is not None for one in readers):
        return True
    of_each = Counter((one.address, answer.where) for one in snapshot for answer in one.answers)
    return (
        sum(of_each.values()) >= ANSWERS_MIN
        and len(of_each) == 3 * len(snapshot[0].kinds)
        and min(of_each.values()) >= OF_EACH_MIN
        and pauses.count > 6
    )


def _told(readers: Sequence[AllWays]) -> str:
    return "; ".join(
        f"{one.name}: {len(one.answers)} answers, {one.refused} refused" for one in readers
    )


def _p50(answers: Sequence[SessionAnswer]) -> float:
    return 1000 * statistics.median(one.end - one.begin for one in answers)
