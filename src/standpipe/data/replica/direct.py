"""The direct machine: records of a topic that others write in, transactions of one replica out.

    machine.handle(RecordsFetched | EndReached | EndTold | TopicReported | RecordsGone | …)
        -> [ApplyBatch | LeftOutReport | PauseFetching | ResumeFetching | ReportDataLoss
            | RebuildStore]

It has the events and orders of the apply machine (`data/replica/machine.py`), and no progress
records: all that a consumer may read is committed. The driver's duties are the same.

Guarantees: rows with the label OF_LOG are those of a prefix of the log, up to the position in the
same transaction; others have no label. Nothing is applied before Kafka has said which topic has the
name, and nothing of another topic than the one that the store names.

A gap in the offsets means that compaction may have removed records that newer ones superseded.
Rows may be missing until the end of the log, as it is told after the gap was read or as the
consumer meets it. A replica that answers holds such rows back, as long as there is room.

Not here: Kafka, LMDB, clocks. The reasons: DESIGN.md beside this file, "Direct tables".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.data.commit.progress import Rank
from standpipe.data.commit.topic_identity import LASTED_MS, TopicChecker
from standpipe.data.replica.direct_stage import DirectCodec, DirectStage, StoredRows
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    EndTold,
    Event,
    Fetched,
    LogEndReported,
    Order,
    PauseFetching,
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
from standpipe.data.replica.positions import ReplicaEvent, StoreMeta, next_state, opened
from standpipe.model import NO_BATCH, OF_LOG, Offset, ReplicaState, ReplicaStatus

#: rows of one transaction of a replica that is far behind
TRANSACTION_ROWS: Final = 100_000
#: records to the end of the log that count as far behind
BACKLOG_RECORDS: Final = 20_000
#: rows that a replica that answers holds back after a gap
HELD_ROWS_MAX: Final = 20_000
#: for how long it does: where records arrive all the time, the end of the log may never be met
HELD_MS_MAX: Final = 5_000
#: bytes of rows of one transaction, and of records that wait for Kafka's answer
BYTES_MAX: Final = 16 * 1024 * 1024
#: of a log that may no longer have the position: answers after which that is judged, since the
#: first may be older than the sign
_ANSWERS: Final = 2


@dataclass(frozen=True, slots=True)
class _Fetch:
    """What one event delivered. `is_end`: the log ended at `next_offset`."""

    records: Sequence[Fetched]
    times_ms: Sequence[int]
    next_offset: Offset
    is_end: bool = False

    @property
    def size(self) -> int:
        return sum(map(bytes_of, self.records))


class DirectMachine:
    """One replica of one partition of a direct table. See the module's docstring."""

    def __init__(
        self,
        codec: DirectCodec,
        meta: StoreMeta,
        stored: StoredRows,
        *,
        topic_id: str = "",
        transaction_rows: int = TRANSACTION_ROWS,
        backlog_records: int = BACKLOG_RECORDS,
        held_rows_max: int = HELD_ROWS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`stored`: reads the store that `meta` is of. `topic_id`: of the topic that the table was
        made for; "": not known, then it is the one that a new store finds."""
        self.meta = meta  # as of the newest ApplyBatch, or of the store at start
        self.state = next_state(ReplicaState.ABSENT, opened(meta))
        self.log_end = Offset(-1)
        #: everything below was delivered, or does not exist
        self.fetched = meta.position
        self._codec, self._stored = codec, stored
        self._transaction_rows, self._backlog_records = transaction_rows, backlog_records
        self._held_rows_max, self._bytes_max = held_rows_max, bytes_max
        self._waiting: deque[_Fetch] = deque()  # until it is known which topic it is of
        self._waiting_bytes = 0
        self._is_paused = False
        self._judged = meta.position  # everything below is staged, applied, or was left out
        self._stage = DirectStage()
        #: the largest end of the log that is known; -1: none
        self._told_end = Offset(-1)
        #: rows may be missing: a new store has none, and one that stopped in a gap is in it still
        self._is_torn = meta.batch == NO_BATCH
        self._gap_end = meta.position  # of the newest gap
        self._whole_at: Offset | None = None  # end of the log, told after the newest gap was read
        self._topic = TopicChecker()
        self._topic_id = meta.topic_id or topic_id
        self._topic.named(self._topic_id)
        self._has_heard_topic = False
        self._back_since_ms: int | None = None  # the log has ended below the position since
        self._low_since_ms: int | None = None  # it has ended below the largest end since
        self._grown_since_ms: int | None = None  # it has had another number of partitions since
        self._held_since_ms: int | None = None  # rows have been held back since
        self._is_held_long = False
        self._answers_left = 0  # > 0: records at the position are gone, why is not known yet
        self._lost = ""

    @property
    def committed_end(self) -> Offset:
        """End of the readable log as far as known; -1: not known."""
        return self._told_end

    @property
    def is_caught_up(self) -> bool:
        """Whether the rows have all that the log is known to have."""
        is_whole = self.meta.batch == OF_LOG and self.state is ReplicaState.RUNNING
        return is_whole and self._is_sure and self.meta.position >= self._told_end

    @property
    def newest_rank(self) -> Rank | None:
        """None: there are no targets."""
        return None

    @property
    def shown_rank(self) -> Rank | None:
        """None: the rows are of no target."""
        return None

    def doubt(self, gone_ms: int) -> str:
        """Never one: whatever it read, its rows are whole at the end of the log."""
        return ""

    def handle(self, event: Event) -> list[Order]:
        """The next event -> what the driver has to do, in this order, before the next one."""
        if isinstance(event, LogEndReported):
            self.log_end = max(self.log_end, event.end)
            return []
        if self.state in (ReplicaState.DATA_LOSS, ReplicaState.FAILED):
            return []
        if isinstance(event, RecordsFetched):
            self._receive(event)
        elif isinstance(event, EndReached):
            self._wait(_Fetch((), (), event.offset, is_end=True))
        elif isinstance(event, EndTold):
            self._hear_end(event)
        elif isinstance(event, TopicReported):
            self._hear_topic(event)
        elif isinstance(event, TopicSilent):
            self._topic.silent()
        elif isinstance(event, RecordsGone) and not self._answers_left:
            self._answers_left = _ANSWERS
        if reason := self._topic.lost or self._lost:
            self.state = next_state(self.state, ReplicaEvent.DATA_LOST)
            return [ReportDataLoss(reason)]
        if self._answers_left:
            return self._judge_loss(event)
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
        """The status page of this replica."""
        return ReplicaStatus(
            state=self.state,
            position=self.meta.position,
            committed_end=self._told_end,
            log_end=max(self.log_end, self._told_end),
            batch=self.meta.batch,
            lease_epoch=self.meta.lease_epoch,
            confirmed_boot_ms=confirmed_boot_ms,
            source_instant_ms=0,
            foreign_records=0,
            rows=rows,
            watermark_ms=0,
            known_boot_ms=known_boot_ms,
            beat_boot_ms=beat_boot_ms,
            source_boot_ms=source_boot_ms,
        )

    # -------------------------------------------------------------------------- taking in

    def _receive(self, event: RecordsFetched) -> None:
        records, times_ms = event.records, event.times_ms
        if records and records[0][0] < self.fetched:  # the consumer restarted further back
            cut = bisect_left(records, self.fetched, key=offset_of)
            records, times_ms = records[cut:], times_ms[cut:]
        self._wait(_Fetch(records, times_ms, event.next_offset))

    def _wait(self, fetch: _Fetch) -> None:
        if fetch.next_offset < self.fetched:
            return
        self._waiting.append(fetch)
        self._waiting_bytes += fetch.size
        self.fetched = fetch.next_offset

    def _hear_end(self, event: EndTold) -> None:
        self._raise_end(event)
        # an end below what was read is that of another log, which says nothing of this gap
        if self._is_torn and self._whole_at is None and self._gap_end <= event.fetched <= event.end:
            self._whole_at = event.end
        if self._is_holding:
            self._held_since_ms = self._held_since_ms or event.asked_ms
            self._is_held_long = event.asked_ms - self._held_since_ms >= HELD_MS_MAX
        # what was read after Kafka was asked may lie beyond the answer
        if event.end >= min(event.fetched, self.meta.position):
            self._back_since_ms = None
            return
        if self._back_since_ms is None:
            self._back_since_ms = event.asked_ms
        if event.asked_ms - self._back_since_ms >= LASTED_MS:
            self._lost = f"the log ends at {event.end}, and {self.meta.position} was applied"

    def _raise_end(self, event: EndTold) -> None:
        """The end of a log that was cut off above the position is believed after a while."""
        if event.end >= self._told_end:
            self._low_since_ms = None
        elif self._low_since_ms is None:
            self._low_since_ms = event.asked_ms
        is_lower = event.asked_ms - (self._low_since_ms or event.asked_ms) >= LASTED_MS
        self._told_end = event.end if is_lower else max(self._told_end, event.end)

    def _hear_topic(self, event: TopicReported) -> None:
        self._has_heard_topic = True
        if not self._topic_id:
            self._topic_id = event.topic_id
            self._topic.named(event.topic_id)
        self._topic.heard(event.topic_id, event.at_ms)
        wanted = self._codec.partitions
        if event.partitions in (0, wanted):
            self._grown_since_ms = None
            return
        if self._grown_since_ms is None:
            self._grown_since_ms = event.at_ms
        if event.at_ms - self._grown_since_ms >= LASTED_MS:
            self._lost = (
                f"the topic has {event.partitions} partitions, and the table was made for {wanted}:"
                " newer records of a key may be in another one"
            )

    @property
    def _is_sure(self) -> bool:
        is_known = self._has_heard_topic and self._grown_since_ms is None
        return is_known and self._topic.is_sure

    def _judge_loss(self, event: Event) -> list[Order]:
        """Records at the position are gone: either the log was cut off there, or it begins later.

        Answers of Kafka decide, once it is sure that they are about this topic.
        """
        if not isinstance(event, EndTold) or not self._is_sure:
            return []
        self._answers_left -= 1
        if self._answers_left:
            return []
        if event.end < self.fetched:
            self.state = next_state(self.state, ReplicaEvent.DATA_LOST)
            return [ReportDataLoss(f"the log ends at {event.end}, and was read to {self.fetched}")]
        self.state = next_state(self.state, ReplicaEvent.REBUILT)
        return [RebuildStore(f"the topic no longer has offset {self.fetched}")]

    # ---------------------------------------------------------------------------- judging

    def _apply(self) -> list[Order]:
        if not self._is_sure:
            return []  # what was read may be from another topic
        while self._waiting:
            fetch = self._waiting.popleft()
            self._waiting_bytes -= fetch.size
            self._judge(fetch)
        if self._is_torn and self._whole_at is not None and self._judged >= self._whole_at:
            self._is_torn = False
        return [] if self._may_gather() else self._transaction()

    def _judge(self, fetch: _Fetch) -> None:
        end = fetch.next_offset
        if end - self._judged != len(fetch.records):
            self._is_torn, self._gap_end, self._whole_at = True, end, None
        self._stage.add(fetch.records, fetch.times_ms, self._codec, self._stored)
        self._judged = end
        if fetch.is_end:
            self._is_torn = False
            self._told_end = max(self._told_end, end)

    @property
    def _is_holding(self) -> bool:
        return self._is_torn and self.state.answers and self.meta.batch == OF_LOG

    def _may_gather(self) -> bool:
        """Whether more should be staged before anything of it is applied."""
        stage = self._stage
        if stage.bytes_staged > self._bytes_max:
            return False
        if self._is_holding:
            return stage.keys < self._held_rows_max and not self._is_held_long
        is_far_behind = self._told_end - self._judged > self._backlog_records
        return is_far_behind and stage.keys + stage.left_out_records < self._transaction_rows

    # --------------------------------------------------------------------------- ordering

    def _transaction(self) -> list[Order]:
        stage, meta = self._stage, self.meta
        self._held_since_ms, self._is_held_long = None, False
        after = msgspec.structs.replace(
            meta,
            position=self._judged,
            batch=NO_BATCH if self._is_torn else OF_LOG,
            topic_id=self._topic_id,
            mismatched_records=meta.mismatched_records + stage.mismatched,
            unreadable_records=meta.unreadable_records + stage.unreadable,
            superseded_records=meta.superseded_records + stage.superseded,
        )
        orders: list[Order] = []
        if stage.changes or after != meta:
            self._stage, self.meta = DirectStage(), after
            orders.append(ApplyBatch(*stage.puts_and_deletes(), after))
            event = ReplicaEvent.GAP_APPLIED if self._is_torn else ReplicaEvent.BATCH_APPLIED
            self.state = next_state(self.state, event)
        if (left_out := stage.left_out()) is not None:
            orders.append(left_out)
        if not self._is_torn and 0 <= self._told_end <= self.meta.position:
            self.state = next_state(self.state, ReplicaEvent.END_REACHED)
        return orders

    def _flow(self) -> list[Order]:
        if not self._is_paused and self._waiting_bytes > self._bytes_max:
            self._is_paused = True
            return [PauseFetching()]
        if self._is_paused and not self._waiting:
            self._is_paused = False
            return [ResumeFetching()]
        return []
