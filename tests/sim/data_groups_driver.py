"""A pipeline that runs several tables, together or one by one; each step may be its last.

Who runs together is decided by `Groups` and `runs_of`, what is started and stopped by `diff`, and
what a run starts from by `start/checkpoints.py` and `Checkpoint`, all of them as they are, on real
files. Spark's part is played: two logs, and a state for each batch.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from standpipe.data.commit import takeover
from standpipe.model import BatchId, LeaseEpoch, Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.failures import NotYet, QueryFailed
from standpipe.pipeline.io import checkpoint_path
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.reconcile import StartRun, diff
from standpipe.pipeline.run.start import checkpoints
from standpipe.pipeline.wanted import WantedQuery

from .data_janitor import SimJanitor
from .data_life import Ended, Life
from .data_pipeline import SimDriver
from .invariants import Violation

if TYPE_CHECKING:
    from .data_groups import GroupWorld, Known, TableWorld

SERVICE = "s_"
#: Batches that Spark keeps the state of. A driver that is fenced, and cut off from the quorum so
#: that it does not hear of it, runs up to 90 in a fault of the simulation.
STATES_KEPT = 100


class Killed(Exception):
    """The process dies here, within a step."""


class SimSpark:
    """The files of a streaming query: `offsets/N`, `state/N`, `commits/N`, in this order."""

    def __init__(self, world: GroupWorld, checkpoint: Checkpoint) -> None:
        self.world, self.checkpoint = world, checkpoint
        self.directory = checkpoint.directory
        offsets, commits = self._batches("offsets"), self._batches("commits")
        newest = max(offsets, default=-1)
        done = max(commits, default=-1)
        world.never(done > newest, f"{self.directory.name}: batch {done} has no offsets")
        world.never(done < newest - 1, f"{self.directory.name}: {done} to {newest} are skipped")
        self.is_begun = newest > done
        self.batch = newest if self.is_begun else done + 1

    def plan(self, end: int) -> None:
        """What the batch covers."""
        text = '{"batchWatermarkMs":0,"batchTimestampMs":0}'
        self._write("offsets", self.batch, f'v1\n{text}\n{{"s":{{"0":{end}}}}}', is_new=True)
        self.is_begun = True

    def covers(self, batch: int) -> int:
        """Where a batch ends in the source."""
        return 0 if batch < 0 else self.checkpoint.offsets(batch).ends["s"][0]

    def check_state(self) -> None:
        """The state before the batch is there, and has just the events of the batches before."""
        if self.batch:
            before = self.batch - 1
            has = int((self.directory / "state" / str(before)).read_text())
            want = self.covers(before)
            self.world.never(has != want, f"the state of {before} has {has} events, not {want}")

    def keep_state(self) -> None:
        self._write("state", self.batch, str(self.covers(self.batch)))

    def finish(self) -> None:
        self._write("commits", self.batch, "v1\n{}", is_new=True)
        old = str(self.batch - STATES_KEPT)
        for log in ("offsets", "state", "commits"):
            (self.directory / log / old).unlink(missing_ok=True)
        self.batch, self.is_begun = self.batch + 1, False

    def _write(self, log: str, batch: int, text: str, *, is_new: bool = False) -> None:
        path = self.directory / log / str(batch)
        if is_new and path.exists():
            raise Ended(f"another driver wrote {log}/{batch}")
        path.parent.mkdir(parents=True, exist_ok=True)  # as Hadoop's local file system does
        draft = path.with_name(f".{batch}.tmp")
        draft.write_text(text)
        draft.replace(path)  # never in place: other directories have links to it

    def _batches(self, log: str) -> list[int]:
        folder = self.directory / log
        names = [each.name for each in folder.iterdir()] if folder.exists() else []
        return [int(name) for name in names if name.isdecimal()]


class SimMember(SimDriver):
    """What a run does for one of its tables: fence, rows, progress, and the janitor's thread."""

    def __init__(self, world: TableWorld, run: SimRun, lease_epoch: LeaseEpoch) -> None:
        self.of_run = run
        super().__init__(world, lease_epoch)

    def start_query(self) -> None:
        """It has no batches of its own."""
        self.janitor = SimJanitor(self)

    @property
    def name(self) -> str:
        return f"{self.of_run.pipeline.name}/{self.world.query_id}"

    def process(self) -> tuple[bool, int]:
        pipeline = self.of_run.pipeline
        return pipeline.is_alive, pipeline.paused_until_ms

    def query_ends(self, ended: Exception) -> None:
        self.of_run.fail(ended)

    def has_noticed(self) -> bool:
        return self.of_run.pipeline.epoch_of(self.world.query_id) != self.lease_epoch

    def check_lease(self) -> None:
        if self.has_noticed():
            raise Ended(f"the lease of {self.world.query_id} is another's")

    def write(self, batch: int, start: int, end: int, attempt: int) -> Iterator[float]:
        """Step 2 of a batch, for this table."""
        commit = self.commit_of(batch, attempt)
        rows = self.world.rows_of(start, end, attempt)
        self.rows = len(rows)
        yield from self._write_rows(rows, commit)

    def read_ends(self) -> None:
        """Step 3."""
        self.ends = self.ends_after(self.rows)

    def commit(self, batch: int, end: int, attempt: int) -> Iterator[float]:
        """Step 4."""
        yield from self.append(self._covering(self.commit_of(batch, attempt), end), self.ends)


class SimRun:
    """One streaming query, in the state that `WantedRun` asks for; it is started again when it
    ends."""

    def __init__(self, pipeline: SimPipeline, wanted: WantedRun) -> None:
        self.pipeline, self.world, self.random = pipeline, pipeline.world, pipeline.random
        self.wanted = wanted
        self.members: list[SimMember] = []
        self.is_wanted = True
        self.failures = 0
        self._try = 0
        self.begin()

    @property
    def is_alive(self) -> bool:
        return self.is_wanted and self.pipeline.is_alive

    @property
    def is_grouped(self) -> bool:
        return len(self.wanted.members) > 1

    def begin(self) -> None:
        self._try += 1
        self.members = []
        self._plan(self._life(), self._try, 1 + self.random.random() * 100)

    def stop(self) -> None:
        self.is_wanted = False
        self._leave()

    def _leave(self) -> None:
        """Its janitors may live on for a while."""
        for member in self.members:
            member.janitor.leave(within_ms=200)
            self.pipeline.left.append(member)
        self.members = []

    def _plan(self, life: Life, attempt: int, delay_ms: float) -> None:
        self.world.after(delay_ms, lambda: self._step(life, attempt))

    def _step(self, life: Life, attempt: int) -> None:
        if not self.is_alive or attempt != self._try:
            return
        wait_ms = self.pipeline.paused_until_ms - self.world.now_ms
        if wait_ms > 0:
            self._plan(life, attempt, min(wait_ms, 500))
            return
        try:
            self._plan(life, attempt, next(life))
        except Killed:
            self.world.counts["drivers killed while they took over"] += 1
            self.world.crash(self.pipeline)
        except (Ended, NotYet, QueryFailed, OSError) as ended:
            self.fail(ended)

    def fail(self, ended: Exception) -> None:
        """As `Queries._failed`: what is one member's own divides the group."""
        world = self.world
        why = str(ended).replace(str(world.checkpoints), "")  # each world has a folder of its own
        world.note("run ends", f"{self.pipeline.name}/{self.wanted.run_id}", why)
        world.counts["query restarts"] += 1
        self._leave()
        self._try += 1
        if isinstance(ended, QueryFailed):
            # the directory of a zombie goes once another pipeline has taken over
            if self._is_ours() and not (
                len(self.wanted.members) == 1 and world.give_up(self.wanted.query_ids[0])
            ):
                raise Violation(f"{self.wanted.query_ids}: {ended}")
            world.counts["zombies that failed by name"] += 1
            self.failures += self.is_grouped * world.options.group_failures_max
        self.failures += not isinstance(ended, NotYet)
        if self.is_grouped and self.failures > world.options.group_failures_max:
            self.divide("failed too often")
            return
        again = self._try
        delay_ms = 200 + self.random.random() * 800

        def begin() -> None:
            if self.is_alive and again == self._try:
                self.begin()

        world.after(delay_ms, begin)

    def _is_ours(self) -> bool:
        leases, name = self.world.leases, self.pipeline.name
        return all(
            (leases[each.query_id].pipeline_id, leases[each.query_id].lease_epoch)
            == (name, each.lease_epoch)
            for each in self.wanted.members
        )

    def divide(self, why: str) -> None:
        """It begins no more; from the next look on, its queries are other runs."""
        assert self.wanted.group is not None
        self.world.counts["groups divided"] += 1
        self._leave()
        self._try += 1
        self.pipeline.groups.divide(self.wanted.group.group_id, why)

    # -- a life -----------------------------------------------------------------------------------

    def _pause(self, longest_ms: float = 20) -> float:
        return self.random.random() * longest_ms

    def _life(self) -> Life:
        world, run, root = self.world, self.wanted, self.world.checkpoints
        if self.pipeline.is_in_the_way(run.query_ids):
            world.counts["runs that waited for a janitor"] += 1
        while self.pipeline.is_in_the_way(run.query_ids):
            yield 50
        own = [checkpoints.claimed(each, root, SERVICE) for each in run.members]
        checkpoint = checkpoints.checkpoint_of(run, own, root)
        yield self._pause()
        members = [
            SimMember(world.tables[each.query_id], self, each.lease_epoch) for each in run.members
        ]
        stands: list[takeover.Standing] = []
        for member in members:
            stands.append((yield from member.take_over()))
            yield self._pause()
        newest = [stand.newest for stand in stands]
        if not world.is_healed and self.random.random() < 0.1:
            world.counts["drivers stopped while they took over"] += 1
            world.pause(self.pipeline, self.random.choice([500, 900, 3000]))
            yield 0
        self._dying(lambda: self._let_leave(own))
        yield self._pause()
        with world.keeping_removed(checkpoint.root):
            self._dying(lambda: checkpoint.inherit(*newest))
        yield self._pause()
        self._let_apart_leave(own, newest, checkpoint)
        self._roll_back(checkpoint, takeover.furthest_behind(newest))
        yield self._pause()
        world.began(self, checkpoint.directory, newest)
        spark = SimSpark(world, checkpoint)
        if not world.is_healed and self.random.random() < 0.1:
            # while a zombie that has lost its lease to it may be further ahead
            world.counts["drivers killed right after they took over"] += 1
            world.after(self._pause(500), lambda: world.crash(self.pipeline))
        self.members = members
        for member, stand in zip(members, stands, strict=True):
            drivers = member.world.drivers
            drivers.append(member)
            drivers.sort(key=lambda each: each.lease_epoch)  # a zombie may begin late
            member.begin(stand)
        yield from self._batches(spark)

    def _let_leave(self, own: list[Checkpoint]) -> None:
        world = self.world
        checkpoints.let_leave(
            self.wanted,
            own,
            self.pipeline.groups,
            world.checkpoints,
            lambda: world.first.read_progress(world.first.progress.end),
        )

    def _let_apart_leave(
        self, own: list[Checkpoint], newest: list[Progress | None], checkpoint: Checkpoint
    ) -> None:
        groups = self.pipeline.groups
        leave = checkpoints.let_apart_leave
        try:
            self._dying(lambda: leave(self.wanted, own, newest, checkpoint, groups))
        except NotYet:
            self.world.counts["members apart from their group"] += 1
            raise

    def _roll_back(self, checkpoint: Checkpoint, valid: BatchId) -> None:
        """Perhaps the storage is away in the middle of it; then it is begun again."""
        removals = self.random.randint(0, 4) if self.random.random() < 0.3 else 10**9
        unlink = Path.unlink

        def failing(path: Path, missing_ok: bool = False) -> None:
            nonlocal removals
            removals -= 1
            if removals == -1:
                raise OSError("the storage is away")
            unlink(path, missing_ok)

        before = len(list((checkpoint.directory / "commits").glob("*")))
        with patch.object(Path, "unlink", failing):
            try:
                checkpoint.roll_back(valid)
            except OSError:
                self.world.counts["rollbacks that failed in the middle"] += 1
                checkpoint.roll_back(valid)
        after = len(list((checkpoint.directory / "commits").glob("*")))
        self.world.counts["batches taken back"] += before - after

    def _dying(self, step: Callable[[], None]) -> None:
        """A step on files, in which the process may be killed."""
        links = self.random.randint(0, 60) if self.random.random() < 0.1 else 10**9
        if self.world.is_healed:
            links = 10**9
        link = os.link

        def dying(source: Any, target: Any, **how: Any) -> None:
            nonlocal links
            links -= 1
            if links < 0:
                raise Killed
            link(source, target, **how)

        with patch.object(checkpoint_path.os, "link", dying):
            step()

    def _batches(self, spark: SimSpark) -> Life:
        world = self.world
        while True:
            if not spark.is_begun:
                start = spark.covers(spark.batch - 1)
                if start == len(world.events):
                    yield 50 + self._pause(100)
                    continue
                spark.plan(min(len(world.events), start + self.pipeline.batch_events_max))
            yield self._pause(30)
            batch = self._batch(spark)
            for member in reversed(self.members):
                batch = member.janitor.locked(batch)
            yield from batch
            yield self._pause()
            spark.finish()
            self.failures = 0
            yield self._pause(world.options.table.batch_pause_ms)

    def _batch(self, spark: SimSpark) -> Life:
        for member in self.members:
            member.check_lease()
        spark.check_state()
        batch, end = spark.batch, spark.covers(spark.batch)
        start, attempt = spark.covers(batch - 1), self.random.getrandbits(64)
        world = self.world
        world.note("batch", f"{self.pipeline.name}/{self.wanted.run_id}", f"{batch} to {end}")
        members = [each for each in self.members if takeover.takes_part(each.newest, batch)]
        world.counts["members left out of a batch that they have"] += len(self.members) - len(
            members
        )
        world.counts["batches of groups"] += len(members) > 1
        ends = {"s": {0: end}}
        if any(takeover.is_planned_otherwise(each.newest, batch, ends) for each in members):
            world.counts["batches planned otherwise than before"] += 1
            spark.checkpoint.put_back(batch)
            raise Ended(f"batch {batch} would cover {end} now")
        for member in members:
            yield from member.write(batch, start, end, attempt)
        yield self._pause()
        for member in members:
            member.read_ends()
        spark.keep_state()
        yield self._pause()
        for number, member in enumerate(members):
            if number and not world.is_healed and self.random.random() < world.options.kill_between:
                yield self._struck_between()
            yield from member.commit(batch, end, attempt)

    def _struck_between(self) -> float:
        if self.random.random() < 0.5:
            self.world.counts["drivers killed between two tables of a batch"] += 1
            self.world.crash(self.pipeline)
        else:
            self.world.counts["drivers stopped between two tables of a batch"] += 1
            self.world.pause(self.pipeline, self.random.choice([500, 3000, 6000]))
        return 0


class SimPipeline:
    """A pipeline process. It knows of its leases what the log has told it so far."""

    def __init__(self, world: GroupWorld, name: str) -> None:
        self.world, self.random = world, world.random
        self.name = name
        self.is_alive, self.is_leaving = True, False
        self.paused_until_ms = 0
        self.cut_until_ms = 0  # it does not reach the quorum
        #: of its settings, which may differ from its predecessor's: a batch that is planned again
        #: may cover less. So it may in one of several partitions, whose shares Spark draws anew
        chance = random.Random(f"{world.seed} {len(world.pipelines)}")
        # not where the storage loses entries, too: then no checkpoint can be trusted
        self.batch_events_max = 20 if world.options.lose_commit else chance.choice([4, 5, 6, 20])
        self.groups = Groups(world.checkpoints, SERVICE, forms=True)
        self.runs: dict[str, SimRun] = {}
        #: of runs that are over: their janitors may not be
        self.left: list[SimMember] = []
        self.known: Known | None = None
        self.world.after(self.random.random() * 100, self.tend)

    def epoch_of(self, query_id: str) -> LeaseEpoch | None:
        lease = self.known.leases.get(query_id) if self.known else None
        return lease.lease_epoch if lease and lease.pipeline_id == self.name else None

    def is_in_the_way(self, query_ids: Collection[str]) -> bool:
        """Whether a run of these queries must wait for a janitor of an earlier one."""
        self.left = [each for each in self.left if each.janitor.is_in_the_way()]
        return any(each.world.query_id in query_ids for each in self.left)

    def crash(self) -> None:
        self.is_alive = False

    def tend(self) -> None:
        """The driver's loop, each time."""
        if not self.is_alive:
            return
        wait_ms = self.paused_until_ms - self.world.now_ms
        if wait_ms <= 0:
            self._reconcile()
        self.world.after(100 if wait_ms <= 0 else wait_ms, self.tend)

    def _reconcile(self) -> None:
        runs = self.groups.arrange(self._wanted(), self.world.sources, self.world.now_ms / 1000)
        here = {run_id: run.wanted for run_id, run in self.runs.items()}
        for order in diff(runs, here):
            if isinstance(order, StartRun):
                self.runs[order.wanted.run_id] = SimRun(self, order.wanted)
                ids = ", ".join(order.wanted.query_ids)
                self.world.note("run wanted", f"{self.name}/{order.wanted.run_id}", ids)
            else:
                self.runs.pop(order.run_id).stop()
                self.world.note("run not wanted", f"{self.name}/{order.run_id}")

    def _wanted(self) -> dict[str, WantedQuery]:
        known = self.known
        return {
            query_id: dataclasses.replace(self.world.wanted[query_id], lease_epoch=epoch)
            for query_id in (known.running if known else ())
            if (epoch := self.epoch_of(query_id)) is not None
        }


def stale_directories(root: Path, keep: Path) -> ExitStack:
    """What a takeover removes stands there again afterwards: the storage did not remove it."""
    stack = ExitStack()
    for path in root.glob("epoch-*"):
        shutil.copytree(path, keep / path.name, copy_function=os.link)

    def put_back() -> None:
        for copy in keep.iterdir():
            if not (root / copy.name).exists():
                copy.rename(root / copy.name)

    stack.callback(put_back)
    return stack


__all__ = ["Progress", "SimPipeline", "SimRun", "stale_directories"]
