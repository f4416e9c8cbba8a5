"""A tailer with the real apply machine and a store that is a dict: one replica of one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.unit.data.rows import in_columns, table

from standpipe.data.commit.expiry import Expiry, by_edge, edges_after
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.seal import ProgressReader
from standpipe.data.commit.topic_identity import HEARD_MS_MAX
from standpipe.data.encoding import stored_rows
from standpipe.data.replica import positions
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    Event,
    LogEndReported,
    ProgressCaughtUp,
    RebuildStore,
    RecordsFetched,
    RecordsGone,
    ReportDataLoss,
    TopicReported,
    TopicSilent,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.data.replica.stage import RowCodec
from standpipe.model import NO_BATCH, Offset

if TYPE_CHECKING:
    from .data_world import DataWorld


FETCH_MAX = 40  # records at once


class SimStore:
    """What is on a tailer's disk. A transaction is atomic; `kill -9` loses none of it."""

    def __init__(self, partition: int, expiry: Expiry | None = None) -> None:
        self.expiry = expiry
        identity = StoreIdentity(table_id="t", generation=1, partition=partition)
        self.rows: dict[bytes, bytes] = {}
        self.meta = StoreMeta(identity=identity, digest=stored_rows.EMPTY_DIGEST)
        self.expired = 0  # rows, for the totals
        self.is_there = False  # as a file: it is made when it is opened first

    def apply(self, order: ApplyBatch, now_ms: int, is_caught_up: bool = False) -> None:
        puts = dict(order.puts)
        replaced = [(key, self.rows[key]) for key in puts if key in self.rows]
        deleted = [(key, self.rows[key]) for key in order.deletes if key in self.rows]
        sum_ = stored_rows.digest_after(self.meta.digest or 0, replaced, deleted, puts.items())
        for key in order.deletes:
            self.rows.pop(key, None)
        self.rows |= puts
        gone = self._expired(order.meta.watermark_ms)
        for key, _ in gone:
            del self.rows[key]
        sum_ = stored_rows.digest_after(sum_, (), gone, ())
        meta = positions.applied_at(order.meta, self.meta, _at(now_ms), is_caught_up=is_caught_up)
        self.meta = msgspec.structs.replace(meta, digest=sum_)
        self.expired += len(gone)

    def _expired(self, watermark_ms: int) -> list[tuple[bytes, bytes]]:
        edge_ms = self.expiry.newest_expired_ms(watermark_ms) if self.expiry else None
        if edge_ms is None:
            return []
        end = edges_after(edge_ms)
        return [(key, row) for key, row in self.rows.items() if by_edge(key) < end]


def _at(now_ms: int) -> positions.Now:
    return positions.Now(wall_ms=now_ms, boot_ms=now_ms, boot_id="boot")


class SimTailer:
    def __init__(self, world: DataWorld, name: str, partition: int) -> None:
        self.world, self.name, self.partition = world, name, partition
        self.random = world.random
        self.store = SimStore(partition, world.keys.expiry)
        self.lives = 0  # of stores: what was promised by one binds the next not
        self.machine: ApplyMachine | None = None
        self.paused_until_ms = 0
        self.kafka_away_until_ms = 0.0  # it lives, and hears neither topic
        self.table_away_until_ms = 0.0  # its partition has no leader; the progress topic has
        self.progress_away_until_ms = 0.0  # as the last: its leader may be another broker
        self.fetch_max = FETCH_MAX
        self.may_copy = True
        self._run = 0
        self._topic_heard_ms = 0

    @property
    def is_up(self) -> bool:
        return self.machine is not None

    @property
    def answers(self) -> bool:
        return self.machine is not None and self.machine.state.answers

    @property
    def is_whole(self) -> bool:
        return self.answers and self.store.meta.batch != NO_BATCH

    def start(self) -> None:
        if self.is_up:
            return
        self._wipe_what_is_outdated()
        source = table(partitions=self.world.partitions, window=self.world.keys.window)
        codec = RowCodec.of(source, self.partition)
        self._copy_from_a_peer()
        self._wipe_what_is_outdated()
        self.store.is_there = True
        self.machine = ApplyMachine(
            codec,
            self.store.meta,
            transaction_rows=3,
            backlog_records=20,
            gone_ms=self.world.gone_ms,
        )
        self.book = ProgressBook()
        self._records, self._progress_at = ProgressReader(self.world.seal), 0
        self.fetched = int(self.store.meta.position)
        self._is_fetching = False
        self._run += 1
        self._known_ms = self.world.now_ms
        now = _at(self.world.now_ms)
        self._end_ms = now.boot_ms - positions.unread_ms(self.store.meta, now)
        self._plan(self._run)

    def _wipe_what_is_outdated(self) -> None:
        why = positions.must_rebuild(
            self.store.meta,
            _at(self.world.now_ms),
            closed_cleanly=False,
            tombstones_ms=self.world.options.retention.tombstones_ms,
        )
        if why is not None:
            self.world.note("rebuilds", self.name, why)
            self.world.counts["stores rebuilt"] += 1
            self.wipe()

    def _copy_from_a_peer(self) -> None:
        """Instead of making a store, at times: a peer may not be heard in time. One that is there
        is not replaced, even if its partition is empty: its label would fall."""
        donors = [t for t in self.world.tailers if t.partition == self.partition and t.is_whole]
        if not self.may_copy or self.store.is_there:
            return
        if donors and self.random.random() < 0.5:
            donor = self.random.choice(donors).store
            self.store.rows, self.store.meta = dict(donor.rows), donor.meta
            self.world.counts["stores copied from a peer"] += 1

    def crash(self) -> None:
        self.machine = None
        self._run += 1

    def wipe(self) -> None:
        self.store = SimStore(self.partition, self.world.keys.expiry)
        self.lives += 1

    def _plan(self, run: int) -> None:
        delay = self.random.random() * self.world.options.tail_ms
        self.world.after(delay, lambda: self._step(run))

    def _step(self, run: int) -> None:
        if run != self._run or self.machine is None:
            return
        if self.world.now_ms < self.paused_until_ms:
            self.world.after(500, lambda: self._step(run))
            return
        if self.world.now_ms >= self.kafka_away_until_ms:
            if self._restarts():
                return
            is_known = self.world.now_ms >= self.progress_away_until_ms
            if self.random.random() < 0.5 and is_known:
                self._follow_progress()
            is_there = self.world.now_ms >= self.table_away_until_ms
            self._ask_for_the_topic()
            if self._is_fetching and self.machine is not None and is_there:
                if self._reopens():
                    return
                self._follow_table()
        self._plan(run)

    def _restarts(self) -> bool:
        silent_ms = self.world.now_ms - self._known_ms
        lag_ms = self.world.options.retention.compaction_lag_ms
        if not self._is_fetching or not positions.must_restart(silent_ms, lag_ms):
            return False
        self.world.counts["tailers restarted after a stall"] += 1
        self.crash()
        self.start()
        return True

    def _reopens(self) -> bool:
        silent_ms = self.world.now_ms - self._end_ms
        tombstones_ms = self.world.options.retention.tombstones_ms
        if not positions.must_reopen(silent_ms, tombstones_ms):
            return False
        self.world.counts["replicas opened again after their table was away"] += 1
        self.crash()
        self.start()
        return True

    def _follow_progress(self) -> None:
        count = self.random.choice([1, 10, 1000])
        records, self._progress_at = self.world.progress.read(self._progress_at, count)
        for record in records:
            if record.value is None:
                continue
            progress = self._records.read(record.key, record.value, record.headers)
            for valid in self.book.take(progress) if progress is not None else ():
                mine = (self.world.query_id, self.partition)
                if (valid.query_id, valid.partition) == mine:
                    self._handle(valid.target)
        if self._progress_at == self.world.progress.end:
            self._known_ms = self.world.now_ms
            self._handle(ProgressCaughtUp())
            if not self._is_fetching and self.store.meta.position == 0:
                self._end_ms = self.world.now_ms
            self._is_fetching = True
            if self.machine is not None and self.machine.is_caught_up:
                self._end_ms = self.world.now_ms
                self._note_current()

    def _ask_for_the_topic(self) -> None:
        if self.world.options.is_recreated and self.random.random() < 0.5:
            self._topic_heard_ms = self.world.now_ms
            self._handle(TopicReported(self.world.recreation.topic_id, self.world.now_ms))

    def _note_current(self) -> None:
        meta, tombstones_ms = self.store.meta, self.world.options.retention.tombstones_ms
        if positions.must_note_current(meta.current_ms, self.world.now_ms, tombstones_ms):
            self.store.apply(ApplyBatch([], [], meta), self.world.now_ms, is_caught_up=True)

    def _follow_table(self) -> None:
        log = self.world.tables[self.partition]
        silent_ms = self.world.now_ms - self._topic_heard_ms
        if self.world.options.is_recreated and silent_ms > HEARD_MS_MAX:
            self._handle(TopicSilent())
        if self.fetched > log.end or 0 < self.fetched < log.start:  # 0: from the beginning
            self._handle(RecordsGone())
            return
        records, self.fetched = log.read(
            self.fetched, min(self.fetch_max, self.random.randint(1, FETCH_MAX))
        )
        self._handle(LogEndReported(Offset(log.end)))
        if records:
            fetched = in_columns([record[:4] for record in records])
            self._handle(RecordsFetched(fetched, Offset(records[-1].offset + 1)))
        if self.fetched == log.end:
            self._end_ms = self.world.now_ms
            self._handle(EndReached(Offset(log.end)))
        if self.machine is not None and self.machine.doubt(self.world.gone_ms):
            self._make_anew_if_a_peer_has_it()

    def _make_anew_if_a_peer_has_it(self) -> None:
        self.world.counts["looks of a replica in doubt"] += 1
        if any(t.partition == self.partition and t.is_whole for t in self.world.tailers):
            self.crash()
            self.wipe()
            self.start()

    def _handle(self, event: Event) -> None:
        machine = self.machine
        if machine is None:
            return
        for order in machine.handle(event):
            if not self.world.is_healed and self.random.random() < self.world.options.kill_tailer:
                self.world.kill_between_steps(self)
                return
            if isinstance(order, ApplyBatch):
                self.apply(order)
                self.world.counts["transactions"] += 1
                is_part = order.meta.position > 0 and machine._applied is None
                self.world.counts["parts of a range that goes by order"] += is_part
            elif isinstance(order, RebuildStore):
                self.world.counts["stores rebuilt: records were gone"] += 1
                self.crash()
                self.wipe()
                self.start()
                return
            elif isinstance(order, ReportDataLoss):
                is_false = not self.world.recreation.is_over
                self.world.never(is_false, f"{self.name} reports data loss: {order.reason}")
                self.world.counts["replicas that lost their topic"] += 1
        if self.machine is not None:
            self.world.seen(self)

    def apply(self, order: ApplyBatch) -> None:
        is_caught_up = self.machine is not None and self.machine.is_caught_up
        before = self.store.expired
        self.store.apply(order, self.world.now_ms, is_caught_up)
        self.world.counts["rows of expired windows dropped"] += self.store.expired - before
