"""The apply machine: records and targets of one table partition in, whole batches out.

    machine.handle(TargetSet | RecordsFetched | EndReached | RecordsGone | …)
        -> [ApplyBatch | LeftOutReport | PauseFetching | ResumeFetching | ReportDataLoss
            | RebuildStore]

Duties of the driver: pass events in the order of their topics; finish each order before the next
event; run `ApplyBatch` as one transaction; if that fails, make a new machine from the store's meta.

Guarantees (the commit protocol): a range that ends at a target shows only records that carry
exactly the target's commit, all others in it are *foreign*; nothing beyond the newest target is
ever applied; a batch is applied whole or not at all.

A gap in the offsets of a range means that compaction removed superseded records: for a while the
rows belong to no batch, and have no batch label (`data/replica/gaps.py`).

If the targets before one were tombstoned (`TargetSet.start`), records below `clean_through` count
in order, under any commit (`data/commit/repair.py`). In between a foreign record may show, so such
a replica does not answer until it is whole again. The range may be most of a table: a replica that
does not answer yet applies it in parts.

If a target names its topic, nothing is applied before Kafka has confirmed that the topic of that
name is still the same one (`data/commit/topic_identity.py`).

Not here: Kafka, LMDB, clocks; which progress records are valid (`data/commit/progress.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from standpipe.data.commit.progress import Rank, TargetSet
from standpipe.data.commit.topic_identity import TopicChecker
from standpipe.data.encoding.store_keys import commit_header
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    Event,
    Fetched,
    LeftOutReport,
    LogEndReported,
    Order,
    PauseFetching,
    ProgressCaughtUp,
    RebuildStore,
    RecordsFetched,
    RecordsGone,
    ReportDataLoss,
    ResumeFetching,
    TopicReported,
    TopicSilent,
    bytes_of,
    offset_of,
)
from standpipe.data.replica.gaps import Gaps
from standpipe.data.replica.positions import ReplicaEvent, StoreMeta, next_state, opened
from standpipe.data.replica.stage import RowCodec, Stage
from standpipe.model import NO_BATCH, Offset, ReplicaState, ReplicaStatus

#: large transactions cost less per row (LMDB copies each touched page once): a replica that is
#: far behind gathers whole batches up to this many rows
TRANSACTION_ROWS: Final = 100_000
#: offsets from the fetched to the committed end that count as far behind
BACKLOG_RECORDS: Final = 20_000
#: bytes that may wait for a target before fetching pauses
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024


class ApplyMachine:
    """One replica of one table partition. See the module's docstring."""

    def __init__(
        self,
        codec: RowCodec,
        meta: StoreMeta,
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        transaction_rows: int = TRANSACTION_ROWS,
        backlog_records: int = BACKLOG_RECORDS,
        gone_ms: int = 0,
    ) -> None:
        """`gone_ms`: tombstones that were written before this instant may have left the topic."""
        self.meta = meta  # as of the newest ApplyBatch, or of the store at start
        self.state = next_state(ReplicaState.ABSENT, opened(meta))
        self.log_end = Offset(-1)
        self.codec = codec  # its owner sets another one when the table has more columns
        self._waiting_bytes_max = waiting_bytes_max
        self._transaction_rows, self._backlog_records = transaction_rows, backlog_records
        self._newest: TargetSet | None = None
        self._knows_all_progress = False
        #: targets that are not applied yet, in order
        self._targets: deque[TargetSet] = deque()
        #: fetched but not judged: their target is not known yet
        self._waiting: deque[Sequence[Fetched]] = deque()
        self._waiting_bytes = 0
        self._fetched = meta.position  # everything below was fetched or does not exist
        self._judged = meta.position  # everything below is in a stage, applied, or was left out
        self._gaps = Gaps(meta.whole_at, gone_ms)
        self._goes_by_order = False  # rows of foreign records may be in the store
        self._applied: TargetSet | None = None
        #: whole batches gathered for one transaction, and the last of their targets
        self._ready = Stage()
        self._ready_up_to: TargetSet | None = None
        self._filling = Stage()  # rows of the next batch, as far as they were fetched
        self._is_paused = False
        self._topic = TopicChecker()

    @property
    def committed_end(self) -> Offset:
        """C(p) as far as known; -1: nothing is committed."""
        return Offset(-1) if self._newest is None else self._newest.end

    def doubt(self, gone_ms: int) -> str:
        """Why the replica has read everything but is not whole, and nothing later will make it so;
        "": it is whole, or may become so. `gone_ms`: tombstones that were written before this
        instant may have left the topic by now."""
        if self._judged < self.committed_end:
            return ""
        return self._gaps.doubt(self._clean_through) or self._gaps.outlived(gone_ms)

    @property
    def _clean_through(self) -> Offset:
        return self._newest.clean_through if self._newest else Offset(0)

    @property
    def is_caught_up(self) -> bool:
        """A = C, and no target is missing."""
        return (
            self._knows_all_progress
            and not self._targets
            and self.meta.position == self.committed_end
            and self.state is ReplicaState.RUNNING
        )

    @property
    def newest_rank(self) -> Rank | None:
        """Of the newest target; None: not all progress is known."""
        return self._newest.rank if self._newest and self._knows_all_progress else None

    @property
    def shown_rank(self) -> Rank | None:
        """Of the target whose rows it shows; None: they are of no batch, or it does not answer."""
        meta = self.meta
        is_whole = meta.batch != NO_BATCH and self.state.answers
        return (meta.position, meta.lease_epoch, meta.batch) if is_whole else None

    def handle(self, event: Event) -> list[Order]:
        """The next event -> what the driver has to do, in this order, before the next one."""
        if isinstance(event, LogEndReported):
            self.log_end = max(self.log_end, event.end)
            return []
        if self.state in (ReplicaState.DATA_LOSS, ReplicaState.FAILED):
            return []
        if isinstance(event, RecordsFetched):
            self._receive(event.records, event.next_offset)
        elif isinstance(event, EndReached):
            self._receive((), event.offset)
        elif isinstance(event, TargetSet):
            self._topic.named(event.topic_id)
            self._set_target(event)
        elif isinstance(event, TopicReported):
            self._topic.heard(event.topic_id, event.at_ms)
        elif isinstance(event, TopicSilent):
            self._topic.silent()
        elif isinstance(event, ProgressCaughtUp):
            self._knows_all_progress = True
        if reason := self._lost(event):
            if isinstance(event, RecordsGone) and self.state is ReplicaState.BOOTSTRAP:
                return [RebuildStore(reason)]  # it never answered: what the topic has is enough
            self.state = next_state(self.state, ReplicaEvent.DATA_LOST)
            return [ReportDataLoss(reason)]
        return [*self._apply(), *self._flow()]

    def status(
        self,
        *,
        confirmed_boot_ms: int,
        rows: int,
        known_boot_ms: int = 0,
        beat_boot_ms: int = 0,
        source_boot_ms: int = 0,
    ) -> ReplicaStatus:
        """The status page of this replica. Its committed end is unknown until all progress was
        read: before that it is stale, and the lag would seem to be zero."""
        return ReplicaStatus(
            state=self.state,
            position=self.meta.position,
            committed_end=self.committed_end if self._knows_all_progress else Offset(-1),
            log_end=self.log_end,
            batch=self.meta.batch,
            lease_epoch=self.meta.lease_epoch,
            confirmed_boot_ms=confirmed_boot_ms,
            source_instant_ms=self.meta.source_instant_ms,
            foreign_records=self.meta.foreign_records,
            rows=rows,
            watermark_ms=self.meta.watermark_ms,
            known_boot_ms=known_boot_ms,
            beat_boot_ms=beat_boot_ms,
            source_boot_ms=source_boot_ms,
        )

    # -------------------------------------------------------------------------- taking in

    def _receive(self, records: Sequence[Fetched], next_offset: Offset) -> None:
        if records and records[0][0] < self._fetched:  # the consumer restarted further back
            records = records[bisect_left(records, self._fetched, key=offset_of) :]
        if records:
            self._waiting.append(records)
            if next_offset > self.committed_end or not self._topic.is_sure:
                self._waiting_bytes += sum(map(bytes_of, records))
        self._fetched = max(self._fetched, next_offset)
        self.log_end = max(self.log_end, next_offset)

    def _set_target(self, target: TargetSet) -> None:
        """Targets arrive in order, and again from the beginning if the topic is read again."""
        newest = self._newest
        if newest is not None and target.rank <= newest.rank:
            if target.rank == newest.rank and target.clean_through > newest.clean_through:
                self._newest = target  # of a repair elsewhere: more is declared clean now
            return
        self._newest = target
        shown = (self.meta.position, self.meta.lease_epoch, self.meta.batch)
        if target.rank > shown:
            self._targets.append(target)

    def _lost(self, event: Event) -> str:
        position = self.meta.position
        if isinstance(event, RecordsGone):
            return f"the topic no longer has offset {self._fetched}"
        if isinstance(event, TargetSet) and event.went_back:
            return f"batch {event.commit.batch} ends before {event.end}, which was committed"
        if self._knows_all_progress and position > max(0, self.committed_end):
            return f"position {position} is beyond the committed end {self.committed_end}"
        return self._topic.lost

    # ---------------------------------------------------------------------------- judging

    def _apply(self) -> list[Order]:
        if not self._topic.is_sure:
            return []  # what was read may be from another topic
        while self._targets:
            target, newest = self._targets[0], self._newest or self._targets[0]
            if self._judged < target.start and target.waits_for(newest):
                break
            self._judge_up_to(target)
            if self._fetched < target.end:
                if self._is_long_order(target):
                    return self._apply_part_in_order(target)
                break
            if self._judged < target.end:
                self._note_gap(target, max(self._judged, self._clean_below(target)))
                self._judged = target.end
            self._ready, self._filling = self._ready.followed_by(self._filling), Stage()
            self._ready_up_to = self._targets.popleft()
        is_far_behind = self.committed_end - self._fetched > self._backlog_records
        if is_far_behind and len(self._ready.keys) < self._transaction_rows:
            return []
        ready, last = self._ready, self._ready_up_to
        self._ready, self._ready_up_to = Stage(), None
        if last is None and self._applied is not None and self.meta.batch == NO_BATCH:
            # nothing new, but it may now be known that nothing is missing
            is_settled = self._settle(ready, self._applied.end)
            last = self._applied if is_settled or self._is_whole(self._applied) else None
        if last is None:
            self._note_end()
            return []
        return self._order(ready, last)

    def _judge_up_to(self, target: TargetSet) -> None:
        while self._waiting and self._waiting[0][0][0] < target.end:
            records = self._waiting.popleft()
            if records[-1][0] >= target.end:
                cut = bisect_left(records, target.end, key=offset_of)
                self._waiting.appendleft(records[cut:])
                records = records[:cut]
            if self._waiting_bytes:
                self._waiting_bytes = max(0, self._waiting_bytes - sum(map(bytes_of, records)))
            self._judge(records, target)

    def _judge(self, records: Sequence[Fetched], target: TargetSet) -> None:
        """Stage the records that carry exactly the target's commit; all others are foreign."""
        clean_below = self._clean_below(target)
        clean, strict = records[:0], records
        if clean_below > records[0][0]:
            cut = bisect_left(records, clean_below, key=offset_of)
            clean, strict = records[:cut], records[cut:]
        end = records[-1][0] + 1
        if clean or end - self._judged != len(records):
            strict_from = max(self._judged, clean_below)
            is_strict_whole = not strict or end - strict_from == len(strict)
            self._note_gap(target, target.end if is_strict_whole else strict_from)
        if clean:  # in order: right at the end of the range, but not a single batch
            self._goes_by_order = True
            self._filling.add(clean, self.codec, None)
            self._gaps.shadows.clean(clean)
        foreign, wanted = self._filling.foreign, commit_header(target.commit)
        self._filling.add(strict, self.codec, wanted)
        some_are_foreign, before_ms = self._filling.foreign > foreign, target.committed_at_ms
        self._gaps.judged(strict, wanted, before_ms, some_are_foreign=some_are_foreign)
        self._judged = Offset(end)

    def _settle(self, ready: Stage, end: Offset) -> bool:
        """Stage foreign records that are the last of their keys in the clean range."""
        clean_through = self._clean_through
        right = self._gaps.shadows.settled(clean_through) if clean_through <= end else []
        ready.add(right, self.codec, None)
        return bool(right)

    def _clean_below(self, target: TargetSet) -> Offset:
        """Offset below which every record counts, because the progress records were tombstoned."""
        if self._newest is None:
            return Offset(0)
        clean = self._clean_through
        return clean if target.start < 0 else min(clean, target.start)

    def _note_gap(self, target: TargetSet, strict_from: int) -> None:
        self._gaps.met(target, strict_from, self.committed_end, self.log_end)

    def _is_whole(self, applied: TargetSet) -> bool:
        next_one = self._waiting[0][0][0] if self._waiting else self._fetched
        return self._gaps.are_rows_whole(
            applied,
            judged=self._judged,
            next_offset=Offset(next_one),
            clean_through=self._clean_through,
        )

    # --------------------------------------------------------------------------- ordering

    def _order(self, ready: Stage, last: TargetSet) -> list[Order]:
        """Advance to target `last`; `ready` has its rows and those of all targets before it."""
        is_whole, self._applied = self._is_whole(last), last
        torn_until = Offset(last.end + 1)  # until it is whole, which may depend on no offset
        orders = self._transaction(
            ready,
            position=last.end,
            whole_at=self._gaps.whole_at if is_whole else max(self._gaps.whole_at, torn_until),
            batch=last.commit.batch if is_whole else NO_BATCH,
            lease_epoch=last.commit.lease_epoch,
            source_instant_ms=last.source_instant_ms,
            watermark_ms=max(self.meta.watermark_ms, last.watermark_ms),
        )
        self._goes_by_order = self._goes_by_order and not is_whole
        is_mixed = self._goes_by_order or bool(self._gaps.doubt(self._clean_through))
        gap = ReplicaEvent.ORDER_APPLIED if is_mixed else ReplicaEvent.GAP_APPLIED
        self.state = next_state(self.state, ReplicaEvent.BATCH_APPLIED if is_whole else gap)
        self._note_end()
        return orders

    def _is_long_order(self, target: TargetSet) -> bool:
        """Whether tombstoned progress makes most of a table one range, which may not fit into
        memory."""
        return (
            len(self._filling.keys) >= self._transaction_rows
            and self._judged <= self._clean_below(target)
            and self.state is ReplicaState.BOOTSTRAP  # it does not answer yet
        )

    def _apply_part_in_order(self, target: TargetSet) -> list[Order]:
        """Apply part of a range that is read in offset order, whose rows belong to no batch anyway.
        A store that is closed before `target` is rebuilt (`positions.must_rebuild`)."""
        ready, self._filling = self._ready.followed_by(self._filling), Stage()
        self._ready, self._ready_up_to, self._applied = Stage(), None, None
        whole_at = max(self._gaps.whole_at, target.end)
        return self._transaction(ready, position=self._judged, whole_at=whole_at, batch=NO_BATCH)

    def _transaction(self, ready: Stage, **moved: object) -> list[Order]:
        """Orders for the rows, and for the store's meta with the fields in `moved`."""
        self.meta = msgspec.structs.replace(
            self.meta,
            **moved,
            foreign_records=self.meta.foreign_records + ready.foreign,
            mismatched_records=self.meta.mismatched_records + ready.mismatched,
            unreadable_records=self.meta.unreadable_records + ready.unreadable,
        )
        orders: list[Order] = [ApplyBatch(*ready.puts_and_deletes(), self.meta)]
        if ready.foreign or ready.mismatched or ready.unreadable:
            counts = (ready.foreign, ready.mismatched, ready.unreadable)
            orders.append(LeftOutReport(*counts, example=ready.example))
        return orders

    def _note_end(self) -> None:
        """Note whether it is whole and at the newest target of fully read progress."""
        at_end = self._knows_all_progress and self.meta.position == self.committed_end
        if at_end and not self._targets and self.meta.batch != NO_BATCH:
            self.state = next_state(self.state, ReplicaEvent.END_REACHED)

    def _flow(self) -> list[Order]:
        if not self._is_paused and self._waiting_bytes > self._waiting_bytes_max:
            self._is_paused = True
            return [PauseFetching()]
        if self._is_paused and self._waiting_bytes < self._waiting_bytes_max // 2:
            self._is_paused = False
            return [ResumeFetching()]
        return []
