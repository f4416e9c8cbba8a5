"""What a tailer tells its workers about the offsets that batches cover, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.samples import sample_table
from tests.unit.data.commit.test_commit_history import Topic

from standpipe.control.routing.session import Stamp
from standpipe.data.commit.covered_offsets import CoveredBatches
from standpipe.data.replica.holdings import Holding
from standpipe.model import (
    Assignment,
    LogIndex,
    NodeId,
    PersistentQuery,
    ReplicaId,
    Snapshot,
    Source,
    SparkInput,
    SparkPlan,
)
from standpipe.node.covered_files import CoveredFiles, covered_path
from standpipe.node.tailer.covered import CoveredTables
from standpipe.node.worker.pull.session_read import SessionTokens
from standpipe.session_token import written_token

OTHER = sample_table(name="O", topic="O", query_id="OTHER", table_id="o", is_materialized=True)
FIRST = sample_table(name="F", topic="F", query_id="FIRST", table_id="f", is_materialized=True)
SECOND = sample_table(name="G", topic="G", query_id="SECOND", table_id="g", is_materialized=True)


def query(query_id: str, topic: str, sink: str) -> PersistentQuery:
    read = SparkInput(
        source=topic,
        topic=topic,
        view="v",
        columns=(),
        key_format="JSON",
        value_format="JSON",
    )
    plan = SparkPlan(version=1, inputs=(read,), sql="", output_mode="append", is_windowed=False)
    return PersistentQuery(query_id=query_id, sink=sink, sources=(topic,), statement="", plan=plan)


QUERIES = (query("FIRST", "S", "F"), query("SECOND", "F", "G"))
#: INSERT INTO F SELECT … FROM X
INTO = query("INTO", "X", "F")


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
        queries=QUERIES,
        assignment=Assignment(),
    )


def known_by_worker(folder: Path, table: Source, map_: Snapshot | None = None) -> CoveredBatches:
    files = CoveredFiles(folder)
    files.way(map_ or snapshot(FIRST, SECOND), table)
    return files.of((table.table_id or "", 1))


INSERTING = replace(
    snapshot(replace(FIRST, takes_inserts=True), SECOND),
    queries=(*QUERIES, INTO),
    log_index=LogIndex(3),
)
HELD = [Holding(source=SECOND, replica_id=ReplicaId("g", 1, 0))]


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
        known = known_by_worker(self.folder, FIRST if table_id == "f" else SECOND)
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
    """INSERT INTO … SELECT: it begins with nothing of its topic. What was known of older batches
    was found on the way before."""
    for number in range(3):
        commits(tailer, (number, 5 + number, 2 + number), (number, 2 + number, 1))
        tailer.tell()
    tailer.tables.follow(INSERTING, HELD)
    tailer.tell()
    batches = known_by_worker(tailer.folder, SECOND, INSERTING).batches
    assert [each.batch for each in batches] == [2]
    assert [{name: has.offsets for name, has in each.topics.items()} for each in batches] == [
        {"S": {0: 7}, "F": {0: 4}, "X": {}},
    ]


def test_a_second_query_from_a_topic_that_one_has_read_already(tailer: Tailer) -> None:
    """It may keep a record of X that the first one's WHERE has dropped. What the first one covers
    of X counted for both."""
    tailer.tables.follow(INSERTING, HELD)
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.topic.commit("INTO", 0, {"X": {0: 10}}, {0: 2})
    tailer.tell()
    assert x_of(known_by_worker(tailer.folder, SECOND, INSERTING)) == [{0: 10}]
    second = replace(INTO, query_id="INTO_TOO")
    both = replace(INSERTING, queries=(*QUERIES, INTO, second), log_index=LogIndex(4))
    tailer.tables.follow(both, HELD)
    tailer.tell()
    assert x_of(known_by_worker(tailer.folder, SECOND, both)) == [{}]
    commits(tailer, (1, 6, 3), (1, 3, 2))
    tailer.tell()
    assert x_of(known_by_worker(tailer.folder, SECOND, both))[-1] == {}, "INTO_TOO has read nothing"
    tailer.topic.commit("INTO_TOO", 0, {"X": {0: 10}}, {0: 4})
    commits(tailer, (2, 7, 4), (2, 4, 3))
    tailer.tell()
    assert x_of(known_by_worker(tailer.folder, SECOND, both))[-1] == {0: 10}


def x_of(known: CoveredBatches) -> list[dict[int, int]]:
    return [each.topics["X"].offsets for each in known.batches]


def test_a_worker_whose_map_has_one_more_way_to_the_table(tailer: Tailer) -> None:
    """What the tailer told by an older map does not name all topics. Other statements are of no
    account, and so is a map that is older than the tailer's."""
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    other = replace(snapshot(FIRST, SECOND, OTHER), log_index=LogIndex(2))
    assert known_by_worker(tailer.folder, SECOND, other).batches
    assert not known_by_worker(tailer.folder, SECOND, INSERTING).batches, "not known yet"
    tailer.tables.follow(INSERTING, HELD)
    tailer.tell()
    assert known_by_worker(tailer.folder, SECOND, INSERTING).batches
    assert known_by_worker(tailer.folder, SECOND, other).batches
    again = CoveredTables(tailer.folder)
    again.follow(replace(snapshot(FIRST, SECOND), log_index=LogIndex(9)), HELD)
    again.tell(Topic().history)
    ended = replace(snapshot(FIRST, SECOND), log_index=LogIndex(9))
    assert not known_by_worker(tailer.folder, SECOND, ended).batches, "no commit is known again"


def test_of_a_table_that_a_program_serves_any_query_may_be_upstream(tailer: Tailer) -> None:
    """Its plan does not say what it reads."""
    served = replace(INTO, query_id="SECOND", sink="G", plan=replace(INTO.plan, inputs=()))
    before = replace(snapshot(FIRST, SECOND), queries=(QUERIES[0], served))
    tailer.tables.follow(before, HELD)
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    assert known_by_worker(tailer.folder, SECOND, before).batches
    after = replace(INSERTING, queries=(QUERIES[0], served, INTO))
    assert not known_by_worker(tailer.folder, SECOND, after).batches


def test_a_token_that_is_remembered_is_judged_again_when_the_way_changes(tailer: Tailer) -> None:
    commits(tailer, (0, 5, 2), (0, 2, 1))
    tailer.tell()
    files, tokens = CoveredFiles(tailer.folder), SessionTokens()
    text = written_token("X", {0: 0}).text()

    def has_writes(map_: Snapshot) -> bool:
        way = files.way(map_, SECOND)
        return tokens.of(text, SECOND, "c", files, way=way).has_writes(Stamp(0, 1))

    before = snapshot(FIRST, SECOND)
    assert has_writes(before), "G does not depend on X"
    assert not has_writes(INSERTING), "it does now, and the tailer has yet to tell"
    tailer.tables.follow(INSERTING, HELD)
    tailer.tell()
    assert not has_writes(INSERTING), "nothing of X is in these rows"
    tailer.topic.commit("INTO", 0, {"X": {0: 1}}, {0: 3})
    commits(tailer, (1, 5, 2), (1, 3, 1))
    tailer.tell()
    assert not has_writes(INSERTING), "but it is in batch 1"
    way = files.way(INSERTING, SECOND)
    assert tokens.of(text, SECOND, "c", files, way=way).has_writes(Stamp(1, 1))


def test_a_disk_that_is_full_for_a_while(tailer: Tailer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(
            "standpipe.adapters.files.published.replace",
            lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
        )
        commits(tailer, (0, 5, 2), (0, 2, 1))
        tailer.tell()
    assert tailer.told("g") == []
    tailer.tell()
    assert tailer.told("g") == [(0, {0: 5})], "nothing was committed since"


def test_a_file_of_another_release_counts_as_none(tailer: Tailer) -> None:
    covered_path(tailer.folder, ("g", 1)).write_bytes(b"\x91\x01")
    assert known_by_worker(tailer.folder, SECOND) == CoveredBatches()
