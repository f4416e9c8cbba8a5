"""Does each read level keep its promise while tailers, nodes and the driver die?

    make read-levels READS=1000000          adds to its result file in bench/results
    make read-levels MORE=1 READS=1000000   only what the runs on record lack

It may be ended at any time (Ctrl-C, SIGTERM): what was read until then is judged, and counts.

A real cluster (Kafka, three nodes, Spark), a steady writer, and clients of each level at each node,
in a process of their own. Each level reads until it has READS answers. Meanwhile one fault follows
the other: a tailer stands still or is killed, a node is killed and started again, the driver is
killed. What the progress topic has is what was committed, and when; the judges of `tests/sim` know
that and the answers; of level eventual, only that each row was committed by some batch. A few reads
without a level, all the time, show that the other judges would notice.

Not here: reads of what a session has written (test_session_writes.py); faults of hosts, disks and
Kafka (`make chaos`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress as Bar
from tests import report
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.counted_keys import (
    KEYS,
    Writer,
    batch_in,
    progress_of,
    statements,
    tailer_of,
    topic_of,
)
from tests.e2e.driver_kills import kept_on_failure
from tests.e2e.level_readers import (
    ALL,
    CONTROL,
    EVENTUAL,
    LEVELS,
    NAME,
    SCAN,
    TABLE,
    Truth,
    read_and_judge,
)

from standpipe.local.client.rest_client import NodesClient
from standpipe.model import NodeId

FAULT_EVERY_S: Final = 4.0
#: longer than the bound of level bounded and the time between two batches on a slow machine, else
#: the control has hardly an answer that is too old
STILL_S: Final = 3.0
#: rounds of faults between two kills of the driver: each costs some 20 s of processor time, which
#: the readers lack
ROUNDS_PER_DRIVER: Final = 3
#: between two events of 6 keys: Spark has a batch for each, and pauses in between
EVENTS_EVERY_S: Final = 0.7
RESULTS = report.RESULTS / "read_levels.json"


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

    def __init__(self, cluster: TestCluster, is_over: Any, batches: Sequence[object]) -> None:
        super().__init__()
        self.cluster, self.is_over = cluster, is_over
        #: those that are committed, and how many were when the driver was killed last
        self.batches, self.batches_before = batches, 0
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
        for number in itertools.count():
            yield from (self.tailer_stands_still,) * 3
            yield self.tailer_killed
            yield self.node_killed
            yield self.tailer_stands_still
            if number % ROUNDS_PER_DRIVER == 0:
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
        # a driver that dies twice in the same batch is said to die of its query, which then fails
        assert len(self.batches) > self.batches_before, "nothing was committed since the last one"
        self.batches_before = len(self.batches)
        self.cluster.local.pipeline.restarts = 0  # no pause before the next start
        self.cluster.local.kill_pipeline()


def run(folder: Path, reads: Mapping[str, int], seconds_max: float) -> dict[str, Any]:
    """The story of one cluster. Raises AssertionError if it is not told to its end."""
    cluster = start(folder / "cluster")
    try:
        return _run(cluster, reads, seconds_max)
    finally:
        cluster.close()


def _run(cluster: TestCluster, reads: Mapping[str, int], seconds_max: float) -> dict[str, Any]:
    cluster.sql(statements(NAME))
    addresses = [address for _, address in cluster.addresses]
    context = multiprocessing.get_context("spawn")
    is_over, written = context.Event(), threading.Event()
    counts = context.Array("q", len(ALL), lock=False)
    mine, theirs = context.Pipe()
    other = context.Process(
        target=read_and_judge, args=(cluster.addresses, reads, counts, is_over, theirs), daemon=True
    )
    watcher = Watcher(cluster, cluster.query_of(TABLE))
    writer = Writer(cluster, topic_of(NAME), written, at_once=6, every_s=EVENTS_EVERY_S)
    faults = Faults(cluster, is_over, watcher.committed)
    # not `is_over.set()`, which waits for a lock that this thread may have
    is_ended = list[int]()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: is_ended.append(number))
    began = time.monotonic()
    try:
        watcher.start()
        writer.start()
        wait_until(lambda: all(map(_has_all, addresses)) or None, "rows of all keys at all nodes")
        other.start()
        theirs.close()  # else `recv` would not notice that the readers have ended
        faults.start()
        began = time.monotonic()
        with Bar() as bar:
            tasks = [bar.add_task(level, total=reads[level]) for level in LEVELS]
            while not is_over.wait(1) and not is_ended and time.monotonic() - began < seconds_max:
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


def reads_due(before: Mapping[str, Any], reads: int) -> dict[str, int]:
    """What is left of `reads` at each level after the runs on record."""
    done = {level: before["levels"][level]["answers"] if before else 0 for level in LEVELS}
    return {level: max(0, reads - done[level]) for level in LEVELS}


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
        "violations": sum(one["levels"][level]["violations"] for one in runs for level in LEVELS),
        "faults": dict(sum((Counter(one["faults"]) for one in runs), Counter[str]())),
        "all_runs": runs,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--reads", type=int, default=1_000_000, help="answers at each level")
    options.add_argument("--more", action="store_true", help="count those of earlier runs, too")
    options.add_argument("--seconds-max", type=float, default=3_600)
    options.add_argument("--result", type=Path, default=RESULTS)
    given = options.parse_args()
    head = report.circumstances()
    before = json.loads(given.result.read_text()) if given.result.exists() else {}
    reads = reads_due(before if given.more else {}, given.reads)
    with kept_on_failure("read-levels-") as folder:
        ran = {**head, **run(folder, reads, given.seconds_max)}
        print(json.dumps(ran, indent=1))
        levels = ran["levels"]
        assert len(ran["faults"]) == 4, "each kind of fault was there"
        noticed = [
            one[f"violations_of_{CONTROL}"] for each, one in levels.items() if each != EVENTUAL
        ]
        assert all(noticed), f"the judges would notice: {noticed}"
        assert not any(one["violations"] for one in levels.values())
    report.write(given.result, on_record(before, ran))
    return 0 if all(levels[level]["answers"] >= due for level, due in reads.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
