"""Runs a held query: it commits nothing, and reports what it has committed.

Not here: why it is held (`control/metadata/holds.py`); a query that runs (`query_run.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standpipe.data.commit.takeover import standing
from standpipe.model import NO_BATCH, BatchId
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.start.running_query import TableRun
from standpipe.pipeline.wanted import WantedQuery

#: reason of its status
HELD = "HELD"


@dataclass(frozen=True, kw_only=True)
class Held:
    """All that a held query ever committed."""

    batch: BatchId
    #: {topic: {partition: offset}} up to which it has read
    covered: Mapping[str, Mapping[int, int]]

    def stop(self) -> None:
        """Nothing runs."""

    def wait_until_ended(self) -> None:
        """Nothing runs."""


def hold_query(wanted: WantedQuery, log: ProgressLog) -> Held:
    """Fence the query under its lease epoch, and read what is committed. Raises KafkaUnavailable,
    and Fenced if another pipeline has taken it over."""
    fence = log.fence(wanted.query_id, wanted.lease_epoch)
    stand = standing(log.records_until(fence), wanted.query_id, wanted.lease_epoch)
    if stand.fenced_by is not None:
        raise Fenced(f"query {wanted.query_id} was taken over under epoch {stand.fenced_by}")
    covered = {} if stand.newest is None else stand.newest.sources
    return Held(batch=stand.valid, covered=covered)


def committed(
    run: TableRun | None, held: Held | None
) -> tuple[BatchId, dict[str, dict[int, int]] | None]:
    """The newest batch of a query as its status says it, and up to where it has read: said of a
    next generation and of a held query."""
    if held is not None:
        return held.batch, _plain(held.covered)
    if run is None:
        return NO_BATCH, None
    covered = _plain(run.counts.covered) if run.backlog else None  # before the batch: it has more
    return run.counts.batch, covered


def _plain(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}
