"""A Spark driver as the commit protocol sees it: a life of steps, any of which may be its last.

Its decisions are those of `data/commit/takeover.py`, `data/commit/repair.py` and
`data/commit/progress.py`; Spark's part (two logs that know "write if absent", tasks that outlive
their batch) is played here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from standpipe.data.commit import progress as progress_log
from standpipe.data.commit import repair, takeover
from standpipe.data.commit.expiry import deletable_below
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.seal import ProgressReader, left_of
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
)
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress

if TYPE_CHECKING:
    from .data_world import DataWorld

QUERY = "Q"
Life = Iterator[float]  # yields: milliseconds until the next step


def covered(end: int) -> dict[str, dict[int, int]]:
    """What a batch covers that ends there; nothing, if the topic is not there yet."""
    return {"s": {0: end}} if end else {}


def source_end(progress: Progress) -> int:
    """How many events are in it."""
    return progress.sources.get("s", {}).get(0, 0)


@dataclass
class SimCheckpoint:
    """Spark's two logs. Two queries that write to one directory end each other."""

    offsets: dict[int, int] = field(default_factory=dict[int, int])  # batch -> end in the source
    commits: set[int] = field(default_factory=set[int])

    def logs(self) -> takeover.Logs:
        covers = {batch: covered(end) for batch, end in self.offsets.items()}
        return takeover.Logs(frozenset(self.commits), covers)

    def copy(self) -> SimCheckpoint:
        return SimCheckpoint(dict(self.offsets), set(self.commits))


class Ended(Exception):
    """The query ends here, and is started again."""


class SimDriver:
    """One pipeline process, with its lease epoch. `tick` does the next step of a life."""

    def __init__(self, world: DataWorld, lease_epoch: int) -> None:
        self.world = world
        self.random = world.random
        self.lease_epoch = LeaseEpoch(lease_epoch)
        self.is_alive = True
        self.paused_until_ms = 0
        self.newest: Progress | None = None
        self.book = ProgressBook()
        self.sweeps: list[repair.Sweep] = []
        self.is_busy = False  # the lock between batches and repairs
        self.topic_id = ""  # of the table, as it was when the query began
        self.has_lost_its_topic = False
        self._run = 0
        self.start_query()

    # -- being stepped ----------------------------------------------------------------------------

    def start_query(self) -> None:
        """The same process starts the query (again): batches and janitor, two threads."""
        self._run += 1
        self.is_busy = False
        self.newest, self.book = None, ProgressBook()
        self.sweeps = []
        self._plan(self.batches(), self._run, 1 + self.random.random() * 500)

    def _plan(self, life: Life, run: int, delay_ms: float) -> None:
        self.world.after(delay_ms, lambda: self._step(life, run))

    def _step(self, life: Life, run: int) -> None:
        if not self.is_alive or run != self._run:
            return
        wait_ms = self.paused_until_ms - self.world.now_ms
        if wait_ms > 0:
            self._plan(life, run, min(wait_ms, 500))
            return
        try:
            self._plan(life, run, next(life))
        except (Ended, StopIteration) as ended:
            self._query_ends(ended)

    def _query_ends(self, ended: Exception) -> None:
        self.world.note("query ends", self.name, str(ended))
        self.world.counts["query restarts"] += 1
        if not self.has_noticed():
            self._run += 1
            self.world.after(200 + self.random.random() * 800, self._again)

    def _again(self) -> None:
        if self.is_alive:
            self.start_query()

    @property
    def name(self) -> str:
        return f"driver {self.lease_epoch}"

    def crash(self) -> None:
        self.is_alive = False

    def has_noticed(self) -> bool:
        """Whether it knows that it has lost its lease; it hears of that some time later."""
        return self.world.lease_is_lost(self)

    def _lease(self) -> None:
        if self.has_noticed():
            self.is_alive = False
            raise Ended("fenced")

    def _check_topic(self, known_id: str) -> None:
        """As `pipeline.commit.topic_check`: no batch is written, and none committed, to another
        topic."""
        if why := self.world.recreation.why_changed(known_id):
            self.is_alive, self.has_lost_its_topic = False, True
            self.world.counts["queries that ended with their topic"] += 1
            raise Ended(f"TOPIC_CHANGED: {why}")

    # -- batches ----------------------------------------------------------------------------------

    def take_over(self) -> Generator[float, None, takeover.Standing]:
        """Fence older writers, and find what they have committed."""
        world = self.world
        nonce = self.random.getrandbits(64)
        query_id = world.query_id
        fence = progress_log.fence(query_id, self.lease_epoch, nonce=nonce, now_ms=world.now_ms)
        fence_offset = world.append_progress(fence)
        yield self.random.random() * 50
        if not world.is_healed and self.random.random() < world.options.fail_start:
            raise Ended("Kafka does not answer")
        records = world.read_progress(fence_offset + 1)
        yield self.random.random() * 50
        stand = takeover.standing(records, query_id, self.lease_epoch)
        if stand.fenced_by is not None:
            self.is_alive = False
            raise Ended("found itself fenced")
        self.topic_id = self.world.recreation.topic_id
        self._check_topic(stand.newest.topic_id if stand.newest else "")
        for record in records:
            self.book.take(record)
        return stand

    def begin(self, stand: takeover.Standing) -> None:
        """The janitor begins where the newest batch says."""
        self.stand_at(stand)
        self._plan(self.janitor(), self._run, 1)

    def stand_at(self, stand: takeover.Standing) -> None:
        """What the janitor will begin with."""
        self.newest = stand.newest
        self.sweeps = [
            repair.Sweep(Offset(stand.clean_through.get(p, 0)), self.world.gone_ms)
            for p in range(self.world.partitions)
        ]
        self._tell_sweeps()

    def batches(self) -> Life:
        world = self.world
        stand = yield from self.take_over()
        of_batches = takeover.streamed(stand.newest)
        self.checkpoint = checkpoint = self._inherit(of_batches)
        self._take_back(takeover.furthest_behind([of_batches]))
        self.begin(stand)
        batch = max(checkpoint.offsets, default=-1)  # from here on, Spark has it in memory
        is_begun = batch >= 0 and batch not in checkpoint.commits
        batch += not is_begun
        while True:
            if not is_begun:
                end = world.next_end(batch, checkpoint.offsets.get(batch - 1, 0))
                if end is None:
                    yield 50 + self.random.random() * 100  # nothing new: Spark makes no batch
                    continue
                if batch in checkpoint.offsets:
                    raise Ended("another driver wrote the offset log")
                checkpoint.offsets[batch] = end
            yield self.random.random() * 30
            while self.is_busy:
                yield 5
            self.is_busy = True
            yield from self._batch(batch)
            self.is_busy = False
            yield self.random.random() * 20
            if batch in checkpoint.commits:
                raise Ended("another driver wrote the commit log")
            checkpoint.commits.add(batch)
            batch, is_begun = batch + 1, False
            yield self.random.random() * world.options.batch_pause_ms

    def _inherit(self, newest: Progress | None) -> SimCheckpoint:
        found = {epoch: each.logs() for epoch, each in self.world.checkpoints.items()}
        mine = {epoch: logs for epoch, logs in found.items() if epoch <= self.lease_epoch}
        heir = takeover.heir_of(mine, newest)
        self.world.never(heir is None and newest is not None, f"no checkpoint has {newest}")
        if self.lease_epoch not in found:
            old = SimCheckpoint() if heir is None else self.world.checkpoints[heir]
            self.world.checkpoints[self.lease_epoch] = old.copy()
        return self.world.checkpoints[self.lease_epoch]

    def _take_back(self, valid: BatchId) -> None:
        checkpoint = self.checkpoint
        commits, offsets = set(checkpoint.commits), set(checkpoint.offsets)
        gone = takeover.surplus(commits, offsets, valid)
        self.world.counts["batches taken back"] += len(gone.commits)
        checkpoint.commits -= set(gone.commits)
        for batch in gone.offsets:
            del checkpoint.offsets[batch]

    def _batch(self, batch: int) -> Life:
        world = self.world
        self._lease()
        self._check_topic(self.topic_id)
        if takeover.is_in_place(self.newest, batch, is_stream=False):
            world.counts["replayed batches that leave what was loaded after them"] += 1
            return
        commit = self._commit(batch, self.random.getrandbits(64))
        world.note("batch", self.name, f"{batch} attempt {commit.attempt}")
        end = self.checkpoint.offsets[batch]
        start = self.checkpoint.offsets.get(batch - 1, 0)
        rows = world.rows_of(start, end, commit.attempt)
        yield from self._write_rows(rows, commit)
        yield self.random.random() * 20
        sinks = self._ends(len(rows))
        yield self.random.random() * 20
        before = self.newest.watermark_ms if self.newest else 0
        watermark_ms = max(before, world.keys.watermark_ms(world.events[:start]))
        yield from self._append(self._covering(commit, end, watermark_ms), sinks)

    def _covering(self, commit: Commit, end: int, watermark_ms: int = 0) -> Progress:
        """The record of a batch, without its ends in the table topic."""
        return Progress(
            query_id=self.world.query_id,
            commit=commit,
            sources=covered(end),
            watermark_ms=watermark_ms,
        )

    def _commit(self, batch: int, attempt: int) -> Commit:
        return Commit(lease_epoch=self.lease_epoch, batch=BatchId(batch), attempt=attempt)

    def _write_rows(self, rows: list[tuple[bytes, bytes | None]], commit: Commit) -> Life:
        """Tasks write in any order; one that is thought dead is run again, and may live on."""
        self.random.shuffle(rows)
        options, tasks = self.world.options, [rows[0::2], rows[1::2]]
        fail_batch = options.fail_batch
        if options.is_left_alone and self.world.is_healed and self._is_last(commit):
            fail_batch = 0.3  # what it leaves behind, no later one covers
        for task in tasks:
            if self.random.random() < options.straggle:
                self.world.counts["stragglers"] += 1
                part = task[: self.random.randint(0, len(task))]
                self.world.straggle(part, task, commit)
            if self.random.random() < fail_batch:
                self.world.counts["batches failed half-written"] += 1
                self.world.write(task[: len(task) // 2], commit)
                raise Ended("a task failed for good")
            for row in task:
                self.world.write([row], commit)
                if self.random.random() < 0.3:
                    yield self.random.random() * 20

    def _is_last(self, commit: Commit) -> bool:
        return self.checkpoint.offsets[commit.batch] == len(self.world.events)

    def _ends(self, rows: int) -> dict[int, int]:
        self._check_topic(self.topic_id)
        answered = self.world.ends(rows)
        before = self.newest.sinks if self.newest else {}
        refused = takeover.ends_refused(before, answered, rows)
        if refused:
            raise Ended(refused)
        return answered

    def _append(self, covers: Progress, sinks: dict[int, int]) -> Life:
        """Commit it. `covers`: what it is the record of, and of which sources."""
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
            raise Ended("no answer from Kafka: nobody knows whether it is committed")
        yield self.random.random() * 10
        self.newest = record
        self.book.take(record)
        self._tell_sweeps()

    # -- the janitor ------------------------------------------------------------------------------

    def _tell_sweeps(self) -> None:
        for p, sweep in enumerate(self.sweeps):
            for target in self.book.targets(self.world.query_id, p):
                sweep.target(target)

    def _sweep(self, p: int) -> None:
        count = self.random.randint(1, 40)
        records, next_offset = self.world.tables[p].read(self.sweeps[p].fetched, count)
        self.sweeps[p].records(records, Offset(next_offset))

    def janitor(self) -> Life:
        due_ms = self.world.now_ms + self.world.options.repair_after_ms
        while True:
            yield 50 + self.random.random() * 200
            self._check_topic(self.topic_id)
            for p in range(self.world.partitions):
                self._sweep(p)
            if self.random.random() < 0.2:
                yield from self._prune()
                self._delete_expired()
            if self.newest is None or self.world.now_ms < due_ms:
                continue
            if any(sweep.all_shadows() for sweep in self.sweeps) or self.has_news():
                yield from self._repair()
                due_ms = self.world.now_ms + self.world.options.repair_after_ms

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
            finders.append(finder)
        while self.is_busy:
            yield 5
        self.is_busy = True
        try:
            yield from self._append_repairs(finders)
        finally:
            self.is_busy = False

    def has_news(self) -> bool:
        clean = self.newest.clean_through if self.newest else {}
        return any(s.is_news(Offset(clean.get(p, 0))) for p, s in enumerate(self.sweeps))

    def _append_repairs(self, finders: list[repair.Finder]) -> Life:
        world, newest = self.world, self.newest
        assert newest is not None
        self._lease()
        self._check_topic(self.topic_id)
        for p, sweep in enumerate(self.sweeps):
            while sweep.fetched < world.tables[p].end or sweep.is_behind:
                self._sweep(p)
                yield self.random.random() * 5
        commit = self._commit(newest.commit.batch, self.random.getrandbits(64))
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
        world.counts["clean ranges told while idle"] += not count
        world.counts["repairs"] += count
        world.note("repairs", self.name, f"{count} under {commit.attempt}")
        sinks = self._ends(count)
        yield from self._append(structs.replace(newest, commit=commit), sinks)

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
        yield self.random.choice([1, 100, 5000])  # whenever it goes on, it does no harm
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


def record_headers(commit: Commit | None, rowtime_ms: int) -> list[tuple[str, bytes | None]]:
    by = [] if commit is None else [(HEADER_COMMIT, commit_header(commit))]
    return [*by, (HEADER_ROWTIME, rowtime_header(rowtime_ms))]
