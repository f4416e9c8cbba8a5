"""What checkpoints need of a file system: the same on this machine's and on a real HDFS.

Not here: queries whose checkpoints are there (driver_kills.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.e2e import hdfs_server
from tests.e2e.hdfs_server import HdfsServer

from standpipe.data.commit.takeover import Surplus
from standpipe.errors import SetupError
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity, epochs_below
from standpipe.pipeline.commit.checkpoint_cleanup import KEPT_MS, clean_up
from standpipe.pipeline.io import checkpoint_path
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, open_checkpoints

AT_ONCE = 8
OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":7}\n{"a":{"0":5}}'
MINE = Identity(service_id="s_", query_id="Q_1", table_id="t1", generation=1, plan_sha256="ab")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server.restartable(tmp_path_factory.mktemp("hdfs")) as hdfs:
        yield hdfs.server


@pytest.fixture(params=["this machine", "HDFS"])
def root(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, hdfs: HdfsServer
) -> CheckpointPath:
    """An empty folder."""
    if request.param == "this machine":
        return open_checkpoints(str(tmp_path), spark)
    return open_checkpoints(f"{hdfs.url}/checks/{tmp_path.name}", spark)


def test_a_file_is_replaced_as_a_whole(root: CheckpointPath) -> None:
    file = root / "standpipe.json"
    with pytest.raises(FileNotFoundError):
        file.read_bytes()
    for content in (b"one", b"", bytes(range(256)) * 1000):
        checkpoint_path.write_whole(file, content)
        assert file.read_bytes() == content
    assert [each.name for each in root.iterdir()] == ["standpipe.json"]
    file.unlink()
    with pytest.raises(FileNotFoundError):
        file.unlink()
    file.unlink(missing_ok=True)
    assert not file.exists()


def test_folders_and_patterns(root: CheckpointPath) -> None:
    for name in ("Q_1-1", "Q_2-1", "other"):
        (root / name).mkdir(parents=True)
        checkpoint_path.write_whole(root / name / "standpipe.json", b"{}")
    (root / "Q_1-1").mkdir(parents=True, exist_ok=True)
    assert sorted(each.name for each in root.glob("Q_*")) == ["Q_1-1", "Q_2-1"]
    found = sorted(root.glob("Q_*/standpipe.json"))
    assert [each.parent.name for each in found] == ["Q_1-1", "Q_2-1"]
    assert found[0] == root / "Q_1-1" / "standpipe.json"
    assert found[0].parent.parent == root
    assert (root / "other").is_dir()
    assert not found[0].is_dir()
    assert not (root / "none").is_dir()
    assert list((root / "none").glob("*")) == []
    with pytest.raises(FileNotFoundError):
        list((root / "none").iterdir())
    checkpoint_path.remove_tree(root / "other")
    checkpoint_path.remove_tree(root / "other")
    assert not (root / "other").exists()


@pytest.mark.parametrize("name", ["[a]-1", "a{b}", "ä b", 'q"uote'])
def test_names_that_patterns_or_json_would_change(root: CheckpointPath, name: str) -> None:
    (root / name).mkdir(parents=True)
    checkpoint_path.write_whole(root / name / "file", b"1")
    assert [each.name for each in root.iterdir()] == [name]
    assert [each.parent.name for each in (root / name).glob("f*")] == [name]


def test_of_several_that_make_a_folder_one_does(root: CheckpointPath) -> None:
    def make(_: int) -> bool:
        try:
            (root / "taken").mkdir(parents=True)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert sum(threads.map(make, range(AT_ONCE))) == 1
    assert [each.name for each in root.iterdir()] == ["taken"]


def test_of_several_that_rename_a_folder_one_does(root: CheckpointPath) -> None:
    (root / "old").mkdir(parents=True)
    checkpoint_path.write_whole(root / "old" / "file", b"1")

    def rename(number: int) -> bool:
        try:
            checkpoint_path.rename(root / "old", root / f"new-{number}")
        except FileNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert sum(threads.map(rename, range(AT_ONCE))) == 1
    assert len(list(root.glob("new-*/file"))) == 1


def test_a_folder_does_not_get_the_name_of_another(root: CheckpointPath) -> None:
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        checkpoint_path.write_whole(root / name / "file", name.encode())
    with pytest.raises(OSError, match=r".+"):
        checkpoint_path.rename(root / "a", root / "b")
    assert (root / "a" / "file").read_bytes() == b"a"
    assert (root / "b" / "file").read_bytes() == b"b"


def test_a_copy_has_all_files_and_is_no_longer_the_other_s(root: CheckpointPath) -> None:
    state = root / "epoch-1" / "state" / "0" / "0"
    state.mkdir(parents=True)
    for number in range(40):
        checkpoint_path.write_whole(state / f"{number}.zip", b"%d" % number)
    (root / "epoch-1" / "empty").mkdir(parents=True)
    checkpoint_path.copy_tree(root / "epoch-1", root / "epoch-2")
    for number in range(40):
        (state / f"{number}.zip").unlink()
        copied = root / "epoch-2" / "state" / "0" / "0" / f"{number}.zip"
        assert copied.read_bytes() == b"%d" % number


def test_a_take_over(root: CheckpointPath) -> None:
    """The older one's later choices stay its own, whatever it writes and removes."""
    folder = root / "Q_1-1"
    older, newer = (Checkpoint(folder, LeaseEpoch(epoch)) for epoch in (1, 2))
    older.claim(MINE)
    older.inherit(None)
    for log, batches in (("commits", (0, 1)), ("offsets", (0, 1, 2))):
        (older.directory / log).mkdir(parents=True)
        for batch in batches:
            checkpoint_path.write_whole(older.directory / log / str(batch), OFFSETS.encode())
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(1), attempt=1)
    newest = Progress(query_id="Q_1", commit=commit, sources={"a": {0: 5}}, sinks={})
    newer.claim(MINE)
    newer.inherit(newest)
    checkpoint_path.write_whole(older.directory / "offsets" / "3", OFFSETS.encode())
    checkpoint_path.remove_tree(older.directory / "commits")
    assert newer.roll_back(BatchId(1)) == Surplus(commits=(), offsets=())
    assert newer.next_batch(BatchId(1)) == 2
    assert newer.offsets(1).ends == {"a": {0: 5}}
    assert not (newer.directory / "offsets" / "3").exists()
    assert set(epochs_below(folder)) == {1, 2}


def test_what_is_dropped_is_removed_after_a_week(root: CheckpointPath) -> None:
    folder = root / "Q_1-1"
    Checkpoint(folder, LeaseEpoch(1)).claim(MINE)
    assert clean_up(root, "s_", ["Q_1"], 0) == []
    assert clean_up(root, "s_", [], 1) == []
    assert json.loads((folder / "standpipe.json").read_bytes())["query_id"] == "Q_1"
    assert clean_up(root, "s_", [], 1 + KEPT_MS) == ["Q_1-1"]
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("s3a://bucket/checkpoints", "a rename is not one step"),
        ("hdfs://127.0.0.1:1/checkpoints", "cannot be reached"),
    ],
)
def test_where_checkpoints_cannot_be(spark: SparkSession, place: str, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        open_checkpoints(place, spark)
