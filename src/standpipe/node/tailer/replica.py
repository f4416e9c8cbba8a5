"""One replica of a tailer: an open store, its machine and its status page.

`data.replica.machine` decides what becomes visible; this carries it out. Not here: what is read
from Kafka and when (`node.tailer.main`), where a store comes from when there is none
(`node.store_transfer.receiver`).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.kafka.reader import Partition, PartitionReader
from standpipe.adapters.store.status_page import StatusWriter
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.commit.progress import Rank
from standpipe.data.commit.topic_identity import HEARD_MS_MAX
from standpipe.data.replica.applied_progress import AppliedProgress
from standpipe.data.replica.digest_verdict import RECENT_BATCHES, KeptDigests, StoreDigest
from standpipe.data.replica.direct import DirectMachine
from standpipe.data.replica.direct_stage import DirectCodec
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    EndTold,
    Event,
    LeftOutReport,
    LogEndReported,
    PauseFetching,
    ProgressCaughtUp,
    RebuildStore,
    RecordsFetched,
    RecordsGone,
    ReportDataLoss,
    ResumeFetching,
    TopicReported,
    TopicSilent,
)
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import (
    Now,
    StoreMeta,
    applied_at,
    must_note_current,
    must_reopen,
    opened_at,
    unread_ms,
)
from standpipe.data.replica.stage import RowCodec
from standpipe.data.replica.store_copy import Meter, RestoreView
from standpipe.model import NO_BATCH, Offset, ReplicaState, ReplicaStatus
from standpipe.node.configuration import NodePaths

#: targets that a replica is behind and that are dated; of more, the oldest are not
DATED_MAX: Final = 256

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


#: how records of a partition become rows
Codec = RowCodec | DirectCodec


def codec_of(holding: Holding) -> Codec:
    """Raises UnfitKey or ValueError for formats that a store cannot keep."""
    codec = DirectCodec if holding.is_direct else RowCodec
    return codec.of(holding.source, holding.partition)


@dataclass(frozen=True)
class World:
    """What all replicas of a node share."""

    paths: NodePaths
    clock: Clock
    reader: PartitionReader  # of the table topics
    map_bytes: int

    def now(self) -> Now:
        """The current time on all clocks by which a store is dated."""
        clock = self.clock
        return Now(wall_ms=clock.wall_ms(), boot_ms=clock.boot_ms(), boot_id=clock.boot_id())


class TailedReplica:
    """One open store with its machine and its status page: carries out what the machine orders.

    Raises StoreFailure when the store accepts no transaction; it is closed then. Later:
    StoreFailure or DataDirectoryRefused when a transaction fails, or its store cannot be opened
    again; the replica must be closed then.
    """

    def __init__(
        self,
        holding: Holding,
        codec: Codec,
        store: StoreWriter,
        page: StatusWriter,
        world: World,
    ) -> None:
        self.holding = holding
        self.topic = Partition(holding.source.topic, holding.partition)
        self._world, self._page = world, page
        self._log = _log.bind(table=holding.source.name, partition=holding.partition)
        self.store = store
        silent_ms = unread_ms(self.store.meta(), world.now())
        #: what the newest transaction wrote; the first makes the store readable for workers
        self._written = opened_at(self.store.meta(), world.now())
        try:
            store.apply([], [], self._written)
        except StoreFailure:
            store.abandon()
            raise
        self.machine = self._machine(codec)
        self._rows = self.store.rows()
        #: boot ms at which its topic was last read to its end, even by an earlier process
        self._end_boot_ms = world.clock.boot_ms() - silent_ms
        self._confirmed_boot_ms = 0
        #: boot ms at which Kafka last had no progress that was not read
        self._known_boot_ms = 0
        #: boot ms from before which no source record is missing in the rows; 0: unknown
        self._source_boot_ms = 0
        #: (rank of a target, the same of its batch), in order, of those that are not applied yet
        self._dated: deque[tuple[Rank, int]] = deque(maxlen=DATED_MAX)
        self._progress = AppliedProgress()
        #: boot ms of the last request that Kafka answered with this topic's id; 0: none
        self._topic_heard_ms = 0
        #: records are fetched: all progress was known once
        self.is_fetching = False
        #: the topic no longer has what it would read next: its store must be made again
        self.is_outgrown = False
        self._meter = Meter()
        self._recent: deque[StoreDigest] = deque(maxlen=RECENT_BATCHES)
        self._remember(self.store.meta())
        self._carry_out: dict[type, Callable[[Any], None]] = {
            ApplyBatch: self._apply,
            LeftOutReport: self._report,
            PauseFetching: lambda _: world.reader.pause(self.topic),
            ResumeFetching: lambda _: world.reader.resume(self.topic),
            ReportDataLoss: self._report_loss,
            RebuildStore: self._outgrow,
        }
        self._log.info("replica opened", position=self.position, rows=self._rows)

    def _machine(self, codec: Codec) -> ApplyMachine | DirectMachine:
        meta = self.store.meta()
        if isinstance(codec, DirectCodec):
            topic_id = self.holding.source.topic_id or ""
            return DirectMachine(codec, meta, self.store.rows_of, topic_id=topic_id)
        gone_ms = self._world.clock.wall_ms() - self.holding.tombstones_ms
        return ApplyMachine(codec, meta, gone_ms=gone_ms)

    def follow(self, holding: Holding) -> None:
        """The table as a newer map has it. If it got columns, records of writers that know them
        become rows in the short way from now on; the rows are the same as before."""
        grows = holding.source.columns != self.holding.source.columns
        if grows and isinstance(self.machine, ApplyMachine):
            self.machine.codec = RowCodec.of(holding.source, holding.partition)
            self.holding = holding

    @property
    def fetched(self) -> Offset:
        """Everything below was delivered. Of a direct table."""
        assert isinstance(self.machine, DirectMachine)
        return self.machine.fetched

    @property
    def position(self) -> Offset:
        """A(p): everything committed below it is applied."""
        return self.machine.meta.position

    def handle(self, event: Event) -> None:
        """Let the machine judge an event, and carry out what it orders.

        Raises StoreFailure or DataDirectoryRefused if a transaction fails.
        """
        was = self.machine.state
        if isinstance(event, TopicReported):
            self._topic_heard_ms = event.at_ms
        elif isinstance(event, RecordsFetched | EndReached | RecordsGone):
            self._tell_what_is_known()
        self._dispatch(event)
        if isinstance(event, EndReached):
            self._end_boot_ms = self._world.clock.boot_ms()
        elif isinstance(event, EndTold):
            self._confirm_end(event)
        if self.machine.state is ReplicaState.RUNNING is not was:  # e.g. a restore is over
            self.store.release_memory()
        if isinstance(event, ProgressCaughtUp) and not self.is_fetching:
            # not before: without all targets a gap in a range would be judged wrongly
            self.is_fetching = True
            if self.position == 0:  # reading all progress may have taken long
                self._end_boot_ms = self._world.clock.boot_ms()
            self._world.reader.start(self.topic, self.position, is_timed=self.holding.is_direct)

    def _dispatch(self, event: Event) -> None:
        for order in self.machine.handle(event):
            self._carry_out[type(order)](order)

    def _tell_what_is_known(self) -> None:
        """Before each fetch event: whether the topic's id is still known, and the topic's end."""
        if self._world.clock.boot_ms() - self._topic_heard_ms > HEARD_MS_MAX:
            self._dispatch(TopicSilent())
        self._tell_log_end()

    def _tell_log_end(self) -> None:
        self.machine.handle(LogEndReported(Offset(self._world.reader.log_end(self.topic))))

    @property
    def is_outdated(self) -> bool:
        """Whether it must be opened again before it takes another record."""
        known_boot_ms = max(self._end_boot_ms, self._confirmed_boot_ms)
        silent_ms = self._world.clock.boot_ms() - known_boot_ms
        return must_reopen(silent_ms, self.holding.tombstones_ms)

    def confirm(self, boot_ms: int) -> None:
        """Kafka was reached at `boot_ms`, and had no newer progress. May raise StoreFailure."""
        self._known_boot_ms = max(self._known_boot_ms, boot_ms)
        if self.machine.is_caught_up:
            self._confirmed_boot_ms = max(self._confirmed_boot_ms, boot_ms)
            now_ms = self._world.clock.wall_ms()
            kept_ms = self.holding.tombstones_ms
            if must_note_current(self._written.current_ms, now_ms, kept_ms):
                self.store.apply([], [], self._stamped(self.store.meta()))

    def _confirm_end(self, told: EndTold) -> None:
        """Kafka said where the topic of a direct table ends. What was in it then is dated by that:
        the topic is the table's source. May raise StoreFailure."""
        self._known_boot_ms = max(self._known_boot_ms, told.asked_ms)
        # an end below what had been read by then is that of another log: the topic was made again
        if self.machine.is_caught_up and told.fetched <= told.end <= self.position:
            self.confirm(told.asked_ms)
            self._source_boot_ms = self._confirmed_boot_ms

    def note_sources(self, boot_ms: int) -> None:
        """The newest committed batch has all source records from before `boot_ms`; 0: unknown. The
        rows have them once they show that batch, or a later one."""
        newest, shown = self.machine.newest_rank, self.machine.shown_rank
        if newest is not None and boot_ms:
            if self._dated and self._dated[-1][0] == newest:
                self._dated.pop()
            self._dated.append((newest, boot_ms))
        while self._dated and shown is not None and self._dated[0][0] <= shown:
            self._source_boot_ms = max(self._source_boot_ms, self._dated.popleft()[1])

    def note_progress(self, read_up_to: int, topic_id: str) -> None:
        """All targets of progress below this offset, of the topic with this id, were handed
        over. A direct table has none."""
        if self.holding.is_direct:
            return
        newest, shown = self.machine.newest_rank, self.machine.shown_rank
        self._progress.note(read_up_to, newest, shown, topic_id)

    def is_awaited(self, barrier_end: int) -> bool:
        """Whether a read may wait for what its page does not say yet. `barrier_end`: behind the
        newest barrier."""
        return self._progress.is_awaited(barrier_end)

    @property
    def told_progress(self) -> int:
        """What its page says of progress."""
        return self._progress.told

    def write_page(self) -> None:
        """Publish the current status on the replica's status page."""
        self._tell_log_end()
        self._page.write(self._status())
        self._progress.told = self._progress.end

    def _status(self) -> ReplicaStatus:
        status = self.machine.status(
            confirmed_boot_ms=self._confirmed_boot_ms,
            rows=self._rows,
            known_boot_ms=self._known_boot_ms,
            beat_boot_ms=self._world.clock.boot_ms(),
            source_boot_ms=self._source_boot_ms,
        )
        return msgspec.structs.replace(
            status,
            progress_end=self._progress.end,
            progress_topic_id=self._progress.topic_id,
        )

    def restore_view(self, now_ms: int) -> RestoreView | None:
        """While it is behind: how far its changelog is read, and when that ends. Else None."""
        status = self._status()
        if status.state is ReplicaState.RUNNING or status.committed_end < 0:
            return None
        done, total = int(self.position), int(status.committed_end)
        eta_ms = self._meter.eta_ms(now_ms, done, total)
        return RestoreView(source="changelog", of="records", done=done, total=total, eta_ms=eta_ms)

    def kept_digests(self) -> KeptDigests:
        """What other replicas of the partition are compared with."""
        return KeptDigests(identity=self.store.identity, recent=tuple(self._recent))

    def describe(self) -> dict[str, object]:
        """A line of `run/tailer.json`."""
        status = self._status()
        return {
            "table": self.holding.source.name,
            "partition": self.holding.partition,
            **msgspec.structs.asdict(status),
            "state": status.state.name,
            "digest": self.store.digest,
            "offset_lag": status.offset_lag,
            "mismatched_records": self.machine.meta.mismatched_records,
            "unreadable_records": self.machine.meta.unreadable_records,
            "superseded_records": self.machine.meta.superseded_records,
        }

    def close(self, *, in_order: bool) -> None:
        """`in_order` False: after a failure, without the promise that everything is on disk."""
        if self.is_fetching:
            self._world.reader.stop(self.topic)
        (self.store.close if in_order else self.store.abandon)()

    def _apply(self, order: ApplyBatch) -> None:
        self.store.apply(order.puts, order.deletes, self._stamped(order.meta))
        self._rows = self.store.rows()
        self._remember(order.meta)
        self.write_page()

    def _remember(self, meta: StoreMeta) -> None:
        # compaction may promote a record that was left out, and then replicas differ rightly
        has_left_out = self.holding.is_direct and meta.superseded_records + meta.unreadable_records
        if meta.batch != NO_BATCH and not has_left_out:
            digest = self.store.digest
            of = StoreDigest(position=meta.position, batch=meta.batch, digest=digest)
            self._recent.append(of)

    def _stamped(self, meta: StoreMeta) -> StoreMeta:
        now, is_caught_up = self._world.now(), self.machine.is_caught_up
        self._written = applied_at(meta, self._written, now, is_caught_up=is_caught_up)
        return self._written

    def _report(self, order: LeftOutReport) -> None:
        self._log.warning("records left out", **dataclasses.asdict(order))

    def _outgrow(self, order: RebuildStore) -> None:
        self._log.warning("store is rebuilt", why=order.reason)
        self.is_outgrown = True

    def _report_loss(self, order: ReportDataLoss) -> None:
        self._log.error("DATA_LOSS", reason=order.reason)
        self.write_page()
