"""How fast does a node that lost its stores restore them?  Budget: 300,000 records/s on one core.

Sketch: 2 M records of one table in 4 partitions, shuffled keys, about 48 bytes each, headers
checked; the tailer's own path from librdkafka messages through `data.replica.machine` into LMDB,
pinned to one core. First from memory (messages made ahead, chunk by chunk, outside the clock), then
from a real broker on another core, where librdkafka's threads take their share of the one core as
well; each such round by turns with the peers (`restore_parts/peers.py`): Kafka Streams, at its
defaults and tuned, and a bare loop that says what the machine can do. Machines differ by a factor
of three in this: ratios are what to compare. Both clocks are told of ours.

    python bench/restore.py [--records 2000000] [--batch 50000] [--rounds 5]
                            writes bench/results/restore.json

The peers on the budgets' machine: Kafka Streams 325 k/s by default, 379 k/s tuned, the bare loop
443 k/s. Not here: copies of
finished stores, several cores.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka.admin import AdminClient, NewTopic

from standpipe.adapters.kafka import reader as kafka
from standpipe.adapters.kafka.reader import Partition, PartitionReader
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import MAP_BYTES_START, StoreWriter
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    partition_of,
    rowtime_header,
)
from standpipe.data.replica.events import (
    ApplyBatch,
    Event,
    ProgressCaughtUp,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import StoreIdentity
from standpipe.data.replica.stage import RowCodec
from standpipe.local.cluster.broker import Broker
from standpipe.model import BatchId, Column, Commit, LeaseEpoch, Progress, Source

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from restore_parts.peers import CHANGELOG, INPUT, KafkaStreams, bare_restore_s  # noqa: E402

PARTITIONS = 4
#: On a virtual machine the first touch of a page is the host's work: measured, 12 us a page, later
#: 3. A machine that has run for a while has no such pages; these are touched before any clock runs
TOUCHED_BYTES = 4 << 30
TABLE = Source(
    name="T",
    kind="TABLE",
    columns=(
        Column(name="K", type="STRING", is_key=True),
        Column(name="N", type="BIGINT"),
        Column(name="M", type="BIGINT"),
        Column(name="S", type="STRING"),
    ),
    topic="T",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
    query_id="Q",
    table_id="t",
)


@dataclass
class Round:
    """One restore, from empty stores to the newest progress."""

    records: int
    seconds: float
    processor_seconds: float

    @property
    def per_second(self) -> int:
        return round(self.records / self.seconds)

    @property
    def per_processor_second(self) -> int:
        return round(self.records / self.processor_seconds)


@dataclass(frozen=True)
class Made:
    """A record of the table topic before it has an offset."""

    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def batches(records: int, size: int) -> Iterator[tuple[Commit, list[Made]]]:
    """The whole table in batches: keys shuffled, each once."""
    chance = random.Random(1)
    numbers = list(range(records))
    chance.shuffle(numbers)
    for batch in range(-(-records // size)):
        attempt = chance.getrandbits(64)
        commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=attempt)
        header = (HEADER_COMMIT, commit_header(commit))
        rows: list[Made] = []
        for number in numbers[batch * size : (batch + 1) * size]:
            key = b"key%07d" % number
            value = b'{"N":%d,"M":67890123,"S":"abcdefghij"}' % number
            headers = [header, (HEADER_ROWTIME, rowtime_header(1_357_000_000_000 + number))]
            rows.append(Made(partition_of(key, PARTITIONS), key, value, headers))
        yield commit, rows


class Restore:
    """Stores, machines and progress of all partitions, driven as `node/tailer/main.py` does."""

    def __init__(self, folder: Path) -> None:
        self.book = ProgressBook()
        self.stores: list[StoreWriter] = []
        self.machines: list[ApplyMachine] = []
        for partition in range(PARTITIONS):
            identity = StoreIdentity(table_id="t", generation=1, partition=partition)
            path = store_path(folder, identity.replica_id)
            store = StoreWriter(path, identity, map_bytes=MAP_BYTES_START)
            self.stores.append(store)
            self.machines.append(ApplyMachine(RowCodec.of(TABLE, partition), store.meta()))

    def know(self, progress: list[Progress]) -> None:
        for record in progress:
            for valid in self.book.take(record):
                self.handle(valid.partition, valid.target)
        for partition in range(PARTITIONS):
            self.handle(partition, ProgressCaughtUp())

    def handle(self, partition: int, event: Event) -> None:
        for order in self.machines[partition].handle(event):
            if isinstance(order, ApplyBatch):
                self.stores[partition].apply(order.puts, order.deletes, order.meta)

    @property
    def is_done(self) -> bool:
        return all(machine.is_caught_up for machine in self.machines)

    def check(self, records: int) -> None:
        assert sum(store.rows() for store in self.stores) == records
        metas = [machine.meta for machine in self.machines]
        assert not any(
            m.foreign_records + m.mismatched_records + m.unreadable_records for m in metas
        )


def progress_of(commits: list[Commit], ends: list[dict[int, int]]) -> list[Progress]:
    return [
        Progress(query_id="Q", commit=commit, sinks=sinks)
        for commit, sinks in zip(commits, ends, strict=True)
    ]


def from_memory(records: int, batch: int, folder: Path) -> Round:
    """Messages of librdkafka's own type, in chunks as `consume` hands them out."""
    restore, offsets = Restore(folder), dict.fromkeys(range(PARTITIONS), 0)
    commits: list[Commit] = []
    ends: list[dict[int, int]] = []
    places: list[list[int]] = []
    for commit, rows in batches(records, batch):
        commits.append(commit)
        places.append([])
        for row in rows:
            places[-1].append(offsets[row.partition])
            offsets[row.partition] += 1
        ends.append(dict(offsets))
    restore.know(progress_of(commits, ends))
    spent = Round(records, 0.0, 0.0)
    for (_, rows), at in zip(batches(records, batch), places, strict=True):
        messages = _in_fetches(rows, at)
        wall, processor = time.perf_counter(), time.process_time()
        for first in range(0, len(messages), kafka.RECORDS_AT_ONCE):
            for of, event in kafka.fetch_events(messages[first : first + kafka.RECORDS_AT_ONCE]):
                restore.handle(of.partition, event)
        spent.seconds += time.perf_counter() - wall
        spent.processor_seconds += time.process_time() - processor
    assert restore.is_done
    restore.check(records)
    return spent


def _in_fetches(rows: list[Made], offsets: list[int]) -> list[Any]:
    """The records of a batch as messages, one partition after another, as fetches bring them."""
    messages = [
        confluent_kafka.Message(
            topic="T",
            partition=row.partition,
            offset=offset,
            key=row.key,
            value=row.value,
            headers=row.headers,
        )
        for row, offset in zip(rows, offsets, strict=True)
    ]
    return sorted(messages, key=lambda message: message.partition())


def produce(records: int, batch: int, servers: str) -> list[Progress]:
    """Write the table, a changelog for Kafka Streams too; the progress records that commit it."""
    # log_level: that the broker is gone in the end is no news
    options = {"bootstrap.servers": servers, "linger.ms": 20, "log_level": 2}
    producer: Any = confluent_kafka.Producer(options)
    commits: list[Commit] = []
    ends: list[dict[int, int]] = []
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    for commit, rows in batches(records, batch):
        for row in rows:
            while True:
                try:
                    producer.produce(
                        CHANGELOG, row.value, row.key, partition=row.partition, headers=row.headers
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            offsets[row.partition] += 1
        producer.flush()
        commits.append(commit)
        ends.append(dict(offsets))
    return progress_of(commits, ends)


def from_broker(servers: str, progress: list[Progress], folder: Path) -> Round:
    restore = Restore(folder)
    records = sum(progress[-1].sinks.values())
    wall, processor = time.perf_counter(), time.process_time()
    restore.know(progress)
    reader = PartitionReader(servers)
    for partition in range(PARTITIONS):
        reader.start(Partition(CHANGELOG, partition), 0)
    while not restore.is_done:
        for of, event in reader.poll(0.005):
            restore.handle(of.partition, event)
    spent = Round(records, time.perf_counter() - wall, time.process_time() - processor)
    reader.close()
    restore.check(records)
    return spent


def touch_memory() -> None:
    print(f"{TOUCHED_BYTES >> 30} GiB of memory are touched first, about 10 s", flush=True)
    block = 1 << 26
    held = [bytearray(block) for _ in range(TOUCHED_BYTES // block)]  # at once: not the same pages
    assert sum(map(len, held)) == TOUCHED_BYTES


def measured(name: str, one: Callable[[Path], Round]) -> Round:
    with tempfile.TemporaryDirectory(prefix="restore-") as folder:
        found = one(Path(folder))
    print(
        f"{name}: {found.per_second:,} records/s, {found.per_processor_second:,} per processor"
        " second",
        flush=True,
    )
    return found


#: what one turn found: whose restore -> records a second
Turn = dict[str, int]


def turns(
    count: int, ours: Callable[[], Round], peers: dict[str, Callable[[], float]], records: int
) -> tuple[list[Round], list[Turn]]:
    """Ours and each peer by turns, every other turn backwards."""
    rounds: list[Round] = []
    found: list[Turn] = []
    for number in range(count):
        turn: Turn = {}
        for name in ["standpipe", *peers][:: 1 if number % 2 == 0 else -1]:
            if name == "standpipe":
                rounds.append(ours())
                turn[name] = rounds[-1].per_second
            else:
                turn[name] = round(records / peers[name]())
                print(f"  {name}: {turn[name]:,} records/s", flush=True)
        found.append(turn)
    return rounds, found


def ratios(found: list[Turn]) -> dict[str, float]:
    """Ours to each peer, the median of the turns: above 1, ours is the faster one."""
    return {
        f"to_{name}": round(statistics.median(turn["standpipe"] / turn[name] for turn in found), 3)
        for name in found[0]
        if name != "standpipe"
    }


def told(rounds: list[Round]) -> dict[str, Any]:
    return {
        "records_per_second_median": statistics.median(r.per_second for r in rounds),
        "records_per_processor_second_median": statistics.median(
            r.per_processor_second for r in rounds
        ),
        "rounds": [asdict(each) for each in rounds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # warnings
    gc.disable()  # as the tailer does
    touch_memory()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="restore-kafka-") as work:
        print("Kafka Streams, the peer, is fetched", flush=True)
        streams = KafkaStreams(Path(work, "streams"))
        os.sched_setaffinity(0, cores[1:] or cores)  # the broker inherits it
        with Broker(Path(work, "kafka"), say=lambda _: None) as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
            topics = [NewTopic(name, PARTITIONS, 1) for name in (CHANGELOG, INPUT)]
            for made in admin.create_topics(topics).values():
                made.result()
            print(f"{options.records:,} records are written to a broker of its own", flush=True)
            progress = produce(options.records, options.batch, servers)
            os.sched_setaffinity(0, cores[:1])
            memory = [
                measured(
                    f"from memory, round {number + 1}",
                    lambda folder: from_memory(options.records, options.batch, folder),
                )
                for number in range(options.rounds)
            ]
            changelog, found = turns(
                options.rounds,
                lambda: measured(
                    "from a broker", lambda folder: from_broker(servers, progress, folder)
                ),
                {
                    "kafka_streams": lambda: streams.restore_s(
                        servers, PARTITIONS, options.records, is_tuned=False
                    ),
                    "kafka_streams_tuned": lambda: streams.restore_s(
                        servers, PARTITIONS, options.records, is_tuned=True
                    ),
                    "bare_loop": lambda: bare_restore_s(servers, PARTITIONS, options.records),
                },
                options.records,
            )
    print(f"medians of the ratios: {ratios(found)}", flush=True)
    report.write_summary(
        report.RESULTS / "restore.json",
        {
            "question": (__doc__ or "").splitlines()[0],
            **report.circumstances(),
            "records": options.records,
            "is_compiled": native.IS_COMPILED,
            "from_memory": told(memory),
            "from_a_broker": told(changelog),
            "turns": found,
            "ratios": ratios(found),
        },
    )


if __name__ == "__main__":
    main()
