"""Asks Kafka regularly where the topics of all queries end: one request for all, in a thread.

Between two requests it hears of new records as they come. The queries of a topic that has news are
woken, so none of them needs to ask for itself. A record below the ends that Kafka has told was
there before the waking, and one above them is heard of: none is missed in between.

Not here: what follows from the ends (`data/commit/source_instant.py`); what is news
(`source_news.py`); how a query sleeps (`trigger_clocks.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from standpipe.data.commit.source_instant import Offsets, SourceInstants
from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.io.arrivals import Arrivals
from standpipe.pipeline.io.progress_log import ENDS_S_MAX, ProgressLog
from standpipe.pipeline.run.watch.source_news import SourceNews

#: by how much a source lag may be too large while nothing is written
EVERY_S: Final = 0.25
#: how often partitions are counted again: they may be added to a topic
COUNT_EVERY_S: Final = 2.0
#: how old an answer may be that stands for another request
ENDS_AGE_S_MAX: Final = 1.0
#: how long the thread listens before it looks whether there is a new query
LISTEN_S: Final = 0.05


def _nobody(_query_ids: Collection[str]) -> None:
    """Wakes no query: none sleeps."""


@dataclass(kw_only=True)
class SourceProbe:
    """The probe of one pipeline. For several threads."""

    log: ProgressLog
    #: None: records are not heard of as they come
    arrivals: Arrivals | None = None
    #: lets queries look for data
    wake: Callable[[Collection[str]], None] = _nobody
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queries: dict[str, tuple[frozenset[str], SourceInstants]] = field(
        default_factory=dict[str, tuple[frozenset[str], SourceInstants]]
    )
    _news: SourceNews = field(default_factory=SourceNews)
    #: the newest answer, and when it was asked for (monotonic)
    _newest: tuple[float, Offsets] = (-math.inf, MappingProxyType({}))
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _count_due_s: float = 0.0
    _thread: threading.Thread | None = None
    _changed: threading.Event = field(default_factory=threading.Event)
    _is_stopped: bool = False

    def follow(self, query_id: str, topics: Collection[str], known_ms: int) -> None:
        """Probe the topics of a query. `known_ms`: as of SourceInstants."""
        with self._lock:
            self._queries[query_id] = (frozenset(topics), SourceInstants(known_ms))
            self._count_due_s = 0.0
            self._changed.set()  # before its first batch, which may be its only one
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

    def ends(self, topic: str) -> Mapping[int, int] | None:
        """Where a topic ended within the last second; None: not known."""
        at_s, ends = self._newest
        return ends.get(topic) if time.monotonic() - at_s < ENDS_AGE_S_MAX else None

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self._changed.set()

    def _run(self) -> None:
        while not self._is_stopped:
            self._changed.clear()
            self._probe()
            self._listen(time.monotonic() + EVERY_S)
        if self.arrivals is not None:
            self.arrivals.close()

    def _probe(self) -> None:
        with self._lock:
            topics = frozenset[str]().union(*(topics for topics, _ in self._queries.values()))
        at_ms, at_s = time.time_ns() // 1_000_000, time.monotonic()
        try:
            ends = self._ends(topics)
        except KafkaUnavailable:
            return  # no instant is covered meanwhile: the lag grows. A sleeping query looks itself
        self._newest = (at_s, ends)
        with self._lock:
            for wanted, instants in self._queries.values():
                if wanted <= ends.keys():
                    instants.probed(at_ms, {topic: ends[topic] for topic in wanted})
        if self.arrivals is not None:
            self.arrivals.watch(ends)  # before the waking: records above these ends are heard of
        self._wake_those_of(self._news.ends(ends))

    def _listen(self, until_s: float) -> None:
        """Wait until the next request is due, or there is a new query."""
        while not self._changed.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if self.arrivals is None:
                self._changed.wait(left_s)
                continue
            came = self.arrivals.wait(min(LISTEN_S, left_s))
            self._wake_those_of({each.topic for each in came if self._news.record(*each)})

    def _wake_those_of(self, topics: Collection[str]) -> None:
        with self._lock:
            concerned = [each for each, (of, _) in self._queries.items() if of & set(topics)]
        if concerned:
            self.wake(concerned)

    def _ends(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Of those topics that exist, and whose partitions all have leaders."""
        now_s = time.monotonic()
        if now_s >= self._count_due_s:
            self._count_due_s = now_s + COUNT_EVERY_S
            seen, silent = self.log.ask_each(topics, ENDS_S_MAX)
            kept = {topic: count for topic, count in self._counts.items() if topic in silent}
            self._counts = kept | {topic: each.partitions for topic, each in seen.items()}
        known = {topic: count for topic, count in self._counts.items() if count}
        return self.log.ends_of(known) if known else {}
