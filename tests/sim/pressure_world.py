"""Bounded replication lag in simulation: batches, replicas of every speed, and nodes that fail.

One query fills a table as fast as it may, in batches of which all rows may be of one partition.
Replicas apply what is committed at speeds that change, stand still, or are taken away; nodes tell
of their replicas late, and at times nothing at all. One of them also has a replica of the table's
next generation, which is always far behind and counts for nothing.

The code under test is `ReplicaWait` and, below it, `data.commit.back_pressure`. The judge knows
what was told, and when, and where the replicas really are:

- a batch that was let go, without a limit in its way, began with each replica that counts within
  half of the bound, or a quarter if it had waited; and after it, each is within the bound;
- it waited only while some replica that counts was told to be behind;
- no batch waited longer than its limit, nor all together for more than their share of a minute;
- once all is well, a batch waits no longer than it takes to hear of that.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from msgspec.structs import replace
from tests.samples import sample_table

from standpipe.data.commit.back_pressure import (
    BEGIN,
    END,
    MINUTE_S,
    SILENT_S,
    STUCK_S,
    WAITED_SHARE_MAX,
    LagBound,
    Pressure,
)
from standpipe.model import BatchId, NodeId, Offset, ReplicaState
from standpipe.model_liveness import ReplicaLag
from standpipe.pipeline.commit.replica_wait import LOOK_S, ReplicaWait

NODES: Final = (NodeId("a"), NodeId("b"), NodeId("c"))
PARTITIONS: Final = 2
BATCHES: Final = 400
#: of which the last ones are without faults
WELL: Final = 60
STEP_S: Final = 0.05
#: a node is asked so often, and answers after up to so long
ASK_EVERY_S: Final = 0.5
ANSWER_S_MAX: Final = 0.3
#: an answer that was under way already, and the next one
HEARD_S_MAX: Final = 2 * ANSWER_S_MAX + 4 * LOOK_S
#: Around an instant at which a replica stops to count, the judge says nothing. That it stands still
#: is noticed when a batch begins, and another one may be written before.
DOUBT_S: Final = 0.2
UNNOTICED_S: Final = 2.0 + DOUBT_S
TABLE: Final = sample_table(name="T", table_id="T_1", partitions=PARTITIONS)


@dataclass
class SimReplica:
    """`per_s`: what it applies. `told`: the position that its node told last, and the instants at
    which that came, and at which it had moved, or was at the end, last."""

    node: NodeId
    partition: int
    per_s: float
    position: float = 0.0
    is_there: bool = True
    told: int | None = None
    heard_s: float = 0.0
    moved_s: float = 0.0


class PressureWorld:
    """One world, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts = Counter[str]()
        records = self.random.choice([20, 200, 2_000])
        self.bound = LagBound(records=records, ms=0, wait_s_max=self.random.choice([1.0, 5.0]))
        self.now_s = 0.0
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        #: what the query could write in a second
        self.per_s = records * self.random.choice([0.3, 1, 3])
        self.replicas = [
            SimReplica(node, partition, self._usual_per_s())
            for node in NODES
            for partition in range(PARTITIONS)
        ]
        #: until when a node tells nothing, or does nothing at all
        self.silent_s = dict.fromkeys(NODES, 0.0)
        self.dead_s = dict.fromkeys(NODES, 0.0)
        self.next_ask_s = dict.fromkeys(NODES, 0.0)
        #: (when it arrives, node, what it says)
        self.answers: list[tuple[float, NodeId, list[ReplicaLag]]] = []
        self.wait = ReplicaWait(self.bound, clock=lambda: self.now_s, sleep=self._advance)
        self.wait.ask = self._ask_now
        self.pressure = Pressure(self.bound)
        self.waits: list[tuple[float, float]] = []
        self.log: list[str] = []
        #: for `runner.outcome_of`
        self.scheduler: Any = SimpleNamespace(now_us=0, events=0)

    def history(self) -> str:
        return "\n".join(self.log[-40:])

    def run(self) -> None:
        """Raises AssertionError with what the judge found."""
        for number in range(BATCHES):
            self.scheduler.events += 1
            if number < BATCHES - WELL:
                self._nemesis()
            elif number == BATCHES - WELL:
                self._all_well()
            self._batch(is_well=number > BATCHES - WELL // 2)
        self.scheduler.now_us = round(self.now_s * 1e6)

    # ------------------------------------------------------------------------- the query

    def _batch(self, *, is_well: bool) -> None:
        began_s, has_waited = self.now_s, False
        left_s = self._left_s()

        def told(_: str) -> None:
            nonlocal has_waited
            self._judge_wait()
            has_waited = True

        tables = [(TABLE, dict(self.ends))]
        was_behind = self.pressure.behind is not None
        self.wait.before_batch(self.pressure, tables, told=told, is_stopped=lambda: False)
        waited_s = self.now_s - began_s
        if has_waited:
            self.waits.append((began_s, self.now_s))
            self.counts["batches that waited"] += 1
        assert waited_s <= self.bound.wait_s_max + 2 * LOOK_S, f"a batch waited {waited_s:.1f} s"
        in_minute_s = self._waited_s()
        assert in_minute_s <= MINUTE_S * WAITED_SHARE_MAX + 2 * LOOK_S, f"{in_minute_s:.1f} s"
        if is_well:
            assert waited_s <= HEARD_S_MAX, f"a batch waited {waited_s:.2f} s although all is well"
        is_forced = waited_s >= left_s - LOOK_S
        self.counts["waits that ended at a limit"] += is_forced
        limit = END if has_waited or was_behind else BEGIN
        judged = [] if is_forced else [*self._counting()]
        for replica in judged:
            self._judge(replica, limit * self.bound.records, "began")
            self.counts["replicas judged"] += 1
        self._write()
        for replica in judged:
            self._judge(replica, self.bound.records, "was written")

    def _write(self) -> None:
        rows = self.bound.batch_records_max(10 * self.bound.records)
        rows = max(1, min(rows, round(self.per_s * self.random.uniform(0.1, 2))))
        partition = self.random.choice([None, *range(PARTITIONS)])
        self._advance(rows / self.per_s)
        for number in range(rows):
            self.ends[number % PARTITIONS if partition is None else partition] += 1
        self.counts["batches"] += 1

    # --------------------------------------------------------------------------- the judge

    def _counting(self) -> Iterator[SimReplica]:
        """Those that count for sure."""
        for one in self.replicas:
            is_heard = self.now_s - one.heard_s < SILENT_S - DOUBT_S
            is_moving = self.now_s - one.moved_s < STUCK_S - DOUBT_S
            if one.is_there and one.told is not None and is_heard and is_moving:
                yield one

    def _judge(self, one: SimReplica, most: float, what: str) -> None:
        behind = self.ends[one.partition] - int(one.position)
        assert behind <= most, (
            f"{self.now_s:.2f} s: the replica of {one.partition} on {one.node} is {behind} behind "
            f"when a batch {what}, at most {most} are allowed"
        )

    def _judge_wait(self) -> None:
        """Whether a batch has a reason to wait."""
        for one in self.replicas:
            is_heard = self.now_s - one.heard_s < SILENT_S + DOUBT_S
            is_moving = self.now_s - one.moved_s < STUCK_S + UNNOTICED_S
            if one.told is None or not is_heard or not is_moving:
                continue
            if self.ends[one.partition] - one.told > END * self.bound.records:
                return
        raise AssertionError(f"{self.now_s:.2f} s: a batch waits for nobody")

    def _waited_s(self) -> float:
        since_s = self.now_s - MINUTE_S
        return sum(end - max(start, since_s) for start, end in self.waits if end > since_s)

    def _left_s(self) -> float:
        return min(self.bound.wait_s_max, MINUTE_S * WAITED_SHARE_MAX - self._waited_s())

    # --------------------------------------------------------------------------- the nodes

    def _advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            step_s = min(STEP_S, until_s - self.now_s)
            self.now_s += step_s
            for one in self.replicas:
                if self.dead_s[one.node] <= self.now_s:
                    moved = one.position + one.per_s * step_s
                    one.position = min(moved, float(self.ends[one.partition]))
            for node in NODES:
                if self.next_ask_s[node] <= self.now_s:
                    self._ask(node)
            due = [each for each in self.answers if each[0] <= self.now_s]
            self.answers = [each for each in self.answers if each[0] > self.now_s]
            for _, node, lags in sorted(due, key=lambda each: each[0]):
                self._hear(node, lags)

    def _ask_now(self) -> None:
        for node in NODES:
            if not any(each[1] == node for each in self.answers):
                self._ask(node)

    def _ask(self, node: NodeId) -> None:
        self.next_ask_s[node] = self.now_s + ASK_EVERY_S
        if max(self.silent_s[node], self.dead_s[node]) > self.now_s:
            return
        lags = [self._lag(one) for one in self.replicas if one.node == node and one.is_there]
        if node == NODES[0]:
            other = SimReplica(node, 0, 0.0)
            lags.append(replace(self._lag(other), generation=2))
        self.answers.append((self.now_s + self.random.uniform(0, ANSWER_S_MAX), node, lags))

    def _lag(self, one: SimReplica) -> ReplicaLag:
        return ReplicaLag(
            table_id="T_1",
            generation=1,
            partition=one.partition,
            position=Offset(int(one.position)),
            committed_end=Offset(self.ends[one.partition]),
            state=ReplicaState.RUNNING,
            batch=BatchId(1),
        )

    def _hear(self, node: NodeId, lags: list[ReplicaLag]) -> None:
        self.wait.take(node, lags)
        named = {each.partition: each.position for each in lags if each.generation == 1}
        for one in self.replicas:
            if one.node != node:
                continue
            told = named.get(one.partition)
            if told is None or told != one.told or told >= self.ends[one.partition]:
                one.moved_s = self.now_s
            one.told, one.heard_s = told, self.now_s

    # -------------------------------------------------------------------------- the faults

    def _usual_per_s(self) -> float:
        return self.per_s * self.random.choice([0.4, 1, 1, 3, 10])

    def _nemesis(self) -> None:
        if self.random.random() > 0.15:
            return
        one = self.random.choice(self.replicas)
        what = self.random.choice(
            ["slower", "stuck", "as usual", "as usual", "silent", "dead", "taken away", "back"]
        )
        if what == "slower":
            one.per_s = self.per_s * self.random.choice([0.05, 0.1, 0.25])
        elif what == "stuck":
            one.per_s = 0.0
        elif what == "as usual":
            one.per_s = self._usual_per_s()
        elif what == "silent":
            self.silent_s[one.node] = self.now_s + self.random.choice([1, 4, 15])
        elif what == "dead":
            self.dead_s[one.node] = self.now_s + self.random.choice([1, 4, 30])
        elif what == "taken away":
            one.is_there = False
        elif not one.is_there:
            one.is_there, one.position = True, float(self.ends[one.partition])
        self.counts[f"a replica or a node: {what}"] += 1
        self.log.append(f"{self.now_s:.2f} {one.node}/{one.partition}: {what}")

    def _all_well(self) -> None:
        self.silent_s = dict.fromkeys(NODES, 0.0)
        self.dead_s = dict.fromkeys(NODES, 0.0)
        for one in self.replicas:
            one.per_s = 20 * max(self.per_s, self.bound.records)
