"""The apply machine against its dull twin: a fold over the committed batches, one after another.

A world writes batches as pipelines do, with stragglers, failed attempts, zombies whose progress
comes too late, and replays; compaction may take what was superseded. The machine gets it in random
pieces and is killed between any two orders.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.data.rows import CODEC, DictStore, commit, in_columns, key_of, record

from standpipe.data.commit.progress import ProgressBook, fence
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    Fetched,
    ProgressCaughtUp,
    RecordsFetched,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.model import NO_BATCH, Commit, LeaseEpoch, Offset, Progress, ReplicaState

KEYS = "abcde"


@dataclass
class World:
    """One partition of a table topic, and its progress topic."""

    seed: int
    with_foreign: bool
    log: list[Fetched] = field(default_factory=list[Fetched])
    progress: list[Progress] = field(default_factory=list[Progress])
    #: after each valid progress record: (position, lease epoch, batch) and the rows of the fold
    folds: list[tuple[tuple[int, int, int], dict[bytes, bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.lease_epoch, self.batch = 1, 0
        self.rows: dict[bytes, bytes] = {}
        self.old: list[Commit] = []

    def write(self, by: Commit, *, visible: bool) -> None:
        for _ in range(self.random.randrange(4)):
            key, number = self.random.choice(KEYS), self.random.choice([None, 1, 2, 3])
            self.log.append(record(len(self.log), key, number, by))
            if visible and number is None:
                self.rows.pop(key_of(key), None)
            elif visible:
                self.rows[key_of(key)] = b"[%d]" % number

    def append_progress(self, by: Commit, *, valid: bool) -> None:
        end = Offset(len(self.log))
        self.progress.append(Progress(query_id="Q", commit=by, sinks={0: end}))
        if valid:
            self.folds.append(((end, by.lease_epoch, by.batch), dict(self.rows)))

    def step(self) -> None:
        by = commit(self.lease_epoch, self.batch, self.random.getrandbits(64))
        if self.with_foreign and self.random.random() < 0.3:  # an attempt that failed
            self.write(commit(self.lease_epoch, self.batch, 1), visible=False)
        rows = self.random.getstate()
        self.write(by, visible=True)
        if self.with_foreign and self.old and self.random.random() < 0.4:  # a straggler
            self.write(self.random.choice(self.old), visible=False)
        self.append_progress(by, valid=True)
        self.old.append(by)
        self.batch += 1
        if self.random.random() < 0.3:
            self.take_over(replay=rows)

    def take_over(self, replay: object) -> None:
        """A new driver: its fence, perhaps the last batch once more, and a zombie's late record."""
        zombie = commit(self.lease_epoch, self.batch, 5)
        self.lease_epoch += 1
        self.progress.append(fence("Q", LeaseEpoch(self.lease_epoch), nonce=len(self.progress)))
        if self.with_foreign and self.random.random() < 0.5:
            self.write(zombie, visible=False)
            self.append_progress(zombie, valid=False)
        if self.random.random() < 0.5:
            self.batch -= 1

    def compacted(self) -> list[Fetched]:
        """The log without what a later record of its key supersedes, but for a fresh tail."""
        dirty = self.random.randrange(len(self.log) + 1)
        last = {entry[1]: entry[0] for entry in self.log[:dirty]}
        return [e for e in self.log if e[0] >= dirty or last[e[1]] == e[0]]


class Driver:
    """Feeds a machine in random pieces and kills it between any two orders."""

    def __init__(self, world: World, log: list[Fetched], chance: random.Random) -> None:
        self.world, self.log, self.random = world, log, chance
        self.store = DictStore()
        self.start()

    def start(self) -> None:
        self.machine = ApplyMachine(CODEC, self.store.meta)
        self.book = ProgressBook()
        self.read, self.offset = 0, self.store.meta.position

    def feed_progress(self, count: int) -> bool:
        for record_ in self.world.progress[self.read : self.read + count]:
            for valid in self.book.take(record_):
                if not self.handle(valid.target):
                    return False
        self.read = min(self.read + count, len(self.world.progress))
        return True

    def feed_records(self, count: int) -> bool:
        ahead = [entry for entry in self.log if entry[0] >= self.offset][:count]
        if not ahead:
            end = Offset(len(self.world.log))
            self.offset = end
            return self.handle(EndReached(end))
        self.offset = Offset(ahead[-1][0] + 1)
        return self.handle(RecordsFetched(in_columns(ahead), self.offset))

    def handle(self, event: object) -> bool:
        """False: killed before an order was carried out, and started again."""
        for order in self.machine.handle(event):  # type: ignore[arg-type]
            if self.random.random() < 0.1:
                self.start()
                return False
            if isinstance(order, ApplyBatch):
                before = self.store.meta
                self.store.apply(order)
                assert self.store.meta.position >= before.position
                self.check()
        return True

    def check(self) -> None:
        meta = self.store.meta
        assert meta.position <= self.book.committed_end("Q", 0), "never beyond the newest target"
        if meta.batch != NO_BATCH:
            label = (meta.position, meta.lease_epoch, meta.batch)
            folds = [rows for at, rows in self.world.folds if at == label]
            assert folds, f"{label} is no boundary of a batch"
            assert self.store.numbers() in folds, label

    def finish(self) -> None:
        while not (
            self.feed_progress(1000) and self.handle(ProgressCaughtUp()) and self.feed_records(1000)
            and self.feed_records(1000)
        ):  # fmt: skip
            pass


def build(seed: int, steps: int, *, with_foreign: bool) -> World:
    world = World(seed, with_foreign)
    for _ in range(steps):
        world.step()
    return world


def assert_whole(driver: Driver) -> None:
    _, rows = driver.world.folds[-1]
    assert driver.store.numbers() == rows
    assert driver.machine.state is ReplicaState.RUNNING
    assert driver.machine.is_caught_up


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 12))
def test_rows_are_the_fold_of_the_committed_batches(seed: int, steps: int) -> None:
    world = build(seed, steps, with_foreign=True)
    driver = Driver(world, world.log, random.Random(seed + 1))
    for _ in range(driver.random.randrange(30)):
        feed = driver.random.choice([driver.feed_progress, driver.feed_records])
        feed(driver.random.randrange(1, 5))
    driver.finish()
    assert_whole(driver)


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 12))
def test_a_compacted_topic_gives_the_same_rows(seed: int, steps: int) -> None:
    """Progress is known first, as the tailer does it; labels that are given must still be true."""
    world = build(seed, steps, with_foreign=False)
    driver = Driver(world, world.compacted(), random.Random(seed + 1))
    for _ in range(driver.random.randrange(20)):
        if driver.feed_progress(1000) and driver.handle(ProgressCaughtUp()):
            driver.feed_records(driver.random.randrange(1, 5))
    driver.finish()
    assert_whole(driver)


@pytest.mark.parametrize("seed", range(20))
def test_the_world_has_what_it_is_for(seed: int) -> None:
    """A twin that never meets a zombie proves nothing: over 20 seeds all kinds occur."""
    worlds = [build(20 * seed + n, 12, with_foreign=True) for n in range(20)]
    assert any(len(world.progress) > len(world.folds) for world in worlds)
    assert any(world.lease_epoch > 2 for world in worlds)
    assert any(len(world.compacted()) < len(world.log) for world in worlds)
