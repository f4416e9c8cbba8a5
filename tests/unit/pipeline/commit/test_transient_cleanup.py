"""What is removed after a transient query, and what must stay: of a query that may be alive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
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


def checkpoint(checkpoints: Path, query_id: str = ID, epoch: int = 5) -> Path:
    root = checkpoints / f"{query_id}-1"
    owner = Identity(
        service_id="s", query_id=query_id, table_id="t", generation=1, plan_sha256="ab"
    )
    Checkpoint(root, LeaseEpoch(epoch)).claim(owner)
    (root / f"epoch-{epoch}" / "offsets").mkdir(parents=True)
    return root


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
    removed = remove_checkpoints(tmp_path, catalog, running, NOW_MS)
    assert (removed == [root.name], root.exists()) == (is_removed, not is_removed), why
    assert other.exists(), "a persistent query's stays for a week"
    assert {*tmp_path.iterdir()} == ({other} if is_removed else {other, root})
    records = [progress(), progress("CTAS_A_1"), progress(batch=2)]
    gone = [records[0], records[2]] if is_removed else []
    assert ended_records(records, catalog, running) == gone, why


def test_a_start_that_was_killed_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """Without an epoch, nothing says how old it is but the clock; without an identity, Spark wrote
    after its checkpoint had been removed."""
    no_epoch = tmp_path / f"{ID}-1"
    no_epoch.mkdir()
    no_identity = tmp_path / "transient_S_8-1" / "epoch-3" / "offsets"
    no_identity.mkdir(parents=True)
    assert remove_checkpoints(tmp_path, ENDED, NO_RUNS, NOW_MS) == []
    later_ms = time.time_ns() // 10**6 + STRAY_MS + 60_000
    assert len(remove_checkpoints(tmp_path, ENDED, NO_RUNS, later_ms)) == 2
    assert [*tmp_path.iterdir()] == []


def test_a_cleanup_that_was_killed_is_finished(tmp_path: Path) -> None:
    (tmp_path / f"transient-removed-{ID}-1" / "epoch-3").mkdir(parents=True)
    remove_checkpoints(tmp_path, ENDED, NO_RUNS, NOW_MS)
    assert [*tmp_path.iterdir()] == []


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
    cleanup = TransientCleanup(tmp_path, topic)  # type: ignore[arg-type]
    swept(cleanup, ALIVE)
    assert (topic.reads, root.exists(), len(topic.left)) == (1, True, 2), "at the start"
    swept(cleanup, ENDED)
    assert topic.reads == 1, "its last batch may be in flight"
    topic.is_away = True
    now_s[0] += 3
    swept(cleanup, ENDED)
    assert (topic.reads, root.exists(), len(topic.left)) == (2, False, 2)
    topic.is_away = False
    now_s[0] += 60
    swept(cleanup, ENDED)
    assert (topic.reads, len(topic.left)) == (3, 1), "what Kafka did not take, once it does"
    now_s[0] += 60
    swept(cleanup, ENDED)
    assert topic.reads == 3, "then hourly"
