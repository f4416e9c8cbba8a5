"""What a restore is compared with, in the same run, on the same core, from the same topic.

Kafka Streams restores its RocksDB store from it (`RestorePeer.java`; at its defaults, and with
polls of 10,000 records and larger fetches). The bare loop is the least that a Python program has to
do: librdkafka's messages into LMDB as they come, no headers, no columns, no digests; it says what
the machine can do at all.

`bench/restore.py` has the figures of all three on the machine of the budgets.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import lmdb
from bench.peers.java import JavaProgram

#: Kafka Streams names the changelog of a store after its application and the store
APPLICATION, STORE = "restore", "rows"
CHANGELOG: Final = f"{APPLICATION}-{STORE}-changelog"
#: an empty topic, for a store belongs to a topology that reads something
INPUT: Final = "restore-input"
RESTORE_S_MAX: Final = 180.0
RECORDS_AT_ONCE: Final = 2000

_BARE_OPTIONS: Final[dict[str, object]] = {
    "group.id": "restore-bare",
    "enable.auto.commit": False,
    "log_level": 2,
    "fetch.queue.backoff.ms": 5,  # at its default of 1000 a full queue pauses the fetch for 1 s
}
_HERE = Path(__file__).resolve().parent
_kafka: Any = confluent_kafka


class KafkaStreams:
    """Its jars are there and its program is compiled once, before any clock runs."""

    def __init__(self, folder: Path) -> None:
        self._program = JavaProgram(_HERE / "RestorePeer.java", folder, ["streams"])

    def restore_s(self, servers: str, partitions: int, records: int, *, is_tuned: bool) -> float:
        """Seconds in which it restored all, by its own restore listener. Pinned as this process."""
        with tempfile.TemporaryDirectory(prefix="restore-streams-") as state:
            ran = subprocess.run(
                self._program.command(
                    *(servers, APPLICATION, STORE, INPUT, str(partitions), state),
                    str(is_tuned).lower(),
                ),
                capture_output=True,
                text=True,
                timeout=RESTORE_S_MAX,
                check=False,
            )
        if ran.returncode != 0 or not ran.stdout.strip():
            raise RuntimeError(f"Kafka Streams did not restore:\n{ran.stderr[-2000:]}")
        restored, seconds = ran.stdout.split()[-2:]
        assert int(restored) == records, f"Kafka Streams restored {restored} of {records} records"
        return float(seconds)


def bare_restore_s(servers: str, partitions: int, records: int) -> float:
    """Seconds in which keys and values are in LMDB."""
    consumer = _kafka.Consumer({**_BARE_OPTIONS, "bootstrap.servers": servers})
    with tempfile.TemporaryDirectory(prefix="restore-bare-") as folder:
        stores = [
            lmdb.open(f"{folder}/{partition}", map_size=4 << 30, sync=False)
            for partition in range(partitions)
        ]
        began, left = time.perf_counter(), records
        consumer.assign([_kafka.TopicPartition(CHANGELOG, each, 0) for each in range(partitions)])
        while left:
            rows: list[list[tuple[bytes, bytes]]] = [[] for _ in stores]
            for message in consumer.consume(RECORDS_AT_ONCE, 0.005):
                if message.error() is None:
                    rows[message.partition()].append((message.key(), message.value()))
            for store, puts in zip(stores, rows, strict=True):
                if puts:
                    with store.begin(write=True) as transaction:
                        transaction.cursor().putmulti(puts)
                    left -= len(puts)
        seconds = time.perf_counter() - began
        for store in stores:
            store.close()
    consumer.close()
    return seconds
