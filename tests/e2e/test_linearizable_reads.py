"""Linearizable reads over real Kafka, Spark and three nodes, judged by what the test saw committed.

The test follows the progress topic beside the nodes: what it has read there is committed, so every
read that begins later must show it. Values are counts, which a batch's source offsets turn into
batches for the judge of `tests/sim/linear_histories.py`. Meanwhile the tailer of one node stands
still for a while, and that of another one is killed.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from contextlib import suppress

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.counted_keys import (
    KEYS,
    Reader,
    Writer,
    as_batches,
    batch_in,
    batches_of,
    progress_of,
    statements,
    tailer_of,
    topic_of,
    values_of,
)
from tests.sim.linear_histories import linear_violations
from tests.sim.session_histories import SessionAnswer

from standpipe.client import NodesUnreachable, ServerRefused
from standpipe.data.replica.barrier import BARRIER_KEY
from standpipe.local.client.rest_client import NodesClient
from standpipe.session_token import LEVEL_PROPERTY

NAME = "L"
TOPIC = topic_of(NAME)
SCAN = "SELECT K, N FROM L_COUNTS;"


class Watcher(threading.Thread):
    """Reads the progress topic as anybody may, and writes down when it saw a batch."""

    def __init__(self, cluster: TestCluster, query_id: str) -> None:
        super().__init__()
        self.query_id, self.is_over = query_id, threading.Event()
        self.consumer = progress_of(cluster)
        #: (instant, batch)
        self.committed: list[tuple[float, int]] = []
        self.barriers = 0

    def run(self) -> None:
        while not self.is_over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.barriers += message.key() == BARRIER_KEY
                found = batch_in(message.value(), self.query_id, TOPIC)
                if found is not None:
                    self.committed.append((time.monotonic(), found[0]))
        self.consumer.close()


class KeyReader(Reader):
    """Reads one key, some, or all."""

    def read(self) -> None:
        keys = self.random.sample(KEYS, self.random.choice([1, 1, 1, 3]))
        is_scan = self.random.random() < 0.1
        listed = ", ".join(f"'{key}'" for key in keys)
        text = SCAN if is_scan else f"SELECT K, N FROM L_COUNTS WHERE K IN ({listed});"
        begin = time.monotonic()
        try:
            rows = self.client.query(text)
        except (ServerRefused, NodesUnreachable):
            self.refused += 1
            return
        end, found = time.monotonic(), [(row["K"], row["N"]) for row in rows]
        values = values_of(found, KEYS if is_scan else keys)
        self.answers.append(SessionAnswer(self.name, begin, end, values, text))


@pytest.mark.timeout(560)
def test_no_read_lacks_what_was_committed_before_it(cluster: TestCluster) -> None:
    cluster.sql(statements(NAME))
    over = threading.Event()
    watcher = Watcher(cluster, cluster.query_of("L_COUNTS"))
    writer = Writer(cluster, TOPIC, over)
    addresses = [address for _, address in cluster.addresses]
    linear = [KeyReader(addresses[n % 3], f"linear {n}", "linearizable", over) for n in range(6)]
    eventual = KeyReader(addresses[1], "eventual", "eventual", over)
    threads: list[threading.Thread] = [writer, *linear, eventual]
    try:
        watcher.start()
        writer.start()
        wait_until(lambda: len(watcher.committed) > 2, "batches")
        wait_until(lambda: _answers(addresses[0]), "rows")
        for reader in (*linear, eventual):
            reader.start()
        time.sleep(6)
        stopped = tailer_of(cluster, 1)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(4)
        os.kill(stopped, signal.SIGCONT)
        os.kill(tailer_of(cluster, 2), signal.SIGKILL)
        wait_until(
            lambda: all(len(one.answers) > 60 or one.fault is not None for one in linear),
            "answers",
        )
    finally:
        over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        watcher.is_over.set()
        watcher.join()
    assert [one.fault for one in (*linear, eventual)] == [None] * 7
    writes, judged = as_batches(batches_of(cluster, watcher.query_id, TOPIC), writer.keys)
    answers = [judged(answer) for reader in linear for answer in reader.answers]
    others = [judged(answer) for answer in eventual.answers]
    assert linear_violations(writes, watcher.committed, answers) == []
    assert linear_violations(writes, watcher.committed, others), "the test would notice"
    took = [1000 * (one.end - one.begin) for one in answers]
    beside = [1000 * (one.end - one.begin) for one in others]
    print(  # figures, which no test asserts
        f"{len(answers)} linearizable reads, {sum(one.refused for one in linear)} refused, "
        f"p50 {statistics.median(took):.0f} ms; {len(others)} eventual, "
        f"p50 {statistics.median(beside):.1f} ms; {watcher.barriers} barriers, "
        f"{len(watcher.committed)} batches"
    )


def _answers(address: str) -> bool:
    with NodesClient([address]) as client, suppress(ServerRefused):
        return bool(client.pull(SCAN, {LEVEL_PROPERTY: "linearizable"}).rows)
    return False
