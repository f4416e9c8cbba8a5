"""Programs with some of four tables begin, are killed, paused and come back, in an order that a
seed draws: each table has every event from its first batch on, and none twice.

Spark's part is played on real files: its two logs, of which it keeps the newest entries.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from tests.examples import examples
from tests.unit.spark.test_together import World

from standpipe.data.commit.takeover import (
    is_in_place,
    is_planned_otherwise,
    standing,
    streamed,
    takes_part,
)
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.run.start.query_run import TakenOver
from standpipe.spark.errors import ServeEnded

STEPS = 400
KEPT = 4
NEWEST = LeaseEpoch(10**9)


class First(NamedTuple):
    """The first batch that a table must have, and which of those beside it had batches then."""

    batch: int
    beside: frozenset[str]


class History:
    """Programs, what they have committed, and what must hold of it."""

    def __init__(self, seed: int, checkpoints: Path) -> None:
        self.random = random.Random(seed)
        self.world = World(checkpoints)
        self.counts = Counter[str]()
        self.names = ["A", "B", "C", "D"][: self.random.choice([2, 3, 4])]
        #: a program may have fewer tables than the one before
        self.changes = self.random.choice([0.0, 0.2, 0.5])
        self.end = 0  # of the source
        self.runs: list[Run] = []
        self.first: dict[str, First] = {}
        #: {table: its newest batch, and between which offsets of the source it is}
        self.has: dict[str, tuple[int, int, int]] = {}

    def run(self) -> None:
        for _ in range(STEPS):
            self.end += self.random.choice([0, 1, 3])
            act = self.random.random()
            if not self.runs or act < 0.04:
                self.begin()
            elif act < 0.05:
                self.load()
            elif act < 0.06:
                self.drop([self.random.choice(self.names)])
            elif act < 0.08:
                self.runs.remove(self.random.choice(self.runs))
            else:
                run = self.random.choice([self.runs[-1], self.random.choice(self.runs)])
                if run.goes_on() != "":
                    self.runs.remove(run)

    def begin(self) -> None:
        """A program takes over. Those before are killed, or paused and go on later."""
        if self.random.random() < 0.6:
            self.runs.clear()
        some = [each for each in self.names if self.random.random() >= self.changes]
        names = some or [self.random.choice(self.names)]
        for last in (False, False, True):  # what a message says may not be all there is to do
            failed = self.start(names)
            if failed is None:
                return
            assert not last, failed
            self.counts[failed.reason] += 1
            if failed.reason == "CHECKPOINT_MISMATCH":
                return
            gone = re.findall(r"DROP TABLE (\w+);", str(failed))
            assert gone, failed
            assert set(gone) <= {*names}, failed
            names = [*(each for each in names if each not in gone), *self.drop(gone)]

    def start(self, names: list[str]) -> ServeEnded | QueryFailed | None:
        """Why it has failed; None: it runs. With new tables alone it would begin a history of its
        own, although others have theirs there: that is left out."""
        if self.has.keys() & {*self.names} and not (self.has.keys() | self.first.keys()) & {*names}:
            return None
        try:
            members, taken, checkpoint = self.world.resume(*sorted(names))
        except (ServeEnded, QueryFailed) as error:
            return error
        self.runs.append(Run(self, taken, checkpoint))
        for each in {*self.first} - {*names} - {*self.has}:
            del self.first[each]
        # what comes after a table was added is in it, as long as it is served beside the same ones
        newest = {each.wanted.query_id: streamed(each.newest) for each in taken}
        beside = {each for each, batch in newest.items() if batch is not None}
        ahead = max((each.commit.batch for each in newest.values() if each), default=-1)
        for each in members:
            before = self.first.get(each.query_id)
            if before is None or (before.beside and not before.beside & beside):
                first = max(ahead + 1, self.runs[-1].batch)
                self.first[each.query_id] = First(first, frozenset(beside))
            self.runs[-1].first[each.query_id] = self.first[each.query_id].batch
        self.counts["programs"] += 1
        return None

    def drop(self, names: list[str]) -> list[str]:
        """Drops these tables, and declares them again. Returns their new names."""
        self.world.gone |= {*names}
        again = [f"{each}x" for each in names]
        self.names = [*(each for each in self.names if each not in names), *again]
        return again

    def load(self) -> None:
        """Into a table that no program serves that knows of it."""
        name = self.random.choice(self.names)
        self.world.epoch += 1
        epoch, log = LeaseEpoch(self.world.epoch), self.world.log
        fence = log.fence(name, epoch)
        newest = standing(log.records_until(fence), name, epoch).newest
        batch = newest.commit.batch if newest else BatchId(0)
        log.records.append(
            Progress(
                query_id=name,
                commit=Commit(lease_epoch=epoch, batch=batch, attempt=self.random.getrandbits(32)),
                sources=newest.sources if newest else {},
                sinks=newest.sinks if newest else {0: 0},
                topic_id="id of T",
                is_load=True,
                is_first=streamed(newest) is None,
            )
        )
        self.counts["loads"] += 1

    def commit(self, record: Progress, start: int, end: int, first: int) -> None:
        """Step 4 of a batch. `start`, `end`: what it has of the source; `first`: the first batch of
        the table, as its writer knows."""
        name, batch = record.query_id, record.commit.batch
        before = standing(self.world.log.records, name, NEWEST).newest
        self.world.log.records.append(record)
        after = standing(self.world.log.records, name, NEWEST).newest
        if after is None or after.commit != record.commit:
            self.counts["void"] += 1
            return
        self.counts["batches"] += 1
        assert end == record.sources["s"][0]
        if name not in self.has:
            assert batch <= first, "events are missing before its first one"
        elif batch == self.has[name][0]:
            assert (start, end) == self.has[name][1:], "a replay covers something else"
            assert before is None or not before.is_load, "it replaces rows of a load"
            self.counts["replays"] += 1
        else:
            assert (batch, start) == (self.has[name][0] + 1, self.has[name][2]), "events are lost"
        self.has[name] = (batch, start, end)


class Run:
    """A program that has taken its tables over."""

    def __init__(self, of: History, taken: list[TakenOver], checkpoint: Checkpoint) -> None:
        self.history, self.checkpoint = of, checkpoint
        self.newest = {each.wanted.query_id: each.newest for each in taken}
        self.members = [each.wanted for each in taken]
        self.first: dict[str, int] = {}
        self.directory = cast(Path, checkpoint.directory)
        for log in ("offsets", "commits"):
            (self.directory / log).mkdir(exist_ok=True)
        self.life = self._life()

    def goes_on(self) -> str:
        """A step. Anything but "": it has ended. Who takes over removes what is older than the
        directory that it has copied; then a zombie cannot go on."""
        try:
            return next(self.life, "over")
        except (FileNotFoundError, QueryFailed):
            assert not self.directory.exists()
            self.history.counts["zombies without a directory"] += 1
            return "over"

    @property
    def batch(self) -> int:
        return max(self._batches("commits"), default=-1) + 1

    def _batches(self, log: str) -> list[int]:
        return [int(each.name) for each in (self.directory / log).iterdir()]

    def _covers(self, batch: int) -> int:
        return self.checkpoint.offsets(batch).ends["s"][0] if batch >= 0 else 0

    def _life(self) -> Iterator[str]:
        """ "": it goes on; else it has ended."""
        while True:
            batch = self.batch
            newest = max(self._batches("offsets"), default=-1)
            assert newest in (batch, batch - 1), "Spark would skip batches"
            if newest < batch:
                end = self.history.random.randint(self._covers(batch - 1), self.history.end)
                text = f'v1\n{{"batchTimestampMs":1}}\n{json.dumps({"s": {"0": end}})}'
                (self.directory / "offsets" / str(batch)).write_text(text)
            yield ""
            start, end = self._covers(batch - 1), self._covers(batch)
            yield from self._commits(batch, start, end)
            (self.directory / "commits" / str(batch)).write_text("v1")
            for log in ("offsets", "commits"):
                for old in self._batches(log):
                    if old <= batch - KEPT:
                        (self.directory / log / str(old)).unlink()
            yield ""

    def _commits(self, batch: int, start: int, end: int) -> Iterator[str]:
        """As `CommitBatch` decides it."""
        known, ends = self.newest, {"s": {0: end}}
        members = [each for each in self.members if takes_part(known[each.query_id], batch)]
        if any(is_planned_otherwise(known[each.query_id], batch, ends) for each in members):
            self.checkpoint.put_back(batch)
            self.history.counts["planned otherwise"] += 1
            yield "over"
        left = [
            each
            for each in members
            if not is_in_place(known[each.query_id], batch, is_stream=False)
        ]
        attempt = self.history.random.getrandbits(32)
        for each in left:
            yield ""
            record = Progress(
                query_id=each.query_id,
                commit=Commit(lease_epoch=each.lease_epoch, batch=BatchId(batch), attempt=attempt),
                sources={"s": {0: end}},
                sinks={0: attempt},
                topic_id="id of T",
            )
            self.history.commit(record, start, end, self.first[each.query_id])
            self.newest[each.query_id] = record


@pytest.mark.parametrize("seed", range(examples(20)))
def test_each_table_has_every_event_once(seed: int, tmp_path: Path) -> None:
    history = History(seed, tmp_path)
    history.run()
    assert history.counts["batches"]
