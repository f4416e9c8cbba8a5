"""Does each read level keep its promise while tailers, nodes and the driver die?

    make read-levels READS=1000000       adds to its result file in bench/results

A real cluster (Kafka, three nodes, Spark), a steady writer, and clients of each level at each node,
in a process of their own. Each level reads until it has READS answers. Meanwhile one fault follows
the other: a tailer stands still or is killed, a node is killed and started again, the driver is
killed. What the progress topic has is what was committed, and when; the judges of `tests/sim` know
that and the answers. A few reads without a level show that the judges would notice.

Not here: reads of what a session has written (test_session_writes.py); faults of hosts, disks and
Kafka (`make chaos`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.progress import Progress as Bar
from tests import report
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.counted_keys import (
    KEYS,
    Writer,
    as_batches,
    batch_in,
    progress_of,
    statements,
    tailer_of,
    topic_of,
    values_of,
)
from tests.e2e.driver_kills import kept_on_failure
from tests.sim.linear_histories import bounded_violations, linear_violations
from tests.sim.session_histories import SessionAnswer, Writes, violations
from tests.sim.snapshot_histories import snapshot_violations

import standpipe
from standpipe.client import AsyncClient, NodesUnreachable, ServerRefused
from standpipe.local.client.rest_client import NodesClient
from standpipe.model import NodeId

NAME: Final = "LEVELS"
TABLE: Final = f"{NAME}_COUNTS"
SCAN: Final = f"SELECT K, N FROM {TABLE};"
BOUND_MS: Final = 1_000
FAULT_EVERY_S: Final = 4.0
STILL_S: Final = 1.5
RESULTS = report.RESULTS / "read_levels.json"
#: (begin, end, keys that were asked for, their counts)
Seen = tuple[float, float, tuple[str, ...], tuple[int, ...]]


@dataclass(frozen=True)
class LevelReads:
    """How a level is read: what its clients are told, and how many tasks each of them serves."""

    settings: Mapping[str, Any]
    tasks: int
    #: of one key, of several keys, of all rows
    shares: tuple[int, int, int] = (6, 3, 1)
    pause_s: float = 0.0


LEVELS: Final = {
    "bounded": LevelReads({"replica_lag_ms_max": BOUND_MS}, 8),
    "session": LevelReads({"session": True}, 8),
    "snapshot": LevelReads({"consistency": "snapshot"}, 8, (1, 8, 1)),
    "linearizable": LevelReads({"consistency": "linearizable"}, 120),
}
#: the reads without a promise; too few of them to slow down the others
CONTROL: Final = "eventual"
ALL: Final = {**LEVELS, CONTROL: LevelReads({}, 1, pause_s=0.02)}


# ------------------------------------------------------------------------------- the readers


@dataclass
class Answers:
    """Of one client at one node."""

    level: str
    session: str
    seen: list[Seen] = field(default_factory=list[Seen])
    refused: int = 0


class Readers:
    """All clients, on one event loop. `counts` and `is_over` are shared with the other process."""

    def __init__(self, addresses: Sequence[str], reads: int, counts: Any, is_over: Any) -> None:
        self.addresses, self.reads = addresses, reads
        self.counts, self.is_over = counts, is_over
        self.answers: list[Answers] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (level, how) in enumerate(ALL.items()):
                for address in self.addresses:
                    # the control is judged as if it were one session, so that its judge has work
                    mine = Answers(level, level if level == CONTROL else f"{level} at {address}")
                    self.answers.append(mine)
                    client = standpipe.connect_async(
                        address, finds_members=False, timeout_s=10, **how.settings
                    )
                    for task in range(how.tasks):
                        chance = random.Random(f"{level} {address} {task}")
                        group.create_task(self._read_on(client, number, how, mine, chance))

    async def _read_on(
        self,
        client: AsyncClient,
        number: int,
        how: LevelReads,
        mine: Answers,
        chance: random.Random,
    ) -> None:
        is_control = mine.level == CONTROL
        while not self.is_over.is_set() and (is_control or self.counts[number] < self.reads):
            keys = tuple(chance.sample(KEYS, chance.randint(2, 6)))
            (kind,) = chance.choices((_one, _many, _all), how.shares)
            begin = time.monotonic()
            try:
                asked, found = await kind(client, keys)
            except (ServerRefused, NodesUnreachable):
                mine.refused += 1
                await asyncio.sleep(0.05)  # its node may be down: leave others the processor
                continue
            mine.seen.append((begin, time.monotonic(), asked, found))
            self.counts[number] += 1
            if how.pause_s:
                await asyncio.sleep(how.pause_s)


Found = tuple[tuple[str, ...], tuple[int, ...]]


async def _one(client: AsyncClient, keys: tuple[str, ...]) -> Found:
    row = await client.get(TABLE, k=keys[0])
    return _found(keys[:1], [] if row is None else [(row["K"], row["N"])])


async def _many(client: AsyncClient, keys: tuple[str, ...]) -> Found:
    rows = await client.get_many(TABLE, keys)
    return _found(keys, [(row["K"], row["N"]) for row in rows if row is not None])


async def _all(client: AsyncClient, _: tuple[str, ...]) -> Found:
    return _found(KEYS, [(row["K"], row["N"]) for row in await client.query(SCAN)])


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
    addresses: Sequence[str], reads: int, counts: Any, is_over: Any, truth: Connection
) -> None:
    """The other process: reads until all levels have enough, and judges once it has the truth."""
    readers = Readers(addresses, reads, counts, is_over)
    gc.disable()  # millions of answers, none in a cycle
    uvloop.run(readers.run())
    is_over.set()
    truth.send(_verdicts(readers.answers, truth.recv()))


def _verdicts(answers: list[Answers], truth: Truth) -> dict[str, Any]:
    writes, judged = as_batches(truth.batches, truth.keys)
    judges: dict[str, Callable[[Writes, list[SessionAnswer]], list[str]]] = {
        "bounded": lambda w, all_: bounded_violations(w, truth.committed, all_, BOUND_MS / 1000),
        "session": violations,
        "snapshot": snapshot_violations,
        "linearizable": lambda w, all_: linear_violations(w, truth.committed, all_),
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


# -------------------------------------------------------------------------------- the cluster


class Watcher(threading.Thread):
    """Reads the progress topic as anybody may, and writes down what is committed, and when."""

    def __init__(self, cluster: TestCluster, query_id: str) -> None:
        super().__init__()
        self.query_id, self.is_over = query_id, threading.Event()
        self.consumer = progress_of(cluster)
        self.batches: dict[int, dict[int, int]] = {}
        self.committed: list[tuple[float, int]] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                found = batch_in(message.value(), self.query_id, topic_of(NAME))
                if found is not None:
                    batch, ends = found
                    self.batches[batch] = ends
                    self.committed.append((time.monotonic(), batch))
        self.consumer.close()


class Faults(threading.Thread):
    """One after the other, each at a node in turn, until the reads are over."""

    def __init__(self, cluster: TestCluster, is_over: Any) -> None:
        super().__init__()
        self.cluster, self.is_over = cluster, is_over
        self.done: Counter[str] = Counter()
        self.fault: BaseException | None = None

    def run(self) -> None:
        kinds = self._kinds()
        try:
            while not self.is_over.wait(FAULT_EVERY_S):
                kind = next(kinds)
                with suppress(AssertionError, ProcessLookupError):  # it has just been started again
                    kind(sum(self.done.values()) % 3)
                    self.done[kind.__name__] += 1
        except BaseException as fault:
            self.fault = fault

    def _kinds(self) -> Iterator[Callable[[int], None]]:
        while True:
            yield from (self.tailer_stands_still,) * 3
            yield self.tailer_killed
            yield self.node_killed
            yield self.tailer_stands_still
            yield self.driver_killed

    def tailer_stands_still(self, number: int) -> None:
        tailer = tailer_of(self.cluster, number)
        os.kill(tailer, signal.SIGSTOP)
        try:
            self.is_over.wait(STILL_S)
        finally:
            os.kill(tailer, signal.SIGCONT)

    def tailer_killed(self, number: int) -> None:
        os.kill(tailer_of(self.cluster, number), signal.SIGKILL)

    def node_killed(self, number: int) -> None:
        node_id: NodeId = self.cluster.local.plans[number].node_id
        self.cluster.local.kill_node(node_id)
        try:
            self.is_over.wait(STILL_S)
        finally:
            self.cluster.local.restart_node(node_id)

    def driver_killed(self, _: int) -> None:
        assert self.cluster.local.pipeline is not None
        self.cluster.local.pipeline.restarts = 0  # no pause before the next start
        self.cluster.local.kill_pipeline()


def run(folder: Path, reads: int, seconds_max: float) -> dict[str, Any]:
    """The story of one cluster. Raises AssertionError if it is not told to its end."""
    cluster = start(folder / "cluster")
    try:
        return _run(cluster, reads, seconds_max)
    finally:
        cluster.close()


def _run(cluster: TestCluster, reads: int, seconds_max: float) -> dict[str, Any]:
    cluster.sql(statements(NAME))
    addresses = [address for _, address in cluster.addresses]
    context = multiprocessing.get_context("spawn")
    is_over, written = context.Event(), threading.Event()
    counts = context.Array("q", len(ALL), lock=False)
    mine, theirs = context.Pipe()
    other = context.Process(
        target=read_and_judge, args=(addresses, reads, counts, is_over, theirs), daemon=True
    )
    watcher = Watcher(cluster, cluster.query_of(TABLE))
    writer = Writer(cluster, topic_of(NAME), written, at_once=6, every_s=0.1)
    faults = Faults(cluster, is_over)
    began = time.monotonic()
    try:
        watcher.start()
        writer.start()
        wait_until(lambda: all(map(_has_all, addresses)) or None, "rows of all keys at all nodes")
        other.start()
        faults.start()
        began = time.monotonic()
        with Bar() as bar:
            tasks = [bar.add_task(level, total=reads) for level in LEVELS]
            while not is_over.wait(1) and time.monotonic() - began < seconds_max:
                assert other.is_alive(), "the readers have ended"
                assert faults.is_alive(), f"the faults have ended: {faults.fault!r}"
                for task, count in zip(tasks, counts, strict=False):
                    bar.update(task, completed=count)
    finally:
        is_over.set()
        for thread in (faults, writer, watcher):
            written.set()
            if thread.ident is not None:
                if thread is watcher:
                    time.sleep(5)  # the last batch is in the topic once its rows can be read
                    watcher.is_over.set()
                thread.join()
    assert faults.fault is None, faults.fault
    seconds = time.monotonic() - began
    mine.send(Truth(watcher.batches, writer.keys, watcher.committed))
    verdicts = mine.recv()
    other.join()
    return {
        **verdicts,
        "seconds": round(seconds),
        "batches": len(watcher.batches),
        "faults": dict(faults.done),
    }


def _has_all(address: str) -> bool:
    with NodesClient([address]) as client:
        return len(client.pull(SCAN).rows) == len(KEYS)


def on_record(before: Mapping[str, Any], ran: Mapping[str, Any]) -> dict[str, Any]:
    """The record with one more run: sums of all, and one entry for each."""
    runs = [*before.get("all_runs", []), ran]
    sums = ("answers", "refused", "violations", f"violations_of_{CONTROL}")
    return {
        "question": (__doc__ or "").splitlines()[0],
        "date": ran["date"],
        "commit": ran["commit"],
        "machine": ran["machine"],
        "levels": {
            level: {name: sum(one["levels"][level][name] for one in runs) for name in sums}
            for level in LEVELS
        },
        "faults": dict(sum((Counter(one["faults"]) for one in runs), Counter[str]())),
        "all_runs": runs,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--reads", type=int, default=1_000_000, help="answers at each level")
    options.add_argument("--seconds-max", type=float, default=3_600)
    options.add_argument("--result", type=Path, default=RESULTS)
    given = options.parse_args()
    head = report.circumstances()
    with kept_on_failure("read-levels-") as folder:
        ran = {**head, **run(folder, given.reads, given.seconds_max)}
        print(json.dumps(ran, indent=1))
        levels = ran["levels"]
        assert len(ran["faults"]) == 4, "each kind of fault was there"
        assert all(one[f"violations_of_{CONTROL}"] for one in levels.values()), "they would notice"
        assert not any(one["violations"] for one in levels.values())
    before = json.loads(given.result.read_text()) if given.result.exists() else {}
    report.write(given.result, on_record(before, ran))
    return 0 if all(one["answers"] >= given.reads for one in levels.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
