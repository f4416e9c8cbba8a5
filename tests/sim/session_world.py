"""Sessions in simulation: the decisions of read level `session`, under every interleaving.

A table of registers is written batch by batch; replicas apply batches late, stand between two
batches, write their pages later still, and are replaced by older copies. Leases move on, the table
is replaced, nodes learn of it one after the other, some nodes are of an older release, and an
answer may lose its race. Clients keep sessions with several reads in flight. Who reads is judged by
`tests/sim/session_histories.py`, which knows only what was written and shown.

The code under test is `session_token`, `control.routing.session`, `node.worker.pull.session_read`,
`may_judge` and the client's session; the world around it is simulated, one step at a time. Seeds:
`tests/sim/sessions.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.unit.node.workers import USERS, page

from standpipe.client.core.session import ClientSession
from standpipe.control.routing.session import IMPOSSIBLE, SessionVerdict, Stamp
from standpipe.data.replica.positions import StoreIdentity, StoreMeta, may_judge
from standpipe.errors import NoReplica, TokenRefused
from standpipe.freshness import Freshness
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, ReplicaState, ReplicaStatus
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.session_read import SessionRead, SessionTokens, stamp_of

from .session_histories import SessionAnswer, Writes, violations

NODES, PARTITIONS, KEYS = ("a", "b", "c"), 2, 6
STEPS = 8_000


@dataclass(frozen=True)
class SimCommit:
    """A batch of a generation, which covers the source up to `covers`."""

    batch: int
    epoch: int
    covers: int


@dataclass
class Replica:
    """Of one partition of one generation. `applied`: how many commits its store has."""

    commits: list[SimCommit]
    partition: int
    applied: int = 0
    #: keys whose row is older than the commit, after a gap; then the rows are of no batch
    torn: dict[str, int] = field(default_factory=dict[str, int])
    page: ReplicaStatus | None = None
    confirmed_ms: int = 0

    def meta(self) -> StoreMeta:
        identity = StoreIdentity(table_id="T_1", generation=1, partition=self.partition)
        if not self.applied:
            return StoreMeta(identity=identity)
        newest = self.commits[self.applied - 1]
        return StoreMeta(
            identity=identity,
            position=Offset(self.applied),
            batch=NO_BATCH if self.torn else BatchId(newest.batch),
            lease_epoch=LeaseEpoch(newest.epoch),
        )

    def show(self) -> None:
        """Write the page."""
        meta = self.meta()
        state = ReplicaState.CATCHING_UP if self.torn else ReplicaState.RUNNING
        self.page = msgspec.structs.replace(
            page(
                meta.position, len(self.commits), state if self.applied else ReplicaState.BOOTSTRAP
            ),
            batch=meta.batch,
            lease_epoch=meta.lease_epoch,
            confirmed_boot_ms=self.confirmed_ms,
        )


class SessionWorld:
    """One world, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms, self.counts = 10, Counter[str]()
        self.writes, self.source_end = Writes(), -1
        self.generations: list[list[SimCommit]] = [[]]
        self.epoch, self.is_held = 1, False
        self.maps = dict.fromkeys(NODES, 1)
        self.replicas: dict[tuple[int, int, str], Replica] = {}
        self._add_replicas(1)
        #: some replicas are slow
        self.haste = {
            place: self.random.choice([0.15, 0.5, 1])
            for place in ((number, node) for number in range(PARTITIONS) for node in NODES)
        }
        self.older = {node for node in NODES if self.random.random() < 0.15}
        self.tokens = {node: SessionTokens() for node in NODES}
        #: what the tailer of each node says that batches cover
        self.files: dict[str, Any] = dict.fromkeys(NODES)
        self.sessions = {name: ClientSession() for name in ("s1", "s2")}
        self.reads: list[Generator[None]] = []
        #: when Kafka was asked, and the ends that it had then
        self.probes: list[tuple[int, list[tuple[Replica, int]]]] = []
        self.answers: list[SessionAnswer] = []
        self.log: list[str] = []
        #: for `runner.outcome_of`
        self.scheduler: Any = SimpleNamespace(now_us=0, events=0)

    def _add_replicas(self, generation: int) -> None:
        for node in NODES:
            for number in range(PARTITIONS):
                commits = self.generations[generation - 1]
                self.replicas[generation, number, node] = Replica(commits, number)

    # ------------------------------------------------------------------- time goes by

    def run(self) -> None:
        """Raises AssertionError with what the judge found."""
        acts = [
            (self._commit, 2.5),
            (self._apply, 16),
            (self._show, 24),
            (self._ask_kafka, 8),
            (self._kafka_answers, 8),
            (self._takeover, 0.3),
            (self._replace, 1.5),
            (self._learn, 0.4),
            (self._restore_older, 0.4),
            (self._begin, 16),
            (self._go_on, 150),
        ]
        choose = partial(self.random.choices, [a for a, _ in acts], [w for _, w in acts])
        for _ in range(STEPS):
            self.now_ms += self.random.choice([0, 1, 1, 5])
            choose()[0]()
            self.scheduler.events += 1
        self.scheduler.now_us = self.now_ms * 1000
        self.counts["reads answered"] += len(self.answers)
        wrong = violations(self.writes, self.answers)
        assert not wrong, f"{len(wrong)} violations, the first: {wrong[0]}"

    def history(self) -> str:
        return "\n".join(self.log[-60:])

    def _commit(self) -> None:
        self.source_end += 1
        self.writes.add(self.source_end, self.random.sample(range_of_keys(), 2))
        for commits in self._written():
            if self.random.random() < 0.7:
                batch = commits[-1].batch + 1 if commits else 0
                commits.append(SimCommit(batch, self.epoch, self.source_end))

    def _written(self) -> list[list[SimCommit]]:
        """The generations whose queries commit: not one that is held, nor one that was replaced."""
        first = max(self.maps.values()) + self.is_held
        return self.generations[first - 1 :]

    def _takeover(self) -> None:
        """The next holder of the leases replays the newest batch of each query, or goes on."""
        self.epoch += 1
        for commits in self._written():
            if commits and self.random.random() < 0.5:
                newest = commits[-1]
                commits.append(SimCommit(newest.batch, self.epoch, newest.covers))
        self.log.append(f"{self.now_ms} lease epoch {self.epoch}")

    def _replace(self) -> None:
        """CREATE OR REPLACE, in steps: build, hold, switch once all that can be reached show it."""
        answers = max(self.maps.values())
        if len(self.generations) == answers:
            if len(set(self.maps.values())) == 1 and len(self.generations[-1]) > 6:
                self.generations.append([])
                self._add_replicas(answers + 1)
            return
        old, new = self.generations[-2], self.generations[-1]
        if not new or new[-1].covers < old[-1].covers:
            return
        self.is_held = True
        away = self.random.choice(NODES)
        floor = next(n for n, one in enumerate(new, 1) if one.covers >= old[-1].covers)
        shown = [
            replica.applied >= floor and not replica.torn
            for (generation, _, node), replica in self.replicas.items()
            if generation == answers + 1 and node != away
        ]
        if all(shown):
            self.maps[self.random.choice(NODES)] = answers + 1
            self.is_held = False
            self.counts["tables replaced"] += 1
            self.log.append(f"{self.now_ms} generation {answers + 1} answers; {away} was away")

    def _learn(self) -> None:
        self.maps[self.random.choice(NODES)] = max(self.maps.values())

    def _any_replica(self) -> Replica:
        places = list(self.replicas)[-2 * len(self.haste) :]
        weights = [self.haste[number, node] for _, number, node in places]
        return self.replicas[self.random.choices(places, weights)[0]]

    def _apply(self) -> None:
        replica = self._any_replica()
        ahead = len(replica.commits) - replica.applied
        if not ahead:
            return
        before = replica.commits[replica.applied - 1].covers if replica.applied else -1
        replica.applied += self.random.randint(1, min(ahead, 3))
        replica.torn = {}
        if ahead > 1 and replica.applied > 1 and self.random.random() < 0.2:
            old = self.random.sample(range_of_keys(), 2)
            replica.torn = dict.fromkeys(old, max(before - 2, -1))
            self.counts["replicas between batches"] += 1

    def _show(self) -> None:
        self._any_replica().show()

    def _ask_kafka(self) -> None:
        """A node asks for the ends of all that it follows."""
        asker = self.random.choice(NODES)
        ends = [
            (replica, len(replica.commits))
            for (_, _, node), replica in self.replicas.items()
            if node == asker
        ]
        self.probes.append((self.now_ms, ends))

    def _kafka_answers(self) -> None:
        if self.probes:
            asked_ms, ends = self.probes.pop(self.random.randrange(len(self.probes)))
            for replica, end in ends:
                if replica.applied >= end and not replica.torn:
                    replica.confirmed_ms = max(replica.confirmed_ms, asked_ms)

    def _restore_older(self) -> None:
        """A store is replaced by a copy that is older; its page comes with the next `_show`."""
        replica = self._any_replica()
        if replica.applied > 2:
            replica.applied -= self.random.randint(1, 2)
            replica.torn, replica.confirmed_ms = {}, 0
            self.counts["stores replaced by older copies"] += 1

    # ----------------------------------------------------------------------- clients

    def _begin(self) -> None:
        if len(self.reads) < 8:
            self.reads.append(self._read(self.random.choice(list(self.sessions))))

    def _go_on(self) -> None:
        if self.reads:
            read = self.random.choice(self.reads)
            try:
                next(read)
            except StopIteration:
                self.reads.remove(read)
            except (ForwardRefused, NoReplica, TokenRefused) as refused:
                self.reads.remove(read)
                self.counts["reads refused"] += 1
                self._check_refusal(refused)

    def _check_refusal(self, refused: Exception) -> None:
        """No token is forged here, and nothing is lost."""
        is_definite = isinstance(refused, TokenRefused) or (
            isinstance(refused, ForwardRefused) and refused.session in IMPOSSIBLE
        )
        if is_definite:
            raise AssertionError(f"refused for ever: {refused}")

    def _read(self, name: str) -> Generator[None]:
        session = self.sessions[name]
        keys = self.random.sample(range_of_keys(), self.random.choice([1, 1, 2]))
        begin, token = self.scheduler.events, session.token
        yield
        entry = self.random.choice(NODES)
        generation = self.maps[entry]
        source = msgspec.structs.replace(USERS, table_id="T_1", generation=generation)
        known = self.tokens[entry].of(token, source, "c", self.files[entry])
        if known.wanted.after_switch:
            self.counts["reads in another generation"] += 1
        values: dict[str, int] = {}
        stamps: list[Stamp] = []
        for number in sorted({partition_of(key) for key in keys}):
            mine = [key for key in keys if partition_of(key) == number]
            part, stamp, where = yield from self._part(
                SessionRead(known, self.now_ms), number, mine
            )
            values |= part
            stamps.append(stamp)
        answer = known.token(stamps)
        yield
        session.saw(answer)
        self.answers.append(
            SessionAnswer(name, begin, self.scheduler.events + 0.5, values, f"{where} by {entry}")
        )

    def _part(
        self, session: SessionRead, number: int, keys: list[str]
    ) -> Generator[None, None, tuple[dict[str, int], Stamp, str]]:
        """Each node in turn, then wait at one of them."""
        refused: list[str] = []
        for node in self.random.sample(NODES, len(NODES)):
            try:
                return (yield from self._target(session, node, number, keys))
            except ForwardRefused as why:
                self._check_refusal(why)
                if why.session is SessionVerdict.BEHIND:
                    refused.append(node)
        if not refused:
            raise ForwardRefused("nobody answers")
        node = self.random.choice(refused)
        return (yield from self._wait(session, node, number, keys))

    def _wait(
        self, session: SessionRead, node: str, number: int, keys: list[str]
    ) -> Generator[None, None, tuple[dict[str, int], Stamp, str]]:
        generation = session.known.source.generation
        replica = self.replicas[generation, number, node]
        arrived_ms = self.now_ms
        for _ in range(60):
            seen = replica.page
            yield
            here = SessionRead(replace(session.known, files=self.files[node]), arrived_ms)
            if replica.page is seen or not here.is_due(replica.page, self.now_ms):
                continue
            try:
                found = yield from self._target(session, node, number, keys, arrived_ms)
            except ForwardRefused as why:
                if why.session is not SessionVerdict.BEHIND:
                    raise
            else:
                self.counts["waits that ended well"] += 1
                self.counts["waits for a switch"] += session.wanted.after_switch
                return found
        raise ForwardRefused("out of time")

    def _target(
        self,
        entry: SessionRead,
        node: str,
        number: int,
        keys: list[str],
        arrived_ms: int | None = None,
    ) -> Generator[None, None, tuple[dict[str, int], Stamp, str]]:
        """The replica of a node: as the target has it, then as the entry judges its answer."""
        generation = entry.known.source.generation
        if self.maps[node] != generation:
            raise ForwardRefused("NOT_OWNER")
        known = replace(entry.known, files=self.files[node], _covered_from=None, _after=None)
        session = SessionRead(known, self.now_ms if arrived_ms is None else arrived_ms)
        replica = self.replicas[generation, number, node]
        shown = replica.page
        yield
        meta, values = replica.meta(), self._rows(replica, keys)
        yield
        shown = self.page_of(shown, replica)
        if shown is None or not shown.state.answers or not may_judge(shown, meta):
            raise ForwardRefused("its page does not fit")
        fresh = Freshness(served_by=node, role="", state="")
        if node in self.older:
            self.counts["answers of an older release"] += 1
            fresh = msgspec.structs.replace(fresh, batch=meta.batch)
        else:
            session.check(shown, self.judged_of(meta, generation, number, node), self.now_ms)
            fresh = self.stamped(fresh, shown, meta)
        entry.check_answer(fresh)
        return values, self.seen_of(fresh, generation, number), node

    def _rows(self, replica: Replica, keys: Sequence[str]) -> dict[str, int]:
        covers = replica.commits[replica.applied - 1].covers if replica.applied else -1
        return {key: self.writes.value_at(key, replica.torn.get(key, covers)) for key in keys}

    # --------------------------------------------------- what planted bugs put wrong

    def page_of(self, read_before: ReplicaStatus | None, replica: Replica) -> ReplicaStatus | None:
        """The page that judges the rows."""
        return read_before

    def judged_of(self, meta: StoreMeta, generation: int, number: int, node: str) -> StoreMeta:
        """The meta that is held against the token."""
        return meta

    def stamped(self, fresh: Freshness, shown: ReplicaStatus, meta: StoreMeta) -> Freshness:
        """What the answer says of its rows."""
        batch = None if meta.batch == NO_BATCH else meta.batch
        return msgspec.structs.replace(fresh, batch=batch, lease_epoch=meta.lease_epoch)

    def seen_of(self, fresh: Freshness, generation: int, number: int) -> Stamp:
        """What goes into the token for an answer."""
        return stamp_of(fresh)


def range_of_keys() -> list[str]:
    """All keys."""
    return [f"k{number}" for number in range(KEYS)]


def partition_of(key: str) -> int:
    """Where a key lies."""
    return int(key[1:]) % PARTITIONS
