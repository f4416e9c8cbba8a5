"""The topic of a table that a janitor sweeps, and the windows at its start that have expired.

Not here: sweeps and repairs (`janitor.py`), which windows may be deleted (`data.commit.expiry`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import structlog

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.commit.expiry import Expiry, deletable_below
from standpipe.data.commit.repair import SweptRecord
from standpipe.model import LeaseEpoch, Offset, Progress, Source
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.topic_reader import read_once
from standpipe.topics import TOMBSTONES_MS

#: unless a query is idle this long, its next batch reports what is clean
QUIET_MS: Final = 5_000

_logger = structlog.get_logger("janitor")


@dataclass(frozen=True, kw_only=True)
class SweptTopic:
    """The topic that a janitor sweeps. `check_lease` raises Fenced; `ask_topics` returns a check
    that raises QueryFailed if one of the query's topics was recreated (`TopicCheck.ask`)."""

    query_id: str
    table: Source
    lease_epoch: LeaseEpoch
    kafka: Kafka
    log: ProgressLog
    check_lease: Callable[[], None]
    ask_topics: Callable[[], Callable[[], None]]
    quiet_ms: int = QUIET_MS

    def delete_expired(self, newest: Progress | None) -> None:
        """Delete the start of the topic if it holds only windows that expired long ago. Depends on
        committed state alone, so even a zombie may do it: a newer commit allows no less. `newest`:
        the newest commit; None: there is none. Raises KafkaUnavailable."""
        expiry = Expiry.of(self.table.window)
        if newest is None or expiry is None:
            return
        below = {
            partition: deletable_below(
                expiry,
                self._records_until(partition, Offset(end)),
                clean_through=Offset(newest.clean_through.get(partition, 0)),
                watermark_ms=newest.watermark_ms,
                written_before_ms=time.time_ns() // 1_000_000 - TOMBSTONES_MS,
            )
            for partition, end in newest.sinks.items()
        }
        due = {partition: offset for partition, offset in below.items() if offset}
        if due:
            self.log.delete_below(self.table.topic, due)
            _logger.info("expired windows deleted from the topic", table=self.table.name, below=due)

    def _records_until(self, partition: int, end: Offset) -> Iterator[SweptRecord]:
        return chain.from_iterable(read_once(self.kafka, self.table.topic, partition, end))
