"""Loads between the batches of a program that dies anywhere: no row is lost, none comes back.

Programs and loads take the table over one after the other, with the real decisions of the commit
protocol; Spark's two logs are played here. A table's rows must be those of its commits, in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

import pytest
from tests.examples import examples
from tests.unit.data.rows import commit

from standpipe.data.commit import takeover
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.progress import fence
from standpipe.data.commit.takeover import Logs
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Commit, LeaseEpoch, Progress

KEYS: Final = "abcd"
#: where a program may die, in the order of a batch
DEATHS: Final = ("offsets logged", "half-written", "written", "committed", "commit logged")


@dataclass
class SparkLogs:
    offsets: dict[int, int] = field(default_factory=dict[int, int])
    commits: set[int] = field(default_factory=set[int])

    def logs(self) -> Logs:
        covers = {batch: covered(end) for batch, end in self.offsets.items()}
        return Logs(frozenset(self.commits), covers)


def covered(end: int) -> dict[str, dict[int, int]]:
    """What a batch covers. The topic is made with its first event, so a batch may have none."""
    return {"s": {0: end}} if end else {}


@dataclass
class World:
    random: random.Random
    progress: list[Progress] = field(default_factory=list[Progress])
    topic: list[tuple[str, str, Commit]] = field(default_factory=list[tuple[str, str, Commit]])
    checkpoints: dict[LeaseEpoch, SparkLogs] = field(default_factory=dict[LeaseEpoch, SparkLogs])
    events: list[str] = field(default_factory=list[str])
    epoch: int = 0
    #: what readers must see
    rows: dict[str, str] = field(default_factory=dict[str, str])
    batches: set[int] = field(default_factory=set[int])

    def take_over(self) -> Progress | None:
        self.epoch += 1
        self.progress.append(fence("Q", LeaseEpoch(self.epoch), nonce=self.epoch))
        return takeover.standing(self.progress, "Q", LeaseEpoch(self.epoch)).newest

    def write(self, rows: dict[str, str], by: Commit) -> None:
        self.topic += [(key, value, by) for key, value in rows.items()]

    def commit(
        self, by: Commit, sources: dict[str, dict[int, int]], *, is_first: bool | None = None
    ) -> None:
        """`is_first`: of a load; None: it is a batch."""
        ends = {0: len(self.topic)}
        self.progress.append(
            Progress(
                query_id="Q",
                commit=by,
                sources=sources,
                sinks=ends,
                is_load=is_first is not None,
                is_first=is_first,
            )
        )

    def by(self, batch: int) -> Commit:
        return commit(self.epoch, batch, attempt=self.random.getrandbits(32))

    def load(self, *, dies: bool) -> None:
        newest = self.take_over()
        by = self.by(0 if newest is None else newest.commit.batch)
        rows = dict.fromkeys(self.random.sample(KEYS, 2), f"load {self.epoch}")
        self.write(rows, by)
        if not dies:
            is_first = takeover.streamed(newest) is None
            self.commit(by, {} if newest is None else newest.sources, is_first=is_first)
            self.rows.update(rows)

    def serve(self, death: str, batches: int) -> None:
        """Some whole batches, and one in which the program dies."""
        newest = self.take_over()
        streamed = takeover.streamed(newest)
        spark = self.inherit(streamed)
        valid = takeover.furthest_behind([streamed])
        gone = takeover.surplus(spark.commits, spark.offsets, valid)
        spark.commits -= set(gone.commits)
        spark.offsets = {n: end for n, end in spark.offsets.items() if n not in gone.offsets}
        batch = takeover.next_batch(spark.commits, valid)
        for left in reversed(range(batches + 1)):
            self.events += self.random.choices(KEYS, k=self.random.choice((0, 2)))
            newest = self.batch(batch, spark, newest, death if not left else "")
            batch += 1

    def inherit(self, streamed: Progress | None) -> SparkLogs:
        found = {epoch: each.logs() for epoch, each in self.checkpoints.items()}
        heir = takeover.heir_of(found, streamed)
        assert heir is not None or streamed is None, "CHECKPOINT_LOST"
        old = SparkLogs() if heir is None else self.checkpoints[heir]
        own = SparkLogs(dict(old.offsets), set(old.commits))
        self.checkpoints[LeaseEpoch(self.epoch)] = own
        return own

    def batch(
        self, batch: int, spark: SparkLogs, newest: Progress | None, death: str
    ) -> Progress | None:
        spark.offsets.setdefault(batch, len(self.events))
        if death == "offsets logged":
            return newest
        if not takeover.is_in_place(newest, batch, is_stream=False):
            end, by = spark.offsets[batch], self.by(batch)
            start = spark.offsets.get(batch - 1, 0)
            rows = {
                key: f"{self.events[:end].count(key)} events" for key in set(self.events[start:end])
            }
            if death == "half-written":
                self.write(dict(list(rows.items())[:1]), by)
                return newest
            self.write(rows, by)
            if death == "written":
                return newest
            self.commit(by, covered(end))
            newest = self.progress[-1]
            if batch not in self.batches:  # a replay has the same rows
                self.rows.update(rows)
            self.batches.add(batch)
        else:
            assert batch in self.batches, "rows that were never committed are left out"
        if death != "committed":
            spark.commits.add(batch)
        return newest

    def shown(self) -> dict[str, str]:
        committed = Committed("Q")
        for record in self.progress:
            committed.take(record)
        return {
            key: value
            for offset, (key, value, by) in enumerate(self.topic)
            if committed.shows(0, offset, [(HEADER_COMMIT, commit_header(by))])
        }


@pytest.mark.parametrize("seed", range(examples(300)))
def test_every_commit_stays_in_its_order(seed: int) -> None:
    world = World(random.Random(seed))
    said: list[str] = []
    for _ in range(8):
        if world.random.random() < 0.5:
            dies = world.random.random() < 0.3
            said.append(f"load, dies: {dies}")
            world.load(dies=dies)
        else:
            death, batches = world.random.choice(DEATHS), world.random.randrange(3)
            said.append(f"{batches} batches, then {death}")
            world.serve(death, batches)
        assert world.shown() == world.rows, said
