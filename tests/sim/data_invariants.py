"""What must hold on the data path, each as a class; checked after every event at a replica, and
at every commit. A violation is an exception: the runner adds the seed and the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standpipe.control.routing import route
from standpipe.control.routing.bounds import Bounds
from standpipe.data.encoding.store_keys import commit_header, parse_rowtime_header, partition_of
from standpipe.data.encoding.stored_rows import pack_row, rows_digest
from standpipe.model import NO_BATCH, NodeId, NodeInfo, Placement, Progress, ReplicaState

from .data_kafka import SimLog
from .data_pipeline import source_end
from .data_tailer import SimTailer
from .invariants import Violation

if TYPE_CHECKING:
    from .data_world import DataWorld

HERE = NodeInfo(node_id=NodeId("n"), public="n", internal="n", peer="n", incarnation="x")
Label = tuple[int, int, int]  # committed end, lease epoch, batch
Rows = dict[bytes, bytes]


class Oracle:
    """The dull truth: topics that nothing was taken from, folded batch by batch."""

    def __init__(self, world: DataWorld) -> None:
        self.world = world
        #: those that were committed to, should others take their names
        self.tables = world.tables
        self.lease_epoch = 0
        self.newest: Progress | None = None
        self.ends = [0] * world.partitions
        self.rows: list[Rows] = [{} for _ in range(world.partitions)]
        #: per partition: what a replica with this label may show
        self.folds: list[dict[Label, list[Rows]]] = [{} for _ in range(world.partitions)]
        #: per partition: offsets of committed records, in order
        self.visible: list[list[int]] = [[] for _ in range(world.partitions)]
        #: per partition: every row that was ever committed
        self.ever: list[set[tuple[bytes, bytes]]] = [set() for _ in range(world.partitions)]

    def take(self, progress: Progress) -> None:
        """The next progress record as it is appended."""
        epoch = progress.commit.lease_epoch
        if epoch < self.lease_epoch:
            self.world.counts["void progress records"] += 1
            return
        self.lease_epoch = epoch
        if progress.commit.batch == NO_BATCH:
            return
        for p, log in enumerate(self.tables):
            end = progress.sinks[p]
            self._fold(p, log, end, commit_header(progress.commit))
            self._expire(p, progress.watermark_ms)
            self.ends[p] = end
            label = (end, epoch, progress.commit.batch)
            self.folds[p].setdefault(label, []).append(dict(self.rows[p]))
        self.world.committed(progress)
        self.newest = progress

    def _fold(self, p: int, log: SimLog, end: int, wanted: bytes) -> None:
        for record in log.history[self.ends[p] : end]:
            headers = dict(record.headers or ())
            if headers.get("sp-commit") != wanted or record.key is None:
                continue
            self.visible[p].append(record.offset)
            key = self.world.keys.stored(record.key)
            if record.value is None:
                self.rows[p].pop(key, None)
                continue
            columns = b"[" + record.value[5:-1] + b"]"
            rowtime = parse_rowtime_header(headers["sp-rowtime"] or b"")
            self.rows[p][key] = pack_row(columns, rowtime)
            self.ever[p].add((key, self.rows[p][key]))

    def _expire(self, p: int, watermark_ms: int) -> None:
        for key in [key for key in self.rows[p] if self.world.keys.is_expired(key, watermark_ms)]:
            del self.rows[p][key]


class DataInvariant:
    """Base: every hook does nothing."""

    def __init__(self, world: DataWorld) -> None:
        self.world = world
        self.oracle = world.oracle

    def check(self, holds: bool, why: str) -> None:
        if not holds:
            raise Violation(f"{type(self).__name__}: {why}")

    def seen(self, tailer: SimTailer) -> None: ...
    def committed(self, progress: Progress) -> None: ...
    def at_the_end(self) -> None: ...


def label_of(tailer: SimTailer) -> Label:
    meta = tailer.store.meta
    return (meta.position, meta.lease_epoch, meta.batch)


class RowsAreTheFoldOfTheirBatches(DataInvariant):
    """Who answers under a label shows exactly what was committed up to it."""

    def seen(self, tailer: SimTailer) -> None:
        if tailer.answers and tailer.store.meta.batch != NO_BATCH:
            label = label_of(tailer)
            folds = self.oracle.folds[tailer.partition].get(label, [])
            self.check(bool(folds), f"{tailer.name} shows {label}, which is no batch")
            self.check(tailer.store.rows in folds, self._difference(tailer, folds))

    def _difference(self, tailer: SimTailer, folds: list[Rows]) -> str:
        have = tailer.store.rows
        want = folds[-1] if folds else {}
        wrong = {
            k: (have.get(k), want.get(k)) for k in {*have, *want} if have.get(k) != want.get(k)
        }
        return f"{tailer.name} at {label_of(tailer)} has, and should have: {wrong}"


class NothingForeignIsVisible(DataInvariant):
    """Who answers, with or without a label, shows only rows that were committed."""

    def seen(self, tailer: SimTailer) -> None:
        if tailer.answers:
            foreign = tailer.store.rows.items() - self.oracle.ever[tailer.partition]
            self.check(not foreign, f"{tailer.name} shows {foreign}, never committed")


class NothingGoesBack(DataInvariant):
    """Positions, targets and labels of one store never go back."""

    def __init__(self, world: DataWorld) -> None:
        super().__init__(world)
        self.shown: dict[tuple[str, int], Label] = {}
        self.target: dict[tuple[str, int], int] = {}

    def seen(self, tailer: SimTailer) -> None:
        label, life = label_of(tailer), (tailer.name, tailer.lives)
        before = self.shown.get(life, label)
        if label[2] == NO_BATCH or before[2] == NO_BATCH:
            self.check(label[0] >= before[0], f"{tailer.name} fell from {before} to {label}")
        else:
            self.check(label >= before, f"{tailer.name} fell from {before} to {label}")
        self.shown[life] = label
        run = (tailer.name, tailer._run)
        target = tailer.machine.committed_end if tailer.machine else 0
        self.check(target >= self.target.get(run, -1), f"{tailer.name}: its target fell")
        self.target[run] = target


class NeverBeyondTheTarget(DataInvariant):
    """A position is at most the committed end, and no lag is reported that is none."""

    def seen(self, tailer: SimTailer) -> None:
        end, position = self.oracle.ends[tailer.partition], tailer.store.meta.position
        self.check(position <= end, f"{tailer.name} is at {position}, committed is {end}")
        machine = tailer.machine
        if machine is not None:
            lag = machine.status(confirmed_boot_ms=0, rows=0).offset_lag
            self.check((lag or 0) <= end - position, f"{tailer.name} reports a lag of {lag}")


class BoundedReadsAreWithinTheirBound(DataInvariant):
    """Rows that a read with a bound gets are those of a batch, at the replica's position or after
    it: else its lag says nothing about them."""

    def seen(self, tailer: SimTailer) -> None:
        if tailer.machine is None or not self._may_be_read(tailer):
            return
        self.world.counts["bounded reads"] += 1
        if tailer.store.meta.batch != NO_BATCH:
            return  # RowsAreTheFoldOfTheirBatches
        position = tailer.store.meta.position
        folds = self.oracle.folds[tailer.partition].items()
        found = any(tailer.store.rows in each for label, each in folds if label[0] >= position)
        self.check(found, f"{tailer.name} at {label_of(tailer)} shows no batch since {position}")

    def _may_be_read(self, tailer: SimTailer) -> bool:
        assert tailer.machine is not None
        status = tailer.machine.status(confirmed_boot_ms=0, rows=0)
        bounds = Bounds(lag_records_max=status.offset_lag or 0)
        (verdict,) = route.route(
            Placement(table_id="t", generation=1, partition=0, replicas=(HERE.node_id,)),
            {HERE.node_id: HERE},
            local=HERE.node_id,
            local_status=status,
            bounds=bounds,
            rules=route.RULES,
        )
        return verdict.ok


class DigestsAgree(DataInvariant):
    """The digest is that of the rows, and replicas with one label have one digest."""

    def __init__(self, world: DataWorld) -> None:
        super().__init__(world)
        self.digests: dict[tuple[int, Label], int] = {}

    def seen(self, tailer: SimTailer) -> None:
        found, rows = tailer.store.meta.digest, tailer.store.rows
        self.check(found == rows_digest(rows.items()), f"{tailer.name}: {found} is not its rows'")
        label = label_of(tailer)
        if label[2] != NO_BATCH and len(self.oracle.folds[tailer.partition].get(label, ())) == 1:
            known = self.digests.setdefault((tailer.partition, label), found or 0)
            self.check(known == found, f"{tailer.name} at {label}: digest {found}, not {known}")


class CommitsAreWhatTheEventsSay(DataInvariant):
    """Batches follow each other, and what is committed equals a recompute of the events."""

    def committed(self, progress: Progress) -> None:
        before, batch = self.oracle.newest, progress.commit.batch
        end = source_end(progress)
        if before is not None:
            follows = batch in (before.commit.batch, before.commit.batch + 1)
            self.check(follows, f"batch {batch} was committed after {before.commit.batch}")
            self.check(end >= source_end(before), f"the source went back to {end} from {before}")
        committed = {
            key: int(row[13:].strip(b"[]")) // 1000
            for rows in self.oracle.rows
            for key, row in rows.items()
        }
        right = self.world.right_rows(end, progress.watermark_ms)
        self.check(committed == right, f"batch {batch}: {committed} is not {right}")


class WhatCompactionLeavesIsEnough(DataInvariant):
    """Once repair has run: a replica made from the compacted topics is like the others.

    From the topics alone, unless their own writer calls them blind, or would with the next batch:
    then a peer's copy may help.
    """

    def at_the_end(self) -> None:
        world = self.world
        sweeps = world.drivers[-1].sweeps
        for _ in range(2):  # the second time, tombstones go
            later = world.now_ms + 10 * world.options.retention.tombstones_ms
            for log in (*world.tables, world.progress):
                log.compact(later)
        for p in range(world.partitions):
            rebuilt = SimTailer(world, f"rebuilt {p}", p)
            rebuilt.may_copy = bool(sweeps[p].blind) or sweeps[p].position < world.tables[p].end
            rebuilt.start()
            for _ in range(500):
                if rebuilt.machine is None:
                    rebuilt.start()
                if rebuilt.machine is not None and rebuilt.machine.is_caught_up:
                    break
                rebuilt._follow_progress()
                if rebuilt._is_fetching and rebuilt.machine is not None:
                    rebuilt._follow_table()
            state = rebuilt.machine.state if rebuilt.machine else ReplicaState.ABSENT
            self.check(state is ReplicaState.RUNNING, f"{rebuilt.name} stays {state.name}")
            mine, others = rebuilt.store, next(t for t in world.tailers if t.partition == p).store
            self.check(mine.rows == others.rows, f"{mine.rows} is not {others.rows}")
            self.check(mine.meta.digest == others.meta.digest, "other rows, or another digest")


ALL: tuple[type[DataInvariant], ...] = (
    RowsAreTheFoldOfTheirBatches,
    NothingForeignIsVisible,
    NothingGoesBack,
    NeverBeyondTheTarget,
    BoundedReadsAreWithinTheirBound,
    DigestsAgree,
    CommitsAreWhatTheEventsSay,
    WhatCompactionLeavesIsEnough,
)
__all__ = ["ALL", "DataInvariant", "Oracle", "partition_of"]
