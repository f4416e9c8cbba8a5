"""The tailer of a node: Kafka -> stores, `python -m standpipe.node.tailer.main --node-file FILE`.

One process, one loop (`run`, at the end). The map of the cluster says which replicas this node
holds, the progress topic says what of their topics is committed, `data.replica.machine` decides
what becomes visible, and a `TailedReplica` carries that out. Crash-only: after SIGKILL it
continues from what the stores say.

While Kafka is unreachable the loop continues: pages keep the last confirmed instant, and time that
is not confirmed counts as stale. Not here: reads (`node/worker`), lags of other nodes (`control`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import structlog

from standpipe.adapters import crash_only, process
from standpipe.adapters.clock import Clock, Every
from standpipe.adapters.files.published import SnapshotReader
from standpipe.adapters.kafka.reader import Partition, PartitionReader
from standpipe.adapters.kafka.topic_ids import TopicProbe
from standpipe.adapters.store import folders
from standpipe.adapters.store.reader_watch import PinWatch
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.adapters.store.writer import StoreFailure
from standpipe.config import keys
from standpipe.data.commit.committed import written_by_one_query
from standpipe.data.commit.seal import ProgressSeal
from standpipe.data.replica.events import Event, ProgressCaughtUp, TopicReported
from standpipe.data.replica.holdings import Holding, holdings
from standpipe.data.replica.positions import blank_status, must_restart
from standpipe.errors import DataDirectoryRefused, NotReady, SetupError, StandpipeError
from standpipe.model import ReplicaId, ReplicaState
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.store_transfer.receiver import Restores
from standpipe.node.tailer import clock_watch, published_files
from standpipe.node.tailer.covered import CoveredTables
from standpipe.node.tailer.direct_ends import DirectEnds
from standpipe.node.tailer.page_rounds import PageRounds
from standpipe.node.tailer.progress import ProgressFollower
from standpipe.node.tailer.replica import TailedReplica, World, codec_of
from standpipe.node.tailer.source_ends import SourceEnds
from standpipe.node.tailer.store_opener import StoreOpenings
from standpipe.topics import TOMBSTONES_MS, progress_topic

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

POLL_S: Final = 0.005  # how long the loop waits for records, which adds to their age
METRICS_MS: Final = 1000
HOUSEKEEPING_MS: Final = 2000
REOPEN_MS: Final = 1000  # after a store failed; also gives workers time to release it
PIN_MS_MAX: Final = 2000  # a reader that pins pages for longer lets the map grow without end
DOUBT_MS: Final = 60_000
FILES_SAID_MS: Final = 30_000
COMPACTION_LAG_MS: Final = 3_600_000  # for how long topics keep superseded records


class Tailer:
    """The state of the loop. Its public methods are the steps of `run`."""

    def __init__(self, node: NodeConfig, clock: Clock) -> None:
        self._paths, self._clock = node.paths, clock
        self._snapshots = SnapshotReader(node.paths.snapshot)
        topic = progress_topic(node.service_id)
        seal = ProgressSeal(node.secret(), topic)
        kafka = node.kafka()
        self._progress = ProgressFollower(kafka, topic, seal)
        self._tables, self._topics = PartitionReader(kafka), TopicProbe(kafka)
        self._sources = SourceEnds(kafka, node.paths.status)
        self._direct_ends = DirectEnds(kafka)
        self._covered = CoveredTables(node.paths.status)
        settings = node.settings()
        self._world = World(node.paths, clock, self._tables, settings[keys.LMDB_MAP_START])
        rate_bytes = settings[keys.RESTORE_BYTES]
        self._restores = Restores(node.paths, node.identity(), clock, rate_bytes)
        self._openings = StoreOpenings(self._world)
        self._pins = PinWatch()
        self._strays = folders.Strays(node.paths.state, delay_ms=settings[keys.STATE_CLEANUP_DELAY])
        #: {topic: the query that writes it}
        self._writers: dict[str, str] = {}
        #: what the map assigns to this node, and what of it is open
        self._holdings: dict[ReplicaId, Holding] = {}
        self._replicas: dict[ReplicaId, TailedReplica] = {}
        #: a page outlives the store that is rebuilt behind it
        self._pages: dict[ReplicaId, StatusWriter] = {}
        self._rounds = PageRounds(clock)
        self._every = Every(clock)
        #: boot ms at which all progress was last known
        self._known_ms = clock.boot_ms()
        #: it was cut off for too long (SIGSTOP, a suspended machine, a broken cable): its parent
        #: restarts it. Not before Kafka is back: until then, pages say how old the rows are
        self.is_outdated = False

    def follow_map(self) -> None:
        """Open replicas that the map assigns to this node, close the others."""
        if self._snapshots.refresh() or not self._holdings:
            with contextlib.suppress(NotReady):
                snapshot = self._snapshots.current()
                self._holdings = holdings(snapshot)
                self._writers = written_by_one_query((*snapshot.sources, *snapshot.successors))
                self._covered.follow(snapshot, self._holdings.values())
            for replica_id in self._replicas.keys() & self._holdings.keys():
                self._replicas[replica_id].follow(self._holdings[replica_id])
        for replica_id in self._replicas.keys() - self._holdings.keys():
            self._replicas.pop(replica_id).close(in_order=True)
        for replica_id in self._pages.keys() - self._holdings.keys():
            page = self._pages.pop(replica_id)
            page.write(blank_status(ReplicaState.ABSENT))
            page.close(unlink=True)
        self._openings.keep_only(self._holdings.keys())
        self._restores.keep_only(self._holdings)
        for replica_id, holding in self._holdings.items():
            if replica_id in self._replicas:
                continue
            if self._openings.is_over(replica_id) or self._every.is_due(replica_id, REOPEN_MS):
                self._open(holding)

    def follow_progress(self) -> None:
        """Pass the targets of new progress records to the replicas."""
        found = self._progress.poll()
        if self._progress.knows_all:  # before rows are changed that workers ask about
            self._covered.tell(self._progress.history)
        for news in found:
            if isinstance(news, ProgressCaughtUp):
                if not any(replica.is_fetching for replica in self._written):
                    # no replica has taken a record yet, so none can be judged wrongly, however long
                    # it took to read the topic that far
                    self._known_ms = self._clock.boot_ms()
                self._dispatch([*self._replicas.values()], news)
            else:
                self._dispatch(self._replicas_of(news.query_id, news.partition), news.target)

    def follow_topics(self) -> None:
        """Tell all the current ids of their topics: a recreated topic is a different one."""
        names = {replica.topic.topic for replica in self._replicas.values()}
        asked = self._sources.topics | names | {self._progress.name}
        heard = self._topics.tick(self._clock.boot_ms(), asked)
        if heard is None:
            return
        at_ms, seen = heard
        if (progress := seen.get(self._progress.name)) is not None:
            self._progress.heard(progress.topic_id)
        self._sources.heard(at_ms, seen)
        for replica in list(self._replicas.values()):
            if replica.topic.topic in seen:
                found = seen[replica.topic.topic]
                now = TopicReported(found.topic_id, at_ms, found.partitions)
                self._dispatch([replica], now)

    def follow_sources(self) -> None:
        """Ask where the topics end that others write, by which the replicas are dated."""
        now_ms = self._clock.boot_ms()
        for replica, told in self._direct_ends.tick(now_ms, [*self._replicas.values()]):
            self._dispatch([replica], told)
        if self._progress.knows_all:  # else its book is that of an earlier time
            held = {replica.holding.query_id for replica in self._written}
            self._sources.tick(now_ms, self._progress.book, held, self._writers)

    @property
    def _written(self) -> list[TailedReplica]:
        """The replicas of tables that queries write, which progress is about."""
        return [one for one in self._replicas.values() if not one.holding.is_direct]

    def follow_tables(self) -> None:
        """Pass what was read to the replicas of its partition, which apply whole batches."""
        fetched = self._tables.poll(POLL_S)
        if fetched:
            self._judge_silence(self._clock.boot_ms())
        for topic, event in () if self.is_outdated else fetched:
            self._close_outdated(topic)
            self._dispatch([r for r in self._replicas.values() if r.topic == topic], event)

    def confirm(self) -> None:
        """Confirm replicas once Kafka has answered, and its progress topic has nothing unread."""
        confirmed_ms = self._progress.confirmed_ms(self._clock.boot_ms())
        if confirmed_ms is not None:
            self._judge_silence(confirmed_ms)
            self._known_ms = max(self._known_ms, confirmed_ms)
            for replica in self._written:
                try:
                    replica.confirm(confirmed_ms)
                except (StoreFailure, DataDirectoryRefused) as error:
                    self._give_up(replica, error)

    def _judge_silence(self, now_ms: int) -> None:
        silent_ms = now_ms - self._known_ms
        if self._written and must_restart(silent_ms, COMPACTION_LAG_MS):
            _log.warning("restarting: progress was unknown for too long", ms=silent_ms)
            self.is_outdated = True

    def _close_outdated(self, topic: Partition) -> None:
        for replica_id, replica in list(self._replicas.items()):
            if replica.topic == topic and replica.is_outdated:
                self._replicas.pop(replica_id).close(in_order=True)

    def publish(self) -> None:
        """Write status pages and metrics; do housekeeping now and then."""
        book = self._progress.book
        self._rounds.turn(
            self._replicas.values(), self._progress, lambda: self._sources.covered(book)
        )
        if self._every.is_due("metrics", METRICS_MS):
            try:
                self._write_metrics()
                published_files.write_restores(
                    self._paths, self._restores, self._replicas, self._clock.boot_ms()
                )
                published_files.write_digests(self._paths, self._replicas.values())
            except OSError as error:  # a full disk: rows that fit are still applied
                if self._every.is_due("said", FILES_SAID_MS):
                    _log.error("files in run/ cannot be written", error=str(error))
        if self._every.is_due("housekeeping", HOUSEKEEPING_MS):
            self._housekeep()

    def close(self) -> None:
        """Close all stores in order, so that the next start finds them clean."""
        for replica in self._replicas.values():
            replica.write_page()
            replica.close(in_order=True)
        self._openings.close()
        self._tables.close()
        self._progress.close()

    def _open(self, holding: Holding) -> None:
        replica_id = holding.replica_id
        self._every.put_off(replica_id, REOPEN_MS)
        try:
            if replica_id not in self._pages:
                self._pages[replica_id] = StatusWriter(page_path(self._paths.run, replica_id))
                self._pages[replica_id].write(blank_status(ReplicaState.BOOTSTRAP))
            is_begun = replica_id in self._openings
            if not is_begun and not self._restores.ready(holding, self._snapshots.current()):
                return  # a peer's copy is on its way
            codec = codec_of(holding)  # first: it costs nothing
            if (store := self._openings.take(holding)) is None:
                return  # it is large, and checked in another thread
            replica = TailedReplica(holding, codec, store, self._pages[replica_id], self._world)
        except NotReady as error:  # at the next try it is rebuilt
            self._pages[replica_id].write(blank_status(ReplicaState.BOOTSTRAP))
            _log.warning("store is rebuilt", why=error.message)
        except (StandpipeError, StoreFailure, OSError, ValueError) as error:  # e.g. a full disk
            if replica_id in self._pages:
                self._pages[replica_id].write(blank_status(ReplicaState.FAILED))
            _log.error("replica cannot be opened", table=holding.source.name, error=str(error))
            if isinstance(error, StoreFailure) and error.is_damaged:
                path = folders.store_path(self._paths.state, replica_id)
                folders.retire(path, self._clock.wall_ms())
        else:
            self._replicas[replica_id] = replica
            self._restores.opened(replica_id)
            self._replay_targets(replica)

    def _replay_targets(self, replica: TailedReplica) -> None:
        """Give a new replica the committed targets; read the topic again if they were forgotten."""
        query, partition = replica.holding.query_id, replica.holding.partition
        if replica.holding.is_direct:  # nothing that could still be said matters to it
            self._dispatch([replica], ProgressCaughtUp())
            return
        if not self._progress.book.covers(query, partition, replica.position):
            self._progress.read_again()
            return
        for target in self._progress.book.targets(query, partition):
            self._dispatch([replica], target)
        if self._progress.knows_all:
            self._dispatch([replica], ProgressCaughtUp())

    def _dispatch(self, replicas: Iterable[TailedReplica], event: Event) -> None:
        for replica in replicas:
            try:
                replica.handle(event)
            except (StoreFailure, DataDirectoryRefused) as error:
                self._give_up(replica, error)
            if replica.is_outgrown and replica.holding.replica_id in self._replicas:
                self._restores.outgrown[replica.holding.replica_id] += 1
                self._rebuild(replica.holding.replica_id)

    def _give_up(self, replica: TailedReplica, error: StoreFailure | DataDirectoryRefused) -> None:
        """Close a store that failed, to open it again later. Its page stays as it is, and ages; it
        shows FAILED if the store is damaged or no longer ours."""
        is_refused = isinstance(error, DataDirectoryRefused)
        is_damaged = isinstance(error, StoreFailure) and error.is_damaged
        _log.error("store failed", error=str(error), damaged=is_damaged, refused=is_refused)
        replica_id = replica.holding.replica_id
        replica.close(in_order=False)
        self._replicas.pop(replica_id, None)
        self._every.put_off(replica_id, REOPEN_MS)
        if is_damaged or is_refused:
            self._pages[replica_id].write(blank_status(ReplicaState.FAILED))
        if is_damaged:
            folders.retire(replica.store.path, self._clock.wall_ms())

    def _replicas_of(self, query_id: str, partition: int) -> list[TailedReplica]:
        asked, every = (query_id, partition), self._replicas.values()
        return [one for one in every if (one.holding.query_id, one.holding.partition) == asked]

    def _housekeep(self) -> None:
        if not self._openings:  # a store that is being opened may be behind all others
            for query, partition in self._progress.book.partitions():
                positions = [held.position for held in self._replicas_of(query, partition)]
                self._progress.book.prune(query, partition, positions)
        stores = [replica.store for replica in self._replicas.values()]
        late = self._pins.look(stores, self._clock.monotonic_ms(), PIN_MS_MAX)
        files = (*self._paths.run.glob("worker-*.pid"), *self._paths.run.glob("heavy-*.pid"))
        workers = {process.read_pid(file) for file in files}
        for process_id in late & workers:
            _log.error("worker pins pages of a store: killed", pid=process_id)
            os.kill(process_id, signal.SIGKILL)
        self._recover_from_peer()
        self._rebuild_diverged()
        wanted = {folders.store_path(self._paths.state, each) for each in self._holdings}
        self._strays.clear(wanted, self._clock.boot_ms())

    def _recover_from_peer(self) -> None:
        """Rebuild from a peer, if one has the store, replicas that their topic cannot complete."""
        gone_ms = self._clock.wall_ms() - TOMBSTONES_MS
        for replica_id, replica in list(self._replicas.items()):
            doubt = replica.machine.doubt(gone_ms)
            if doubt and self._every.is_due((replica_id, "doubt"), DOUBT_MS):
                _log.error("replica in doubt", replica=str(replica_id), why=doubt)
                if self._restores.has_donor(replica.holding, self._snapshots.current()):
                    self._rebuild(replica_id)

    def _rebuild_diverged(self) -> None:
        """Rebuild replicas whose rows differ from others (`node/controller/digest_check.py`)."""
        for asked in self._paths.rebuilds.glob("*"):
            for replica_id in list(self._replicas):
                if str(replica_id) == asked.name:
                    _log.error("replica is rebuilt", replica=asked.name, why=asked.read_text())
                    self._rebuild(replica_id)
            asked.unlink()

    def _rebuild(self, replica_id: ReplicaId) -> None:
        replica = self._replicas.pop(replica_id)
        replica.close(in_order=False)
        self._pages[replica_id].write(blank_status(ReplicaState.BOOTSTRAP))
        folders.retire(replica.store.path, self._clock.wall_ms())

    def _write_metrics(self) -> None:
        row = {
            "at_ms": self._clock.wall_ms(),
            "records_per_second": self._tables.take_record_count() * 1000 // METRICS_MS,
            **published_files.of_progress(self._progress),
        }
        published_files.write_metrics(self._paths, row, self._replicas.values())


def run(tailer: Tailer, stop: process.StopSignal) -> None:
    """The tailer's loop. Ends on the signal, or when the tailer was cut off for too long."""
    while not stop.is_set and not tailer.is_outdated:
        tailer.follow_map()
        tailer.follow_progress()
        tailer.follow_topics()
        tailer.follow_tables()
        tailer.confirm()
        tailer.follow_sources()
        tailer.publish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--node-file", type=Path, required=True)
    options = parser.parse_args(arguments)
    process.die_with_parent()
    configuration.log_json("tailer")
    crash_only.end_with_threads()
    try:
        node = configuration.load(options.node_file)
        node.paths.make()
        process.raise_file_limit()
        process.write_pid(node.paths.run / "tailer.pid")
        stop = process.StopSignal()
        clock = Clock()
        clock_watch.end_when_set_back(clock)  # before librdkafka starts threads
        tailer = Tailer(node, clock)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    # Records are millions of tuples: the collector would scan them repeatedly for cycles that do
    # not exist, which costs a quarter of the restore, measured.
    gc.collect()
    gc.freeze()
    gc.disable()
    run(tailer, stop)
    tailer.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
