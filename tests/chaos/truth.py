"""What is true: read from Kafka alone, by a consumer of the test's own, while the faults go on.

`Truth` keeps every row that a progress record committed, with its offset, and when the test itself
first knew of each committed end. It shares no code with tailers: it matches (epoch, batch, attempt)
of records with those of progress records, and drops progress of an epoch that was fenced.
Nothing is judged here (`tests.chaos.judge`).
"""

from __future__ import annotations

import json
import struct
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

CommitKey = tuple[int, int, int]  # lease epoch, batch, attempt
PROGRESS, ROWS = "default__progress", "LEVELS"


@dataclass
class Facts:
    """What the topics say, fed record by record. Pure."""

    #: commit -> rows that carry it: (partition, offset, key, N)
    written: defaultdict[CommitKey, list[tuple[int, int, str, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    committed: set[CommitKey] = field(default_factory=set)
    newest_epoch: int = -1
    #: partition -> (instant at which it was known, committed end), ascending
    ends: defaultdict[int, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def row(self, commit: CommitKey, partition: int, offset: int, key: str, number: int) -> None:
        self.written[commit].append((partition, offset, key, number))

    def progress(self, commit: CommitKey, sinks: dict[int, int], now_s: float) -> None:
        if commit[0] < self.newest_epoch:
            return  # fenced
        self.newest_epoch = commit[0]
        self.committed.add(commit)
        for partition, end in sinks.items():
            known = self.ends[partition]
            if not known or end > known[-1][1]:
                known.append((now_s, end))

    def rows_of(self) -> dict[str, list[tuple[int, int]]]:
        """key -> committed (offset, N), ascending by offset."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for commit in self.committed:
            for _, offset, key, number in self.written.get(commit, ()):
                found[key].append((offset, number))
        return {key: sorted(rows) for key, rows in found.items()}

    def end_known_at(self, partition: int, instant_s: float) -> int:
        """The committed end that was known to the test then; 0: none."""
        known = self.ends.get(partition, [])
        place = bisect_right(known, (instant_s, 2**63))
        return known[place - 1][1] if place else 0


def commit_of(header: bytes) -> CommitKey:
    """`sp-commit`: epoch and batch (signed), attempt (not), 8 bytes each, big-endian."""
    epoch, batch, attempt = struct.unpack(">qqQ", header)
    return epoch, batch, attempt


class Truth:
    """Reads both topics until it is stopped."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self.facts = Facts()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        places = [confluent_kafka.TopicPartition(ROWS, p, begin) for p in range(partitions)]
        self._consumer.assign([*places, confluent_kafka.TopicPartition(PROGRESS, 0, begin)])
        self._thread = threading.Thread(target=self._run, name="truth", daemon=True)
        self._thread.start()

    def stop(self) -> Facts:
        self._stopping.set()
        self._thread.join(10)
        self._consumer.close()
        return self.facts

    def newest(self, key: str) -> int:
        """The newest committed N of a key; 0: none."""
        with self._lock:
            rows = self.facts.rows_of().get(key)
        return max(number for _, number in rows) if rows else 0

    def newest_of_all(self) -> dict[str, int]:
        with self._lock:
            rows = self.facts.rows_of()
        return {key: max(number for _, number in found) for key, found in rows.items()}

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(500, 0.05)
            with self._lock:
                for message in messages:
                    if message.error() is None:
                        self._take(message)

    def _take(self, message: Any) -> None:
        if message.topic() == PROGRESS:
            if message.value() is not None:
                body = json.loads(message.value())
                commit = body["commit"]
                sinks = {int(p): end for p, end in body.get("sinks", {}).items()}
                named = (commit["lease_epoch"], commit["batch"], commit["attempt"])
                self.facts.progress(named, sinks, time.monotonic())
            return
        header = dict(message.headers() or ()).get("sp-commit", b"")
        number = json.loads(message.value())["N"]
        key = message.key().decode()
        self.facts.row(commit_of(header), message.partition(), message.offset(), key, number)
