"""Snapshots in simulation: the decisions of read level `snapshot`, under many interleavings.

A table of registers is written batch by batch; replicas apply batches late, several at once, stand
between two batches, and write their pages later still. Leases move on, and the next holder commits
the newest batch again with other rows. The table is replaced, and nodes learn of it one after the
other. Some nodes are of an older release, scans take a while, and hedges lose. Between any two
steps of a read the world goes on. Who reads is judged by `tests/sim/snapshot_histories.py`, which
knows only what was written and shown.

The code under test is `control.routing.snapshot`, `node.worker.pull.snapshot_read`,
`node.worker.pull.forward_checks`, the fast path's `is_one_batch` and `may_judge`; the world around
it is simulated. Seeds: `tests/sim/sessions.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.unit.node.workers import USERS, page

from standpipe.control.routing.session import SessionVerdict, Stamp
from standpipe.data.replica.positions import StoreIdentity, StoreMeta, may_judge
from standpipe.errors import NoReplica
from standpipe.freshness import Freshness
from standpipe.model import (
    NO_BATCH,
    BatchId,
    LeaseEpoch,
    Offset,
    ReplicaState,
    ReplicaStatus,
    Source,
)
from standpipe.node.worker.pull import fast_path, forward_checks
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.pull.refusals import Unanswered
from standpipe.node.worker.pull.session_read import stamp_of
from standpipe.node.worker.pull.snapshot_read import SnapshotRead, of_one_batch

from .session_histories import NO_VALUE, SessionAnswer, Writes
from .snapshot_histories import snapshot_violations

NODES, PARTITIONS, KEYS = ("a", "b", "c"), 3, 9
READS = 150
#: commits of generation g are numbered from g * _NUMBERS on, and a key's value is such a number
_NUMBERS = 100_000
#: how often a read that waits looks at the pages
_LOOKS = 60
_BEGINS_MAX = 5


@dataclass(frozen=True)
class SnapshotCommit:
    """`number`: the value of the rows that it writes."""

    number: int
    batch: int
    epoch: int


@dataclass
class WrittenTable:
    """One generation of the table."""

    generation: int
    commits: list[SnapshotCommit] = field(default_factory=list[SnapshotCommit])
    writes: Writes = field(default_factory=Writes)

    @property
    def source(self) -> Source:
        return msgspec.structs.replace(USERS, generation=self.generation)


@dataclass
class SnapshotReplica:
    """Of one partition of one generation. `applied`: how many commits its store has."""

    table: WrittenTable
    partition: int
    applied: int = 0
    #: keys whose row is older than the commit, after a gap; then the rows are of no batch
    torn: dict[str, int] = field(default_factory=dict[str, int])
    page: ReplicaStatus | None = None

    def meta(self) -> StoreMeta:
        identity = StoreIdentity(table_id="T1", generation=1, partition=self.partition)
        if not self.applied:
            return StoreMeta(identity=identity)
        newest = self.table.commits[self.applied - 1]
        return StoreMeta(
            identity=identity,
            position=Offset(self.applied),
            batch=NO_BATCH if self.torn else BatchId(newest.batch),
            lease_epoch=LeaseEpoch(newest.epoch),
        )

    def rows(self, keys: Sequence[str]) -> list[bytes]:
        newest = self.table.commits[self.applied - 1].number if self.applied else NO_VALUE
        shown = {key: self.table.writes.value_at(key, newest) for key in keys} | {
            key: value for key, value in self.torn.items() if key in keys
        }
        return [b"%b=%d" % (key.encode(), value) for key, value in shown.items()]

    def show(self) -> None:
        """Write the page."""
        meta = self.meta()
        state = ReplicaState.CATCHING_UP if self.torn else ReplicaState.RUNNING
        shown = page(meta.position, len(self.table.commits), state)
        if not self.applied:
            shown = page(0, 0, ReplicaState.BOOTSTRAP)
        self.page = msgspec.structs.replace(shown, batch=meta.batch, lease_epoch=meta.lease_epoch)


class SnapshotWorld:
    """One world, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts = Counter[str]()
        self.tables = [WrittenTable(1)]
        self.epoch = 1
        self.maps = dict.fromkeys(NODES, 1)
        self.replicas: dict[tuple[int, int, str], SnapshotReplica] = {}
        self._add_replicas()
        #: some tailers are slow
        self.haste = {node: self.random.choice([0.1, 0.5, 1]) for node in NODES}
        self.older = {node for node in NODES if self.random.random() < 0.15}
        self.answers: dict[int, list[SessionAnswer]] = {1: []}
        self.log: list[str] = []
        #: for `runner.outcome_of`
        self.scheduler: Any = SimpleNamespace(now_us=0, events=0)
        self.metrics: Any = SimpleNamespace(count=self._counted)

    def _add_replicas(self) -> None:
        table = self.tables[-1]
        for node in NODES:
            for number in range(PARTITIONS):
                at = (table.generation, number, node)
                self.replicas[at] = SnapshotReplica(table, number)

    def _counted(self, _: str, rounds: str) -> None:
        self.counts[f"reads in {rounds} rounds" if rounds.isdigit() else "reads refused"] += 1

    # ------------------------------------------------------------------- time goes by

    def run(self) -> None:
        """Raises AssertionError with what the judge found."""
        asyncio.run(self._read_all())
        self.scheduler.now_us = self.scheduler.events * 1000
        wrong = [
            each
            for table in self.tables
            for each in snapshot_violations(table.writes, self.answers.get(table.generation, []))
        ]
        assert not wrong, f"{len(wrong)} violations, the first: {wrong[0]}"

    def history(self) -> str:
        return "\n".join(self.log[-60:])

    def step(self, count: int | None = None) -> None:
        """The world goes on."""
        acts = [
            (self._commit, 3.0),
            (self._apply, 20.0),
            (self._show, 20.0),
            (self._takeover, 0.4),
            (self._replace, 0.05),
            (self._learn, 0.5),
        ]
        chosen = self.random.choices(
            [act for act, _ in acts],
            [weight for _, weight in acts],
            k=self.random.choice([0, 0, 1, 4]) if count is None else count,
        )
        for act in chosen:
            self.scheduler.events += 1
            act()

    def _commit(self) -> None:
        for table in self.tables:
            batch = table.commits[-1].batch + 1 if table.commits else 0
            self._commit_as(table, batch)

    def _commit_as(self, table: WrittenTable, batch: int) -> None:
        number = table.generation * _NUMBERS + len(table.commits)
        table.writes.add(number, self.random.sample(keys_of_all(), self.random.randint(1, KEYS)))
        table.commits.append(SnapshotCommit(number, batch, self.epoch))

    def _takeover(self) -> None:
        """The next holder of the lease commits the newest batch again; a program has made other
        rows this time."""
        self.epoch += 1
        for table in self.tables:
            if table.commits:
                self._commit_as(table, table.commits[-1].batch)
                self.counts["batches committed again"] += 1

    def _apply(self) -> None:
        (generation, number, node), replica = self.random.choice(list(self.replicas.items()))
        behind = len(replica.table.commits) - replica.applied
        if not behind or self.random.random() > self.haste[node]:
            return
        before = replica.applied
        replica.applied += self.random.randint(1, behind)
        replica.torn = {}
        if replica.applied - before > 1 and self.random.random() < 0.3:
            writes = replica.table.writes
            old = replica.table.commits[before - 1].number if before else NO_VALUE
            keys = self.random.sample(keys_of(number), 2)
            replica.torn = {key: writes.value_at(key, old) for key in keys}
            self.counts["replicas between batches"] += 1
        self.log.append(f"{node} {generation}/{number} shows {replica.meta().batch}")

    def _show(self) -> None:
        self.random.choice(list(self.replicas.values())).show()

    def _replace(self) -> None:
        is_settled = set(self.maps.values()) == {len(self.tables)} and self.tables[-1].commits
        if is_settled and len(self.tables) < 3:
            self.tables.append(WrittenTable(len(self.tables) + 1))
            self.answers[len(self.tables)] = []
            self._add_replicas()
            # its batches have the numbers of the generation before, and other rows
            self._commit_as(self.tables[-1], self.tables[-2].commits[-1].batch)

    def _learn(self) -> None:
        node = self.random.choice(NODES)
        if self.maps[node] < len(self.tables):
            self.maps[node] += 1
            self.counts["maps of a later generation"] += 1

    # --------------------------------------------------------------------------- reads

    async def _read_all(self) -> None:
        self.step(30)
        for _ in range(READS):
            self.step(self.random.choice([1, 10]))
            await self._read(self.random.choice(NODES))

    async def _read(self, entry: str) -> None:
        generation = self.maps[entry]
        keys = self.random.sample(keys_of_all(), self.random.randint(1, KEYS))
        asked = {number: [k for k in keys_of(number) if k in keys] for number in range(PARTITIONS)}
        asked = {number: its for number, its in asked.items() if its}
        found = self._at_once(entry, generation, asked)
        if found is None:
            try:
                found = await self._in_rounds(entry, generation, asked)
            except (Unanswered, NoReplica):
                self.counts["reads refused"] += 1
                return
        rows = [row.decode().split("=") for part in found for row in part]
        values = {key: int(value) for key, value in rows}
        self.answers[generation].append(SessionAnswer(entry, 0, 0, values, f"{entry}/{generation}"))
        self.counts["reads answered"] += 1

    def _at_once(
        self, entry: str, generation: int, asked: Mapping[int, Sequence[str]]
    ) -> list[list[bytes]] | None:
        """As the fast path does it, if it does."""
        metas: list[StoreMeta] = []
        rows: list[list[bytes]] = []
        for number, keys in asked.items():
            replica = self.replicas[generation, number, entry]
            status = replica.page
            if status is None or not status.state.answers:
                return None
            self.step()
            if not may_judge(status, replica.meta()):
                return None
            metas.append(replica.meta())
            rows.append(replica.rows(keys))
        if not fast_path.is_one_batch(metas):
            return None
        self.counts["reads on the fast path"] += 1
        return rows

    async def _in_rounds(
        self, entry: str, generation: int, asked: Mapping[int, Sequence[str]]
    ) -> list[list[bytes]]:
        partitions = list(asked)

        async def ask(places: Sequence[int], wanted: Stamp | None, _: int) -> list[PartitionAnswer]:
            found: dict[int, PartitionAnswer] = {}
            for place in self.random.sample(list(places), len(places)):
                number = partitions[place]
                read = _Read(entry, generation, number, asked[number], SnapshotRead(wanted))
                found[place] = self._part(read)
            return [found[place] for place in places]

        parts = await of_one_batch(ask, partitions, 60_000, lambda _: None, self.metrics)
        return [part.rows for part in parts]

    def _part(self, read: _Read) -> PartitionAnswer:
        """The first replica that gives the part, of those at once, and then of those that wait."""
        behind: list[str] = []
        for node in self.random.sample(NODES, len(NODES)):
            self.step()
            try:
                found = self.tried(read, node)
            except ForwardRefused as refusal:
                if refusal.session is SessionVerdict.BEHIND:
                    behind.append(node)
                continue
            return self._raced(read, found)
        for _ in range(_LOOKS):
            self.step(4)
            for node in behind:
                if read.snapshot.is_due(self._replica(read, node).page):
                    try:
                        return self.tried(read, node)
                    except ForwardRefused:
                        continue
        raise Unanswered(USERS, [])

    def _raced(self, read: _Read, winner: PartitionAnswer) -> PartitionAnswer:
        """Another replica was asked as well, and answers later."""
        if self.random.random() < 0.2:
            self.step()
            try:
                return self.outcome(winner, self.tried(read, self.random.choice(NODES)))
            except ForwardRefused:
                pass
        return winner

    def outcome(self, winner: PartitionAnswer, loser: PartitionAnswer) -> PartitionAnswer:
        """Of a hedge."""
        self.counts["hedges that lost"] += loser.stamps != winner.stamps
        return winner

    def tried(self, read: _Read, node: str) -> PartitionAnswer:
        """Raises ForwardRefused."""
        replica, is_local = self._replica(read, node), node == read.entry
        if not is_local:
            forward = ForwardHeaders(
                partition=read.partition,
                table=forward_checks.table_name(self.tables[read.generation - 1].source),
                wanted=read.snapshot.wanted,
            )
            known = self.tables[self.maps[node] - 1].source
            forward_checks.check(forward, known, (read.partition,))
            replica = self.replicas[self.maps[node], read.partition, node]
        status = replica.page
        if status is None or not status.state.answers:
            raise ForwardRefused("not ready")
        self.step()
        is_older = node in self.older and not is_local
        meta, rows = self.taken(replica, read)
        if not may_judge(status, meta):
            raise ForwardRefused("the page does not fit", session=SessionVerdict.BEHIND)
        if not is_older:
            read.snapshot.check(meta)
        shown = meta.batch if meta.batch >= 0 else None
        fresh = Freshness(
            served_by=node,
            role="active",
            state="RUNNING",
            batch=shown,
            lease_epoch=None if is_older else meta.lease_epoch,
        )
        if not is_local:
            self.counts["answers of an older release"] += is_older
            read.snapshot.check_answer(fresh)
        return PartitionAnswer(rows=rows, fresh=fresh, stamps=(stamp_of(fresh),))

    def taken(self, replica: SnapshotReplica, read: _Read) -> tuple[StoreMeta, list[bytes]]:
        """The rows with the meta of their transaction. A scan may have to begin again."""
        keys = read.keys
        for _ in range(_BEGINS_MAX):
            meta, rows = replica.meta(), replica.rows(keys[:1])
            if self.random.random() < 0.5:  # the view is held until it has all
                return meta, rows + replica.rows(keys[1:])
            self.step()
            if self.is_same_view(meta, replica.meta()):
                return meta, rows + replica.rows(keys[1:])
        raise ForwardRefused("batches come too fast", session=SessionVerdict.BEHIND)

    def is_same_view(self, begun: StoreMeta, now: StoreMeta) -> bool:
        return begun == now and begun.batch >= 0

    def _replica(self, read: _Read, node: str) -> SnapshotReplica:
        return self.replicas[read.generation, read.partition, node]


@dataclass(frozen=True)
class _Read:
    entry: str
    generation: int
    partition: int
    keys: Sequence[str]
    snapshot: SnapshotRead


def keys_of_all() -> list[str]:
    return [f"k{number}" for number in range(KEYS)]


def keys_of(partition: int) -> list[str]:
    return [key for key in keys_of_all() if int(key[1:]) % PARTITIONS == partition]
