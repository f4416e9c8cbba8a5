"""A tailer with a direct table: a scripted Kafka, real stores and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.node.tailer import test_main
from tests.unit.node.tailer.test_main import (
    HOUR_MS,
    PLACE,
    T0,
    TABLE,
    FakeEnds,
    FakeFollower,
    FakeProbe,
    FakeReader,
    Node,
)

from standpipe.adapters.kafka.ends import Ends
from standpipe.adapters.kafka.reader import Partition
from standpipe.data.commit.topic_identity import LASTED_MS, TopicSeen
from standpipe.data.replica.events import EndReached, RecordsFetched, RecordsGone
from standpipe.data.replica.positions import replica_lag_ms, source_lag_ms
from standpipe.model import OF_LOG, Offset, ReplicaState
from standpipe.node.tailer import direct_ends, main, source_ends
from standpipe.topics import DIRECT_TOMBSTONES_MS

DIRECT = msgspec.structs.replace(TABLE, query_id=None, is_direct=True)


class StableEnds(FakeEnds):
    """Counts the questions."""

    def __init__(self, servers: str, *, is_stable: bool) -> None:
        super().__init__(servers)
        assert is_stable
        self.asked = 0

    def ask(self, partitions: Iterable[Partition]) -> Future[Ends]:
        self.asked += 1
        return super().ask(partitions)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(main, "PartitionReader", FakeReader)
    monkeypatch.setattr(main, "ProgressFollower", FakeFollower)
    monkeypatch.setattr(main, "TopicProbe", FakeProbe)
    monkeypatch.setattr(source_ends, "EndsReader", FakeEnds)
    monkeypatch.setattr(direct_ends, "EndsReader", StableEnds)
    monkeypatch.setattr(test_main, "TABLE", DIRECT)
    one = Node(tmp_path)
    yield one
    one.stop()


def stable(node: Node) -> Any:
    return node.tailer._direct_ends._reader


def deliver(node: Node, first: int, *rows: tuple[str, int | None]) -> None:
    records = [
        (first + n, key.encode(), None if number is None else b'{"N":%d}' % number, None)
        for n, (key, number) in enumerate(rows)
    ]
    times_ms = [5] * len(records)
    end = Offset(first + len(rows))
    node.tables.fetched.append((T0, RecordsFetched(records, end, times_ms)))


def running(node: Node) -> Node:
    """At offset 2, where the topic ends."""
    node.place(PLACE)
    node.topics.ids = {"T": "id-1"}
    stable(node).ends = {T0: 2}
    node.turn()
    deliver(node, 0, ("a", 1), ("b", 2))
    node.turn(3)
    return node


def test_from_another_programs_topic_to_a_store_and_a_page(node: Node) -> None:
    running(node)
    page = node.status()
    assert (page.state, page.position, page.committed_end) == (ReplicaState.RUNNING, 2, 2)
    assert (page.batch, page.rows, page.offset_lag) == (OF_LOG, 2, 0)
    now_ms = node.clock.boot_ms()
    lag_ms = replica_lag_ms(page, now_ms)
    assert lag_ms is not None
    assert lag_ms <= 300
    assert source_lag_ms(page, 0, now_ms=0, now_boot_ms=now_ms) == lag_ms
    assert node.rows() == {"a": b"[1]", "b": b"[2]"}


def test_it_needs_no_progress(node: Node) -> None:
    """A node whose progress topic cannot be read goes on, and is not restarted for it."""
    running(node)
    node.clock.now_ms += HOUR_MS
    stable(node).ends = {T0: 3}
    deliver(node, 2, ("a", 3))
    node.turn(3)
    assert not node.tailer.is_outdated
    assert node.status().position == 3


def test_while_kafka_is_silent_its_rows_age(node: Node) -> None:
    running(node)
    stable(node).ends = None
    confirmed_ms = node.status().confirmed_boot_ms
    node.turn(20)
    assert node.status().confirmed_boot_ms <= confirmed_ms + 200
    assert stable(node).asked > 10, "it goes on asking"


def test_it_continues_from_its_own_stamp(node: Node) -> None:
    running(node).stop()
    node.start()
    node.topics.ids = {"T": "id-1"}
    node.turn()
    assert node.tables.reading == {T0: 2}
    assert node.status().state is ReplicaState.CATCHING_UP
    node.tables.fetched.append((T0, EndReached(Offset(2))))
    node.turn()
    assert node.status().state is ReplicaState.RUNNING


def test_a_store_that_may_have_missed_a_tombstone_is_read_again(node: Node) -> None:
    running(node).stop()
    node.clock.now_ms += DIRECT_TOMBSTONES_MS + 1
    node.start()
    node.turn(15)
    assert node.tables.reading == {T0: 0}


def test_a_topic_made_again_is_data_loss(node: Node) -> None:
    running(node)
    node.topics.ids = {"T": "id-2"}
    stable(node).ends = {T0: 0}
    node.turn(LASTED_MS // 100 + 2)
    assert node.status().state is ReplicaState.DATA_LOSS


def test_the_end_of_another_topic_confirms_nothing(node: Node) -> None:
    """It is 3 s before a topic made again is noticed, and its end is below what was read."""
    running(node)
    stable(node).ends = {T0: 0}
    node.turn(2)  # an answer may be on its way
    confirmed_ms = node.status().confirmed_boot_ms
    node.turn(LASTED_MS // 200)
    assert node.status().state is ReplicaState.RUNNING
    assert node.status().confirmed_boot_ms == confirmed_ms


def test_a_topic_that_gets_partitions_is_data_loss(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(node)
    monkeypatch.setattr(test_main, "TopicSeen", lambda topic_id, _: TopicSeen(topic_id, 3))
    node.turn(LASTED_MS // 100 + 2)
    assert node.status().state is ReplicaState.DATA_LOSS


def test_a_topic_that_begins_later_is_read_again(node: Node) -> None:
    running(node)
    stable(node).ends = {T0: 90}
    node.tables.fetched.append((T0, RecordsGone()))
    node.turn(4)
    assert node.status().state is ReplicaState.BOOTSTRAP
    assert node.tailer._restores.outgrown.total() == 1, "a copy is refused at the second time"
    node.turn(15)
    assert node.tables.reading == {T0: 0}
    assert node.status().position == 0


def test_a_store_that_fails_while_versions_are_looked_up(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    versioned = msgspec.structs.replace(DIRECT, version_column="N")
    monkeypatch.setattr(test_main, "TABLE", versioned)
    running(node)
    (replica,) = node.tailer._replicas.values()
    replica.store._environment.close()
    deliver(node, 2, ("a", 3))
    node.turn()
    assert not node.tailer._replicas, "closed, to be opened again"


def test_digests_are_kept_until_something_is_left_out(node: Node) -> None:
    running(node)
    (replica,) = node.tailer._replicas.values()
    kept = len(replica.kept_digests().recent)
    assert kept > 0
    node.tables.fetched.append((T0, RecordsFetched([(2, b"a", b"{", None)], Offset(3), [0])))
    node.turn()
    deliver(node, 3, ("a", 3))
    node.turn()
    assert len(replica.kept_digests().recent) == kept
