"""Asks Kafka regularly where the topics of all queries end: one request for all, in a thread.

Not here: what follows from the ends (`data/commit/source_instant.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from standpipe.data.commit.source_instant import Offsets, SourceInstants
from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.io.progress_log import ProgressLog

#: by how much a source lag may be too large while nothing is written
EVERY_S: Final = 0.25
#: how often partitions are counted again: they may be added to a topic
COUNT_EVERY_S: Final = 2.0


@dataclass(kw_only=True)
class SourceProbe:
    """The probe of one pipeline. For several threads."""

    log: ProgressLog
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queries: dict[str, tuple[frozenset[str], SourceInstants]] = field(
        default_factory=dict[str, tuple[frozenset[str], SourceInstants]]
    )
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _count_due_s: float = 0.0
    _thread: threading.Thread | None = None
    _wake: threading.Event = field(default_factory=threading.Event)
    _is_stopped: bool = False

    def follow(self, query_id: str, topics: Collection[str], known_ms: int) -> None:
        """Probe the topics of a query. `known_ms`: as of SourceInstants."""
        with self._lock:
            self._queries[query_id] = (frozenset(topics), SourceInstants(known_ms))
            self._count_due_s = 0.0
            self._wake.set()  # before its first batch, which may be its only one
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sources", daemon=True)
                self._thread.start()

    def leave(self, query_id: str) -> None:
        """The query has ended."""
        with self._lock:
            self._queries.pop(query_id, None)

    def covered(self, query_id: str, ends: Offsets) -> int:
        """As of SourceInstants; 0 also for a query that has ended."""
        with self._lock:
            found = self._queries.get(query_id)
            return found[1].covered(ends) if found else 0

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_stopped:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            with self._lock:
                topics = frozenset[str]().union(*(topics for topics, _ in self._queries.values()))
            at_ms = time.time_ns() // 1_000_000
            try:
                ends = self._ends(topics)
            except KafkaUnavailable:
                continue  # no instant is covered meanwhile: the lag grows
            with self._lock:
                for wanted, instants in self._queries.values():
                    if wanted <= ends.keys():
                        instants.probed(at_ms, {topic: ends[topic] for topic in wanted})

    def _ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Of those topics that exist, and whose partitions all have leaders."""
        now_s = time.monotonic()
        if now_s >= self._count_due_s:
            self._count_due_s = now_s + COUNT_EVERY_S
            self._counts = {topic: self.log.partition_count(topic) for topic in topics}
        known = {topic: count for topic, count in self._counts.items() if count}
        return self.log.ends_of(known) if known else {}
