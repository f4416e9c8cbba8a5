"""The data path in one thread from one seed: drivers, Kafka, tailers, invariants, history.

Events come in, drivers write batches and commit them, tailers show them; everything goes wrong in
the safety phase, and nothing wrong may be shown. Then the world heals and must converge: all events
in all replicas, every shadow repaired, and a replica made from what compaction left like the rest.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from standpipe.data.commit import progress as progress_log
from standpipe.data.commit.repair import Repair
from standpipe.data.commit.seal import ProgressReader, ProgressSeal
from standpipe.data.encoding.store_keys import HEADER_ROWTIME, partition_of, rowtime_header
from standpipe.data.encoding.stored_rows import unpack_row
from standpipe.model import NO_BATCH, Commit, LeaseEpoch, Progress

from .data_cuts import DataCuts
from .data_invariants import ALL, DataInvariant, Oracle, label_of
from .data_kafka import Retention, SimLog
from .data_nemesis import DataNemesis
from .data_pipeline import QUERY, SimCheckpoint, SimDriver, record_headers, source_end
from .data_reader import SimReader
from .data_recreated import Recreation
from .data_tailer import SimTailer
from .data_windows import PlainKeys, WindowedKeys
from .invariants import Violation
from .scheduler import Scheduler

HISTORY = 300
CONVERGE_MS = 120_000


@dataclass(frozen=True)
class DataOptions:
    """What a seed decides about its world before time begins; printed with every failure."""

    partitions: int
    replicas: int
    keys: int
    differs: bool
    """The plan is not deterministic: attempts of one batch write different values."""
    safety_ms: int
    retention: Retention
    repair_after_ms: int
    keep_ms: int
    event_ms: int
    batch_pause_ms: int
    tail_ms: int
    fault_ms: int
    straggle: float
    fail_batch: float
    fail_start: float
    lose_answer: float
    stale_ends: float
    kill_tailer: float
    lease_notice_ms: int
    """Until a driver that was replaced hears of it, at most."""
    is_cut_off: bool
    """Tailers live and do not hear Kafka, or not the leader of their partition, for long."""
    is_left_alone: bool
    """Pipelines stay away for longer than tombstones stay, and nothing comes in at the end."""
    is_windowed: bool = False
    """Rows are of windows, which expire."""
    is_recreated: bool = False
    """The table topic is deleted and made anew."""
    is_forged: bool = False
    """Someone without the secret writes to the progress topic."""

    @classmethod
    def of(cls, seed: int) -> DataOptions:
        draw = random.Random(seed * 7919 + 23)
        is_cut_off = seed % 8 == 3  # and else calm: who is killed meanwhile begins anew
        return cls(
            partitions=draw.choice([1, 1, 2]),
            replicas=draw.choice([2, 2, 3]),
            keys=draw.choice([2, 4, 8]),
            differs=draw.random() < 0.4,
            safety_ms=max(draw.randint(60_000, 200_000), 160_000 * is_cut_off),
            retention=Retention(30_000, draw.choice([20_000, 60_000])),
            repair_after_ms=draw.choice([500, 3000]),
            keep_ms=draw.choice([1000, 10_000]),
            event_ms=draw.choice([50, 200, 1000]),
            batch_pause_ms=draw.choice([50, 500]),
            tail_ms=draw.choice([100, 400]),
            fault_ms=draw.choice([1000, 3000, 8000]) * (8 if is_cut_off else 1),
            straggle=draw.choice([0, 0.05, 0.2]),
            fail_batch=draw.choice([0, 0.02, 0.1]),
            fail_start=draw.choice([0, 0.3]),
            lose_answer=draw.choice([0, 0.01, 0.05]),
            stale_ends=draw.choice([0, 0.05, 0.2]),
            kill_tailer=draw.choice([0, 0.01, 0.1]),
            lease_notice_ms=draw.choice([1, 2000, 20_000]),
            is_cut_off=is_cut_off,
            is_left_alone=seed % 8 == 5,
        )


class DataWorld:
    #: of the query that keeps the table
    query_id = QUERY

    def __init__(
        self, seed: int, options: DataOptions | None = None, beside: DataWorld | None = None
    ) -> None:
        """`beside`: the world of another table, with which this one shares all but its table."""
        self.seed = seed
        self.options = options or DataOptions.of(seed)
        self.partitions = self.options.partitions
        self.keys = WindowedKeys() if self.options.is_windowed else PlainKeys()
        self.scheduler = beside.scheduler if beside else Scheduler(seed)
        self.random = self.scheduler.random
        self.counts: Counter[str] = beside.counts if beside else Counter()
        own: deque[tuple[int, str, str, Any]] = deque(maxlen=HISTORY)
        self._history = beside._history if beside else own
        self.events: list[tuple[str, int]] = beside.events if beside else []
        self.tables = [SimLog(self.options.retention) for _ in range(self.partitions)]
        tombstones_ms = self.options.retention.tombstones_ms
        self.progress = beside.progress if beside else SimLog(Retention(0, tombstones_ms))
        self.seal = ProgressSeal("secret", "progress")
        self.checkpoints: dict[LeaseEpoch, SimCheckpoint] = {}
        self.recreation = Recreation(self)
        self.oracle = Oracle(self)
        self.invariants: list[DataInvariant] = [kind(self) for kind in ALL]
        self.lease_epoch = 0
        self._lost_at: dict[LeaseEpoch, int] = {}  # when a driver hears that it was replaced
        self.drivers: list[SimDriver] = []
        self.tailers = [
            SimTailer(self, self.name_of_replica(p, n), p)
            for p in range(self.partitions)
            for n in range(self.options.replicas)
        ]
        self.reader = SimReader(self)
        self.nemesis = DataNemesis(self)
        self.cuts = DataCuts(self)
        self.is_healed = False
        self.quiet_until_ms = 0

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_us // 1000 + 1_000_000

    @property
    def gone_ms(self) -> int:
        """Tombstones that were written before may have left the topics."""
        return self.now_ms - self.options.retention.tombstones_ms

    def name_of_replica(self, partition: int, number: int) -> str:
        """In histories."""
        return f"replica {partition}.{number}"

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.scheduler.after(delay_ms * 1000, action)

    # -- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases. Raises Violation with what did not hold, or whatever the machines raised."""
        for tailer in self.tailers:
            self.after(self.random.random() * 2000, tailer.start)
        self.new_driver()
        self._event()
        self.reader.plan()
        self.nemesis.begin()
        self.cuts.begin()
        self.recreation.begin()
        self.scheduler.run(self.options.safety_ms * 1000)
        self.heal()
        end_us = self._probe_at_us + CONVERGE_MS * 1000
        self.scheduler.run(end_us, stop=self._has_converged)
        if (why := self._why_not()) and self._is_beyond_repair():
            self.counts["worlds with a row that nobody has any more"] += 1
            return
        if why:
            raise Violation(f"Converges: not within {CONVERGE_MS} ms: {why}")
        if self.recreation.is_over:
            return  # there is nothing left to rebuild from
        for invariant in self.invariants:
            invariant.at_the_end()
        self.never(not self.counts["batches committed"], "no batch was ever committed")

    def heal(self) -> None:
        self.note("the world heals", "-")
        self.is_healed = True
        self.nemesis.end()
        self.cuts.end()
        for driver in self.drivers:
            driver.paused_until_ms = 0
        if not any(d.is_alive and d.lease_epoch == self.lease_epoch for d in self.drivers):
            self.new_driver()
        for tailer in self.tailers:
            tailer.paused_until_ms = 0
            tailer.start()
        calm_ms = self.nemesis.end_an_idle_world() if self.options.is_left_alone else 0
        self._probe_at_us = self.scheduler.now_us + calm_ms * 1000

    def _has_converged(self) -> bool:
        if self.scheduler.now_us < self._probe_at_us:
            return False
        self._probe_at_us = self.scheduler.now_us + 200_000
        return self._why_not() == ""

    def _why_not(self) -> str:
        """Why the healed world is not yet what it should be; nothing when it is."""
        if self.options.is_recreated:
            return self.recreation.why_not()
        driver = self.drivers[-1]
        if driver.newest is None or source_end(driver.newest) < len(self.events):
            return f"events wait: {driver.name} has committed {driver.newest} of {len(self.events)}"
        if any(sweep.all_shadows() or sweep.is_behind for sweep in driver.sweeps):
            return "keys are shadowed"
        for p, sweep in enumerate(driver.sweeps):
            if sweep.fetched < self.tables[p].end:
                return f"partition {p} is not swept"
        if driver.janitor.has_news():
            return "what is clean was not told"
        read = self.reader.offsets[self.reader.commits - 1] if self.reader.commits else {}
        if any(read.get(p, 0) < end for p, end in enumerate(self.oracle.ends)):
            return f"the derived query has read {read} of {self.oracle.ends}"
        for tailer in self.tailers:
            machine = tailer.machine
            if machine is None or not machine.is_caught_up:
                state = None if machine is None else machine.state
                return f"{tailer.name} is {state}, {tailer.store.meta}"
            if machine.committed_end != self.oracle.ends[tailer.partition]:
                return f"{tailer.name} has not heard of {self.oracle.ends}"
        return ""

    def _is_beyond_repair(self) -> bool:
        """Drivers died for so long that a shadow outlived compaction, and so did replicas that had
        its row. Nobody can know that row; what is promised is that nobody answers without it."""
        old_ms = self.now_ms - self.options.retention.compaction_lag_ms
        shadows = [
            (p, shadow)
            for p, sweep in enumerate(self.drivers[-1].sweeps)
            for shadow in sweep.all_shadows().values()
        ]
        blind = [(p, sweep) for p, sweep in enumerate(self.drivers[-1].sweeps) if sweep.blind]
        if any(not any(t.is_whole for t in self.tailers if t.partition == p) for p, _ in blind):
            return True
        return any(
            shadow.first_ms < old_ms
            and not any(t.is_whole for t in self.tailers if t.partition == p)
            for p, shadow in shadows
        )

    # -- the lease --------------------------------------------------------------------------------

    def new_driver(self) -> None:
        """The lease goes to a new pipeline."""
        self.give_lease(SimDriver)

    def give_lease(self, kind: type[SimDriver]) -> None:
        """To a new one; the one before hears of it some time later."""
        if self.drivers:
            notice = self.random.random() * self.options.lease_notice_ms
            self._lost_at[self.drivers[-1].lease_epoch] = self.now_ms + int(notice)
        self.lease_epoch += 1
        self.note("lease", f"driver {self.lease_epoch}")
        self.drivers.append(kind(self, self.lease_epoch))

    def lease_is_lost(self, driver: SimDriver) -> bool:
        lost_at = self._lost_at.get(driver.lease_epoch)
        return lost_at is not None and self.now_ms >= lost_at

    # -- events and rows --------------------------------------------------------------------------

    def _event(self) -> None:
        if self.is_healed:
            return
        if self.now_ms < self.quiet_until_ms:
            self.after(self.quiet_until_ms - self.now_ms, self._event)
            return
        key = f"k{self.random.randrange(self.options.keys)}"
        if self.random.random() < 0.02:  # some keys are written rarely: what is deleted stays so
            key = f"rare{self.random.randrange(3)}"
        key = self.keys.name_at(key, self.now_ms, self.random)
        self.events.append((key, self.random.randint(1, 9)))
        self.after(self.random.random() * 2 * self.options.event_ms, self._event)

    def takes(self, number: int) -> bool:
        """Whether the table counts such an event (its WHERE is true)."""
        return True

    def sum_of(self, key: str, end: int) -> int | None:
        """What a table row must say after `end` events; None: no row (its HAVING is false)."""
        found = [n for name, n in self.events[:end] if name == key and self.takes(n)]
        return sum(found) if found and sum(found) % 4 else None

    def next_end(self, batch: int, start: int) -> int | None:
        """Where the batch ends that begins at event `start`; None: Spark makes none yet."""
        return min(len(self.events), start + 20) if start < len(self.events) else None

    def right_rows(self, end: int, watermark_ms: int) -> dict[bytes, int]:
        """What the table must say after `end` events: {key as stored: sum}."""
        names, keys = {name for name, _ in self.events[:end]}, self.keys
        sums = {keys.stored(keys.raw(name)): self.sum_of(name, end) for name in names}
        return {
            key: number
            for key, number in sums.items()
            if number is not None and not keys.is_expired(key, watermark_ms)
        }

    def rows_of(self, start: int, end: int, attempt: int) -> list[tuple[bytes, bytes | None]]:
        """What one attempt of a batch writes."""
        salt = attempt % 997 if self.options.differs else 0
        rows: list[tuple[bytes, bytes | None]] = []
        for key in dict.fromkeys(name for name, n in self.events[start:end] if self.takes(n)):
            number = self.sum_of(key, end)
            value = None if number is None else b'{"N":%d}' % (number * 1000 + salt)
            rows.append((self.keys.raw(key), value))
        return rows

    # -- Kafka ------------------------------------------------------------------------------------

    def write(self, rows: list[tuple[bytes, bytes | None]], commit: Commit | None) -> None:
        for key, value in rows:
            partition = partition_of(self.keys.without_window(key), self.partitions)
            headers = record_headers(commit, self.now_ms)
            self.tables[partition].append(key, value, headers, self.now_ms)
            self.counts["records written"] += 1

    def straggle(self, part: Any, task: Any, commit: Commit) -> None:
        """Some of a task's rows now, all of them once more whenever it likes."""
        self.write(part, commit)
        delay = self.random.choice([10, 1000, 10_000]) * self.random.random()
        self.after(delay, lambda: self.write(task, commit))

    def ends(self, rows: int) -> dict[int, int]:
        """As a broker answers: one that was deposed may not know the last records.

        That such an answer and a foreign record meet in one batch is not played: counting cannot
        tell them apart (docs/ARCHITECTURE.md, "Known limits").
        """
        answered = {p: log.end for p, log in enumerate(self.tables)}
        is_alone = sum(answered.values()) - sum(self.oracle.ends) == rows
        if is_alone and not self.is_healed and self.random.random() < self.options.stale_ends:
            self.counts["stale end offsets"] += 1
            p = self.random.randrange(self.partitions)
            answered[p] = max(0, answered[p] - self.random.randint(1, 5))
        return answered

    def replica_rows(self, p: int, newest: Progress) -> dict[bytes, Repair] | None:
        """Rows of a replica that shows the newest commit; None: there is none."""
        for tailer in self.tailers:
            label = (newest.sinks[p], newest.commit.lease_epoch, newest.commit.batch)
            if tailer.partition == p and tailer.answers and label_of(tailer) == label:
                found: dict[bytes, Repair] = {}
                for stored, data in tailer.store.rows.items():
                    raw, row = self.keys.raw_of_stored(stored), unpack_row(data)
                    value = b'{"N":' + row.value_json[1:-1] + b"}"
                    headers = [(HEADER_ROWTIME, rowtime_header(row.rowtime_ms))]
                    found[raw] = Repair(raw, value, headers)
                return found
        return None

    def append_progress(self, record: Progress) -> int:
        self.note("progress", str(record.commit.lease_epoch), record)
        key, value = progress_log.serialise(record)
        offset = self.progress.append(key, value, self.seal.headers(key, value), self.now_ms)
        self.oracle.take(record)
        return offset

    def read_progress(self, end: int) -> list[Progress]:
        """From the beginning, what compaction has left."""
        records, _ = self.progress.read(0, end)
        reader = ProgressReader(self.seal)
        read = [
            reader.read(record.key, record.value, record.headers)
            for record in records
            if record.value is not None and record.offset < end
        ]
        return [record for record in read if record is not None]

    def compact(self, chance: random.Random | None = None) -> None:
        taken = sum(log.compact(self.now_ms, chance) for log in self.tables)
        self.counts["records taken by compaction"] += taken
        taken = self.progress.compact(self.now_ms, chance)
        self.counts["progress records taken by compaction"] += taken

    # -- what happens at replicas -----------------------------------------------------------------

    def kill_between_steps(self, tailer: SimTailer) -> None:
        self.counts["tailers killed between two steps"] += 1
        tailer.crash()
        self.after(self.random.random() * 500, tailer.start)

    def seen(self, tailer: SimTailer) -> None:
        self.counts["reads"] += tailer.answers
        for invariant in self.invariants:
            invariant.seen(tailer)

    def committed(self, progress: Progress) -> None:
        self.counts["batches committed"] += progress.commit.batch != NO_BATCH
        for invariant in self.invariants:
            invariant.committed(progress)

    def never(self, happened: bool, why: str) -> None:
        if happened:
            raise Violation(f"NoFalseAlarm: {why}")

    # -- reporting --------------------------------------------------------------------------------

    def note(self, what: str, who: str, detail: Any = "") -> None:
        self._history.append((self.scheduler.now_us, who, what, detail))

    def history(self) -> str:
        """The last events, oldest first: what a person needs to find the cause."""
        lines = [
            f"{at_us / 1000:10.1f} {who:>12} {what} {detail}"
            for at_us, who, what, detail in self._history
        ]
        return "\n".join([f"seed {self.seed}", repr(self.options), *lines])


__all__ = ["QUERY", "DataOptions", "DataWorld"]
