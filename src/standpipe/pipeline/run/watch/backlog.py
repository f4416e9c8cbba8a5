"""How far a query has read its topics: from Spark, and from Kafka where Spark reports nothing.

The backlog of a table that is built beside another one is counted as of the plan of its newest
finished batch: 0 means that this batch took everything available then, however fast more arrives.
Not here: what depends on it (`control.assignment.switchover`, `stall.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.io.progress_log import ProgressLog

#: {topic: {partition: offset}}
Offsets = Mapping[str, Mapping[int, int]]

#: Spark's messages while its sources have nothing new, if no data is available; the second one is
#: that of a query that sleeps (`trigger_clocks.py`)
IDLE = ("Waiting for data to arrive", "Waiting for next trigger")


@dataclass(frozen=True)
class Backlog:
    """The backlog of a query. `starts`: start offsets of its topics when it started."""

    query: StreamingQuery
    counts: BatchCounts
    starts: Offsets

    def read_records(self) -> int:
        """Number of records of its topics up to the end of its newest batch."""
        return total(self.counts.covered) - total(self.starts)

    def backlog_records(self) -> int | None:
        """Records that existed when the newest batch was planned, but that it does not cover; None:
        not known yet since the pipeline started."""
        status = self.query.status
        if status["message"] in IDLE and not status["isDataAvailable"]:
            return 0
        # PySpark's own object says "None" where Spark has no value, as for a replayed batch
        progress = cast(Any, self.query)._jsq.lastProgress()
        if progress is None or progress.batchId() != self.counts.batch:
            return None
        return behind([(each.endOffset(), each.latestOffset()) for each in progress.sources()])


@dataclass(kw_only=True)
class Unread:
    """Whether topics have records that a query does not cover. Asks Kafka: Spark's source may hang.

    `topics`: without those that other queries write. There a foreign record at the log's end would
    look unread permanently, and their reader (`io/committed_source.py`) has its own deadlines.
    """

    log: ProgressLog
    counts: BatchCounts
    topics: frozenset[str]
    #: where a topic ends, if that was asked a moment ago; None: not known
    ends: Callable[[str], Mapping[int, int] | None] = field(default=lambda _topic: None)
    _partitions: dict[str, int] = field(default_factory=dict[str, int])

    def is_there(self) -> bool:
        """Whether any topic has unread records. Raises KafkaUnavailable."""
        return any(map(self._is_behind, sorted(self.topics)))

    def _is_behind(self, topic: str) -> bool:
        covered, ends = self.counts.covered.get(topic, {}), self.ends(topic)
        if ends is not None and ends.keys() <= covered.keys():
            return is_unread(covered, {}, ends)
        count = self._partitions.get(topic) or self.log.partition_count(topic)
        self._partitions[topic] = count
        ends = self.log.end_offsets(topic, count)
        if ends.keys() <= covered.keys():
            return is_unread(covered, {}, ends)
        return is_unread(covered, self.log.start_offsets(topic, count), ends)


#: how often to ask Kafka about a query that Spark reports as idle
ASK_EVERY_S = 5.0


@dataclass
class BackgroundQuestion:
    """Asks Kafka in the background; the newest answer is valid until the next one."""

    answer: bool = False
    _asking: Future[bool] | None = None
    _next: float = 0.0

    def ask(self, question: Callable[[], bool], pool: Executor, now: float) -> bool:
        """The newest answer. Also False while Kafka does not answer: nothing is known then."""
        if self._asking is not None and self._asking.done():
            asked, self._asking, self._next = self._asking, None, now + ASK_EVERY_S
            try:
                self.answer = asked.result()
            except KafkaUnavailable:
                self.answer = False
        if self._asking is None and now >= self._next:
            self._asking = pool.submit(question)
        return self.answer


def is_unread(
    covered: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> bool:
    """Whether a partition has records past `covered`, or past its start if not in `covered`."""
    return any(end > covered.get(p, starts.get(p, 0)) for p, end in ends.items())


def total(offsets: Offsets) -> int:
    """Sum of all offsets: the records of topics that begin at 0."""
    return sum(offset for partitions in offsets.values() for offset in partitions.values())


def behind(sources: Sequence[tuple[str | None, str | None]]) -> int | None:
    """Sum over sources of newest offset - end of the batch, each as Spark prints it."""
    missing = 0
    for end, latest in sources:
        if end is None or latest is None:
            return None
        missing += max(0, total(json.loads(latest)) - total(json.loads(end)))
    return missing
