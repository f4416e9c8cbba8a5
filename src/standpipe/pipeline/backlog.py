"""How far the query of a table that is built beside another one is in its topics.

Counted as Spark planned its newest finished batch: 0 means that this batch took everything that was
there, however fast more comes. Not here: what follows from it (`control.succession`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from standpipe.pipeline.batch import BatchCounts

#: {topic: {partition: offset}}
Offsets = Mapping[str, Mapping[int, int]]

#: what Spark says between two looks at its sources that found nothing
_IDLE = "Waiting for data to arrive"


@dataclass(frozen=True)
class Backlog:
    """`starts`: where its topics began when it started."""

    query: StreamingQuery
    counts: BatchCounts
    starts: Offsets

    def read_records(self) -> int:
        """Records of its topics that its newest batch covers."""
        return total(self.counts.covered) - total(self.starts)

    def backlog_records(self) -> int | None:
        """Those that were there when it was planned, and that it does not cover; None: not known
        yet, in this life of the pipeline."""
        status = self.query.status
        if status["message"] == _IDLE and not status["isDataAvailable"]:
            return 0
        # PySpark's own object says "None" where Spark says nothing: of a batch that is replayed
        progress = cast(Any, self.query)._jsq.lastProgress()
        if progress is None or progress.batchId() != self.counts.batch:
            return None
        return behind([(each.endOffset(), each.latestOffset()) for each in progress.sources()])


def total(offsets: Offsets) -> int:
    return sum(offset for partitions in offsets.values() for offset in partitions.values())


def behind(sources: Sequence[tuple[str | None, str | None]]) -> int | None:
    """Sum over sources of newest offset - end of the batch, each as Spark prints it."""
    missing = 0
    for end, latest in sources:
        if end is None or latest is None:
            return None
        missing += max(0, total(json.loads(latest)) - total(json.loads(end)))
    return missing
