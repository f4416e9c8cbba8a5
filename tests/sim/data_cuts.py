"""Tailers that live and hear nothing: from Kafka at all, or from the leader of their partition.

A process that sleeps is stopped by the nemesis; here the loop runs on, and knows less and less. One
story at a time, each about a key of its own. They draw from chance of their own, so that worlds
without cuts are what they were before there were any.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.unit.data.rows import key_of

from standpipe.data.encoding.store_keys import partition_of
from standpipe.model import ReplicaState

from .data_tailer import FETCH_MAX

if TYPE_CHECKING:
    from .data_tailer import SimTailer
    from .data_world import DataWorld

EVERY_MS = 5000
LOOK_MS, LOOKS_MAX = 20, 500
DELETES = 3  # 1 + 3: the row's sum is one that the query's HAVING drops


class DataCuts:
    def __init__(self, world: DataWorld) -> None:
        self.world = world
        self.random = random.Random(world.seed * 53 + 11)
        self.is_active = world.options.is_cut_off
        self._keys = 0

    def begin(self) -> None:
        self._plan(0)

    def end(self) -> None:
        self.is_active = False
        for tailer in self.world.tailers:
            tailer.kafka_away_until_ms = tailer.table_away_until_ms = 0
            tailer.progress_away_until_ms = 0
            tailer.fetch_max = FETCH_MAX

    def _plan(self, after_ms: float) -> None:
        self._after(after_ms + self.random.expovariate(1 / EVERY_MS), self._begin)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.world.after(delay_ms, lambda: action() if self.is_active else None)

    def _once(
        self, holds: Callable[[], bool], action: Callable[[], None], looks: int = LOOKS_MAX
    ) -> None:
        """Look for it, for ten seconds."""
        if holds():
            action()
        elif looks:
            self._after(LOOK_MS, lambda: self._once(holds, action, looks - 1))
        else:
            self._plan(0)

    def _begin(self) -> None:
        """A new row, of a key that nobody else writes to; then whatever happens to it."""
        tailer = self.random.choice(self.world.tailers)
        story = self.random.choice([self._cut_off, self._take_table_away, self._lose_the_pipeline])
        key = self._new_key(tailer.partition)
        self._once(lambda: self._has_row(tailer, key), lambda: story(tailer, key))

    def _new_key(self, partition: int) -> str:
        while True:
            self._keys += 1
            key = f"once{self._keys}"
            if partition_of(key.encode(), self.world.partitions) == partition:
                self._event(key, 1)
                return key

    def _event(self, key: str, number: int) -> None:
        self.world.events.append((key, number))

    @staticmethod
    def _has_row(tailer: SimTailer, key: str) -> bool:
        return tailer.is_up and key_of(key) in tailer.store.rows

    def _compact_within(self, away_ms: float) -> None:
        """Often enough for a tombstone to be cleaned and to go."""
        for share in (0.4, 0.65, 0.95):
            self._after(away_ms * share, self.world.compact)

    # -- away, perhaps longer than topics keep what was superseded, and tombstones of it ----------

    def _cut_off(self, tailer: SimTailer, key: str) -> None:
        away_ms = self.random.choice([5000, 40_000, 110_000])
        self._cut(tailer, away_ms)
        self._after(500, lambda: self._event(key, DELETES))
        self._plan(away_ms)

    def _cut(self, tailer: SimTailer, away_ms: float) -> None:
        self.world.note("*** cut off", tailer.name, away_ms)
        self.world.counts["tailers cut off from Kafka"] += 1
        tailer.kafka_away_until_ms = self.world.now_ms + away_ms
        tailer.progress_away_until_ms = self.world.now_ms + away_ms + self.random.choice([0, 1000])
        self._compact_within(away_ms)

    def _take_table_away(self, tailer: SimTailer, key: str) -> None:
        away_ms = 110_000
        self.world.note("*** table away", tailer.name, away_ms)
        self.world.counts["tables away for longer than tombstones"] += 1
        tailer.table_away_until_ms = self.world.now_ms + away_ms
        self._compact_within(away_ms)
        self._after(500, lambda: self._event(key, DELETES))
        self._plan(away_ms)

    # -- away between a gap and what made it ------------------------------------------------------

    def _lose_the_pipeline(self, tailer: SimTailer, key: str) -> None:
        """For so long that compaction believes a stranger; then a restore that is cut off before it
        reads the stranger's record, and a new row of that key."""
        world, driver = self.world, self.world.drivers[-1]
        if not driver.is_alive or not world.nemesis.may_replace:
            self._plan(0)
            return
        driver.crash()
        world.write([(key.encode(), self.random.choice([b'{"N":-1}', None]))], None)
        due_ms = world.options.retention.compaction_lag_ms + 100
        self._after(due_ms, world.compact)
        self._after(due_ms + 1, lambda: self._restore_slowly(tailer, key))
        world.nemesis.replace_after(due_ms + 6000)

    def _restore_slowly(self, tailer: SimTailer, key: str) -> None:
        others = (t for t in self.world.tailers if t.partition == tailer.partition)
        if not any(t.is_whole for t in others if t is not tailer):
            self._plan(0)
            return
        tailer.crash()
        tailer.wipe()
        tailer.store.is_there = True  # no peer is heard in time: it reads the changelog
        tailer.fetch_max = 1
        tailer.start()
        self._once(
            lambda: self._is_before_the_stranger(tailer),
            lambda: self._cut_in_the_middle(tailer, key),
        )

    def _is_before_the_stranger(self, tailer: SimTailer) -> bool:
        """It has applied all that is committed, and not read what nobody committed."""
        machine, log = tailer.machine, self.world.tables[tailer.partition]
        if machine is None or machine.state is not ReplicaState.BOOTSTRAP:
            return False
        return 0 < machine.meta.position == machine.committed_end and tailer.fetched < log.end

    def _cut_in_the_middle(self, tailer: SimTailer, key: str) -> None:
        self.world.counts["tailers cut off while they restored"] += 1
        tailer.fetch_max = FETCH_MAX
        # not for as long as tombstones stay, where another rule would help
        away_ms = self.world.options.retention.compaction_lag_ms * 1.6
        self._cut(tailer, away_ms)
        self._event(key, 1)
        self._plan(away_ms)
