"""Reads of a table of counts at each level, in a process of their own, and what the judges say.

`read_and_judge` runs all clients on one event loop until each level has enough answers, and judges
them once it is told what was committed. The judges are those of `tests/sim`; of level eventual, one
asks only whether a batch has committed each row.

Not here: the cluster, what is written to it, and its faults (`read_levels.py`).
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import uvloop
from tests import report
from tests.e2e.burst_reads import BurstConnection, NodeGone
from tests.e2e.counted_keys import KEYS, as_batches, values_of
from tests.sim.linear_histories import bounded_violations, linear_violations
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes, violations
from tests.sim.snapshot_histories import snapshot_violations

import standpipe
from standpipe.client import AsyncClient, NodesUnreachable, ServerRefused
from standpipe.client.core.session import ClientSession
from standpipe.config.lags import REPLICA_LAG_MAX
from standpipe.session_token import LEVEL_PROPERTY, LINEARIZABLE, SESSION, SNAPSHOT

NAME: Final = "LEVELS"
TABLE: Final = f"{NAME}_COUNTS"
SCAN: Final = f"SELECT K, N FROM {TABLE};"
BOUND_MS: Final = 1_000
#: after a refusal: a node may be down, and others need the processor
REFUSED_PAUSE_S: Final = 0.25
#: (begin, end, keys that were asked for, their counts)
Seen = tuple[float, float, tuple[str, ...], tuple[int, ...]]


@dataclass(frozen=True)
class LevelReads:
    """How a level is read: what its clients are told, and how many tasks each of them serves."""

    settings: Mapping[str, Any]
    tasks: int
    #: tasks that send several reads at once on a connection, and what their requests say
    burst_tasks: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    #: of one key, of several keys, of all rows: a scan costs as much as ten of the others
    shares: tuple[int, int, int] = (32, 7, 1)
    #: reads that are sent at once on one connection; a session's token is one for all of them
    burst: int = 32
    pause_s: float = 0.0


EVENTUAL: Final = "eventual"
#: a burst lasts as long as its slowest read
BURST_TASKS: Final = 12
LEVELS: Final = {
    EVENTUAL: LevelReads({}, 2, BURST_TASKS),
    "bounded": LevelReads(
        {"replica_lag_ms_max": BOUND_MS}, 2, BURST_TASKS, {REPLICA_LAG_MAX.name: str(BOUND_MS)}
    ),
    "session": LevelReads({"session": True}, 2, BURST_TASKS, {LEVEL_PROPERTY: SESSION}),
    "snapshot": LevelReads(
        {"consistency": SNAPSHOT}, 2, BURST_TASKS, {LEVEL_PROPERTY: SNAPSHOT}, shares=(2, 36, 2)
    ),
    # Each waits for a batch, and a node answers the reads of a connection one after the other. Many
    # wait for the same batch, so that more of them are hardly more work.
    LINEARIZABLE: LevelReads(
        {"consistency": LINEARIZABLE}, 8, 150, {LEVEL_PROPERTY: LINEARIZABLE}, burst=1
    ),
}
#: reads without a level from the first instant to the last, which all judges get; too few of them
#: to slow down the others
CONTROL: Final = "control"
ALL: Final = {**LEVELS, CONTROL: LevelReads({}, 2, shares=(6, 3, 1), pause_s=0.02)}
#: the share of them that may be for another node
ELSEWHERE: Final = 0.05


@dataclass
class Answers:
    """Of one client at one node."""

    level: str
    session: str
    seen: list[Seen] = field(default_factory=list[Seen])
    refused: int = 0


class Readers:
    """All clients, on one event loop. `counts` and `is_over` are shared with the other process."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, str]],
        reads: Mapping[str, int],
        counts: Any,
        is_over: Any,
    ) -> None:
        """`addresses`: of the nodes, with their ids. `reads`: the answers that each level is to
        have; the control goes on until all are over."""
        self.addresses, self.reads = addresses, [reads.get(level, 0) for level in ALL]
        #: key -> the node that answered for it last
        self.served_by: dict[str, str] = {}
        self.counts, self.is_over = counts, is_over
        self.answers: list[Answers] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (level, how) in enumerate(ALL.items()):
                for node_id, address in self.addresses:
                    # the control is judged as if it were one session, so that its judge has work
                    mine = Answers(level, level if level == CONTROL else f"{level} at {address}")
                    self.answers.append(mine)
                    client = standpipe.connect_async(
                        address, finds_members=False, timeout_s=10, **how.settings
                    )
                    for task in range(how.tasks):
                        chance = random.Random(f"{level} {address} {task}")
                        group.create_task(self._read_on(client, number, how, mine, chance))
                    for task in range(how.burst_tasks):
                        one = Answers(level, f"{level} at {address}, burst {task}")
                        self.answers.append(one)
                        group.create_task(self._burst_on((node_id, address), number, how, one))

    async def _burst_on(
        self, node: tuple[str, str], number: int, how: LevelReads, mine: Answers
    ) -> None:
        node_id, address = node
        chance = random.Random(mine.session)
        session = ClientSession() if how.properties.get(LEVEL_PROPERTY) == SESSION else None
        connection: BurstConnection | None = None
        while not self.is_over.is_set() and self.counts[number] < self.reads[number]:
            own = [key for key in KEYS if self.served_by.get(key) == node_id]
            asked = [self._keys(chance, how, own) for _ in range(how.burst)]
            begin = time.monotonic()
            try:
                connection = connection or await BurstConnection.to(address, session)
                begin = time.monotonic()
                answers = await connection.ask([*map(_text_of, asked)], how.properties)
            except (NodeGone, OSError):
                connection = None
                mine.refused += how.burst
                await asyncio.sleep(REFUSED_PAUSE_S)
                continue
            refused = 0
            for keys, answer in zip(asked, answers, strict=True):
                if answer.rows is None:
                    refused += 1
                    continue
                self.served_by.update(dict.fromkeys(keys, answer.served_by))
                _, found = _found(keys, [(row[0], row[1]) for row in answer.rows])
                mine.seen.append((begin, answer.end, keys, found))
                self.counts[number] += 1
            mine.refused += refused
            if refused:
                await asyncio.sleep(REFUSED_PAUSE_S)
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._end_if_all_have_enough()

    @staticmethod
    def _keys(chance: random.Random, how: LevelReads, own: Sequence[str]) -> tuple[str, ...]:
        """Most reads of a burst are of keys whose node is asked: the others wait for another node,
        and those behind them for their answers."""
        one, many, _ = how.shares
        keys = own if len(own) > 1 and chance.random() >= ELSEWHERE else KEYS
        is_many = chance.random() * (one + many) < many
        return tuple(chance.sample(keys, chance.randint(2, min(6, len(keys))) if is_many else 1))

    async def _read_on(
        self,
        client: AsyncClient,
        number: int,
        how: LevelReads,
        mine: Answers,
        chance: random.Random,
    ) -> None:
        is_control = mine.level == CONTROL
        while not self.is_over.is_set() and (
            is_control or self.counts[number] < self.reads[number]
        ):
            keys = tuple(chance.sample(KEYS, chance.randint(2, 6)))
            (kind,) = chance.choices((_one, _many, _all), how.shares)
            begin = time.monotonic()
            try:
                asked, found = await kind(client, keys)
            except (ServerRefused, NodesUnreachable):
                mine.refused += 1
                await asyncio.sleep(REFUSED_PAUSE_S)
                continue
            mine.seen.append((begin, time.monotonic(), asked, found))
            self.counts[number] += 1
            if how.pause_s:
                await asyncio.sleep(how.pause_s)
        self._end_if_all_have_enough()

    def _end_if_all_have_enough(self) -> None:
        if all(count >= due for count, due in zip(self.counts, self.reads, strict=True)):
            self.is_over.set()  # for the control, too


Found = tuple[tuple[str, ...], tuple[int, ...]]


async def _one(client: AsyncClient, keys: tuple[str, ...]) -> Found:
    row = await client.get(TABLE, k=keys[0])
    return _found(keys[:1], [] if row is None else [(row["K"], row["N"])])


async def _many(client: AsyncClient, keys: tuple[str, ...]) -> Found:
    rows = await client.get_many(TABLE, keys)
    return _found(keys, [(row["K"], row["N"]) for row in rows if row is not None])


async def _all(client: AsyncClient, _: tuple[str, ...]) -> Found:
    return _found(KEYS, [(row["K"], row["N"]) for row in await client.query(SCAN)])


def _text_of(keys: tuple[str, ...]) -> str:
    if len(keys) == 1:
        return f"SELECT K, N FROM {TABLE} WHERE K = '{keys[0]}';"
    listed = ", ".join(f"'{key}'" for key in keys)
    return f"SELECT K, N FROM {TABLE} WHERE K IN ({listed});"


def _found(keys: tuple[str, ...], rows: list[tuple[str, int]]) -> Found:
    values = values_of(rows, keys)
    return keys, tuple(values[key] for key in keys)


@dataclass(frozen=True)
class Truth:
    """What was committed. `batches`: what each covers; `keys`: of the writer; `committed`: when a
    batch was seen in the progress topic."""

    batches: dict[int, dict[int, int]]
    keys: dict[int, list[str]]
    committed: list[tuple[float, int]]


def read_and_judge(
    addresses: Sequence[tuple[str, str]],
    reads: Mapping[str, int],
    counts: Any,
    is_over: Any,
    truth: Connection,
) -> None:
    """The other process: reads until each level has `reads`, and judges once it has the truth."""
    readers = Readers(addresses, reads, counts, is_over)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process says when it is over
    gc.disable()  # millions of answers, none in a cycle
    uvloop.run(readers.run())
    is_over.set()
    truth.send(_verdicts(readers.answers, truth.recv()))


def _verdicts(answers: list[Answers], truth: Truth) -> dict[str, Any]:
    writes, judged = as_batches(truth.batches, truth.keys)
    judges: dict[str, Callable[[Writes, list[SessionAnswer]], list[str]]] = {
        EVENTUAL: row_violations,
        "bounded": lambda w, all_: bounded_violations(w, truth.committed, all_, BOUND_MS / 1000),
        "session": violations,
        "snapshot": snapshot_violations,
        LINEARIZABLE: lambda w, all_: linear_violations(w, truth.committed, all_),
    }

    def of(level: str) -> list[SessionAnswer]:
        return [
            judged(SessionAnswer(one.session, begin, end, dict(zip(keys, values, strict=True))))
            for one in answers
            if one.level == level
            for begin, end, keys, values in one.seen
        ]

    found: dict[str, Any] = {}
    control = of(CONTROL)
    for level, judge in judges.items():
        listed = of(level)
        wrong = judge(writes, listed)
        took_ms = [1000 * (one.end - one.begin) for one in listed]
        found[level] = {
            "answers": len(listed),
            "refused": sum(one.refused for one in answers if one.level == level),
            "violations": len(wrong),
            "first_violations": wrong[:5],
            "p50_ms": round(report.quantile(took_ms, 0.5), 1),
            "p99_ms": round(report.quantile(took_ms, 0.99), 1),
            f"violations_of_{CONTROL}": len(judge(writes, control)),
        }
    return {"levels": found, f"answers_of_{CONTROL}": len(control)}


def row_violations(writes: Writes, answers: Iterable[SessionAnswer]) -> list[str]:
    """Rows that no batch has committed."""
    return [
        f"{answer.session}: {key} = {value}, which no batch wrote"
        for answer in answers
        for key, value in answer.values.items()
        if value != NO_VALUE and not writes.has(key, value)
    ]
