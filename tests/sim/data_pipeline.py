"""A Spark driver as the commit protocol sees it: a life of steps, any of which may be its last.

Its decisions are those of `data/commit/takeover.py`, `data/commit/repair.py` and
`data/commit/progress.py`; Spark's part (two logs that know "write if absent", tasks that outlive
their batch) is played here. The janitor of a run of its query: `data_janitor.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standpipe.data.commit import progress as progress_log
from standpipe.data.commit import takeover
from standpipe.data.commit.repair import Sweep
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
)
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress

from .data_janitor import KafkaFails, SimJanitor
from .data_life import Ended, Life

if TYPE_CHECKING:
    from .data_world import DataWorld

QUERY = "Q"


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


class SimDriver:
    """One pipeline process, with its lease epoch. `tick` does the next step of a life."""

    def __init__(self, world: DataWorld, lease_epoch: int) -> None:
        self.world = world
        self.random = world.random
        self.lease_epoch = LeaseEpoch(lease_epoch)
        self.is_alive = True
        self.paused_until_ms = 0
        self.topic_id = ""  # of the table, as it was when the query began
        self.has_lost_its_topic = False
        self._run = 0
        self.start_query()

    # -- being stepped ----------------------------------------------------------------------------

    def start_query(self) -> None:
        """The same process starts the query (again): batches and janitor, two threads."""
        self._run += 1
        self.janitor = SimJanitor(self)
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
            self.query_ends(ended)

    def process(self) -> tuple[bool, int]:
        """Whether the process lives, and until when it stands still."""
        return self.is_alive, self.paused_until_ms

    def query_ends(self, ended: Exception) -> None:
        """A thread of the run is over. The process notices, and starts the query again."""
        self.world.note("query ends", self.name, str(ended))
        self.world.counts["query restarts"] += 1
        if not self.has_noticed():
            self._run += 1
            delay_ms = 200 + self.random.random() * 800
            self.janitor.leave(within_ms=delay_ms)
            self.world.after(delay_ms, self._again)

    def _again(self, waits: bool = False) -> None:
        if self.janitor.is_in_the_way():
            self.world.counts["runs that waited for a janitor"] += not waits
            self.world.after(50, lambda: self._again(waits=True))
        elif self.is_alive:
            self.start_query()

    @property
    def name(self) -> str:
        return f"driver {self.lease_epoch}"

    def crash(self) -> None:
        self.is_alive = False

    def has_noticed(self) -> bool:
        """Whether it knows that it has lost its lease; it hears of that some time later."""
        return self.world.lease_is_lost(self)

    def check_lease(self) -> None:
        """Raises Ended."""
        if self.has_noticed():
            self.is_alive = False
            raise Ended("fenced")

    def check_topic(self, known_id: str) -> None:
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
        self.check_topic(stand.newest.topic_id if stand.newest else "")
        for record in records:
            self.janitor.book.take(record)
        return stand

    def begin(self, stand: takeover.Standing) -> None:
        """The janitor begins where the newest batch says."""
        self.janitor.stand_at(stand)
        self.janitor.begin()

    @property
    def newest(self) -> Progress | None:
        """What the query has committed last, as far as this run knows."""
        return self.janitor.newest

    @property
    def sweeps(self) -> list[Sweep]:
        """Those of the janitor, one of each partition."""
        return self.janitor.sweeps

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
            yield from self.janitor.locked(self._batch(batch))
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
        self.check_lease()
        self.check_topic(self.topic_id)
        if takeover.is_in_place(self.newest, batch, is_stream=False):
            world.counts["replayed batches that leave what was loaded after them"] += 1
            return
        commit = self.commit_of(batch, self.random.getrandbits(64))
        world.note("batch", self.name, f"{batch} attempt {commit.attempt}")
        end = self.checkpoint.offsets[batch]
        start = self.checkpoint.offsets.get(batch - 1, 0)
        rows = world.rows_of(start, end, commit.attempt)
        yield from self._write_rows(rows, commit)
        yield self.random.random() * 20
        sinks = self.ends_after(len(rows))
        yield self.random.random() * 20
        before = self.newest.watermark_ms if self.newest else 0
        watermark_ms = max(before, world.keys.watermark_ms(world.events[:start]))
        yield from self.append(self._covering(commit, end, watermark_ms), sinks)

    def _covering(self, commit: Commit, end: int, watermark_ms: int = 0) -> Progress:
        """The record of a batch, without its ends in the table topic."""
        return Progress(
            query_id=self.world.query_id,
            commit=commit,
            sources=covered(end),
            watermark_ms=watermark_ms,
        )

    def commit_of(self, batch: int, attempt: int) -> Commit:
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

    def ends_after(self, rows: int) -> dict[int, int]:
        """Where the table topic ends, once `rows` more are written. Raises Ended, KafkaFails."""
        self.check_topic(self.topic_id)
        answered = self.world.ends(rows)
        refused = takeover.ends_refused(self.janitor.ends_before(), answered, rows)
        if refused:
            raise KafkaFails(refused)
        return answered

    def append(self, covers: Progress, sinks: dict[int, int]) -> Life:
        """Commit a batch. `covers`: what it is the record of, and of which sources."""
        try:
            yield from self.janitor.append(covers, sinks)
        except (KafkaFails, GeneratorExit):  # the latter: its run ends between the two
            self.stop_after_no_answer()
            raise

    def stop_after_no_answer(self) -> None:
        """The batch may be committed, so a repair would take it back. Of a group the pipeline stops
        all janitors; here those of members whose batch is not appended yet may go on."""
        self.janitor.stop()


def record_headers(commit: Commit | None, rowtime_ms: int) -> list[tuple[str, bytes | None]]:
    by = [] if commit is None else [(HEADER_COMMIT, commit_header(commit))]
    return [*by, (HEADER_ROWTIME, rowtime_header(rowtime_ms))]
