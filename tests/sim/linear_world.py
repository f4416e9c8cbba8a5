"""Linearizable reads in simulation: barriers, pages and rows, under every interleaving.

One table of registers, its progress topic, a follower of it at each node, and replicas that apply
late, stand between two batches, write their pages later still and are replaced by older copies.
Followers restart, or read the topic again. The topic is deleted and created again, with what it
must still say, and followers notice that later. The table is replaced, and nodes learn of it one
after the other. Barriers take their time, and fail. Readers are judged by `linear_histories`.

The code under test is `data.replica.barrier`, `data.replica.applied_progress`, `may_judge`,
`node.batched` and `node.worker.pull.linearizable`. Everything is a task of one event loop, and
waits only by giving way to the others, so a seed is always the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
from tests.unit.node.workers import page

from standpipe.control.metadata.feature_levels import LINEARIZABLE_READS
from standpipe.data.commit.progress import Rank
from standpipe.data.replica.applied_progress import AppliedProgress
from standpipe.data.replica.barrier import Barrier
from standpipe.data.replica.positions import StoreIdentity, StoreMeta, may_judge
from standpipe.errors import KafkaUnavailable, NoReplica
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, ReplicaState, ReplicaStatus
from standpipe.node.worker.pull import linearizable
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.pull.linearizable import Barriers, LinearRead
from standpipe.node.worker.request.scan_requester import ScanRequester

from .linear_histories import linear_violations
from .session_histories import SessionAnswer, Writes
from .session_world import NODES, PARTITIONS, SimCommit, partition_of, range_of_keys

STEPS = 10_000
READERS = 16
#: turns that a read waits for its replica
WAIT_TURNS = 400
#: no read of a simulation ends by a clock
NEVER_MS = 10**8


@dataclass
class LinearReplica:
    """Of one partition of one generation. `known`: how many commits its follower has told it of;
    `applied`: how many its store has."""

    commits: list[SimCommit]
    partition: int
    known: int = 0
    applied: int = 0
    #: keys whose row is older than the commit, after a gap; then the rows are of no batch
    torn: dict[str, int] = field(default_factory=dict[str, int])
    progress: AppliedProgress = field(default_factory=AppliedProgress)
    page: ReplicaStatus | None = None

    def rank(self, count: int) -> Rank | None:
        if not count:
            return None
        newest = self.commits[count - 1]
        return (count, newest.epoch, newest.batch)

    def meta(self) -> StoreMeta:
        identity = StoreIdentity(table_id="T_1", generation=1, partition=self.partition)
        rank = self.rank(self.applied)
        if rank is None:
            return StoreMeta(identity=identity)
        return StoreMeta(
            identity=identity,
            position=Offset(rank[0]),
            batch=NO_BATCH if self.torn else BatchId(rank[2]),
            lease_epoch=LeaseEpoch(rank[1]),
        )

    def note(self, read_up_to: int, topic_id: str) -> None:
        shown = None if self.torn else self.rank(self.applied)
        self.progress.note(read_up_to, self.rank(self.known), shown, topic_id)

    def show(self, read_up_to: int, topic_id: str) -> None:
        """Write the page."""
        self.note(read_up_to, topic_id)
        meta = self.meta()
        state = ReplicaState.CATCHING_UP if self.torn else ReplicaState.RUNNING
        state = state if self.applied else ReplicaState.BOOTSTRAP
        self.page = msgspec.structs.replace(
            page(meta.position, self.known, state),
            batch=meta.batch,
            lease_epoch=meta.lease_epoch,
            progress_end=self.progress.end,
            progress_topic_id=self.progress.topic_id,
        )
        self.progress.told = self.progress.end


class LinearWorld:
    """One world, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts = Counter[str]()
        self.writes, self.source_end = Writes(), -1
        self.epoch, self.instant = 1, 0
        self.generations: list[list[SimCommit]] = [[]]
        #: (generation, count of its commits) of a record, None of a barrier
        self.topic: list[tuple[int, int] | None] = []
        #: how often it was created again, in Kafka, and as the follower of each node knows
        self.topic_number = 0
        self.followed: dict[str, int] = dict.fromkeys(NODES, 0)
        #: how far the follower of each node has read it
        self.read: dict[str, int] = dict.fromkeys(NODES, 0)
        #: appended and not acknowledged: (generation, what it covers)
        self.unacknowledged: list[tuple[int, int]] = []
        #: (instant, batch of the source) of what was appended, and of what was acknowledged
        self.begun: list[tuple[int, int]] = []
        self.committed: list[tuple[int, int]] = []
        #: what a generation has had acknowledged
        self.covered: dict[int, int] = {1: -1}
        #: of the metadata log; the next generation answers from its entry on
        self.log_index, self.answering, self.switches = 1, 1, dict[int, int]()
        self.is_held = False
        self.maps = {node: self._map_of(node) for node in NODES}
        self.replicas: dict[tuple[int, int, str], LinearReplica] = {}
        self._add_replicas(1)
        self.haste = {
            (number, node): self.random.choice([0.15, 0.5, 1])
            for number in range(PARTITIONS)
            for node in NODES
        }
        self.barriers = {node: Barriers(self._append, every_s=0) for node in NODES}
        self.answers: list[SessionAnswer] = []
        self.is_over = False
        self.log: list[str] = []
        #: for `runner.outcome_of`
        self.scheduler: Any = SimpleNamespace(now_us=0, events=0)

    def _map_of(self, node: str) -> Any:
        """A worker's map: it learns of the log when it is looked at, sometimes."""
        snapshot = SimpleNamespace(log_index=1, feature_level=LINEARIZABLE_READS)
        known = SimpleNamespace(view=SimpleNamespace(snapshot=snapshot))

        def refresh() -> None:
            if self.random.random() < 0.2:
                snapshot.log_index = self.log_index

        known.refresh = refresh
        return known

    def _generation_at(self, node: str) -> int:
        index = self.maps[node].view.snapshot.log_index
        return max([1, *(of for of, at in self.switches.items() if at <= index)])

    def _add_replicas(self, generation: int) -> None:
        for node in NODES:
            for number in range(PARTITIONS):
                commits = self.generations[generation - 1]
                self.replicas[generation, number, node] = LinearReplica(commits, number)

    def tick(self) -> int:
        """Every instant that counts is another one."""
        self.instant += 1
        return self.instant

    # ------------------------------------------------------------------- time goes by

    def run(self) -> None:
        """Raises AssertionError with what the judge found."""
        with patch.object(linearizable, "_LOOK_S", 0):
            asyncio.run(self._run())
        self.counts["reads answered"] += len(self.answers)
        wrong = linear_violations(self.writes, self.committed, self.answers)
        assert not wrong, f"{len(wrong)} violations, the first: {wrong[0]}"

    async def _run(self) -> None:
        acts = [
            (self._commit, 3),
            (self._acknowledge, 6),
            (self._follow, 30),
            (self._apply, 30),
            (self._show, 15),
            (self._show_awaited, 10),
            (self._takeover, 0.3),
            (self._replace, 1),
            (self._learn, 1),
            (self._restore_older, 0.5),
            (self._restart, 0.15),
            (self._create_topic_again, 0.1),
        ]
        choose = partial(self.random.choices, [a for a, _ in acts], [w for _, w in acts])
        readers = [asyncio.create_task(self._reader(f"r{number}")) for number in range(READERS)]
        for _ in range(STEPS):
            choose()[0]()
            self.scheduler.events += 1
            await asyncio.sleep(0)
            failed = next((one for one in readers if one.done()), None)
            if failed is not None:
                failed.result()
        self.is_over = True
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    def history(self) -> str:
        return "\n".join(self.log[-40:])

    async def _pause(self) -> None:
        for _ in range(self.random.choice([0, 1, 1, 3, 9, 40])):
            await asyncio.sleep(0)

    def _record(self, generation: int, commit: SimCommit) -> None:
        commits = self.generations[generation - 1]
        commits.append(commit)
        self.begun.append((self.tick(), commit.covers))
        self.topic.append((generation, len(commits)))
        self.unacknowledged.append((generation, commit.covers))

    def _written(self) -> list[int]:
        """The generations whose queries commit: not one that is held, nor one that was replaced."""
        first = self.answering + self.is_held
        return [*range(first, len(self.generations) + 1)]

    def _commit(self) -> None:
        self.source_end += 1
        self.writes.add(self.source_end, self.random.sample(range_of_keys(), 2))
        for generation in self._written():
            if self.random.random() < 0.7:
                commits = self.generations[generation - 1]
                batch = commits[-1].batch + 1 if commits else 0
                self._record(generation, SimCommit(batch, self.epoch, self.source_end))

    def _acknowledge(self) -> None:
        """From now on, what was appended counts, if its generation answers."""
        if self.unacknowledged:
            generation, covers = self.unacknowledged.pop(0)
            self.covered[generation] = covers
            if generation == self.answering:
                self.committed.append((self.tick(), covers))

    def _takeover(self) -> None:
        """The next holder of the leases replays the newest batch of each query, or goes on."""
        self.epoch += 1
        for generation in self._written():
            commits = self.generations[generation - 1]
            if commits and self.random.random() < 0.5:
                newest = commits[-1]
                self._record(generation, SimCommit(newest.batch, self.epoch, newest.covers))

    def _replace(self) -> None:
        """CREATE OR REPLACE, in steps: build, hold, switch once the next generation is as far."""
        answers = self.answering
        if len(self.generations) == answers:
            if len(self.generations[-1]) > 30:
                self.generations.append([])
                self.covered[answers + 1] = -1
                self._add_replicas(answers + 1)
            return
        self.is_held = True
        old = self.generations[answers - 1]
        if any(generation == answers for generation, _ in self.unacknowledged):
            return
        if self.covered[answers + 1] >= old[-1].covers:
            self.log_index += 1
            self.switches[answers + 1] = self.log_index
            self.answering, self.is_held = answers + 1, False
            self.committed.append((self.tick(), self.covered[answers + 1]))
            self.counts["tables replaced"] += 1
            self.log.append(f"{self.instant} generation {self.answering} answers")

    def _learn(self) -> None:
        self.maps[self.random.choice(NODES)].view.snapshot.log_index = self.log_index

    # ----------------------------------------------------------------------- replicas

    def _of(self, node: str) -> list[tuple[int, LinearReplica]]:
        """Its replicas, and their generations."""
        return [(of, one) for (of, _, at), one in self.replicas.items() if at == node]

    def _any_replica(self) -> tuple[LinearReplica, str]:
        places = list(self.replicas)[-2 * len(self.haste) :]
        weights = [self.haste[number, node] for _, number, node in places]
        place = self.random.choices(places, weights)[0]
        return self.replicas[place], place[2]

    def _follow(self) -> None:
        """The follower of a node reads on, and tells the replicas all of it."""
        node = self.random.choice(NODES)
        if self.followed[node] != self.topic_number:
            # its offset is beyond the end of the topic, for as long as it takes to notice
            if self.random.random() < 0.2:
                self.followed[node], self.read[node] = self.topic_number, 0
            return
        begin = self.read[node]
        self.read[node] = min(len(self.topic), begin + self.random.randint(1, 12))
        for entry in self.topic[begin : self.read[node]]:
            for generation, replica in self._of(node):
                if entry is not None and entry[0] == generation:
                    replica.known = max(replica.known, entry[1])

    def _apply(self) -> None:
        replica, _ = self._any_replica()
        ahead = replica.known - replica.applied
        if ahead <= 0:
            return
        before = replica.commits[replica.applied - 1].covers if replica.applied else -1
        replica.applied += self.random.randint(1, min(ahead, 3))
        replica.torn = {}
        if ahead > 1 and replica.applied > 1 and self.random.random() < 0.2:
            old = self.random.sample(range_of_keys(), 2)
            replica.torn = dict.fromkeys(old, max(before - 2, -1))
            self.counts["replicas between batches"] += 1

    def _show(self) -> None:
        replica, node = self._any_replica()
        replica.show(self.read[node], f"topic {self.followed[node]}")

    def _show_awaited(self) -> None:
        """An early round of a tailer: the pages that the newest barrier moves."""
        node = self.random.choice(NODES)
        if self.followed[node] != self.topic_number:
            return
        read, topic_id = self.topic[: self.read[node]], f"topic {self.topic_number}"
        barrier_end = len(read) - read[::-1].index(None) if None in read else 0
        for _, replica in self._of(node):
            replica.note(self.read[node], topic_id)
            if replica.progress.is_awaited(barrier_end):
                replica.show(self.read[node], topic_id)
                self.counts["pages published early"] += 1

    def _restore_older(self) -> None:
        """A store is replaced by a copy that is older; its page comes with the next `_show`."""
        replica, _ = self._any_replica()
        if replica.applied > 2:
            replica.applied -= self.random.randint(1, 2)
            replica.torn, replica.progress = {}, AppliedProgress()
            self.counts["stores replaced by older copies"] += 1

    def _restart(self) -> None:
        """A follower reads the topic from its beginning; its process is another one, or the same.
        Until it has read what it knew, replicas of another process know less than they show."""
        node = self.random.choice(NODES)
        self.read[node] = 0
        if self.random.random() < 0.5:
            for _, replica in self._of(node):
                replica.known, replica.progress = 0, AppliedProgress()
        self.counts["topics read again"] += 1

    def _create_topic_again(self) -> None:
        """Somebody deletes it, and brings along the newest record of each generation; not between
        a barrier and the question in which topic it is, which are milliseconds apart."""
        newest = {entry[0]: entry for entry in self.topic if entry is not None}
        self.topic = list(newest.values())
        self.topic_number += 1
        self.counts["progress topics created again"] += 1

    # ----------------------------------------------------------------------- barriers

    async def _append(self) -> Barrier:
        """A barrier, and a read index, both after the call."""
        await self._pause()
        if self.random.random() < 0.02:
            raise KafkaUnavailable("cannot write")
        end, topic_id = self.appended(), f"topic {self.topic_number}"
        await self._pause()
        index = self.log_index
        await self._pause()
        self.counts["barriers"] += 1
        return Barrier(end, index, topic_id)

    def appended(self) -> int:
        """The end behind a new record."""
        self.topic.append(None)
        return len(self.topic)

    # ------------------------------------------------------------------------ readers

    async def _reader(self, name: str) -> None:
        while not self.is_over:
            await self._pause()
            keys = self.random.sample(range_of_keys(), self.random.choice([1, 1, 2]))
            try:
                await self._read(name, keys)
            except (ForwardRefused, NoReplica):
                self.counts["reads refused"] += 1

    async def _read(self, name: str, keys: Sequence[str]) -> None:
        begin = self.tick()
        entry = self.random.choice(NODES)
        linear = await self.barriers[entry].begun(self.maps[entry], None, NEVER_MS, ScanRequester())
        generation, values = self._generation_at(entry), dict[str, int]()
        where = ""
        for number in sorted({partition_of(key) for key in keys}):
            mine = [key for key in keys if partition_of(key) == number]
            part, where = await self._part(linear.barrier, generation, number, mine)
            values |= part
        self.counts["reads in a later generation"] += generation > 1
        self.answers.append(SessionAnswer(name, begin, self.tick(), values, f"{where} by {entry}"))

    async def _part(
        self, barrier: Barrier, generation: int, number: int, keys: Sequence[str]
    ) -> tuple[dict[str, int], str]:
        """One of the nodes, which waits."""
        node = self.random.choice(NODES)
        forward = ForwardHeaders(timeout_ms=NEVER_MS, barrier=barrier)
        here = await self.barriers[node].begun(self.maps[node], forward, NEVER_MS, ScanRequester())
        if self._generation_at(node) != generation:
            raise ForwardRefused("NOT_OWNER")
        replica = self.replicas[generation, number, node]
        until = self.scheduler.events + WAIT_TURNS
        while self.scheduler.events < until and not self.is_over:
            seen = replica.page
            try:
                return await self._target(here, replica, keys), node
            except ForwardRefused as refusal:
                if "created again" in refusal.why:
                    self.counts["reads refused for another topic"] += 1
                    raise
                self.counts["waits"] += 1
            while self.scheduler.events < until and not self.is_over:
                await asyncio.sleep(0)
                if replica.page is not seen and here.is_due(replica.page):
                    break
        raise ForwardRefused("out of time")

    async def _target(
        self, here: LinearRead, replica: LinearReplica, keys: Sequence[str]
    ) -> dict[str, int]:
        """The page, then the rows; then they are judged."""
        shown = replica.page
        await self._pause()
        meta, values = replica.meta(), self._rows(replica, keys)
        await self._pause()
        shown = self.page_of(shown, replica)
        if shown is None or not shown.state.answers or not may_judge(shown, meta):
            raise ForwardRefused("its page does not fit")
        here.check(shown, meta)
        return values

    def page_of(
        self, read_before: ReplicaStatus | None, replica: LinearReplica
    ) -> ReplicaStatus | None:
        """The page that judges the rows. A planted bug takes another one."""
        return read_before

    def _rows(self, replica: LinearReplica, keys: Sequence[str]) -> dict[str, int]:
        covers = replica.commits[replica.applied - 1].covers if replica.applied else -1
        return {key: self.writes.value_at(key, replica.torn.get(key, covers)) for key in keys}
