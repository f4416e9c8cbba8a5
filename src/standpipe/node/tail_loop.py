"""The tailer of a node: Kafka -> stores, `python -m standpipe.node.tail_loop --node-file FILE`.

One process, one thread, one loop (`run`): the map of the cluster says which replicas this node
holds, the progress topic says what of their topics is committed, `data.apply` decides, and
`node/replicas.py` carries out. Crash-only: after SIGKILL it goes on from what the stores say.

While Kafka is away the loop goes on: pages keep the last confirmed instant, and time that is not
confirmed counts as stale.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from standpipe import config
from standpipe.adapters import process
from standpipe.adapters.clock import Clock
from standpipe.adapters.kafka import (
    EndHeard,
    EndProbe,
    Heard,
    OffsetGone,
    Partition,
    PartitionReader,
    RecordsHeard,
)
from standpipe.adapters.snapshot_file import SnapshotReader
from standpipe.data import progress
from standpipe.data.progress import ProgressBook
from standpipe.errors import NotReady
from standpipe.model import Snapshot
from standpipe.node.node_config import NodeConfig
from standpipe.node.replicas import Replica, Replicas

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

POLL_S: Final = 0.005  # how long the loop waits for records, and so what it adds to freshness
PROGRESS_AT_ONCE: Final = 5000
PROBE_MS: Final = 100
PAGES_MS: Final = 50
METRICS_MS: Final = 1000
HOUSEKEEPING_MS: Final = 2000


def progress_topic(service_id: str) -> str:
    return f"{service_id}_progress"


class Tailer:
    """Everything that the loop moves. One instance per process."""

    def __init__(self, node: NodeConfig, clock: Clock, settings: config.Config) -> None:
        data = Path(node.data_dir)
        self._clock = clock
        self._snapshots = SnapshotReader(data / "run" / "snapshot")
        self._metrics_file = data / "run" / "tailer.json"
        self._topic = Partition(progress_topic(node.service_id), 0)
        self._progress = PartitionReader(node.bootstrap_servers)
        self._tables = PartitionReader(node.bootstrap_servers)
        self._probe = EndProbe(node.bootstrap_servers, self._topic)
        self._book = ProgressBook()
        self._progress_position = 0
        self._knows_all_progress = False
        self.replicas = Replicas(
            data, self._tables, clock, map_bytes=settings[config.LMDB_MAP_START]
        )
        self._due: dict[str, int] = {}
        self._records = 0
        self._progress.start(self._topic, 0)

    # Each of these is one line of the loop.

    def follow_map(self) -> None:
        """Open replicas that the map gives to this node, close those that it takes away."""
        self._snapshots.refresh()
        try:
            snapshot: Snapshot = self._snapshots.current()
        except NotReady:
            return
        for replica in self.replicas.reconcile(snapshot):
            self._brief(replica)

    def follow_progress(self) -> None:
        """Hand the targets of new progress records to the replicas."""
        for heard in self._progress.poll(0, PROGRESS_AT_ONCE):
            self._take_progress(heard)

    def follow_tables(self) -> None:
        """Hand records to their replicas, which apply what is whole."""
        for heard in self._tables.poll(POLL_S):
            if isinstance(heard, RecordsHeard):
                self._records += len(heard.records)
            self.replicas.hear(heard)

    def confirm(self) -> None:
        """Kafka was heard, and the progress topic holds nothing that was not read."""
        answer = self._probe.tick(self._clock.boot_ms(), PROBE_MS)
        if answer is not None and self._knows_all_progress and answer[1] <= self._progress_position:
            self.replicas.confirm(answer[0])

    def publish(self) -> None:
        """Status pages, metrics, and what has to be looked after now and then."""
        if self._is_due("pages", PAGES_MS):
            self.replicas.write_pages()
        if self._is_due("metrics", METRICS_MS):
            self._write_metrics()
        if self._is_due("housekeeping", HOUSEKEEPING_MS):
            self.replicas.keep_house()
            self._prune()

    def close(self) -> None:
        self.replicas.close()
        self._tables.close()
        self._progress.close()

    # ------------------------------------------------------------------------------ progress

    def _brief(self, replica: Replica) -> None:
        """Tell a new replica what is committed; read the topic anew if that was forgotten."""
        query, partition = replica.source.query_id or "", replica.placement.partition
        if not self._book.covers(query, partition, replica.position):
            self._read_progress_anew()
            return
        for target in self._book.targets(query, partition):
            self.replicas.handle(replica, target)
        if self._knows_all_progress:
            self.replicas.progress_caught_up([replica])

    def _read_progress_anew(self) -> None:
        self._progress.stop(self._topic)
        self._progress.start(self._topic, 0)
        self._book, self._progress_position = ProgressBook(), 0
        self._knows_all_progress = False

    def _take_progress(self, heard: Heard) -> None:
        if isinstance(heard, OffsetGone):
            self._read_progress_anew()
        elif isinstance(heard, EndHeard):
            self._knows_all_progress = True
            self._progress_position = max(self._progress_position, heard.offset)
            self.replicas.progress_caught_up()
        else:
            for offset, _, value, _ in heard.records:
                self._take_record(offset, value)

    def _take_record(self, offset: int, value: bytes | None) -> None:
        self._progress_position = offset + 1
        if value is None:  # the tombstone of a record that nobody needs any more
            return
        try:
            record = progress.parse(value)
        except ValueError as error:
            _log.error("progress record cannot be read", offset=offset, error=str(error))
            return
        for valid in self._book.take(record):
            for replica in self.replicas.of(valid.query_id, valid.partition):
                self.replicas.handle(replica, valid.target)

    def _prune(self) -> None:
        for query, partition in self._book.partitions():
            held = self.replicas.of(query, partition)
            self._book.prune(query, partition, [replica.position for replica in held])

    # ------------------------------------------------------------------------------- metrics

    def _is_due(self, what: str, every_ms: int) -> bool:
        now = self._clock.monotonic_ms()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + every_ms
        return True

    def _write_metrics(self) -> None:
        row = {
            "at_ms": self._clock.wall_ms(),
            "records_per_second": self._records * 1000 // METRICS_MS,
            "progress_position": self._progress_position,
            "knows_all_progress": self._knows_all_progress,
            "replicas": self.replicas.describe(),
        }
        self._records = 0
        temporary = self._metrics_file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(row))
        temporary.rename(self._metrics_file)


def run(tailer: Tailer, stop: process.StopSignal) -> None:
    """The whole of the tailer. Ends with the signal."""
    while not stop.is_set:
        tailer.follow_map()
        tailer.follow_progress()
        tailer.follow_tables()
        tailer.confirm()
        tailer.publish()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="standpipe tailer")
    parser.add_argument("--node-file", type=Path, required=True)
    options = parser.parse_args(arguments)
    process.die_with_parent()
    node = msgspec.json.decode(options.node_file.read_bytes(), type=NodeConfig)
    process.log_json_lines("tailer", node=node.node_id)
    process.raise_file_limit()
    process.write_pid(Path(node.data_dir) / "run" / "tailer.pid")
    stop = process.StopSignal()
    tailer = Tailer(node, Clock(), node.settings())
    # Records are tuples by the million: the collector would walk them again and again for cycles
    # that are not there, and cost a quarter of the restore (performance.md, section c).
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        run(tailer, stop)
    finally:
        tailer.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
