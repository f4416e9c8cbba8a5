"""Sweeps the table topic of one query behind its commits, and repairs what foreign records shadow.

A thread beside the query's batches. It reads what they wrote, so that each progress record can say
up to where the topic is clean. Where a key stays shadowed, it makes a separate commit between two
batches (`lock`): the newest batch under another attempt, which writes the committed rows again.
Batches never wait for it unless there is something to repair.

The decisions are in `data/commit/repair.py`, tested by simulation (`tests/sim/data_janitor.py`).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from msgspec import structs

from standpipe.data.commit.progress import ProgressBook, gone_through, removable
from standpipe.data.commit.repair import (
    Finder,
    Repairs,
    Shadow,
    Sweep,
    headers_under,
    repairs,
)
from standpipe.data.commit.takeover import ends_before, ends_refused
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.errors import KafkaUnavailable, StandpipeError
from standpipe.model import Commit, Offset, Progress
from standpipe.pipeline.commit.swept_topic import SweptTopic
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.io.topic_reader import TopicReader, read_once
from standpipe.topics import TOMBSTONES_MS

POLL_S: Final = 0.25
#: while nothing has come for RESTS_AFTER_S
RESTING_POLL_S, RESTS_AFTER_S = 1.0, 5.0
#: a batch in flight, or its replay, ends most shadows without a repair
REPAIR_AFTER_MS: Final = 5_000
LOOK_EVERY_S: Final = 1.0
REPAIR_EVERY_S: Final = 10.0
CATCH_UP_S_MAX: Final = 20.0
PRUNE_EVERY_S: Final = 600.0
#: ten minutes less than the lag of table topics (docs/INTERFACES.md), which is one hour
COMPACTION_LAG_MS: Final = 50 * 60_000

_logger = structlog.get_logger("janitor")


class Janitor:
    """The sweeps of one run of one query. `committed` and `clean_through` are for its batches."""

    def __init__(self, swept: SweptTopic, records: Iterable[Progress]) -> None:
        """`records`: the progress records up to our fence."""
        self.swept = swept
        #: held by a batch from its first write to its commit, and by a repair
        self.lock = threading.Lock()
        self._has_rows = swept.table.kind == "TABLE"
        self.repaired = 0
        self.too_late = 0
        self._book = ProgressBook()
        for record in records:
            if record.query_id == swept.query_id:
                self._book.take(record)
        self.newest = self._book.newest(swept.query_id)
        clean = self.newest.clean_through if self.newest else {}
        gone_ms = time.time_ns() // 1_000_000 - TOMBSTONES_MS
        self._sweeps = {
            p: Sweep(Offset(clean.get(p, 0)), gone_ms) for p in range(swept.table.partitions)
        }
        #: for a stream, per partition: no replica of the topic has records below this offset
        self._gone = {p: Offset(clean.get(p, 0)) for p in range(swept.table.partitions)}
        self._log_starts: dict[int, int] = {}
        #: the ends of the last repair, which may be committed without our knowing it
        self._repair_ends: dict[int, int] = {}
        self._warned_blind = False
        self._news: deque[Progress] = deque()
        self._rests_at = time.monotonic() + RESTS_AFTER_S
        self._stopped = threading.Event()
        #: the error that ended the thread, unless a newer pipeline fenced it. The query's run ends,
        #: too: without sweeps nothing is reported clean, and the progress topic grows without bound
        self.failure: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"janitor {swept.query_id}", daemon=True
        )

    # ------------------------------------------------------------------- called by the batches

    def start(self) -> None:
        """Start sweeping. A stream is not swept: each record is a separate event, none hides
        another, and writing one again would count it twice. Only its retention is tracked."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current step. From then on no repair begins: called under the
        lock, none is written any more."""
        self._stopped.set()

    def wait_until_ended(self) -> None:
        """Return once the thread has ended after `stop`, and a batch in flight is over. Both may
        be about to commit until then, which would be among the batches of the query's next run. For
        a batch, Spark's own stop does not wait longer than its stopTimeout."""
        if self._thread.ident is not None:
            self._thread.join()
        with self.lock:
            pass

    def is_stopped(self) -> bool:
        """Whether the query's run is over."""
        return self._stopped.is_set()

    def committed(self, progress: Progress) -> None:
        """Note that the query has committed a batch."""
        self.newest = progress
        if self._has_rows:
            self._news.append(progress)

    def starts(self) -> dict[int, int]:
        """Where the next commit begins: at the ends of the newest one."""
        return ends_before(self.newest, self.swept.table.partitions)

    def since_ms(self) -> int:
        """`Progress.since_ms` of the next record."""
        return 0 if self.newest is None else self.newest.committed_at_ms

    def watermark_ms(self, of_batch_ms: int) -> int:
        """`Progress.watermark_ms` of the next record, given Spark's. It never moves back, although
        Spark's may: a replica that saw the higher watermark has dropped windows because of it."""
        return max(of_batch_ms, 0 if self.newest is None else self.newest.watermark_ms)

    def clean_through(self) -> dict[int, int]:
        """Per partition: the offset below which no key is shadowed; of a stream, no record left."""
        if not self._has_rows:
            return dict[int, int](self._gone)
        return {partition: sweep.clean_through for partition, sweep in self._sweeps.items()}

    def refuse(self, ends: Mapping[int, int], rows: int | None = None) -> None:
        """Raises KafkaUnavailable when these cannot be the ends of what was written."""
        before = self.newest.sinks if self.newest else {}
        before = {p: max(end, self._repair_ends.get(p, end)) for p, end in before.items()}
        why = ends_refused(before, ends, rows)
        if why:
            raise KafkaUnavailable(
                f"Kafka returned stale offsets for {self.swept.table.topic}: {why}"
            )

    # ---------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            if self._has_rows:
                self._keep_clean()
            else:
                self._keep_short()
        except Fenced as fenced:
            _logger.warning("fenced", query_id=self.swept.query_id, why=str(fenced))
        except Exception as error:  # a thread dies silently, so its query's run must end
            _logger.exception("the janitor has failed", query_id=self.swept.query_id)
            self.failure = error

    def _keep_short(self) -> None:
        """For a stream: also remove the progress records of what retention has deleted."""
        work = self._follow_retention
        while not self._stopped.is_set():
            try:
                work()
            except StandpipeError as error:
                _logger.warning("failed, will retry", query_id=self.swept.query_id, why=str(error))
            self._stopped.wait(PRUNE_EVERY_S)
            work = self._shorten

    def _shorten(self) -> None:
        self._follow_retention()
        self._prune()

    def _follow_retention(self) -> None:
        """What the leaders had deleted at the previous check is now gone from every replica: a
        follower learns of it with its next fetch, and a follower may become leader."""
        swept = self.swept
        self._gone = gone_through(self._gone, self._log_starts)
        self._log_starts = swept.log.start_offsets(swept.table.topic, swept.table.partitions)

    def _keep_clean(self) -> None:
        """For a table: sweep, repair and prune until stopped."""
        starts = {partition: sweep.position for partition, sweep in self._sweeps.items()}
        reader = TopicReader(self.swept.kafka, self.swept.table.topic, starts)
        self._tell()
        repair_at = time.monotonic() + LOOK_EVERY_S
        prune_at = time.monotonic() + PRUNE_EVERY_S
        try:
            while not self._stopped.is_set():
                self._sweep(reader)
                if self._stopped.is_set():  # the query's next run may be writing
                    return
                now = time.monotonic()
                try:
                    if now >= repair_at:
                        repair_at = now + REPAIR_EVERY_S  # also if it fails
                        if not self._repair(reader):
                            repair_at = now + LOOK_EVERY_S
                    if now >= prune_at:
                        prune_at = now + PRUNE_EVERY_S
                        self._prune()
                        self.swept.delete_expired(self.newest)
                except (StandpipeError, QueryFailed) as error:  # the latter ends the query soon
                    _logger.warning(
                        "failed, will retry", query_id=self.swept.query_id, why=str(error)
                    )
        finally:
            reader.close()

    def _sweep(self, reader: TopicReader) -> None:
        rests = time.monotonic() >= self._rests_at
        portions = reader.poll(RESTING_POLL_S if rests else POLL_S)
        if portions or self._news:
            self._rests_at = time.monotonic() + RESTS_AFTER_S
        while self._news:
            self._book.take(self._news.popleft())
        self._tell()
        for partition, records, end in portions:
            self._sweeps[partition].records(records, end)
        self._warn_if_blind()

    def _warn_if_blind(self) -> None:
        blind = {p: sweep.blind for p, sweep in self._sweeps.items() if sweep.blind}
        if blind and not self._warned_blind:
            self._warned_blind = True
            _logger.error(
                "the table cannot be restored from its topic any more, only copied from replicas"
                " that have it: the pipeline was away for longer than tombstones last; DROP and"
                " CREATE it to be safe",
                query_id=self.swept.query_id,
                partitions=blind,
            )

    def _tell(self) -> None:
        for partition, sweep in self._sweeps.items():
            for target in self._book.targets(self.swept.query_id, partition):
                sweep.target(target)
            self._book.prune(self.swept.query_id, partition, [sweep.clean_through])

    def _due(self) -> dict[int, dict[bytes, Shadow]]:
        """Shadows that no batch has ended for a while; none while a batch is in flight."""
        if self.newest is None or not self.lock.acquire(blocking=False):
            return {}
        try:
            old_ms = time.time_ns() // 1_000_000 - REPAIR_AFTER_MS
            found = {p: sweep.all_shadows() for p, sweep in self._sweeps.items()}
        finally:
            self.lock.release()
        return {
            p: shadows
            for p, shadows in found.items()
            if any(shadow.first_ms < old_ms for shadow in shadows.values())
        }

    def _repair(self, reader: TopicReader) -> bool:
        """Repair what is due. Returns False if there was nothing to do."""
        finders: dict[int, Finder] = {}
        for partition, shadows in self._due().items():
            targets = self._book.targets(self.swept.query_id, partition)
            clean = self._sweeps[partition].clean_through
            finder = finders[partition] = Finder(shadows, list(targets), clean)
            kafka, topic = self.swept.kafka, self.swept.table.topic
            for records in read_once(kafka, topic, partition, finder.end):
                if self._stopped.is_set():
                    return False
                finder.records(records)
        if not finders and not self._has_news(quiet_ms=self.swept.quiet_ms):
            return False
        with self.lock:
            self._append(reader, finders)
        return True

    def _has_news(self, quiet_ms: int = 0) -> bool:
        """Whether a replica may be waiting for our `clean_through`, and no batch has reported it
        for `quiet_ms`."""
        newest = self.newest
        if newest is None or time.time_ns() // 1_000_000 - newest.committed_at_ms < quiet_ms:
            return False
        return any(
            sweep.is_news(Offset(newest.clean_through.get(partition, 0)))
            for partition, sweep in self._sweeps.items()
        )

    def _append(self, reader: TopicReader, finders: Mapping[int, Finder]) -> None:
        """Called under the lock: no batch is in flight, and none begins."""
        if self._stopped.is_set():  # while it was waited for, or read
            return
        newest, swept = self.newest, self.swept
        assert newest is not None, "nothing was ever committed, so nothing can be shadowed"
        swept.check_lease()
        swept.ask_topics()()
        if not self._catch_up(reader):
            return
        commit = structs.replace(
            newest.commit, lease_epoch=swept.lease_epoch, attempt=secrets.randbits(64)
        )
        count = sum(
            self._write(partition, self._judge(partition, finder), commit)
            for partition, finder in finders.items()
        )
        if not count and not self._has_news():
            return
        ends = swept.log.end_offsets(swept.table.topic, swept.table.partitions)
        self.refuse(ends, count)
        if self._stopped.is_set():  # what was written is foreign, as a batch's that has failed
            return
        progress = structs.replace(
            newest,
            commit=commit,
            sinks=ends,
            starts=self.starts(),
            since_ms=self.since_ms(),
            clean_through=self.clean_through(),
            committed_at_ms=time.time_ns() // 1_000_000,
        )
        self._repair_ends = ends
        # Without an answer it may be committed. Then it says again what `newest` does, and comes
        # before all that is appended later: the log has one producer.
        swept.log.append(progress)
        self.committed(progress)
        self.repaired += count
        if count:
            _logger.warning("shadowed rows repaired", query_id=swept.query_id, count=count)

    def _catch_up(self, reader: TopicReader) -> bool:
        """False: it was stopped before the topic was read up to its end."""
        swept = self.swept
        ends = swept.log.end_offsets(swept.table.topic, swept.table.partitions)
        deadline = self._rests_at = time.monotonic() + CATCH_UP_S_MAX  # a batch may be waiting
        while any(s.fetched < ends[p] or s.is_behind for p, s in self._sweeps.items()):
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"Kafka: {swept.table.topic} is not read up to its end")
            if self._stopped.is_set():
                return False
            self._sweep(reader)
        return True

    def _judge(self, partition: int, finder: Finder) -> Repairs:
        sweep = self._sweeps[partition]
        found = repairs(
            sweep.all_shadows(),
            finder,
            now_ms=time.time_ns() // 1_000_000,
            compaction_lag_ms=COMPACTION_LAG_MS,
            is_blind=bool(sweep.blind),
        )
        self.too_late = len(found.too_late)
        if found.too_late:
            _logger.error(
                "rows cannot be repaired from the topic: compaction may have removed them",
                query_id=self.swept.query_id,
                partition=partition,
                keys=[key.hex() for key in found.too_late[:5]],
                count=len(found.too_late),
            )
        return found

    def _write(self, partition: int, found: Repairs, commit: Commit) -> int:
        mark = (HEADER_COMMIT, commit_header(commit))
        rows = [(each.key, each.value, headers_under(each.headers, mark)) for each in found.records]
        self.swept.log.write_rows(self.swept.table.topic, partition, rows)
        return len(rows)

    def _prune(self) -> None:
        """The decision depends on the topic alone, so even a zombie may do this."""
        now_ms = time.time_ns() // 1_000_000
        left = self.swept.log.left()
        self.swept.log.tombstone_ignored(left.ignored)
        gone = removable(left.records, self.swept.query_id, now_ms)
        self.swept.log.tombstone(gone)
        if gone:
            _logger.info("progress pruned", query_id=self.swept.query_id, count=len(gone))
