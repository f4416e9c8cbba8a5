"""A query reads another one's topic exactly once: on real Kafka and real Spark, foreign records
between the rows, replays, a tail that nobody has committed yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import wait_until
from tests.e2e.committed_child import BATCH_OFFSETS

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.control.metadata.topic_reconciler import CreateTopic
from standpipe.data.commit import progress as progress_log
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
)
from standpipe.errors import KafkaUnavailable
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.io.progress_log import ProgressLog

TOPIC, QUERY = "derived", "CSAS_1"
ROWTIME_MS = 258
HERE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("kafka"), any_port()) as broker:
        admin = KafkaAdmin(broker.bootstrap_servers)
        admin.carry_out(CreateTopic(TOPIC, 2, {}))
        admin.carry_out(CreateTopic("default__progress", 1, {}))
        wait_for_leaders(ProgressLog(broker.bootstrap_servers, "default_"))
        yield broker.bootstrap_servers


def wait_for_leaders(log: ProgressLog) -> None:
    """Topics that were just made have none yet."""
    said = ""

    def are_there() -> bool:
        nonlocal said
        try:
            return len(log.end_offsets(TOPIC, 2) | log.end_offsets(log.topic, 1)) == 2
        except KafkaUnavailable as error:
            said = error.message
            return False

    wait_until(are_there, "leaders of the topics", lambda: said)


class Writer:
    """A query's writes, step by step, and which of its records are committed."""

    def __init__(self, servers: str) -> None:
        self.log = ProgressLog(servers, "default_")
        self.ends = {0: 0, 1: 0}
        self.committed: set[tuple[int, int]] = set()
        self.batch = -1

    def write(self, commit: Commit | None, partition: int, count: int) -> set[tuple[int, int]]:
        mark = [] if commit is None else [(HEADER_COMMIT, commit_header(commit))]
        mark.append((HEADER_ROWTIME, rowtime_header(ROWTIME_MS)))
        first = self.log.end_offsets(TOPIC, 2)[partition]
        rows = [(b"k", b'{"N":1}', [*mark, ("other", b"x")]) for _ in range(count)]
        self.log.write_rows(TOPIC, partition, rows)
        return {(partition, first + number) for number in range(count)}

    def commit(self, epoch: int, counts: tuple[int, int], strangers: int = 0) -> None:
        """A batch of which an earlier attempt failed half-written, and a straggler came between."""
        self.batch += 1
        batch, lease = BatchId(self.batch), LeaseEpoch(epoch)
        failed, real = (Commit(lease_epoch=lease, batch=batch, attempt=n) for n in (7, 8))
        self.write(failed, 0, strangers)
        rows = self.write(real, 0, counts[0]) | self.write(real, 1, counts[1])
        self.write(failed, 1, strangers)
        self.write(None, 0, strangers)
        sinks = self.log.end_offsets(TOPIC, 2)
        starts, self.ends = self.ends, sinks
        self.log.append(Progress(query_id=QUERY, commit=real, sinks=sinks, starts=starts))
        self.write(real, 1, strangers)  # a straggler of a batch that is committed
        self.committed |= rows

    def append_zombies_progress(self) -> None:
        commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(self.batch + 1), attempt=9)
        self.write(commit, 0, 5)
        sinks = self.log.end_offsets(TOPIC, 2)
        self.log.append(Progress(query_id=QUERY, commit=commit, sinks=sinks, starts=self.ends))


def run(servers: str, *checkpoints: Path) -> list[list[tuple[int, int]]]:
    """What a query sees from each checkpoint until it is drained, batch by batch."""
    command = [sys.executable, "-m", "tests.e2e.committed_child", servers, TOPIC, QUERY]
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE / 'src'}"}
    ran = subprocess.run(
        [*command, *map(str, checkpoints)],
        cwd=HERE,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, list[tuple[int, int]]] = {str(each): [] for each in checkpoints}
    for line in ran.stdout.splitlines():
        checkpoint, _, seen = json.loads(line)
        assert len(seen) <= BATCH_OFFSETS
        assert {rowtime for _, _, rowtime in seen} <= {ROWTIME_MS}, "not when it was written"
        found[checkpoint] += [(partition, offset) for partition, offset, _ in seen]
    return [*found.values()]


@pytest.mark.timeout(1800)
def test_each_committed_record_is_seen_once_and_no_other(servers: str, tmp_path: Path) -> None:
    writer, checkpoint = Writer(servers), tmp_path / "checkpoint"
    writer.commit(1, (3, 2), strangers=2)
    writer.commit(1, (0, 4), strangers=1)
    unfinished = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(2), attempt=1)
    writer.write(unfinished, 0, 3)
    (first,) = run(servers, checkpoint)
    assert sorted(first) == sorted(writer.committed), "and the tail that nobody committed is not"

    fence = progress_log.fence(QUERY, LeaseEpoch(2), nonce=1)
    writer.log.append(fence)
    writer.append_zombies_progress()
    for _ in range(4):
        writer.commit(2, (4, 3), strangers=1)
    (second,) = run(servers, checkpoint)
    assert sorted(first + second) == sorted(writer.committed)

    noted = (checkpoint / "commits").iterdir()
    newest = max(int(path.name) for path in noted if path.name.isdecimal())
    (checkpoint / "commits" / str(newest)).unlink()  # it died before Spark noted its batch
    replayed, another = run(servers, checkpoint, tmp_path / "another")
    assert replayed
    assert set(replayed) <= set(second), "a replay sees the same rows"

    assert sorted(another) == sorted(writer.committed)
