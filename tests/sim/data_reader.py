"""A query that reads what the pipeline writes, as a stream: Spark's two logs, crashes, replays.

It keeps the topic as it was written (a stream is not compacted, and neither are its progress
records), reads progress at its own pace, and must see each committed record once and no other.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.seal import ProgressReader

from .invariants import Violation

if TYPE_CHECKING:
    from .data_world import DataWorld

Places = list[tuple[int, int]]


class SimReader:
    def __init__(self, world: DataWorld) -> None:
        self.world = world
        #: of its own: what other machines draw does not change with it
        self.random = random.Random(world.seed * 31 + 7)
        self.offsets: list[dict[int, int]] = []  # Spark's offset log: where each batch ends
        self.commits = 0  # batches that are in Spark's commit log
        #: batch -> what it saw when it ran first
        self.seen: dict[int, Places] = {}
        self._restart()

    def _restart(self) -> None:
        self.committed = Committed(self.world.query_id)
        self._records, self._progress_at = ProgressReader(self.world.seal), 0

    def plan(self) -> None:
        self.world.after(self.random.random() * 400, self._step)

    def _step(self) -> None:
        if self.world.recreation.is_over:
            return  # its query has ended: a source of it is another topic
        self._follow_progress()
        self._run_batch()
        if not self.world.is_healed and self.random.random() < 0.02:
            self.world.counts["readers crashed"] += 1
            self._restart()
        self.plan()

    def _follow_progress(self) -> None:
        history = self.world.progress.history
        end = self._progress_at + self.random.choice([0, 1, 10, 1000])
        for record in history[self._progress_at : end]:
            if record.value is not None:
                progress = self._records.read(record.key, record.value, record.headers)
                if progress is not None:
                    self.committed.take(progress)
        self._progress_at = min(end, len(history))

    def _run_batch(self) -> None:
        starts = self.offsets[self.commits - 1] if self.commits else self._nothing()
        if len(self.offsets) == self.commits:
            ends = self.committed.next_ends(starts, self.random.randint(1, 60))
            if ends == starts:
                return
            self.offsets.append(ends)
        ends = self.offsets[self.commits]
        if any(self.committed.end(p) < end for p, end in ends.items() if end):
            return  # after a crash: the topic of progress is not read that far yet
        found = self._rows(starts, ends)
        self.world.counts["batches of a derived query"] += 1
        self._check(self.commits, found, ends)
        if self.random.random() < 0.05:
            self.world.counts["batches of a derived query replayed"] += 1
            self._restart()  # before Spark noted the batch
            return
        self.commits += 1
        self.committed.forget(ends)

    def _nothing(self) -> dict[int, int]:
        return dict.fromkeys(range(self.world.partitions), 0)

    def _rows(self, starts: dict[int, int], ends: dict[int, int]) -> Places:
        return [
            (p, record.offset)
            for p, end in ends.items()
            for record in self.world.tables[p].history[starts[p] : end]
            if self.committed.shows(p, record.offset, record.headers or ())
        ]

    def _check(self, batch: int, found: Places, ends: dict[int, int]) -> None:
        """A batch and its replays see the same; together they see what was committed."""
        first = self.seen.setdefault(batch, found)
        if found != first:
            raise Violation(f"ReplaysSeeTheSame: batch {batch} saw {first}, and then {found}")
        every = [place for places in self.seen.values() for place in places]
        for p, end in ends.items():
            saw = [offset for partition, offset in every if partition == p]
            right = [offset for offset in self.world.oracle.visible[p] if offset < end]
            if saw != right:
                wrong = sorted(set(saw) ^ set(right))
                raise Violation(f"DerivedQueriesReadOnce: partition {p} up to {end}: {wrong}")
