"""Several tables over one stream, which pipelines run in groups, in one thread from one seed.

Each table has the topic, the replicas, the readers and the invariants of a plain world; they share
events and the progress topic. Pipelines come, go, die and sleep; leases are granted one by one by
the rules of the metadata log; queries are created, paused, resumed, dropped; groups are divided.
Then the world heals, and every table that was not dropped must have every event.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from structlog.testing import capture_logs
from tests.unit.pipeline.queries_of import commands_of, wanted_of

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY
from standpipe.control.metadata.leases import due, granted
from standpipe.model import LeaseEpoch, LogIndex, Progress, QueryLease, Source

from .data_groups_driver import SimPipeline, SimRun, stale_directories
from .data_nemesis import DataNemesis
from .data_world import CONVERGE_MS, DataOptions, DataWorld
from .invariants import Violation

if TYPE_CHECKING:
    from .scheduler import Scheduler

SQL = """
CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE A AS SELECT K, SUM(N) AS N FROM S GROUP BY K;
CREATE TABLE B AS SELECT K, SUM(N) AS N FROM S WHERE N % 2 = 1 GROUP BY K;
CREATE TABLE C AS SELECT K, SUM(N) AS N FROM S WHERE N > 5 GROUP BY K;
CREATE TABLE D AS SELECT K, SUM(N) AS N FROM S WHERE N < 9 GROUP BY K;
"""
TAKES = {
    "A": lambda number: True,
    "B": lambda number: number % 2 == 1,
    "C": lambda number: number > 5,
    "D": lambda number: number < 9,
}
WANTED = {query.query_id: query for query in wanted_of(SQL)}
PIPELINES_MAX = 3
#: until the leader ends a pipeline that does not renew
SILENT_MS_MAX = 1000


def _sources() -> Mapping[str, Source]:
    catalog = EMPTY
    for index, command in enumerate(commands_of(SQL), 1):
        catalog = apply(catalog, LogIndex(index), command)
    return catalog.sources


SOURCES = _sources()


@dataclass(frozen=True)
class GroupOptions:
    """What a seed decides; `table`: of each table's own world."""

    table: DataOptions
    tables: int
    late: int
    """Of these tables, so many are created later."""
    fault_ms: int
    changes: float
    """The share of faults that change who is in a group."""
    notice_ms: int
    """Until a pipeline reads an entry of the log, at most."""
    group_failures_max: int
    kill_between: float
    """Chance that the driver is killed, or stopped for a while, between two tables of a batch."""
    lose_commit: float
    """Chance that the newest entry of Spark's commit log is lost with its driver."""
    keep_removed: float
    """Chance that directories that a takeover removes stay."""

    @classmethod
    def of(cls, seed: int) -> GroupOptions:
        draw = random.Random(seed * 7919 + 41)
        table = replace(
            DataOptions.of(seed),
            partitions=1,
            replicas=2,
            is_cut_off=False,
            is_left_alone=False,
            safety_ms=draw.randint(40_000, 80_000),
            event_ms=draw.choice([50, 200]),
            tail_ms=400,
            fault_ms=8000,
            fail_batch=draw.choice([0, 0.01]),
            fail_start=draw.choice([0, 0.1]),
        )
        return cls(
            table=table,
            tables=draw.choice([2, 3, 3, 4]),
            late=draw.choice([0, 0, 1, 2]),
            fault_ms=draw.choice([3000, 6000]),
            changes=draw.choice([0, 0.1, 0.2]),
            notice_ms=draw.choice([1, 100, 500]),
            group_failures_max=draw.choice([3, 10**6, 10**6]),
            kill_between=draw.choice([0, 0.02, 0.1]),
            lose_commit=draw.choice([0, 0.3]),
            keep_removed=draw.choice([0, 1, 1]),
        )


@dataclass(frozen=True)
class Known:
    """The metadata log up to an entry."""

    index: int
    leases: Mapping[str, QueryLease]
    running: tuple[str, ...]
    pipelines: frozenset[str]


class TableNemesis(DataNemesis):
    """What goes wrong at one table; its drivers have a nemesis of their own."""

    def __init__(self, world: DataWorld) -> None:
        super().__init__(world)
        named = (
            "tailers crashed",
            "tailers paused",
            "tailers away for long",
            "disks lost",
            "compactions",
            "strangers",
        )
        kept = [kind for kind in self.faults if kind[0] in named]
        self.faults = kept or [("strangers", self.stranger)]


class TableWorld(DataWorld):
    """The world of one table of several."""

    def __init__(self, groups: GroupWorld, query_id: str, beside: DataWorld | None) -> None:
        self.groups = groups
        self.query_id = query_id
        self.takes = TAKES[WANTED[query_id].table.name]
        self.is_begun = self.is_dropped = False
        super().__init__(groups.seed, groups.options.table, beside)
        self.nemesis = TableNemesis(self)

    def name_of_replica(self, partition: int, number: int) -> str:
        return f"{WANTED[self.query_id].table.name} {number}"

    def create(self) -> None:
        self.is_begun = True
        for tailer in self.tailers:
            self.after(self.random.random() * 2000, tailer.start)
        self.reader.plan()
        self.nemesis.begin()

    def heal_table(self) -> None:
        self.is_healed = True
        self.nemesis.end()
        for tailer in self.tailers:
            tailer.paused_until_ms = 0
            tailer.start()

    def why_not(self) -> str:
        """Why it has not converged; "": it has, or was dropped."""
        if self.is_dropped:
            return ""
        if not self.drivers or not self.drivers[-1].of_run.is_alive:
            return "nobody runs it"
        why = self._why_not()
        if why and self._is_beyond_repair():
            self.counts["tables with a row that nobody has any more"] += 1
            return ""
        return why

    def judge(self) -> None:
        if not self.is_dropped and not self._is_beyond_repair():
            for invariant in self.invariants:
                invariant.at_the_end()


class GroupWorld:
    """Tables, the metadata log, the shared storage of checkpoints, and the pipelines."""

    def __init__(self, seed: int, options: GroupOptions | None = None) -> None:
        self.seed = seed
        self.options = options or GroupOptions.of(seed)
        self.sources, self.wanted = SOURCES, WANTED
        ids = list(WANTED)[: self.options.tables]
        self.tables: dict[str, TableWorld] = {}
        self.first = TableWorld(self, ids[0], None)
        self.tables[ids[0]] = self.first
        for query_id in ids[1:]:
            self.tables[query_id] = TableWorld(self, query_id, self.first)
        self.scheduler: Scheduler = self.first.scheduler
        self.random, self.counts = self.scheduler.random, self.first.counts
        self.after, self.note, self.never = self.first.after, self.first.note, self.first.never
        self.history = self.first.history
        self.events = self.first.events
        self.is_healed = False
        self.running: list[str] = []
        self.registered: dict[str, SimPipeline] = {}
        self.pipelines: list[SimPipeline] = []
        self.leases: Mapping[str, QueryLease] = {}
        self.newest = LeaseEpoch(0)
        self._names = self._index = 0
        #: no pipeline ever writes to the directory of another one
        self._owners: dict[Path, SimPipeline] = {}
        #: tables whose own newest batches are not in the commit log, if they ever run alone
        self._lack_two: set[str] = set()
        self.nemesis = GroupNemesis(self)
        self.checkpoints = Path()
        self._probe_at_us = 0

    @property
    def now_ms(self) -> int:
        return self.first.now_ms

    def run(self) -> None:
        """Both phases. Raises Violation, or whatever the pipelines raised."""
        memory = Path("/dev/shm")
        with (
            tempfile.TemporaryDirectory(dir=memory if memory.exists() else None) as folder,
            capture_logs(),
        ):
            self.checkpoints = Path(folder) / "checkpoints"
            self.checkpoints.mkdir()
            self._run()

    def _run(self) -> None:
        self.new_pipeline()
        ids = list(self.tables)
        early = len(ids) - min(self.options.late, len(ids) - 1)
        for query_id in ids[:early]:
            self.after(self.random.random() * 1500, lambda it=query_id: self.create(it))
        for query_id in ids[early:]:
            at_ms = self.random.random() * self.options.table.safety_ms * 0.8
            self.after(at_ms, lambda it=query_id: self.create(it))
        self.first._event()
        self.nemesis.begin()
        self.scheduler.run(self.options.table.safety_ms * 1000)
        self.heal()
        self.scheduler.run(self.scheduler.now_us + CONVERGE_MS * 1000, stop=self._has_converged)
        if why := self._why_not():
            raise Violation(f"Converges: not within {CONVERGE_MS} ms: {why}")
        for table in self.tables.values():
            table.judge()
        self.never(not self.counts["batches committed"], "no batch was ever committed")

    def heal(self) -> None:
        self.note("the world heals", "-")
        self.is_healed = True
        self.nemesis.end()
        for table in self.tables.values():
            table.heal_table()
        for pipeline in self.pipelines:
            pipeline.paused_until_ms = pipeline.cut_until_ms = 0
        for query_id, table in self.tables.items():
            if table.is_begun and not table.is_dropped and query_id not in self.running:
                self.running.append(query_id)
        if not self.registered:
            self.new_pipeline()
        self.balance()

    def _has_converged(self) -> bool:
        if self.scheduler.now_us < self._probe_at_us:
            return False
        self._probe_at_us = self.scheduler.now_us + 200_000
        return self._why_not() == ""

    def _why_not(self) -> str:
        for query_id, table in self.tables.items():
            if why := table.why_not():
                return f"{query_id}: {why}"
        return ""

    # -- the metadata log -------------------------------------------------------------------------

    def create(self, query_id: str) -> None:
        self.tables[query_id].create()
        self.running.append(query_id)
        self.balance()

    def new_pipeline(self, instead_of: SimPipeline | None = None) -> None:
        """`instead_of`: one that is silent, and is ended before anything is granted."""
        pipeline = SimPipeline(self, "")
        self.pipelines.append(pipeline)
        self.register(pipeline, instead_of)

    def register(self, pipeline: SimPipeline, instead_of: SimPipeline | None = None) -> None:
        self._names += 1
        pipeline.name = f"p{self._names}"
        self.registered[pipeline.name] = pipeline
        if instead_of is not None:
            self.registered.pop(instead_of.name, None)
        self.balance()

    def unregister(self, pipeline: SimPipeline) -> None:
        """The leader ends it, unless it is the only one."""
        if len(self.registered) > 1 and self.registered.pop(pipeline.name, None):
            self.balance()

    def balance(self) -> None:
        """Grants are entries of the log, one by one."""
        self.log()
        for grant in due(self.running, self.registered.keys(), self.leases):
            self.leases, self.newest = granted(
                [grant],
                leases=self.leases,
                queries=self.running,
                pipelines=self.registered.keys(),
                newest=self.newest,
            )
            self.tables[grant[0]].lease_epoch = self.newest
            self.log()

    def log(self) -> None:
        """An entry; each pipeline reads it some time later, in order."""
        self._index += 1
        known = Known(self._index, self.leases, tuple(self.running), frozenset(self.registered))
        for pipeline in self.pipelines:
            delay_ms = self.random.random() * self.options.notice_ms
            self.after(delay_ms, lambda it=pipeline: self._tell(it, known))

    def _tell(self, pipeline: SimPipeline, known: Known) -> None:
        wait_ms = max(pipeline.cut_until_ms, pipeline.paused_until_ms) - self.now_ms
        if not pipeline.is_alive:
            return
        if wait_ms > 0:
            self.after(wait_ms, lambda: self._tell(pipeline, known))
            return
        if pipeline.known is None or pipeline.known.index < known.index:
            pipeline.known = known
        if pipeline.name not in known.pipelines and pipeline.name not in self.registered:
            self.after(self.random.random() * 2000, lambda: self._again(pipeline))

    def _again(self, pipeline: SimPipeline) -> None:
        if not pipeline.is_alive or pipeline.name in self.registered or pipeline.is_leaving:
            return
        if not self.is_healed and self.random.random() < 0.7:  # else no group would last for long
            self.crash(pipeline)
        else:
            self.counts["pipelines registered again"] += 1
            self.register(pipeline)

    # -- pipelines --------------------------------------------------------------------------------

    def crash(self, pipeline: SimPipeline) -> None:
        """SIGKILL; its leases go to others soon, or to the one that is started in its place."""
        if not pipeline.is_alive:
            return
        pipeline.crash()
        self.note("*** killed", pipeline.name)
        if self.random.random() < self.options.lose_commit:
            self._lose_commits(pipeline)
        self.after(500 + self.random.random() * 1500, lambda: self._replace(pipeline))

    def pause(self, pipeline: SimPipeline, length_ms: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        pipeline.paused_until_ms = self.now_ms + length_ms
        self.is_silent(pipeline, length_ms)

    def is_silent(self, pipeline: SimPipeline, length_ms: int) -> None:
        """It renews nothing for so long."""
        if length_ms > SILENT_MS_MAX:
            self.after(SILENT_MS_MAX, lambda: self._replace(pipeline))

    def _replace(self, pipeline: SimPipeline) -> None:
        others = [each for each in self.registered.values() if each is not pipeline]
        if not any(each.is_alive for each in others):
            self.new_pipeline(instead_of=pipeline)
        else:
            self.unregister(pipeline)

    def _lose_commits(self, pipeline: SimPipeline) -> None:
        """The storage has not kept the newest entry of one of its commit logs."""
        live = [run for run in pipeline.runs.values() if run.members]
        for run in live[:1]:
            epoch = max(each.lease_epoch for each in run.members)
            name = run.wanted.group.group_id if run.is_grouped and run.wanted.group else None
            name = name or run.wanted.query_ids[0]
            commits = self.checkpoints / f"{name}-1" / f"epoch-{epoch}" / "commits"
            found = [int(each.name) for each in commits.glob("*") if each.name.isdecimal()]
            batches = {
                each.world.query_id: -1 if newest is None else newest.commit.batch
                for each in run.members
                for newest in [each.world.oracle.newest]
            }
            if found and max(found) >= min(batches.values()):
                (commits / str(max(found))).unlink()
                self.counts["commit log entries lost"] += 1
                self._lack_two |= {each for each in batches if batches[each] > max(found)}

    def give_up(self, query_id: str) -> bool:
        """Drop a table that is a batch ahead of its group and runs alone, after the storage has
        lost an entry of the group's commit log: then two are missing. True: it is such a one."""
        if query_id in self._lack_two and not self.tables[query_id].is_dropped:
            self.counts["tables dropped that lack two batches"] += 1
            self.drop(query_id)
        return query_id in self._lack_two

    def drop(self, query_id: str) -> None:
        if query_id in self.running:  # else it is paused
            self.running.remove(query_id)
        self.tables[query_id].is_dropped = True
        self.tables[query_id].nemesis.end()
        self.balance()

    def began(self, by: SimRun, directory: Path, newest: Sequence[Progress | None]) -> None:
        """A run has taken over what it found there."""
        run, owner = by.wanted, self._owners.setdefault(directory, by.pipeline)
        self.never(owner is not by.pipeline, f"{directory} is that of {owner.name}, too")
        batches = {None if each is None else each.commit.batch for each in newest}
        self.counts["groups that took over members at two batches"] += len(batches) > 1
        self.counts["groups begun"] += len(run.members) > 1
        self.counts["members begun alone"] += run.group is not None and len(run.members) == 1

    @contextmanager
    def keeping_removed(self, root: Path) -> Iterator[None]:
        """Perhaps what is removed stays."""
        if self.random.random() >= self.options.keep_removed or not root.exists():
            yield
            return
        with (
            tempfile.TemporaryDirectory(dir=self.checkpoints.parent) as keep,
            stale_directories(root, Path(keep)),
        ):
            yield


class GroupNemesis:
    """What goes wrong with pipelines and leases, and what users do."""

    def __init__(self, world: GroupWorld) -> None:
        self.world, self.random = world, world.random
        self.is_active = True
        # what shrinks a group is rare, or there would soon be none
        self.changes = [
            ("pipelines joined", self.join),
            ("pipelines left", self.leave),
            ("queries paused", self.pause_query),
            ("queries paused", self.pause_query),
            ("queries dropped", self.drop_query),
            ("members failed by name", self.fail_member),
        ]
        self.shocks = [
            ("pipelines killed", self.kill),
            ("pipelines paused", self.pause),
            ("pipelines cut off from the quorum", self.cut),
            ("pipelines cut off from the quorum", self.cut),
        ]

    def begin(self) -> None:
        delay_ms = self.random.expovariate(1 / self.world.options.fault_ms)
        self.world.after(delay_ms, self._strike)

    def end(self) -> None:
        self.is_active = False

    def _strike(self) -> None:
        if not self.is_active:
            return
        is_change = self.random.random() < self.world.options.changes
        name, fault = self.random.choice(self.changes if is_change else self.shocks)
        if fault():
            self.world.note(f"*** {name}", "-")
            self.world.counts[name] += 1
        self.begin()

    def _one(self) -> SimPipeline | None:
        alive = [each for each in self.world.pipelines if each.is_alive]
        return self.random.choice(alive) if alive else None

    def kill(self) -> bool:
        if (pipeline := self._one()) is None:
            return False
        self.world.crash(pipeline)
        return True

    def pause(self) -> bool:
        """A zombie, if another pipeline can have its leases."""
        if (pipeline := self._one()) is None:
            return False
        self.world.pause(pipeline, self.random.choice([500, 3000, 3000, 20_000]))
        return True

    def cut(self) -> bool:
        """It goes on, and hears of nothing."""
        if (pipeline := self._one()) is None:
            return False
        length_ms = self.random.choice([500, 6000, 6000, 10_000])
        pipeline.cut_until_ms = self.world.now_ms + length_ms
        self.world.is_silent(pipeline, length_ms)
        return True

    def join(self) -> bool:
        """It gets its share: some members of a group, perhaps."""
        if len(self.world.registered) >= PIPELINES_MAX:
            return False
        self.world.new_pipeline()
        return True

    def leave(self) -> bool:
        pipeline = self._one()
        if pipeline is None or len(self.world.registered) < 2:
            return False
        pipeline.is_leaving = True
        for run in pipeline.runs.values():
            run.stop()
        pipeline.crash()
        self.world.unregister(pipeline)
        return True

    def pause_query(self) -> bool:
        """And resume it later."""
        world = self.world
        if not world.running:
            return False
        query_id = self.random.choice(world.running)
        world.running.remove(query_id)
        world.balance()
        world.after(self.random.choice([300, 10_000, 15_000]), lambda: self._resume(query_id))
        return True

    def _resume(self, query_id: str) -> None:
        world = self.world
        if query_id not in world.running and not world.tables[query_id].is_dropped:
            world.running.append(query_id)
            world.balance()

    def drop_query(self) -> bool:
        world = self.world
        if len(world.running) < 2 or any(each.is_dropped for each in world.tables.values()):
            return False
        world.drop(self.random.choice(world.running))
        return True

    def fail_member(self) -> bool:
        """A poisoned row, a topic without space: what one member alone can cause."""
        runs = [
            run
            for pipeline in self.world.pipelines
            if pipeline.is_alive
            for run in pipeline.runs.values()
            if run.is_grouped and run.members
        ]
        if not runs:
            return False
        self.random.choice(runs).divide("a member failed")
        return True


__all__ = ["GroupWorld", "Known", "TableWorld"]
