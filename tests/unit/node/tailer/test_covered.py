"""What a tailer tells its workers about the offsets that batches cover, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.samples import sample_table
from tests.unit.data.commit.test_commit_history import Topic

from standpipe.data.commit.covered_offsets import CoveredBatches
from standpipe.data.replica.holdings import Holding
from standpipe.model import (
    Assignment,
    LogIndex,
    NodeId,
    ReplicaId,
    Snapshot,
    Source,
)
from standpipe.node.covered_files import CoveredFiles, covered_path
from standpipe.node.tailer.covered import CoveredTables

FIRST = sample_table(name="F", topic="F", query_id="FIRST", table_id="f", is_materialized=True)
SECOND = sample_table(name="G", topic="G", query_id="SECOND", table_id="g", is_materialized=True)


def snapshot(*sources: Source) -> Snapshot:
    return Snapshot(
        stamp=1,
        node_id=NodeId("n"),
        service_id="svc",
        cluster_id="c",
        log_index=LogIndex(1),
        leader=NodeId("n"),
        nodes=(),
        sources=sources,
        queries=(),
        assignment=Assignment(),
    )


class Tailer:
    """As far as it follows progress."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.topic = folder, Topic()
        self.tables = CoveredTables(folder)

    def hold(self, *held: Source) -> None:
        holdings = [
            Holding(source=each, replica_id=ReplicaId(each.table_id or "", 1, partition))
            for each in held
            for partition in range(2)
        ]
        self.tables.follow(snapshot(FIRST, SECOND), holdings)

    def tell(self) -> None:
        self.tables.tell(self.topic.history)

    def told(self, table_id: str) -> list[tuple[int, dict[int, int]]]:
        """As a worker reads it: (batch, what it covers of S)."""
        known = CoveredFiles(self.folder).of((table_id, 1))
        return [(each.batch, each.topics["S"].offsets) for each in known.batches]


@pytest.fixture
def tailer(tmp_path: Path) -> Tailer:
    one = Tailer(tmp_path)
    one.hold(SECOND)
    return one


def commits(tailer: Tailer, *steps: Sequence[int]) -> None:
    """(batch, end of S or of F, own end): of FIRST, then of SECOND."""
    for query_id, source, (batch, read, end) in zip(
        ("FIRST", "SECOND"), ("S", "F"), steps, strict=False
    ):
        tailer.topic.commit(query_id, batch, {source: {0: read}}, {0: end})


def test_a_chain_of_which_it_holds_the_end(tailer: Tailer) -> None:
    assert tailer.told("g") == []
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5})]
    assert tailer.told("f") == [], "it holds no replica of it"
    commits(tailer, (1, 9, 4))
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5})]
    commits(tailer, (1, 9, 4), (1, 4, 3))
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5}), (1, {0: 9})]
    commits(tailer, (2, 11, 4))
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5}), (1, {0: 11})], "a batch of FIRST without rows"


def test_a_map_that_comes_after_the_progress(tmp_path: Path) -> None:
    tailer = Tailer(tmp_path)
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    tailer.hold(SECOND)
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5})]


def test_after_a_restart_no_less_is_known(tailer: Tailer) -> None:
    """Of FIRST, the commit is gone by which SECOND is known to have read so far."""
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    again = Tailer(tailer.folder)
    again.hold(SECOND)
    commits(again, (1, 9, 4))
    again.topic.commit("SECOND", 0, {"F": {0: 2}}, {0: 1})
    again.tell()
    assert again.told("g") == [(0, {0: 5})]


def test_progress_that_is_read_again(tailer: Tailer) -> None:
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    tailer.topic = Topic()
    commits(tailer, (3, 8, 4), (3, 4, 4))
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5}), (3, {0: 8})]


def test_a_table_that_left_the_node_and_came_back(tailer: Tailer) -> None:
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    tailer.hold()
    assert not covered_path(tailer.folder, ("g", 1)).exists()
    tailer.hold(FIRST, SECOND)
    tailer.tell()
    assert tailer.told("f") == [(0, {0: 5})]
    assert tailer.told("g") == [(0, {0: 5})]


def test_a_query_that_writes_the_topic_from_now_on(tailer: Tailer) -> None:
    """INSERT INTO … SELECT: what is listed of the table grows with the catalog."""
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    shared = replace(FIRST, takes_inserts=True)
    holding = Holding(source=SECOND, replica_id=ReplicaId("g", 1, 0))
    tailer.tables.follow(snapshot(shared, SECOND), [holding])
    tailer.tell()
    newest = CoveredFiles(tailer.folder).of(("g", 1)).batches[-1]
    assert {name: each.offsets for name, each in newest.topics.items()} == {
        "S": {0: 5},
        "F": {0: 2},
    }


def test_a_disk_that_is_full_for_a_while(tailer: Tailer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(
            "standpipe.adapters.files.published.replace",
            lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
        )
        commits(tailer, (0, 5, 2), (0, 2, 1))
        tailer.tell()
    assert tailer.told("g") == []
    commits(tailer, (1, 7, 3), (1, 3, 2))
    tailer.tell()
    assert tailer.told("g") == [(1, {0: 7})]


def test_a_file_of_another_release_counts_as_none(tailer: Tailer) -> None:
    covered_path(tailer.folder, ("g", 1)).write_bytes(b"\x91\x01")
    assert CoveredFiles(tailer.folder).of(("g", 1)) == CoveredBatches()
