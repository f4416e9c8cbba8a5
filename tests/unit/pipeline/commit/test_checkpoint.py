import json
import re
import shutil
import uuid
from pathlib import Path

import msgspec
import pytest
from py4j.protocol import Py4JError

from standpipe.data.commit.takeover import Surplus
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit import checkpoint
from standpipe.pipeline.commit.checkpoint import (
    PLANNED,
    BatchOffsets,
    Checkpoint,
    Identity,
    parse_offset_log,
    records_between,
)
from standpipe.pipeline.failures import QueryFailed

#: as Spark 4.2 writes it
OFFSET_LOG = """v1
{"batchWatermarkMs":1357016400000,"batchTimestampMs":1795259147216,"conf":{"spark.sql.shuffle.partitions":"2"}}
{"flights":{"0":83471,"1":83512}}"""
MINE = Identity(
    service_id="default_", query_id="CTAS_A_1", table_id="t1", generation=1, plan_sha256="ab"
)


def test_parse_offset_log() -> None:
    assert parse_offset_log(OFFSET_LOG) == BatchOffsets(
        ends={"flights": {0: 83471, 1: 83512}},
        watermark_ms=1357016400000,
        started_ms=1795259147216,
    )


@pytest.mark.parametrize(
    ("lines", "ends", "why"),
    [
        (['{"a":{"0":5}}', '{"b":{"0":7}}'], {"a": {0: 5}, "b": {0: 7}}, "two inputs"),
        (['{"a":{"0":5}}', '{"a":{"0":4}}'], {"a": {0: 4}}, "read twice: what both have read"),
        (["-", '{"b":{"0":7}}'], {"b": {0: 7}}, "an input without data yet"),
    ],
)
def test_parse_offset_log_with_several_sources(lines: list[str], ends: object, why: str) -> None:
    assert parse_offset_log("\n".join(["v1", "{}", *lines])).ends == ends, why


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v2\n{}\n{}", "v1\n{}\n{torn"])
def test_an_unreadable_offset_log_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_offset_log(text)


@pytest.mark.parametrize(
    ("starts", "ends", "records", "why"),
    [
        ({}, {"a": {0: 5, 1: 6}}, 11, "the first batch"),
        ({"a": {0: 5, 1: 6}}, {"a": {0: 5, 1: 6}}, 0, "an empty one"),
        ({"a": {0: 5}}, {"a": {0: 6, 1: 2}}, 3, "a partition was added"),
    ],
)
def test_records_between(starts: dict, ends: dict, records: int, why: str) -> None:
    assert records_between(starts, ends) == records, why


ENDS = {"flights": {0: 83471, 1: 83512}}


def logs(root: Path, commits: list[int], offsets: list[int], epoch: int = 1) -> Checkpoint:
    checkpoint = Checkpoint(root, LeaseEpoch(epoch))
    for log, batches in (("commits", commits), ("offsets", offsets)):
        (checkpoint.directory / log).mkdir(parents=True)
        for batch in batches:
            (checkpoint.directory / log / str(batch)).write_text(OFFSET_LOG)
            (checkpoint.directory / log / f".{batch}.crc").write_bytes(b"crc")
    return checkpoint


def seen(batch: int, ends: dict[str, dict[int, int]] = ENDS) -> Progress | None:
    """The newest record that readers have seen."""
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=1)
    return None if batch < 0 else Progress(query_id="Q", commit=commit, sources=ends)


def test_roll_back_removes_the_files_and_their_checksums(tmp_path: Path) -> None:
    checkpoint = logs(tmp_path, commits=[0, 1, 2], offsets=[0, 1, 2, 3])
    assert checkpoint.roll_back(BatchId(1)) == Surplus(commits=(2,), offsets=(3,))
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    left = sorted(path.name for path in found if path.parent.name != PLANNED)
    assert left == [".0.crc", ".0.crc", ".1.crc", ".1.crc", ".2.crc", "0", "0", "1", "1", "2"]


def test_what_is_planned_again_can_be_put_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, LeaseEpoch(2))
    offsets = checkpoint.directory / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(3):
        (offsets / str(batch)).write_text(f"as it was {batch}")
    checkpoint.roll_back(BatchId(0))
    assert sorted(each.name for each in offsets.iterdir()) == ["0"]
    (offsets / "1").write_text("otherwise")
    (offsets / ".1.crc").write_text("of that")
    checkpoint.put_back(1)
    assert (offsets / "1").read_text() == "as it was 1"
    assert not (offsets / ".1.crc").exists(), "Spark would compare it with the file"
    (checkpoint.directory / "commits").mkdir()
    for batch in range(2):
        (checkpoint.directory / "commits" / str(batch)).touch()
    checkpoint.roll_back(BatchId(1))
    with pytest.raises(FileNotFoundError):  # it is committed, and will not be planned again
        checkpoint.put_back(1)


def test_a_rollback_that_failed_in_the_middle_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = logs(tmp_path, commits=[0], offsets=[0, 1, 2, 3])
    offsets = checkpoint.directory / "offsets"
    (offsets / "3").write_text("as it was 3")
    unlink, is_away = Path.unlink, False

    def failing(path: Path, missing_ok: bool = False) -> None:
        nonlocal is_away
        if path == offsets / "2":
            is_away = True
            raise OSError("the storage is away")
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", failing)
        with pytest.raises(OSError, match="is away"):
            checkpoint.roll_back(BatchId(0))
    assert is_away
    assert not (offsets / "3").exists(), "the newest has gone"
    checkpoint.roll_back(BatchId(0))
    assert sorted(path.name for path in offsets.glob("?")) == ["0", "1"]
    for batch in (2, 3):
        checkpoint.put_back(batch)
    assert (offsets / "3").read_text() == "as it was 3"


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize(
    ("commits", "offsets", "newest", "lost", "why"),
    [
        ([0], [0, 1], seen(1), False, "killed between progress and commit log"),
        ([0], [0, 1], seen(2), True, "an old copy"),
        ([0], [0], seen(1), True, "an old copy: what readers have seen was not even begun"),
        ([0, 1], [0, 1], seen(1, {"flights": {0: 1}}), True, "it covers other events"),
        ([], [], seen(0), True, "the directory is gone"),
        ([], [], seen(-1), False, "a new query"),
    ],
)
def test_a_checkpoint_without_what_readers_have_seen_is_lost(
    tmp_path: Path,
    epoch: int,
    commits: list[int],
    offsets: list[int],
    newest: Progress | None,
    lost: bool,
    why: str,
) -> None:
    logs(tmp_path, commits=commits, offsets=offsets)
    reason = ""
    try:
        Checkpoint(tmp_path, LeaseEpoch(epoch)).inherit(newest)
    except QueryFailed as failed:
        reason = failed.reason
    assert reason == ("CHECKPOINT_LOST" if lost else ""), why


def test_a_new_lease_epoch_goes_on_in_a_directory_of_its_own(tmp_path: Path) -> None:
    for epoch in (1, 2):
        logs(tmp_path, commits=[0], offsets=[0, 1], epoch=epoch)
    mine = Checkpoint(tmp_path, LeaseEpoch(3))
    mine.inherit(seen(1))
    assert mine.offsets(1).ends == ENDS
    zombie = Checkpoint(tmp_path, LeaseEpoch(2))
    (zombie.directory / "offsets" / "2").write_text("the zombie goes on")
    assert mine.roll_back(BatchId(1)) == Surplus()
    assert sorted(path.name for path in (mine.directory / "offsets").glob("?")) == ["0", "1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-2", "epoch-3"], "1 is old"
    mine.inherit(seen(1))  # the query is started again in the same process
    Checkpoint(tmp_path, LeaseEpoch(2)).inherit(seen(1))
    assert mine.directory.exists(), "an older one that starts late leaves ours alone"


def test_who_leaves_a_group_continues_from_its_checkpoint(tmp_path: Path) -> None:
    """Whatever the number of the group's directory: it is that of the newest lease of a member."""
    group, own = tmp_path / "GROUP", tmp_path / "own"
    own.mkdir()
    logs(group, commits=[0], offsets=[0, 1], epoch=9)
    (group / "epoch-9" / "metadata").write_text('{"id":"of the group"}')
    alone = Checkpoint(own, LeaseEpoch(7), group_root=group)
    assert not alone.has_epochs()
    alone.inherit(seen(1))
    assert alone.has_epochs()
    assert [path.name for path in own.iterdir()] == ["epoch-7"]
    assert alone.offsets(1).ends == ENDS
    assert (group / "epoch-9" / "metadata").read_text() == '{"id":"of the group"}'
    spark_id = json.loads((alone.directory / "metadata").read_text())["id"]
    assert str(uuid.UUID(spark_id)) == spark_id, "both may run at once"
    shutil.rmtree(group)
    later = Checkpoint(own, LeaseEpoch(8), group_root=group)
    later.inherit(seen(1))
    assert later.offsets(1).ends == ENDS, "from its own copy"
    with pytest.raises(QueryFailed, match="CHECKPOINT_LOST"):
        Checkpoint(own, LeaseEpoch(9), group_root=group).inherit(seen(3))


def test_what_a_crash_left_of_a_copy_is_made_anew(tmp_path: Path) -> None:
    logs(tmp_path, commits=[0], offsets=[0])
    (tmp_path / "new-epoch-2" / "offsets").mkdir(parents=True)
    mine = Checkpoint(tmp_path, LeaseEpoch(2))
    mine.inherit(seen(0))
    assert mine.offsets(0).ends == ENDS
    assert (tmp_path / "new-epoch-2").exists(), "an older release may still copy: it has no mark"


def names(root: Path) -> list[str]:
    """What is in a checkpoint, without the random part of a copy's name."""
    return sorted(re.sub("-[0-9a-f]{32}$", "", path.name) for path in root.iterdir())


@pytest.mark.parametrize("is_of_group", [False, True])
def test_copies_that_dead_drivers_left_are_removed_by_the_next_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_of_group: bool
) -> None:
    """Each was gigabytes, and stayed for a week."""
    logs(tmp_path, commits=[0], offsets=[0])

    def killed(source: Path, target: Path) -> None:
        (target / "state").mkdir(parents=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "copy_tree", killed)
        for epoch in (2, 9, 10):
            with pytest.raises(KeyboardInterrupt):
                Checkpoint(tmp_path, LeaseEpoch(epoch), is_of_group=is_of_group).inherit(seen(0))
    left = ["copying-epoch-10", "copying-epoch-2", "copying-epoch-9"]
    left += [name.replace("copying", "new") for name in left]
    if not is_of_group:
        left = ["copying-epoch-10", "new-epoch-10"]
    assert names(tmp_path) == sorted(["epoch-1", *left])
    Checkpoint(tmp_path, LeaseEpoch(11), is_of_group=is_of_group).inherit(seen(0))
    left = left if is_of_group else []
    assert names(tmp_path) == sorted(["epoch-1", "epoch-11", *left]), "they are others' in a group"


def test_a_copy_from_which_a_newer_lease_has_removed_files_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was paused while it copied, and goes on: without these files the next take-over
    could continue from it."""
    logs(tmp_path, commits=[0], offsets=[0])
    copy_tree = checkpoint.copy_tree

    def paused(source: Path, target: Path) -> None:
        copy_tree(source / "offsets", target / "offsets")
        monkeypatch.setattr(checkpoint, "copy_tree", copy_tree)
        Checkpoint(tmp_path, LeaseEpoch(3)).inherit(seen(0))
        copy_tree(source / "commits", target / "commits")

    monkeypatch.setattr(checkpoint, "copy_tree", paused)
    with pytest.raises(FileNotFoundError):
        Checkpoint(tmp_path, LeaseEpoch(2)).inherit(seen(0))
    assert names(tmp_path) == ["epoch-1", "epoch-3"]
    newer = Checkpoint(tmp_path, LeaseEpoch(3))
    assert (newer.offsets(0).ends, newer.next_batch(BatchId(0))) == (ENDS, 1)


@pytest.mark.parametrize("failure", [OSError("it is away"), Py4JError("it is away, says Java")])
def test_a_copy_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """It is tried again and again."""
    logs(tmp_path, commits=[0], offsets=[0])

    def away(source: Path, target: Path) -> None:
        target.mkdir()
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "copy_tree", away)
        with pytest.raises(type(failure), match="is away"):
            Checkpoint(tmp_path, LeaseEpoch(2)).inherit(seen(0))
    assert names(tmp_path) == ["epoch-1"]


def test_offsets_of_a_batch(tmp_path: Path) -> None:
    checkpoint = logs(tmp_path, commits=[], offsets=[0])
    assert checkpoint.offsets(0).watermark_ms == 1357016400000
    with pytest.raises(QueryFailed, match="CHECKPOINT_DAMAGED"):
        checkpoint.offsets(1)


def test_claim_marks_a_new_directory_and_knows_it_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q", LeaseEpoch(1))
    checkpoint.claim(MINE)
    checkpoint.claim(MINE)
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == ["standpipe.json"]


@pytest.mark.parametrize(
    "change",
    [{"query_id": "CTAS_B_2"}, {"generation": 2}, {"plan_sha256": "cd"}, {"service_id": "x"}],
    ids=str,
)
def test_claim_refuses_another_querys_checkpoint(tmp_path: Path, change: dict) -> None:
    Checkpoint(tmp_path, LeaseEpoch(1)).claim(MINE)
    (name,) = change
    with pytest.raises(QueryFailed, match=f"CHECKPOINT_MISMATCH.*{name} ") as caught:
        Checkpoint(tmp_path, LeaseEpoch(1)).claim(msgspec.structs.replace(MINE, **change))
    assert "DROP" in caught.value.message


@pytest.mark.parametrize("draft", ["standpipe.tmp", ".standpipe.json.tmp"])
def test_claim_finishes_what_a_first_start_could_not(tmp_path: Path, draft: str) -> None:
    """The disk was full, or the pipeline was killed: the query was CHECKPOINT_MISMATCH for good."""
    (tmp_path / draft).write_bytes(b"")
    Checkpoint(tmp_path, LeaseEpoch(1)).claim(MINE)
    Checkpoint(tmp_path, LeaseEpoch(2)).claim(MINE)


def test_claim_refuses_sparks_files_without_a_name(tmp_path: Path) -> None:
    checkpoint = logs(tmp_path, commits=[0], offsets=[0])
    with pytest.raises(QueryFailed, match="CHECKPOINT_MISMATCH"):
        checkpoint.claim(MINE)


def test_a_later_revision_may_have_another_plan(tmp_path: Path) -> None:
    second = msgspec.structs.replace(MINE, plan_sha256="cd", revision=2)
    for identity in (MINE, second, second):
        Checkpoint(tmp_path, LeaseEpoch(1)).claim(identity)
    with pytest.raises(QueryFailed, match="revision 2, not 1"):
        Checkpoint(tmp_path, LeaseEpoch(1)).claim(MINE)
    other = msgspec.structs.replace(second, query_id="CTAS_B_2", revision=3)
    with pytest.raises(QueryFailed, match=r"CHECKPOINT_MISMATCH.*query_id "):
        Checkpoint(tmp_path, LeaseEpoch(1)).claim(other)


def test_what_was_published_is_remembered_by_topic(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, LeaseEpoch(1))
    assert not checkpoint.is_published("T", "id-1")
    checkpoint.mark_published("T", "id-1")
    again = Checkpoint(tmp_path, LeaseEpoch(2))
    assert again.is_published("T", "id-1"), "by whichever pipeline"
    assert again.is_published("T", ""), "Kafka does not say"
    assert not again.is_published("T", "id-2"), "it was recreated"
    assert not again.is_published("U", "id-1")


def test_an_older_release_recorded_no_id_of_the_public_topic(tmp_path: Path) -> None:
    (tmp_path / "published").write_text("T")
    checkpoint = Checkpoint(tmp_path, LeaseEpoch(1))
    assert checkpoint.is_published("T", "id-1")
    checkpoint.mark_published("T", "id-1")
    assert not checkpoint.is_published("T", "id-2"), "it is recorded from now on"


def test_claim_refuses_a_damaged_identity(tmp_path: Path) -> None:
    (tmp_path / "standpipe.json").write_text("{")
    with pytest.raises(QueryFailed, match="CHECKPOINT_MISMATCH"):
        Checkpoint(tmp_path, LeaseEpoch(1)).claim(MINE)


def test_a_group_goes_on_from_the_directory_of_a_member_that_has_left(tmp_path: Path) -> None:
    """Under a lease of its own: in the other directory, who holds that lease may write."""
    logs(tmp_path, [0, 1], [0, 1], epoch=9)
    ours = Checkpoint(tmp_path, LeaseEpoch(4), is_of_group=True)
    ours.inherit(seen(1), seen(1))
    assert (ours.directory / "commits" / "1").exists()
    assert (tmp_path / "epoch-9").exists()
    (ours.directory / "offsets" / "2").write_text(OFFSET_LOG)
    (ours.directory / "commits" / "2").write_text(OFFSET_LOG)
    (ours.directory / "commits" / "3").write_text(OFFSET_LOG)
    (ours.directory / "offsets" / "3").write_text(OFFSET_LOG)
    ours.inherit(seen(3), seen(3))
    assert (ours.directory / "commits" / "3").exists(), "the other one is too old by now"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"logOffset":3}', "files"),
        ("7", "the rate source"),
        ('{"sourceVersion":1,"reservoirId":"r","index":-1}', "Delta"),
        ('{"a":{"0":"x"}}', "offsets are numbers"),
    ],
)
def test_what_another_source_than_kafka_covers_is_a_digest(line: str, why: str) -> None:
    """Only that it is the same matters: whether a checkpoint has the batch that was committed."""
    kafka = '{"s":{"0":5}}'
    ends = parse_offset_log("\n".join(["v1", "{}", kafka, line])).ends
    (name,) = ends.keys() - {"s"}
    assert name.startswith("source:1:"), why
    assert (ends["s"], ends[name]) == ({0: 5}, {})
    assert parse_offset_log("\n".join(["v1", "{}", kafka, line + " "])).ends != ends, why


def test_which_directories_have_a_batch(tmp_path: Path) -> None:
    logs(tmp_path, commits=[3, 4], offsets=[3, 4], epoch=1)
    checkpoint = logs(tmp_path, commits=[4], offsets=[4, 5], epoch=2)
    third, fourth = seen(3), seen(4)
    assert third is not None
    assert fourth is not None
    assert checkpoint.epochs_with(third) == {1}
    assert checkpoint.epochs_with(fourth) == {1, 2}
    assert checkpoint.epochs_with(msgspec.structs.replace(fourth, sources={})) == set()
    kept = [checkpoint.first_batch_kept(LeaseEpoch(epoch)) for epoch in (1, 2)]
    assert kept == [3, 4]


def test_without_a_committed_batch_a_directory_may_be_named(tmp_path: Path) -> None:
    older = logs(tmp_path, commits=[0, 1], offsets=[0, 1])
    ours = Checkpoint(tmp_path, LeaseEpoch(2))
    ours.inherit(None, otherwise=older.directory)
    assert {"0", "1"} <= {path.name for path in (ours.directory / "commits").iterdir()}
    last = Checkpoint(tmp_path, LeaseEpoch(3))
    last.inherit(None)
    assert list(last.directory.iterdir()) == []
