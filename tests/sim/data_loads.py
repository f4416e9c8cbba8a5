"""A table that applications write: one serves a stream, and others load rows between its batches.

Each of them has a lease of its own, and is killed, stopped and replaced as drivers are
(`data_nemesis`). A load has no checkpoint: it adds its rows to the newest batch, and its program
ends (`spark/load.py`). The stream may be of a topic that is not there yet, so that its first batch
covers nothing. What was loaded must stay until a newer batch has a row of that key.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec import structs

from standpipe.data.commit import takeover
from standpipe.model import BatchId, Commit, Progress

from .data_life import Life
from .data_pipeline import SimDriver, source_end
from .data_world import DataWorld

if TYPE_CHECKING:
    from collections.abc import Mapping

#: of new writers, how many are loads
LOADS = 0.4
#: of loads, how many are paused before they commit
PAUSES = 0.2
#: of batches, after how many their program is killed
KILLS = 0.02
Rows = dict[bytes, bytes | None]


class SimLoad(SimDriver):
    """A program that loads rows once. Whatever became of it, another one gets the lease."""

    world: LoadedWorld

    def batches(self) -> Life:
        world = self.world
        stand = yield from self.take_over()
        self.janitor.stand_at(stand)
        newest = stand.newest
        commit = self.commit_of(self.batch_after(newest), world.attempt())
        rows = world.rows_to_load(commit)
        self.check_lease()
        self.check_topic(self.topic_id)
        world.note("load", self.name, f"{commit.batch} attempt {commit.attempt}")
        yield from self._write_rows(list(rows.items()), commit)
        world.pause(self)
        yield self.random.random() * 20
        sinks = self.ends_after(len(rows))
        yield self.random.random() * 20
        self.check_lease()
        yield from self.append(self._added_to(newest, commit), sinks)
        yield self.random.random() * 20
        self._check_counted(commit)
        yield from self._sweep_for_a_while()

    def batch_after(self, newest: Progress | None) -> int:
        """The number of its batch."""
        return 0 if newest is None else newest.commit.batch

    def _added_to(self, newest: Progress | None, commit: Commit) -> Progress:
        """The record of a load: with the sources of the newest batch."""
        is_first = takeover.streamed(newest) is None
        self.world.counts["loads before any batch"] += is_first
        of_batch = self._covering(commit, 0) if newest is None else newest
        return structs.replace(of_batch, commit=commit, is_load=True, is_first=is_first)

    def _check_counted(self, commit: Commit) -> None:
        """What it would tell its user."""
        world, written = self.world, self.newest
        assert written is not None
        counted = takeover.has_counted(world.read_progress(world.progress.end), written)
        world.counts["loads that were fenced before they committed"] += counted is False
        is_seen = commit.attempt in world.loaded
        world.never(counted is not None and counted != is_seen, f"{commit} counted: {counted}")

    def _sweep_for_a_while(self) -> Life:
        self.janitor.begin()
        yield self.random.choice([1, 100, 5000])

    def _is_last(self, commit: Commit) -> bool:
        return False  # it has no checkpoint that says so

    def query_ends(self, ended: Exception) -> None:
        """It is over, or has failed: then some repair what they have left behind."""
        world, is_done = self.world, isinstance(ended, StopIteration)
        world.note("load ends", self.name, str(ended))
        world.counts["loads" if is_done else "loads that failed"] += 1
        if not is_done and self.is_alive and self.newest and self.random.random() < 0.5:
            self.janitor.begin()
        world.after(self.random.random() * 1000, self._give_back)

    def _give_back(self) -> None:
        if self.world.drivers[-1] is self:
            self.is_alive = False
            self.world.new_driver()


class LoadedWorld(DataWorld):
    """`DataWorld` of a seed, whose table is written by applications."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        #: of its own: what other machines draw does not change with it
        self.draw = random.Random(seed * 41 + 13)
        #: when the topic of the stream is made: before that, its first batch covers nothing
        self.topic_made_ms = self.now_ms + self.draw.choice([0, 5000, 30_000])
        #: attempt -> what the load with it writes; attempts of which readers see the rows
        self.loads: dict[int, Rows] = {}
        self.loaded: set[int] = set()
        #: what the commits so far must have made of the table
        self._right: dict[bytes, int] = {}
        self._batch, self._end = BatchId(-1), 0

    def new_driver(self) -> None:
        is_load = not self.is_healed and self.draw.random() < LOADS
        self.give_lease(SimLoad if is_load else SimDriver)

    def next_end(self, batch: int, start: int) -> int | None:
        if self.now_ms < self.topic_made_ms and not self.is_healed:
            return 0 if batch == 0 else None
        return super().next_end(batch, start)

    def pause(self, load: SimLoad) -> None:
        """At times, until another program has taken over: what it commits then is void."""
        nemesis = self.nemesis
        if nemesis.is_active and nemesis.may_replace and self.draw.random() < PAUSES:
            load.paused_until_ms = self.now_ms + self.draw.choice([500, 5000])
            nemesis.replace_after(self.draw.random() * 400)
            self.counts["loads paused before they commit"] += 1

    def attempt(self) -> int:
        return self.draw.getrandbits(64)

    def rows_to_load(self, commit: Commit) -> Rows:
        """Of keys that the stream has, too, and of others; some are deleted."""
        names = [f"k{number}" for number in range(self.options.keys)]
        names += ["rare0", "loaded0", "loaded1"]
        rows: Rows = {}
        for name in self.draw.sample(names, self.draw.randint(1, len(names))):
            value = b'{"N":%d000}' % self.draw.randint(1, 10**6)
            rows[self.keys.raw(name)] = None if self.draw.random() < 0.2 else value
        self.loads[commit.attempt] = rows
        return rows

    def committed(self, progress: Progress) -> None:
        attempt, end = progress.commit.attempt, source_end(progress)
        if attempt in self.loads:
            self.loaded.add(attempt)
            self._take({key: _number(value) for key, value in self.loads[attempt].items()})
        elif progress.commit.batch > self._batch and not progress.is_load:
            names = dict.fromkeys(name for name, _ in self.events[self._end : end])
            self._take({self.keys.raw(name): self.sum_of(name, end) for name in names})
            self._batch, self._end = progress.commit.batch, end
        # else it is a replay or a repair, and the table stays as it is
        super().committed(progress)
        self._kill_at_times(progress)

    def _kill_at_times(self, progress: Progress) -> None:
        """The writer of a batch, before Spark has noted it: it is replayed, after loads perhaps."""
        nemesis, driver = self.nemesis, self.drivers[-1]
        is_its = driver.lease_epoch == progress.commit.lease_epoch and not progress.is_load
        if is_its and nemesis.is_active and nemesis.may_replace and self.draw.random() < KILLS:
            driver.crash()
            nemesis.replace_after(self.draw.random() * 500)
            self.counts["programs killed before Spark noted a batch"] += 1

    def _take(self, rows: Mapping[bytes, int | None]) -> None:
        for raw, number in rows.items():
            key = self.keys.stored(raw)
            self._right.pop(key, None)
            if number is not None:
                self._right[key] = number

    def right_rows(self, end: int, watermark_ms: int) -> dict[bytes, int]:
        return dict(self._right)

    def _why_not(self) -> str:
        return "a load is not over" if isinstance(self.drivers[-1], SimLoad) else super()._why_not()


def _number(value: bytes | None) -> int | None:
    return None if value is None else int(value[5:-1]) // 1000
