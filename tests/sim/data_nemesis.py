"""What goes wrong on the data path, at instants and in kinds that a seed draws."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from standpipe.data.commit import progress
from standpipe.data.commit.seal import HEADER_MAC, MAC_BYTES, ProgressSeal
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from .data_pipeline import SimDriver
    from .data_tailer import SimTailer
    from .data_world import DataWorld


class DataNemesis:
    def __init__(self, world: DataWorld) -> None:
        self.world = world
        self.random = world.random
        self.is_active = True
        kinds = [
            ("drivers crashed", self.crash_driver),
            ("drivers paused and replaced", self.replace_paused_driver),
            ("drivers replaced", self.replace_driver),
            ("pipelines away for long", self.long_outage),
            ("tailers crashed", self.crash_tailer),
            ("tailers paused", self.pause_tailer),
            ("tailers away for long", self.tailer_away),
            ("disks lost", self.wipe),
            ("compactions", self.compact),
            ("strangers", self.stranger),
        ]
        # Each seed has its own mix, some kinds left out: what needs many of one kind and none of
        # another hardly ever happens where all are as likely everywhere.
        weights = self.random.choices([0, 1, 2, 6], k=len(kinds))
        weighted = zip(kinds, weights, strict=True)
        self.faults = [kind for kind, weight in weighted for _ in range(weight)] or kinds
        if world.options.is_left_alone:
            longer = ("pipelines away for longer than tombstones", self.longer_outage)
            self.faults += [longer] * len(self.faults)
        self.may_replace = True

    def begin(self) -> None:
        self._plan()
        if self.world.options.is_forged:
            draw = random.Random(self.world.seed)
            self._forge(draw)  # before any pipeline has written a record
            self._plan_forgery(draw)

    def _plan_forgery(self, draw: random.Random) -> None:
        """Another source of randomness, so that the other faults of a seed stay as they are."""

        def forge() -> None:
            if self.is_active:
                self._forge(draw)
                self._plan_forgery(draw)

        self.world.after(draw.expovariate(1 / 5000), forge)

    def _forge(self, draw: random.Random) -> None:
        """A record of the progress topic by someone who may write to it and lacks the secret: it
        would make all later commits void, or commit what nobody wrote."""
        epoch = LeaseEpoch(draw.choice([self.world.lease_epoch, 10**6]))
        fence = progress.fence(self.world.query_id, epoch, nonce=draw.getrandbits(64))
        is_first = self.world.oracle.newest is None
        forged = draw.choice(
            [
                fence,
                msgspec.structs.replace(
                    self.world.oracle.newest or fence,
                    commit=Commit(lease_epoch=epoch, batch=BatchId(10**6), attempt=1),
                    sinks=dict.fromkeys(range(self.world.partitions), Offset(10**6)),
                ),
            ]
        )
        key, value = progress.serialise(forged)
        value = draw.choice([value, value, b"no progress record"])
        wrong = ((HEADER_MAC, draw.randbytes(MAC_BYTES)),)
        headers = draw.choice([(), wrong, ProgressSeal("a guess", "progress").headers(key, value)])
        self.world.progress.append(key, value, headers, self.world.now_ms)
        self.world.counts["progress records forged"] += 1
        self.world.counts["progress records forged before the first true one"] += is_first

    def end(self) -> None:
        self.is_active = False

    def _plan(self) -> None:
        delay_ms = self.random.expovariate(1 / self.world.options.fault_ms)
        self.world.after(delay_ms, self._strike)

    def _strike(self) -> None:
        if not self.is_active:
            return
        name, fault = self.random.choice(self.faults)
        if fault():
            self.world.note(f"*** {name}", "-")
            self.world.counts[name] += 1
        self._plan()

    def crash_driver(self) -> bool:
        driver = self.world.drivers[-1]
        if not driver.is_alive or not self.may_replace:
            return False
        driver.crash()
        self.replace_after(self.random.random() * 3000)
        return True

    def replace_after(self, delay_ms: float) -> None:
        self.may_replace = False
        self.world.after(delay_ms, self._replace)

    def _replace(self) -> None:
        if self.is_active:
            self.may_replace = True
            self.world.new_driver()

    def replace_paused_driver(self) -> bool:
        """SIGSTOP, the lease is lost, SIGCONT: a zombie."""
        driver = self.world.drivers[-1]
        if not driver.is_alive or not self.may_replace:
            return False
        driver.paused_until_ms = self.world.now_ms + self.random.choice([500, 5000, 40_000])
        self.replace_after(self.random.random() * 1000)
        return True

    def replace_driver(self) -> bool:
        """Two drivers at once, until the older one hears of it."""
        if not self.may_replace:
            return False
        self.replace_after(0)
        return True

    def long_outage(self) -> bool:
        """Longer than compaction waits: what it takes then, repair cannot save any more."""
        driver = self.world.drivers[-1]
        if not driver.is_alive or not self.may_replace:
            return False
        driver.crash()
        lag_ms = self.world.options.retention.compaction_lag_ms
        if self.random.random() < 0.15:
            self.stranger()
            self.world.after(lag_ms + 100, self.world.compact)
            self.world.after(lag_ms + 200, self.wipe_one)
        self.replace_after(lag_ms * self.random.choice([1.1, 1.5, 2.5]))
        return True

    def longer_outage(self) -> bool:
        """Long enough for a foreign tombstone to take a row along and to leave itself; perhaps
        after a while without events, so that all there was had been called clean."""
        driver = self.world.drivers[-1]
        if not driver.is_alive or not self.may_replace:
            return False
        if self.random.random() < 0.5:
            self._vanish(driver)
        else:
            quiet_ms = self.world.options.repair_after_ms + 3000
            self.world.quiet_until_ms = self.world.now_ms + quiet_ms + 1000
            self.world.after(quiet_ms, lambda: self._vanish(driver))
        return True

    def _vanish(self, driver: SimDriver) -> None:
        if self.is_active and driver.is_alive and self.may_replace:
            away_ms = self._away_for_long(driver, self.wipe_one)
            self.replace_after(away_ms + self.random.random() * 3000)

    def _away_for_long(self, driver: SimDriver, wipe_one: Callable[[], object]) -> int:
        """Milliseconds until all that was done."""
        retention = self.world.options.retention
        driver.crash()
        self.delete_as_a_stranger(self.random.randrange(self.world.options.keys))
        gone_ms = retention.compaction_lag_ms + 100 + retention.tombstones_ms
        for late_ms in (retention.compaction_lag_ms + 100, gone_ms + 100):
            self.world.after(late_ms, self.world.compact)
        for late_ms in (200, 700, 1200):  # some of them restore, others copy a peer
            self.world.after(gone_ms + late_ms, wipe_one)
        return gone_ms + 1300

    def end_an_idle_world(self) -> int:
        """All batches are committed, and called clean. Milliseconds until all that was done."""
        if self.random.random() < 0.5:
            return self._end_with_a_touch()
        calm_ms, retention = 20_000, self.world.options.retention
        self.world.after(calm_ms, self._end_with_an_outage)
        return calm_ms + retention.compaction_lag_ms + retention.tombstones_ms + 6000

    def _end_with_an_outage(self) -> None:
        away_ms = self._away_for_long(self.world.drivers[-1], self.wipe)
        self.world.after(away_ms, self.world.new_driver)

    def _end_with_a_touch(self) -> int:
        """Nothing more for some time, or as long as tombstones stay; then, perhaps, a deletion of
        nothing by a stranger, and a replica that is made from a topic that was compacted right
        after it, or once the tombstone may leave."""
        gone_ms = self.world.options.retention.tombstones_ms + 1000
        missing = self.world.options.keys
        deleted_ms = self.random.choice([20_000, gone_ms])
        compacted_ms = deleted_ms + self.random.choice([1000, gone_ms])
        if self.random.random() < 0.7:  # else nothing makes the pipeline write once more
            self.world.after(deleted_ms, lambda: self.delete_as_a_stranger(missing))
        self.world.after(compacted_ms, self.world.compact)
        self.world.after(compacted_ms + 100, self.wipe)
        return compacted_ms + 4000

    def delete_as_a_stranger(self, key: int) -> None:
        self.world.write([(f"k{key}".encode(), None)], None)

    def wipe_one(self) -> None:
        if self.is_active and self.wipe():
            self.world.counts["disks lost"] += 1

    def crash_tailer(self) -> bool:
        tailer = self.random.choice(self.world.tailers)
        tailer.crash()
        self.world.after(self.random.random() * 2000, tailer.start)
        return True

    def pause_tailer(self) -> bool:
        """Perhaps with targets that it knows and has not reached: the table was away before."""
        tailer = self.random.choice(self.world.tailers)
        pause_ms = self.random.choice([500, 12_000, 40_000, 130_000])
        behind_ms = self.random.choice([0, 3000])
        tailer.table_away_until_ms = self.world.now_ms + behind_ms
        self.world.after(behind_ms, lambda: self._pause(tailer, pause_ms))
        if self.random.random() < 0.5:  # repaired, and its targets pruned, when it goes on
            for late_ms in (500, 1000, 2000):
                self.world.after(behind_ms + late_ms, self._late_stranger)
        if self.random.random() < 0.3:
            self.world.after(behind_ms + pause_ms * 0.6, self.world.compact)
            self.world.after(behind_ms + pause_ms * 0.9, self.world.compact)
        return True

    def _pause(self, tailer: SimTailer, pause_ms: int) -> None:
        if self.is_active:
            tailer.paused_until_ms = self.world.now_ms + pause_ms

    def tailer_away(self) -> bool:
        """Perhaps longer than topics keep tombstones and progress records."""
        tailer = self.random.choice(self.world.tailers)
        tailer.crash()
        away_ms = self.random.choice([10_000, 50_000, 130_000])
        if self.random.random() < 0.3:
            self.world.after(away_ms * 0.1, self._late_stranger)
            self.world.after(away_ms * 0.6, self.world.compact)
            self.world.after(away_ms * 0.9, self.world.compact)
        early_ms = self.random.choice([0, 3000, 20_000])
        if 0 < early_ms < away_ms:  # repaired, or almost, perhaps its targets are pruned by then
            for later_ms in (0, 500, 1000):
                self.world.after(away_ms - early_ms + later_ms, self._late_stranger)
            self.world.after(away_ms - 1, self.world.compact)
        self.world.after(away_ms, tailer.start)
        return True

    def wipe(self) -> bool:
        tailer = self.random.choice(self.world.tailers)
        others = [t for t in self.world.tailers if t.partition == tailer.partition]
        if not any(t.is_whole for t in others if t is not tailer):
            return False  # the last copy: its rows may be nowhere else
        tailer.crash()
        tailer.wipe()
        start_ms = self.random.random() * 1000
        self.world.after(start_ms, tailer.start)
        if self.random.random() < 0.5:
            self.world.after(start_ms + self.random.random() * 1500, lambda: self._tear(tailer))
        return True

    def _tear(self, tailer: SimTailer) -> None:
        """Killed while its store is made anew, and away while others of its rows are compacted."""
        if not self.is_active or not tailer.is_up or tailer.is_whole:
            return
        self.world.counts["stores torn"] += 1
        tailer.crash()
        away_ms = self.random.choice([1000, 20_000, 50_000])
        if self.random.random() < 0.5:
            self.world.after(away_ms * 0.2, self._late_stranger)
            self.world.after(away_ms * 0.9, self.world.compact)
        self.world.after(away_ms, tailer.start)

    def compact(self) -> bool:
        self.world.compact(self.random)
        return True

    def _late_stranger(self) -> None:
        if self.is_active:
            self.stranger()

    def stranger(self) -> bool:
        """Records that no batch has written, under some name that may sound right."""
        epochs = self.random.randint(1, self.world.lease_epoch)
        newest = self.world.oracle.newest
        batch = BatchId(self.random.randint(0, newest.commit.batch if newest else 0))
        by = Commit(
            lease_epoch=LeaseEpoch(epochs), batch=batch, attempt=self.random.getrandbits(64)
        )
        value = b'{"N":%d}' % -self.random.randint(1, 10**9)
        name = f"k{self.random.randrange(self.world.options.keys + 1)}"
        keys = self.world.keys
        key = keys.raw(keys.name_at(name, self.world.now_ms, self.random))
        headers = self.random.choice([by, by, None])
        self.world.write([(key, self.random.choice([value, value, None]))], headers)
        return True
