"""The tailer with a scripted Kafka: real stores, real pages, the map of a cluster in a file."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest
from tests.samples import sample_table

from standpipe.adapters.files import published
from standpipe.adapters.kafka.ends import Ends
from standpipe.adapters.kafka.reader import FetchEvent, Partition
from standpipe.adapters.store import writer
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.status_page import StatusReader, page_path
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.commit.commit_history import CommitHistory
from standpipe.data.commit.covered_offsets import TopicOffsets
from standpipe.data.commit.progress import ProgressBook, ValidTarget
from standpipe.data.commit.seal import ProgressSeal
from standpipe.data.commit.topic_identity import HEARD_MS_MAX, LASTED_MS, TopicSeen
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
    store_key,
)
from standpipe.data.encoding.stored_rows import unpack_row
from standpipe.data.replica.digest_verdict import KeptDigests
from standpipe.data.replica.events import (
    EndReached,
    Fetched,
    ProgressCaughtUp,
    RecordsFetched,
    RecordsGone,
)
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import StoreIdentity
from standpipe.errors import DataDirectoryRefused, KafkaUnavailable
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    Column,
    Commit,
    LeaseEpoch,
    LogIndex,
    NodeId,
    Offset,
    Placement,
    Progress,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
)
from standpipe.node.configuration import NodeConfig
from standpipe.node.covered_files import CoveredFiles, covered_path
from standpipe.node.tailer import main, source_ends, store_opener
from standpipe.node.tailer.main import Tailer
from standpipe.node.tailer.progress import ProgressFollower
from standpipe.node.tailer.replica import World
from standpipe.sql.declarations.added_columns import external_query_id
from standpipe.topics import TOMBSTONES_MS

NODE = NodeId("node-1")
TABLE = sample_table(query_id="Q", table_id="t", is_materialized=True)
PLACE = Placement(table_id="t", generation=1, partition=0, replicas=(NODE,))
T0 = Partition("T", 0)
HOUR_MS = 3_600_000
IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)


class FakeClock:
    """Stands still until it is told; every clock shows the same until the wall clock is set."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.set_ms = 0
        self.boot = "boot-1"

    def wall_ms(self) -> int:
        return self.now_ms + self.set_ms

    def boot_ms(self) -> int:
        return self.now_ms

    monotonic_ms = boot_ms

    def boot_id(self) -> str:
        return self.boot


class FakeReader:
    """Table topics: hands out what the test puts in, notes where reading began."""

    def __init__(self, _servers: str) -> None:
        self.fetched: list[tuple[Partition, FetchEvent]] = []
        self.reading: dict[Partition, int] = {}

    def start(self, of: Partition, offset: int, *, is_timed: bool = False) -> None:
        self.reading[of] = offset

    def stop(self, of: Partition) -> None:
        del self.reading[of]

    def poll(self, _wait_s: float) -> list[tuple[Partition, FetchEvent]]:
        fetched, self.fetched = self.fetched, []
        return fetched

    def take_record_count(self) -> int:
        return 0

    def log_end(self, _of: Partition) -> int:
        return -1

    def close(self) -> None:
        self.reading.clear()


class FakeFollower:
    """The progress topic: a list, read from its beginning."""

    def __init__(self, _servers: str, topic: str, seal: ProgressSeal) -> None:
        assert seal.checks
        assert topic == "svc_progress"
        self.name, self.topic_id = topic, ""
        #: None: a barrier
        self.topic: list[Progress | None] = []
        self.read_again()
        self.confirmed: int | None = None

    def ignored(self) -> dict[str, int]:
        return {"FORGED": 2}

    heard = ProgressFollower.heard
    _of = Partition("svc_progress", 0)

    def read_again(self) -> None:
        self.book, self.history = ProgressBook(), CommitHistory()
        self.position, self.barrier_end, self.knows_all = 0, 0, False

    def poll(self) -> list[ValidTarget | ProgressCaughtUp]:
        news: list[ValidTarget] = []
        for offset, record in enumerate(self.topic[self.position :], self.position):
            if record is None:
                self.barrier_end = offset + 1
                continue
            news += self.book.take(record)
            self.history.take(record, self.book)
        self.position, self.knows_all = len(self.topic), True
        return [*news, ProgressCaughtUp()]

    def confirmed_ms(self, _now_ms: int) -> int | None:
        return self.confirmed

    def close(self) -> None:
        return None


class FakeProbe:
    """Kafka's word on which topics there are: what the test says."""

    def __init__(self, _servers: str) -> None:
        self.ids: dict[str, str] | None = None

    def tick(self, now_ms: int, topics: frozenset[str]) -> tuple[int, dict[str, TopicSeen]] | None:
        if self.ids is None:
            return None
        known = {name: each for name, each in self.ids.items() if name in topics}
        return now_ms, {name: TopicSeen(each, 1) for name, each in known.items()}


class FakeEnds:
    """Kafka's word on where topics end: what the test says."""

    def __init__(self, _servers: str) -> None:
        self.ends: Ends | None = None

    def ask(self, partitions: Iterable[Partition]) -> Future[Ends]:
        answer: Future[Ends] = Future()
        if self.ends is None:
            answer.set_exception(KafkaUnavailable("Kafka: away"))
        else:
            answer.set_result({one: self.ends.get(one) for one in partitions})
        return answer


class Node:
    """A tailer, and what surrounds it in a node's data directory."""

    def __init__(self, data: Path) -> None:
        self.clock = FakeClock()
        self.config = NodeConfig(
            node_id=NODE,
            data_dir=str(data),
            bootstrap_servers="b",
            public="h:1",
            internal="h:2",
            peer="h:3",
            secret_file=str(data / "secret"),
            service_id="svc",
        )
        self.paths = self.config.paths
        self.paths.make()
        (data / "secret").write_text("s")
        self.page = StatusReader(page_path(self.paths.run, ReplicaId("t", 1, 0)))
        self.stamp = 0
        self.start()

    def stop(self) -> None:
        if not self.is_stopped:
            self.tailer.close()
        self.is_stopped = True

    def start(self) -> None:
        self.is_stopped = False
        self.tailer = Tailer(self.config, self.clock)  # type: ignore[arg-type]
        self.tables: Any = self.tailer._tables
        self.progress: Any = self.tailer._progress
        self.topics: Any = self.tailer._topics
        self.ends: Any = self.tailer._sources._reader

    def place(self, *placements: Placement, table: Source | None = None) -> None:
        self.stamp += 1
        snapshot = Snapshot(
            stamp=self.stamp,
            node_id=NODE,
            service_id="svc",
            cluster_id="c",
            log_index=LogIndex(1),
            leader=NODE,
            nodes=(),
            sources=(table or TABLE,),
            queries=(),
            assignment=Assignment(epoch=AssignmentEpoch(1), placements=placements),
        )
        published.write(self.paths.snapshot, snapshot)

    def turn(self, times: int = 1, *, ms: int = 100) -> None:
        """The body of the loop."""
        for _ in range(times):
            self.tailer.follow_map()
            self.tailer.follow_progress()
            self.tailer.follow_topics()
            self.tailer.follow_tables()
            self.tailer.confirm()
            self.tailer.follow_sources()
            self.tailer.publish()
            self.clock.now_ms += ms

    def status(self) -> ReplicaStatus:
        found = self.page.read()
        assert found is not None
        return found

    def commit(
        self, batch: int, end: int, lease_epoch: int = 1, topic_id: str = "", source_end: int = 0
    ) -> None:
        by = Commit(lease_epoch=LeaseEpoch(lease_epoch), batch=BatchId(batch), attempt=7)
        self.progress.topic.append(
            Progress(
                query_id="Q",
                commit=by,
                sinks={0: Offset(end)},
                source_instant_ms=77,
                topic_id=topic_id,
                sources={"S": {0: source_end}} if source_end else {},
                source_topic_ids={"S": "id-s"},
            )
        )

    def deliver(self, *rows: tuple[int, str, int]) -> None:
        """(batch, key, number), offsets from where reading stands."""
        first = self.tables.reading[T0]
        records = [record(first + n, *row) for n, row in enumerate(rows)]
        self.tables.reading[T0] += len(rows)
        self.tables.fetched.append((T0, RecordsFetched(records, Offset(first + len(rows)))))

    def rows(self) -> dict[str, bytes]:
        """What a worker would read; the tailer is stopped for it."""
        self.stop()
        reader = StoreReader(self.paths.state / "t-1" / "0")
        found = reader.scan(b"", b"\xff", 100)
        reader.close()
        return {key[:-2].decode(): unpack_row(value).value_json for key, value in found}


def record(offset: int, batch: int, key: str, number: int) -> Fetched:
    by = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=7)
    headers = [(HEADER_COMMIT, commit_header(by)), (HEADER_ROWTIME, rowtime_header(5))]
    return (offset, key.encode(), b'{"N":%d}' % number, headers)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(main, "PartitionReader", FakeReader)
    monkeypatch.setattr(main, "ProgressFollower", FakeFollower)
    monkeypatch.setattr(main, "TopicProbe", FakeProbe)
    monkeypatch.setattr(source_ends, "EndsReader", FakeEnds)
    one = Node(tmp_path)
    yield one
    one.stop()


def running(node: Node) -> Node:
    """With one batch of two rows."""
    node.place(PLACE)
    node.commit(0, 2)
    node.turn()
    node.deliver((0, "a", 1), (0, "b", 2))
    node.turn()
    return node


def test_without_a_map_there_is_nothing_to_do(node: Node) -> None:
    node.turn(3)
    assert node.page.read() is None


def test_from_kafka_to_a_store_and_a_page(node: Node) -> None:
    node.place(PLACE)
    node.turn()
    assert node.status().state is ReplicaState.BOOTSTRAP
    running(node)
    page = node.status()
    assert (page.state, page.position, page.committed_end) == (ReplicaState.RUNNING, 2, 2)
    assert (page.batch, page.rows, page.source_instant_ms) == (0, 2, 77)
    assert node.rows() == {"a": b"[1]", "b": b"[2]"}


def test_idle_sources_keep_rows_young(node: Node) -> None:
    """Whether or not a pipeline is there to say so."""
    node.place(PLACE)
    node.topics.ids = {"S": "id-s", "T": ""}
    node.commit(0, 1, source_end=5)
    node.turn()
    node.deliver((0, "a", 1))
    node.turn(20)
    assert node.status().source_boot_ms == 0, "Kafka has said nothing of the source"
    node.ends.ends = {Partition("S", 0): 5}
    for _ in range(3):
        node.turn(20)
        assert node.clock.now_ms - node.status().source_boot_ms < 1500
    node.ends.ends = {Partition("S", 0): 6}  # a record that no batch has
    node.turn(10)
    old = node.status().source_boot_ms
    node.turn(20)
    assert node.status().source_boot_ms == old
    node.ends.ends = {Partition("S", 0): 5}
    node.topics.ids = {"S": "id-other", "T": ""}  # created again, by chance as long as before
    node.turn(20)
    node.topics.ids = {"S": "id-s", "T": ""}
    node.ends.ends = None  # Kafka is away
    node.turn(20)
    seen = node.status().source_boot_ms
    assert seen - old <= 1500, "at most what was asked before the new id was heard"
    node.commit(1, 2, source_end=6)
    node.ends.ends = {Partition("S", 0): 6}
    node.turn(20)
    assert node.status().source_boot_ms == seen, "the replica has yet to apply the batch"
    node.deliver((1, "a", 2))
    node.turn(20)
    assert node.clock.now_ms - node.status().source_boot_ms < 1500


def test_rows_that_are_always_a_batch_behind_have_an_age(node: Node) -> None:
    node.place(PLACE)
    node.topics.ids = {"S": "id-s", "T": ""}
    node.ends.ends = {Partition("S", 0): 5}
    node.commit(0, 1, source_end=5)
    node.turn()
    node.deliver((0, "a", 1))
    node.turn(20)
    for batch in range(1, 6):
        node.ends.ends = {Partition("S", 0): 5 + batch}
        node.commit(batch, batch + 1, source_end=5 + batch)
        node.turn(20)
        node.deliver((batch, "a", 1))  # of the batch that is committed; by now there is the next
        node.commit(batch + 10, batch + 1, source_end=5 + batch)
        node.turn()
    assert node.clock.now_ms - node.status().source_boot_ms < 6_000


def test_the_page_says_which_progress_the_rows_have(node: Node) -> None:
    node.place(PLACE)
    node.turn(3)
    assert node.status().progress_end == 0, "nothing is committed: it does not answer"
    node.commit(0, 1)
    node.turn(3)
    assert node.status().progress_end == 0, "the batch is not applied yet"
    node.deliver((0, "a", 1))
    node.turn()
    assert node.status().progress_end == 1
    other = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(0), attempt=7)
    node.progress.topic.append(Progress(query_id="OTHER", commit=other, sinks={0: Offset(3)}))
    node.turn()
    assert node.status().progress_end == 2, "of another table: nothing to wait for"
    node.commit(1, 2)
    node.turn(3)
    assert node.status().progress_end == 2
    node.deliver((1, "a", 2))
    node.turn()
    assert node.status().progress_end == 3


def test_a_barrier_is_told_at_once(node: Node) -> None:
    """Not with the next round of pages, 50 ms after the one before."""
    running(node)
    node.turn(2, ms=5)
    beat_ms = node.status().beat_boot_ms
    other = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(0), attempt=7)
    node.progress.topic.append(Progress(query_id="OTHER", commit=other, sinks={0: Offset(3)}))
    node.turn(ms=5)
    assert (node.status().progress_end, node.status().beat_boot_ms) == (1, beat_ms), "nobody waits"
    node.progress.topic.append(None)
    node.turn(ms=5)
    assert (node.status().progress_end, node.status().beat_boot_ms) == (3, beat_ms + 15)
    node.turn(ms=5)
    assert node.status().beat_boot_ms == beat_ms + 15, "once"


def test_a_batch_below_a_barrier_is_told_as_soon_as_it_is_applied(node: Node) -> None:
    running(node)
    node.turn(2, ms=5)
    node.commit(1, 3)
    node.progress.topic.append(None)
    node.turn(3, ms=5)
    assert (node.status().batch, node.status().progress_end) == (0, 1), "its rows are not there"
    node.deliver((1, "a", 3))
    node.turn(ms=5)
    assert (node.status().batch, node.status().progress_end) == (1, 3)


def test_the_page_says_in_which_topic_progress_is(node: Node) -> None:
    running(node)
    assert (node.status().progress_end, node.status().progress_topic_id) == (1, "")
    node.topics.ids = {"svc_progress": "X"}
    node.turn(2)
    assert (node.status().progress_end, node.status().progress_topic_id) == (1, "X")
    node.topics.ids = {}
    node.turn(2)
    assert node.status().progress_topic_id == "X", "deleted: nothing is read of another one yet"
    node.topics.ids = {"svc_progress": "Y"}
    node.progress.topic = [None, None, None]
    node.turn()
    assert (node.status().progress_end, node.status().progress_topic_id) == (0, "Y")
    node.turn()
    assert (node.status().progress_end, node.status().progress_topic_id) == (3, "Y")


def test_which_progress_the_rows_have_is_found_again_after_a_restart(node: Node) -> None:
    running(node)
    assert node.status().progress_end == 1
    node.progress.read_again()
    node.tailer.publish()
    node.clock.now_ms += 100
    assert node.status().progress_end == 0, "the topic is read again: it may be another one"
    node.turn()
    assert node.status().progress_end == 1
    topic = node.progress.topic
    node.stop()
    node.start()
    node.progress.topic = topic
    assert node.status().progress_end == 1, "the page of the tailer before: still true"
    node.turn(2)
    assert node.status().progress_end == 1


def test_what_was_found_with_other_progress_is_forgotten(node: Node) -> None:
    """While the progress topic is read again, its book has the ends of an earlier time."""
    node.place(PLACE)
    node.topics.ids = {"S": "id-s", "T": ""}
    node.ends.ends = {Partition("S", 0): 5}
    node.commit(0, 1, source_end=5)
    node.turn()
    node.deliver((0, "a", 1))
    node.turn(20)
    book = node.progress.book
    assert node.tailer._sources.covered(book)["Q"] > 0
    node.progress.read_again()
    assert node.tailer._sources.covered(node.progress.book) == {}
    node.tailer.follow_sources()
    assert node.tailer._sources._book is book, "nothing is asked with a part of it"
    node.turn(20)
    assert node.tailer._sources.covered(node.progress.book)["Q"] > 0


def test_workers_are_told_what_a_batch_covers_before_its_rows_change(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(node)
    files, told = CoveredFiles(node.paths.status), list[tuple[int, dict[int, int]]]()
    map_ = published.read_snapshot(node.paths.snapshot)
    assert map_ is not None
    files.way(map_, map_.sources[0])
    apply = StoreWriter.apply

    def noted(self: StoreWriter, *given: Any) -> Any:
        newest = files.of(("t", 1)).batches[-1]
        told.append((newest.batch, newest.topics["S"].offsets))
        return apply(self, *given)

    monkeypatch.setattr(StoreWriter, "apply", noted)
    node.topics.ids = {"S": "id-s", "T": ""}
    node.deliver((1, "a", 7))  # written, and not yet committed
    node.turn()
    node.commit(1, 3, source_end=5)
    asked_ms = node.clock.now_ms
    node.ends.ends = {Partition("S", 0): 6}
    node.turn(20)
    assert (1, {0: 5}) in told
    assert [each.batch for each in files.of(("t", 1)).batches] == [0, 1]
    ends = files.ends_after(asked_ms, node.clock.now_ms)
    assert ends is not None
    assert ends.topics["S"] == TopicOffsets(topic_id="id-s", offsets={0: 6})
    assert files.ends_after(node.clock.now_ms, node.clock.now_ms) is None
    node.place()
    node.turn()
    assert not covered_path(node.paths.status, ("t", 1)).exists()


def test_records_are_wanted_only_when_all_progress_is_known(node: Node) -> None:
    node.place(PLACE)
    node.tailer.follow_map()
    assert node.tables.reading == {}
    node.tailer.follow_progress()
    assert node.tables.reading == {T0: 0}


@pytest.mark.parametrize(
    ("now_id", "state", "why"),
    [
        (None, ReplicaState.BOOTSTRAP, "nobody knows yet whose records these are"),
        ("I", ReplicaState.RUNNING, "it is the topic that was committed to"),
        ("", ReplicaState.RUNNING, "brokers without ids say nothing"),
        ("J", ReplicaState.DATA_LOSS, "made anew: its records pass for the committed ones"),
    ],
)
def test_a_replica_is_not_restored_from_a_topic_that_was_made_anew(
    node: Node, now_id: str | None, state: ReplicaState, why: str
) -> None:
    node.place(PLACE)
    node.commit(0, 2, topic_id="I")
    node.topics.ids = None if now_id is None else {"T": now_id}
    node.turn()
    node.deliver((0, "a", 1), (0, "b", 2))
    node.turn(2 + LASTED_MS // 100)
    assert node.status().state is state, why
    assert node.rows() == ({"a": b"[1]", "b": b"[2]"} if state.answers else {}), why


@pytest.mark.parametrize(
    ("now_id", "state", "newest"),
    [("I", ReplicaState.RUNNING, b"[9]"), ("J", ReplicaState.DATA_LOSS, b"[1]")],
)
def test_what_is_read_after_a_pause_waits_until_kafka_says_what_it_is_of(
    node: Node, now_id: str, state: ReplicaState, newest: bytes
) -> None:
    """Seed 338: a replica stood still while its topic was made anew, and took copies for rows."""
    node.topics.ids = {"T": "I"}
    node.place(PLACE)
    node.commit(0, 2, topic_id="I")
    node.turn()
    node.deliver((0, "a", 1), (0, "b", 2))
    node.turn()
    node.clock.now_ms += HEARD_MS_MAX
    node.topics.ids = None  # no answer yet
    node.commit(1, 3, topic_id="I")
    node.deliver((1, "a", 9))
    node.turn(3)
    assert node.status().batch == 0
    assert node.status().state is ReplicaState.RUNNING, "it answers with what it has"
    node.topics.ids = {"T": now_id}
    node.turn(2 + LASTED_MS // 100)
    assert node.status().state is state
    node.stop()
    reader = StoreReader(node.paths.state / "t-1" / "0")
    row = reader.get(b"a\0\1")
    reader.close()
    assert row is not None
    assert unpack_row(row).value_json == newest


def test_a_confirmation_needs_a_replica_at_its_end(node: Node) -> None:
    node.place(PLACE)
    node.commit(0, 1)
    node.progress.confirmed = 900_000
    node.turn(2)
    assert node.status().confirmed_boot_ms == 0, "A < C: not confirmed"
    assert node.status().known_boot_ms == 900_000, "but its end is known"
    node.deliver((0, "a", 1))
    node.turn(2)
    assert node.status().confirmed_boot_ms == 900_000
    node.progress.confirmed = None  # Kafka is away
    node.turn(5)
    assert node.status().confirmed_boot_ms == 900_000, "what is not confirmed ages"
    assert node.status().beat_boot_ms > 1_000_500, "but the tailer lives"
    assert node.status().known_boot_ms == 900_000


def test_a_column_that_is_added_is_read_from_then_on(node: Node) -> None:
    """Also of records that came before the map; the replica stays open, and reads no record field
    by field once it knows the columns."""
    query_id = external_query_id("t")
    began = msgspec.structs.replace(TABLE, query_id=query_id)
    more = Column(name="M", type="STRING")
    grown = msgspec.structs.replace(began, columns=(*began.columns, more), columns_first=1)

    def deliver(batch: int, key: str, value: bytes) -> None:
        node.commit(batch, batch + 1)
        node.progress.topic[-1] = msgspec.structs.replace(
            node.progress.topic[-1], query_id=query_id
        )
        offset, raw_key, _, headers = record(batch, batch, key, 0)
        fetched = RecordsFetched([(offset, raw_key, value, headers)], Offset(batch + 1))
        node.tables.fetched.append((T0, fetched))
        node.turn()

    node.place(PLACE, table=began)
    node.turn()
    deliver(0, "a", b'{"N":1}')
    deliver(1, "b", b'{"N":2,"M":"x"}')
    (replica,) = node.tailer._replicas.values()
    node.place(PLACE, table=grown)
    node.turn()
    assert [*node.tailer._replicas.values()] == [replica]
    machine = replica.machine
    assert isinstance(machine, ApplyMachine)
    assert len(machine.codec.heads) == 2
    deliver(2, "c", b'{"N":3,"M":null}')
    deliver(3, "d", b'{"N":4}')
    assert node.rows() == {"a": b"[1]", "b": b'[2,"x"]', "c": b"[3,null]", "d": b"[4]"}


def test_a_restore_gives_its_memory_back_and_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, when it is over; batches that come later need what they have."""
    monkeypatch.setattr(writer, "MEMORY_CHANGES", 2)
    trimmed: list[int] = []
    monkeypatch.setattr(writer, "give_back_freed_memory", lambda: trimmed.append(1))
    running(node)
    assert trimmed == [1]
    node.commit(1, 4)
    node.deliver((1, "a", 9), (1, "c", 3))
    node.turn(3)
    assert node.status().state is ReplicaState.RUNNING
    assert trimmed == [1]
    assert node.rows() == {"a": b"[9]", "b": b"[2]", "c": b"[3]"}


def test_a_restart_goes_on_where_the_store_is(node: Node) -> None:
    running(node).stop()
    topic = node.progress.topic
    node.start()
    node.progress.topic = topic
    node.turn()
    assert node.tables.reading == {T0: 2}
    node.commit(1, 3)
    node.deliver((1, "a", 9))
    node.turn()
    assert node.status().batch == 1
    assert node.rows() == {"a": b"[9]", "b": b"[2]"}


HALF_LAG_MS = main.COMPACTION_LAG_MS // 2


@pytest.mark.parametrize(("silent_ms", "ends"), [(HALF_LAG_MS, False), (HALF_LAG_MS + 1, True)])
@pytest.mark.parametrize("hears", ["a record", "that there is no news"])
def test_who_did_not_hear_kafka_for_long_begins_anew_once_it_is_back(
    node: Node, silent_ms: int, ends: bool, hears: str
) -> None:
    """Seeds of `is_cut_off`: compaction may have taken what a gap was to be judged by."""
    running(node)
    node.tailer._known_ms = node.clock.now_ms
    node.turn(ms=silent_ms)
    node.turn(ms=0)
    assert not node.tailer.is_outdated, "Kafka is away: its pages say how old the rows are"
    if hears == "a record":
        node.commit(1, 3)
        node.deliver((1, "a", 9))
    else:
        node.progress.confirmed = node.clock.now_ms
    node.turn(ms=0)
    assert node.tailer.is_outdated is ends
    assert node.status().batch == (1 if hears == "a record" and not ends else 0)


def test_to_read_progress_for_long_is_no_silence(node: Node) -> None:
    """Seed 1632: it began anew for ever, and each time at the beginning of the topic."""
    node.place(PLACE)
    node.commit(0, 1)
    node.tailer.follow_map()
    node.clock.now_ms += HALF_LAG_MS + 1
    node.progress.confirmed = node.clock.now_ms
    node.turn(ms=0)
    assert not node.tailer.is_outdated
    node.deliver((0, "a", 1))
    node.turn(ms=HALF_LAG_MS)
    assert node.rows() == {"a": b"[1]"}


def test_to_read_progress_for_long_makes_no_new_store_old(node: Node) -> None:
    """Seed 480: it had taken nothing yet, and was judged by tombstones from before it was there."""
    node.place(PLACE)
    node.commit(0, 2)
    node.tailer.follow_map()
    node.clock.now_ms += TOMBSTONES_MS + 1
    node.progress.confirmed = node.clock.now_ms
    node.turn(ms=0)
    (first,) = node.tailer._replicas.values()
    node.tailer._known_ms = node.clock.now_ms
    node.deliver((0, "a", 1))
    node.turn(4, ms=main.REOPEN_MS)
    assert [*node.tailer._replicas.values()] == [first], "it goes on reading"


def test_a_store_that_no_batch_comes_to_is_no_older_than_it_was_confirmed(node: Node) -> None:
    """Else a quiet week makes every restart a restore, and every copy of it useless."""
    running(node)
    node.turn(ms=TOMBSTONES_MS)
    node.tailer._known_ms = node.progress.confirmed = node.clock.now_ms
    node.turn(2)
    topic = node.progress.topic
    node.stop()
    node.start()
    node.progress.topic = topic
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: 2}


def test_others_go_on_while_a_large_store_is_checked(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows take 2.3 s; then it goes on where it was, however far the others are."""
    running(node)
    topic = node.progress.topic
    node.stop()
    monkeypatch.setattr(store_opener, "AT_ONCE_BYTES_MAX", 0)
    is_free, really = threading.Event(), store_opener.open_store

    def slowly(holding: Holding, world: World) -> StoreWriter:
        assert is_free.wait(60)
        return really(holding, world)

    monkeypatch.setattr(store_opener, "open_store", slowly)
    node.start()
    node.progress.topic = topic
    node.turn()
    node.commit(1, 3)
    node.commit(2, 4)
    node.turn(3, ms=main.HOUSEKEEPING_MS)
    assert node.status().state is ReplicaState.BOOTSTRAP
    assert json.loads((node.paths.run / "tailer.json").read_text())["knows_all_progress"]
    is_free.set()
    while not node.tailer._openings.is_over(IDENTITY.replica_id):
        time.sleep(0.01)  # a thread of its own is at it, and tells nobody
    read = node.progress.book
    node.turn(ms=0)
    assert node.progress.book is read, "all progress is still known: it need not be read anew"
    node.deliver((1, "a", 9), (2, "c", 3))
    node.turn(2)
    assert node.status().state is ReplicaState.RUNNING
    assert node.rows() == {"a": b"[9]", "b": b"[2]", "c": b"[3]"}


@pytest.mark.parametrize(
    ("set_ms", "asleep_ms", "begins", "why"),
    [
        (24 * HOUR_MS, 0, 2, "a day ahead: tombstones stay longer"),
        (-24 * HOUR_MS, 0, 2, "a day back"),
        (-9 * TOMBSTONES_MS, 0, 2, "far back"),
        (-9 * TOMBSTONES_MS, TOMBSTONES_MS + 1, 0, "it slept too long, whatever the clock says"),
    ],
)
def test_a_clock_that_is_set_makes_no_store_older_or_younger(
    node: Node, set_ms: int, asleep_ms: int, begins: int, why: str
) -> None:
    node.clock.set_ms = 10 * TOMBSTONES_MS  # so that "back" is not before 1970
    running(node)
    topic = node.progress.topic
    node.stop()
    node.clock.set_ms += set_ms
    node.clock.now_ms += asleep_ms
    node.start()
    node.progress.topic = topic
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: begins}, why


def test_a_quiet_store_does_not_go_on_saying_that_it_is_of_a_time_to_come(node: Node) -> None:
    """After the next start of the machine only the wall clock can say how old it is."""
    node.clock.set_ms = TOMBSTONES_MS
    running(node)
    node.clock.set_ms = 0
    node.progress.confirmed = node.clock.now_ms
    node.turn(2)
    (replica,) = node.tailer._replicas.values()
    assert replica.store.meta().current_ms <= node.clock.wall_ms()


@pytest.mark.parametrize(
    ("away_ms", "restarts", "begins"),
    [
        (TOMBSTONES_MS, False, 2),
        (TOMBSTONES_MS + 1, False, 0),
        (TOMBSTONES_MS - 1000, True, 2),
        (TOMBSTONES_MS + 1, True, 0),
    ],
)
def test_a_partition_that_was_away_for_longer_than_its_tombstones_is_read_again(
    node: Node, away_ms: int, restarts: bool, begins: int
) -> None:
    """Progress was followed meanwhile. A deletion that came and went would never be seen; a tailer
    that was started again meanwhile (seed 1003) has not heard of it either."""
    running(node)
    node.tables.fetched.append((T0, EndReached(Offset(2))))
    node.turn(ms=0)
    node.commit(1, 3)  # its records cannot be read
    node.clock.now_ms += away_ms // 2
    if restarts:
        topic = node.progress.topic
        node.stop()
        node.start()
        node.progress.topic = topic
        node.turn(ms=0)
        assert node.tables.reading == {T0: 2}
    node.clock.now_ms += away_ms - away_ms // 2
    node.tailer._known_ms = node.progress.confirmed = node.clock.now_ms
    node.turn(ms=0)
    node.tables.fetched.append((T0, EndReached(Offset(2))))
    node.turn(ms=0)
    node.turn(4, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: begins}


@pytest.mark.parametrize(
    ("in_order", "boot", "position", "why"),
    [
        (True, "boot-2", 2, "everything was synced before the machine went down"),
        (False, "boot-1", 2, "only the process died"),
        (False, "boot-2", 0, "nobody knows what reached the disk: from the beginning"),
    ],
)
def test_a_store_after_a_crash(
    node: Node, in_order: bool, boot: str, position: int, why: str
) -> None:
    running(node)
    topic = node.progress.topic
    if in_order:
        node.stop()
    else:
        for replica in node.tailer._replicas.values():
            replica.close(in_order=False)
    node.clock.boot = boot
    node.start()
    node.progress.topic = topic
    node.turn(1)
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: position}, why


def test_a_replica_that_is_taken_away_is_absent_and_its_page_gone(node: Node) -> None:
    assert running(node).status().state is ReplicaState.RUNNING
    node.place()
    node.turn()
    assert node.status().state is ReplicaState.ABSENT
    assert node.page.read() is None
    assert node.tables.reading == {}


def test_a_replica_that_comes_back_finds_its_store_and_its_targets(node: Node) -> None:
    running(node)
    other = msgspec.structs.replace(PLACE, replicas=(NodeId("node-2"),))
    node.place(other)
    node.commit(1, 3)
    node.turn(2)
    node.turn(1, ms=main.HOUSEKEEPING_MS)
    node.turn(1)  # the book has forgotten what nobody here needs
    node.place(PLACE)
    node.turn(2)
    assert node.tables.reading == {T0: 2}
    node.deliver((1, "c", 3))
    node.turn()
    assert (node.status().batch, node.status().rows) == (1, 3)


def test_a_topic_that_was_made_anew_is_data_loss(node: Node) -> None:
    running(node)
    node.tables.fetched.append((T0, RecordsGone()))
    node.turn()
    assert node.status().state is ReplicaState.DATA_LOSS


def test_a_partition_end_is_not_the_end_of_the_loop(node: Node) -> None:
    running(node)
    node.tables.fetched.append((T0, EndReached(Offset(2))))
    node.turn()
    assert (node.status().state, node.status().log_end) == (ReplicaState.RUNNING, 2)


def test_a_store_of_somebody_else_is_failed_not_overwritten(node: Node) -> None:
    stranger = StoreIdentity(table_id="other", generation=1, partition=0)
    path = node.paths.state / "t-1" / "0"
    store = StoreWriter(path, stranger)
    store.apply([], [], msgspec.structs.replace(store.meta(), position=Offset(5)))
    store.close()
    node.place(PLACE)
    node.turn(3)
    assert node.status().state is ReplicaState.FAILED
    store = StoreWriter(path, stranger)
    assert store.meta().position == 5
    store.close()


def test_a_store_that_is_torn_where_it_is_stamped_is_made_anew(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read through and written once, and fails at the next transaction."""
    running(node).stop()
    whole: Callable[..., None] = StoreWriter.apply
    calls: list[StoreWriter] = []

    def fail_later(store: StoreWriter, *what: Any) -> None:
        calls.append(store)
        if len(calls) > 1:
            raise StoreFailure(store.path, lmdb.CorruptedError("torn"))
        whole(store, *what)

    monkeypatch.setattr(StoreWriter, "apply", fail_later)
    node.start()
    node.turn()
    assert (len(calls), node.status().state) == (2, ReplicaState.FAILED)
    monkeypatch.setattr(StoreWriter, "apply", whole)
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: 0}, "from the beginning"


@pytest.mark.parametrize(
    ("of", "name", "state"),
    [(main, "StatusWriter", None), (store_opener, "open_verified", ReplicaState.FAILED)],
)
def test_a_replica_that_a_full_disk_keeps_closed_is_opened_later(
    node: Node, of: Any, name: str, state: ReplicaState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(of, name, fail)
        node.place(PLACE)
        node.turn(2)
        page = node.page.read()
        assert (page and page.state) == state
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: 0}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_store_that_fails_is_opened_again(
    node: Node, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(node)
    whole: Callable[..., None] = StoreWriter.apply

    def fail(store: StoreWriter, *_: object) -> None:
        failure = StoreFailure(store.path, lmdb.Error("disk full"))
        failure.is_damaged = is_damaged
        raise failure

    monkeypatch.setattr(StoreWriter, "apply", fail)
    node.commit(1, 3)
    node.deliver((1, "a", 9))
    node.turn()
    monkeypatch.setattr(StoreWriter, "apply", whole)
    if is_damaged:
        assert node.status().state is ReplicaState.FAILED
    else:
        assert (node.status().state, node.status().batch) == (ReplicaState.RUNNING, 0)
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: 0 if is_damaged else 2}
    rows = ((0, "a", 1), (0, "b", 2), (1, "a", 9)) if is_damaged else ((1, "a", 9),)
    node.deliver(*rows)
    node.turn()
    assert node.rows() == {"a": b"[9]", "b": b"[2]"}


def test_a_store_that_is_refused_when_it_is_opened_anew_is_failed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restore it is closed and opened; its meta cannot be read. The others go on."""

    def refuse(store: StoreWriter) -> None:
        store.abandon()
        raise DataDirectoryRefused("an unreadable meta", next_step="move it away")

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "release_memory", refuse)
        running(node)
        assert node.status().state is ReplicaState.FAILED
        assert node.tables.reading == {}
    assert [*node.paths.state.glob("*/*.retired*")] == [], "it may be somebody else's"
    node.turn(2, ms=main.REOPEN_MS)
    assert node.status().state is ReplicaState.RUNNING
    assert node.rows() == {"a": b"[1]", "b": b"[2]"}


def test_metrics_say_how_it_goes(node: Node) -> None:
    running(node)
    node.turn(2, ms=main.METRICS_MS)
    row = json.loads((node.paths.run / "tailer.json").read_text())
    assert row["knows_all_progress"]
    assert row["progress_ignored"] == {"FORGED": 2}
    (replica,) = row["replicas"]
    expected = {"table": "T", "partition": 0, "state": "RUNNING", "offset_lag": 0, "rows": 2}
    assert replica.items() >= expected.items()


def test_files_that_cannot_be_written_stop_no_rows(node: Node) -> None:
    """A full disk takes metrics first."""
    running(node)
    (node.paths.run / "tailer.new").mkdir()  # OSError, as ENOSPC is one
    node.commit(1, 3)
    node.deliver((1, "a", 9))
    node.turn(2, ms=main.METRICS_MS)
    assert node.rows()["a"] == b"[9]"


def kept(node: Node) -> list[KeptDigests]:
    node.turn(2, ms=main.METRICS_MS)
    return msgspec.json.decode(node.paths.digests.read_bytes(), type=list[KeptDigests])


def test_replicas_remember_the_digests_of_their_newest_batches(node: Node) -> None:
    running(node)
    (mine,) = kept(node)
    newest = mine.recent[-1]
    assert (newest.batch, newest.digest) == (
        0,
        node.tailer._replicas[IDENTITY.replica_id].store.digest,
    )


def test_a_replica_that_others_outvote_is_made_anew(node: Node) -> None:
    running(node)
    before = kept(node)[0].recent[-1]
    node.paths.rebuilds.mkdir()
    (node.paths.rebuilds / str(IDENTITY.replica_id)).write_text("others have other rows")
    (node.paths.rebuilds / "gone-1-0").write_text("of a table that was dropped")
    node.turn(2, ms=main.HOUSEKEEPING_MS)
    assert [*node.paths.rebuilds.iterdir()] == []
    node.turn(2, ms=main.REOPEN_MS)
    assert node.tables.reading == {T0: 0}, "from its changelog: no peer has it"
    node.deliver((0, "a", 1), (0, "b", 2))
    node.turn()
    assert kept(node)[0].recent[-1] == before


def test_keys_are_what_workers_look_up(node: Node) -> None:
    assert "a" in running(node).rows()
    assert store_key(("a",), ("STRING",)) == b"a\0\1"
