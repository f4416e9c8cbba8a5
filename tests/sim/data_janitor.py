"""The janitor of one run of a query, and what that run knows: a thread that may outlive the run.

Played as `pipeline/commit/janitor.py` is written; its decisions are those of
`data/commit/repair.py`. A run's end is noticed some time later, and only then is the janitor
stopped; it may be in a repair, in which Kafka may keep it waiting.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from standpipe.data.commit import progress as progress_log
from standpipe.data.commit import repair, takeover
from standpipe.data.commit.expiry import deletable_below
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.seal import ProgressReader, left_of
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Offset, Progress

from .data_life import Ended, Life

if TYPE_CHECKING:
    from .data_pipeline import SimDriver

#: share of the steps of a repair, after its run is over, in which Kafka keeps it waiting; and for
#: how long at most
HOLDS_UP = 0.3
HELD_UP_MS = (500, 5000)


class KafkaFails(Ended):
    """As `KafkaUnavailable`: a batch fails by it, the janitor tries again."""


class SimJanitor:
    def __init__(self, driver: SimDriver) -> None:
        self.driver, self.world, self.random = driver, driver.world, driver.random
        self.newest: Progress | None = None
        self.book = ProgressBook()
        self.sweeps: list[repair.Sweep] = []
        self.topic_id = ""
        self.is_stopped = False
        self._is_locked = False  # between batches and repairs
        self._run_is_over = False
        #: the ends of its last repair, which may be committed without its knowing it
        self._repair_ends: dict[int, int] = {}
        self._lives = False

    # -- the run ----------------------------------------------------------------------------------

    def stand_at(self, stand: takeover.Standing) -> None:
        """Take what the run has found to be committed and clean."""
        self.newest = stand.newest
        self.topic_id = self.driver.topic_id
        self.sweeps = [
            repair.Sweep(Offset(stand.clean_through.get(p, 0)), self.world.gone_ms)
            for p in range(self.world.partitions)
        ]
        self._tell_sweeps()

    def begin(self) -> None:
        """Start the thread."""
        self._lives = True
        self._plan(self._tend(), 1)

    def leave(self, within_ms: float) -> None:
        """The run is over, which the process notices within that time. What happens until the
        thread ends is drawn apart, so that worlds in which nothing does stay as they were."""
        if self._run_is_over or not self._lives:
            return
        self._run_is_over = True
        self.random = random.Random(f"{self.world.seed} {self.driver.name} {self.world.now_ms}")
        self.world.after(self.random.random() * within_ms, self.stop)

    def stop(self) -> None:
        self.is_stopped = True

    def is_in_the_way(self) -> bool:
        """Whether the next run must wait for the thread to end."""
        return self._lives and self.driver.process()[0]

    def _plan(self, life: Life, delay_ms: float) -> None:
        self.world.after(delay_ms, lambda: self._step(life))

    def _step(self, life: Life) -> None:
        is_alive, until_ms = self.driver.process()
        if not is_alive:
            self._lives = False
            return
        wait_ms = until_ms - self.world.now_ms
        if wait_ms > 0:
            self._plan(life, min(wait_ms, 500))
            return
        try:
            self._plan(life, next(life))
        except StopIteration:
            self._lives = False
        except Ended as ended:
            self._lives = False
            if not self._run_is_over:
                self.driver.query_ends(ended)

    # -- shared with the batches ------------------------------------------------------------------

    def locked(self, life: Life) -> Life:
        """Run a life under the lock."""
        while self._is_locked:
            yield 5
        self._is_locked = True
        try:
            yield from life
        finally:
            self._is_locked = False

    def append(self, covers: Progress, sinks: dict[int, int]) -> Life:
        """Commit. `covers`: what it is the record of, and of which sources. Raises KafkaFails: then
        nobody knows whether it is committed."""
        record = structs.replace(
            covers,
            sinks=sinks,
            starts=takeover.ends_before(self.newest, self.world.partitions),
            since_ms=self.newest.committed_at_ms if self.newest else 0,
            clean_through={p: sweep.clean_through for p, sweep in enumerate(self.sweeps)},
            committed_at_ms=self.world.now_ms,
            topic_id=self.topic_id,
        )
        self.world.append_progress(record)
        if self.random.random() < self.world.options.lose_answer:
            self.world.counts["acknowledgements lost"] += 1
            raise KafkaFails("no answer from Kafka: nobody knows whether it is committed")
        yield self.random.random() * 10
        self.newest = record
        self.book.take(record)
        self._tell_sweeps()

    # -- the thread -------------------------------------------------------------------------------

    def _tell_sweeps(self) -> None:
        for p, sweep in enumerate(self.sweeps):
            for target in self.book.targets(self.world.query_id, p):
                sweep.target(target)

    def _sweep(self, p: int) -> None:
        count = self.random.randint(1, 40)
        records, next_offset = self.world.tables[p].read(self.sweeps[p].fetched, count)
        self.sweeps[p].records(records, Offset(next_offset))

    def _tend(self) -> Life:
        due_ms = self.world.now_ms + self.world.options.repair_after_ms
        while not self.is_stopped:
            yield 50 + self.random.random() * 200
            self.driver.check_topic(self.topic_id)
            for p in range(self.world.partitions):
                self._sweep(p)
            if self.is_stopped:  # the query's next run may be writing
                return
            if self.random.random() < 0.2:
                yield from self._prune()
                self._delete_expired()
            if self.newest is None or self.world.now_ms < due_ms:
                continue
            if any(sweep.all_shadows() for sweep in self.sweeps) or self.has_news():
                yield from self._repair()
                due_ms = self.world.now_ms + self.world.options.repair_after_ms

    def is_over(self) -> bool:
        """Asked in a repair, which commits nothing more then. Of its own for planted bugs."""
        return self.is_stopped

    def _held_up(self) -> Life:
        """Only what outlives its run is of interest here."""
        if self._run_is_over and not self.world.is_healed and self.random.random() < HOLDS_UP:
            self.world.counts["repairs held up after their run"] += 1
            yield self.random.random() * self.random.choice(HELD_UP_MS)

    def _repair(self) -> Life:
        finders: list[repair.Finder] = []
        for p, sweep in enumerate(self.sweeps):
            targets = list(self.book.targets(self.world.query_id, p))
            finder = repair.Finder(sweep.all_shadows(), targets, sweep.clean_through)
            offset = 0
            while offset < finder.end:
                records, offset = self.world.tables[p].read(offset, 100)
                finder.records(records)
                yield self.random.random() * 20
                yield from self._held_up()
                if self.is_over():
                    return
            finders.append(finder)
        with suppress(KafkaFails):  # it is tried again
            yield from self.locked(self._append_repairs(finders))

    def has_news(self) -> bool:
        clean = self.newest.clean_through if self.newest else {}
        return any(s.is_news(Offset(clean.get(p, 0))) for p, s in enumerate(self.sweeps))

    def _append_repairs(self, finders: list[repair.Finder]) -> Life:
        if self.is_over():  # while it waited for the lock
            return
        world, newest, driver = self.world, self.newest, self.driver
        assert newest is not None
        driver.check_lease()
        driver.check_topic(self.topic_id)
        for p, sweep in enumerate(self.sweeps):
            while sweep.fetched < world.tables[p].end or sweep.is_behind:
                if self.is_over():
                    return
                self._sweep(p)
                yield self.random.random() * 5
        commit = driver.commit_of(newest.commit.batch, self.random.getrandbits(64))
        mark = (HEADER_COMMIT, commit_header(commit))
        count = 0
        for p, (sweep, finder) in enumerate(zip(self.sweeps, finders, strict=True)):
            found = repair.repairs(
                sweep.all_shadows(),
                finder,
                now_ms=world.now_ms,
                compaction_lag_ms=world.options.retention.compaction_lag_ms,
                is_blind=bool(sweep.blind),
                replica_rows=world.replica_rows(p, newest),
            )
            world.counts["shadows found too late"] += len(found.too_late)
            for each in found.records:
                headers = repair.headers_under(each.headers, mark)
                world.tables[p].append(each.key, each.value, headers, world.now_ms)
                count += 1
            yield self.random.random() * 10
        if not count and not self.has_news():
            return
        sinks = driver.ends_after(count)
        yield from self._held_up()
        if self.is_over():
            world.counts["repairs given up after their run"] += 1
            return
        yield from self._held_up()
        world.counts["clean ranges told while idle"] += not count
        world.counts["repairs"] += count
        world.note("repairs", driver.name, f"{count} under {commit.attempt}")
        self._repair_ends = sinks
        try:
            yield from self.append(structs.replace(newest, commit=commit), sinks)
        except KafkaFails:
            world.counts["repairs without an answer"] += 1
            raise

    def ends_before(self) -> dict[int, int]:
        """No answer below these is taken for the ends of the table topic."""
        known = self.newest.sinks if self.newest else {}
        return {p: max(end, self._repair_ends.get(p, end)) for p, end in known.items()}

    def _delete_expired(self) -> None:
        world, newest = self.world, self.newest
        if world.keys.expiry is None or newest is None:
            return
        for p, end in newest.sinks.items():
            records, _ = world.tables[p].read(0, end)
            below = deletable_below(
                world.keys.expiry,
                [record for record in records if record.offset < end],
                clean_through=Offset(newest.clean_through.get(p, 0)),
                watermark_ms=newest.watermark_ms,
                written_before_ms=world.gone_ms,
            )
            gone = world.tables[p].delete_below(below)
            world.counts["records of expired windows deleted"] += gone

    def _prune(self) -> Life:
        topic, _ = self.world.progress.read(0, self.world.progress.end)
        goes_on_ms = self.world.now_ms + self.random.choice([1, 100, 5000])
        while self.world.now_ms < goes_on_ms and not self.is_stopped:
            yield min(goes_on_ms - self.world.now_ms, 250)
        # whenever it goes on, it does no harm; once stopped it does so soon, as a run waits for it
        rows = ((record.key or b"", record.value, record.headers) for record in topic)
        left = left_of(rows, ProgressReader(self.world.seal))
        for key in left.ignored:
            self.world.progress.append(key, None, (), self.world.now_ms)
            self.world.counts["forged progress records tombstoned"] += 1
        keep_ms = self.world.options.keep_ms
        query_id = self.world.query_id
        for record in progress_log.removable(left.records, query_id, self.world.now_ms, keep_ms):
            key = progress_log.progress_key(record)
            self.world.progress.append(key, None, (), self.world.now_ms)
            self.world.counts["progress records tombstoned"] += 1
