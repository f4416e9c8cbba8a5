"""What is removed after a transient query, and what must stay: of a query that may be alive."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.unit.control.metadata.test_catalog import after
from tests.unit.control.metadata.test_transients import ID, RUNNING

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import TerminateQuery
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.commit.transient_cleanup import (
    STRAY_MS,
    TransientCleanup,
    ended_records,
    remove_checkpoints,
)

NOW_MS = time.time_ns() // 10**6
ENDED = replace(after(TerminateQuery(query_ids=(ID,)), start=RUNNING), pipeline_epoch=LeaseEpoch(5))
ALIVE = replace(RUNNING, pipeline_epoch=LeaseEpoch(5))
BEHIND = replace(ENDED, pipeline_epoch=LeaseEpoch(4))
NO_RUNS: frozenset[str] = frozenset()


def checkpoint(checkpoints: Path, folder: str = ID, epoch: int = 5, **owner: str) -> Path:
    root = checkpoints / f"{folder}-1"
    known = {"service_id": "s", "query_id": folder, "table_id": f"{folder.upper()}_9", **owner}
    identity = Identity(**known, generation=1, plan_sha256="ab")
    Checkpoint(root, LeaseEpoch(epoch)).claim(identity)
    (root / f"epoch-{epoch}" / "offsets").mkdir(parents=True)
    return root


def removed(
    checkpoints: Path,
    catalog: Catalog = ENDED,
    running: frozenset[str] = NO_RUNS,
    *,
    seen_ended: frozenset[str] = NO_RUNS,
    now_ms: int = NOW_MS,
) -> list[str]:
    return remove_checkpoints(
        checkpoints, "s", catalog, running, seen_ended=seen_ended, now_ms=now_ms
    )


def progress(query_id: str = ID, epoch: int = 5, batch: int = 1) -> Progress:
    commit = Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(batch), attempt=1)
    return Progress(query_id=query_id, commit=commit)


@pytest.mark.parametrize(
    ("catalog", "running", "is_removed", "why"),
    [
        (ENDED, NO_RUNS, True, "it has ended"),
        (ALIVE, NO_RUNS, False, "it may be another pipeline's"),
        (ENDED, {ID}, False, "its run has not stopped yet"),
        (BEHIND, NO_RUNS, False, "this catalog is older than its lease: it may be new"),
    ],
)
def test_what_goes(
    tmp_path: Path, catalog: Catalog, running: frozenset[str], is_removed: bool, why: str
) -> None:
    root = checkpoint(tmp_path)
    other = checkpoint(tmp_path, "CTAS_A_1")
    gone_now = removed(tmp_path, catalog, running)
    assert (gone_now == [root.name], root.exists()) == (is_removed, not is_removed), why
    assert other.exists(), "a persistent query's stays for a week"
    assert {*tmp_path.iterdir()} == ({other} if is_removed else {other, root})
    records = [progress(), progress("CTAS_A_1"), progress(batch=2)]
    gone = [records[0], records[2]] if is_removed else []
    assert ended_records(records, catalog, running) == gone, why


LATER_MS = time.time_ns() // 10**6 + STRAY_MS + 3_600_000


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ({"service_id": "other_"}, "of another service, whose lease epochs are small numbers, too"),
        ({"query_id": "transient_S_8"}, "of another query"),
        ({"table_id": "AUDIT_3"}, "of an INSERT INTO with a QUERY_ID that older releases accepted"),
    ],
)
@pytest.mark.parametrize("seen_ended", [NO_RUNS, frozenset({ID})])
def test_what_others_keep_in_the_same_directory_stays(
    tmp_path: Path, owner: dict[str, str], seen_ended: frozenset[str], why: str
) -> None:
    root = checkpoint(tmp_path, **owner)
    assert removed(tmp_path, seen_ended=seen_ended, now_ms=LATER_MS) == [], why
    assert (root / "epoch-5" / "offsets").is_dir()


def test_without_an_identity_only_what_this_pipeline_saw_ending_goes(tmp_path: Path) -> None:
    """Spark wrote after its checkpoint had been removed, or a user keeps something there."""
    late = tmp_path / f"{ID}-1" / "epoch-3" / "offsets"
    late.mkdir(parents=True)
    (tmp_path / "transient_S_8-1" / "epoch-3").mkdir(parents=True)
    assert removed(tmp_path, now_ms=LATER_MS) == []
    assert removed(tmp_path, seen_ended=frozenset({ID})) == [f"{ID}-1"]
    assert [each.name for each in tmp_path.iterdir()] == ["transient_S_8-1"]


def test_an_identity_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    root = checkpoint(tmp_path)
    (root / "standpipe.json").write_text("{")
    assert removed(tmp_path, seen_ended=frozenset({ID}), now_ms=LATER_MS) == []
    assert root.exists()


def test_a_start_that_was_killed_leaves_no_checkpoint(tmp_path: Path) -> None:
    """Without an epoch, nothing says how old it is but the clock."""
    (checkpoint(tmp_path) / "epoch-5" / "offsets").rmdir()
    (tmp_path / f"{ID}-1" / "epoch-5").rmdir()
    assert removed(tmp_path) == []
    assert removed(tmp_path, now_ms=LATER_MS) == [f"{ID}-1"]
    assert [*tmp_path.iterdir()] == []


def test_a_cleanup_that_was_killed_is_finished(tmp_path: Path) -> None:
    (tmp_path / f"transient-removed-{ID}-1" / "epoch-3").mkdir(parents=True)
    of_a_user = tmp_path / "transient-removed-notes"
    of_a_user.mkdir()
    removed(tmp_path)
    assert [*tmp_path.iterdir()] == [of_a_user]


class Topic:
    """The progress topic."""

    def __init__(self) -> None:
        self.left = [progress(), progress("CTAS_A_1")]
        self.is_away = False
        self.reads = 0

    def records(self) -> list[Progress]:
        self.reads += 1
        if self.is_away:
            raise KafkaUnavailable("no answer")
        return list(self.left)

    def tombstone(self, gone: list[Progress]) -> None:
        self.left = [each for each in self.left if each not in gone]


def swept(cleanup: TransientCleanup, catalog: Catalog) -> None:
    cleanup.tend(catalog, NO_RUNS)
    if cleanup._thread is not None:
        cleanup._thread.join()


def test_it_runs_after_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    topic, root = Topic(), checkpoint(tmp_path)
    cleanup = TransientCleanup(tmp_path, "s", topic)  # type: ignore[arg-type]
    swept(cleanup, ALIVE)
    assert (topic.reads, root.exists(), len(topic.left)) == (1, True, 2), "at the start"
    swept(cleanup, ENDED)
    assert topic.reads == 1, "its last batch may be in flight"
    topic.is_away = True
    now_s[0] += 3
    swept(cleanup, ENDED)
    assert (topic.reads, root.exists(), len(topic.left)) == (2, False, 2)
    topic.is_away = False
    (root / "epoch-5").mkdir(parents=True)  # by a run that was still starting
    now_s[0] += 60
    swept(cleanup, ENDED)
    assert (topic.reads, len(topic.left)) == (3, 1), "what Kafka did not take, once it does"
    assert not root.exists()
    now_s[0] += 60
    swept(cleanup, ENDED)
    assert topic.reads == 3, "then hourly"


@pytest.mark.parametrize("fails", ["checkpoints", "records"])
def test_a_failed_sweep_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The driver ends the pipeline if an exception ends one of its threads."""
    ended: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    topic, root = Topic(), checkpoint(tmp_path)
    cleanup = TransientCleanup(tmp_path, "s", topic)  # type: ignore[arg-type]

    def fail(*_args: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as broken, capture_logs() as logs:
        if fails == "checkpoints":
            broken.setattr(Path, "glob", fail)
        else:
            broken.setattr(topic, "records", fail)
        swept(cleanup, ENDED)
    assert ended == []
    assert [each["event"] for each in logs] == ["what ended push queries left stays for now"]
    cleanup._due_s = [0.0]
    swept(cleanup, ENDED)
    assert (root.exists(), len(topic.left)) == (False, 1), "the next one does it"
