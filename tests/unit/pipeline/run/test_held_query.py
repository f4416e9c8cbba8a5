"""A held query: its fence, and what it says that it has committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.progress import fence
from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.held_query import Held, hold_query

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)
HELD_UNDER = LeaseEpoch(5)


class Log:
    """The topic of progress. `late`: what others append before our fence is there."""

    def __init__(self, *records: Progress, late: tuple[Progress, ...] = ()) -> None:
        self.records, self._late = list(records), late

    def fence(self, query_id: str, lease_epoch: LeaseEpoch) -> int:
        self.records += [*self._late, fence(query_id, lease_epoch, nonce=1)]
        return len(self.records) - 1

    def records_until(self, offset: int) -> Iterator[Progress]:
        return iter(self.records[: offset + 1])


def batch(number: int, epoch: int, read: int) -> Progress:
    return Progress(
        query_id=WANTED.query_id,
        commit=Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(number), attempt=1),
        sources={"s": {0: read}},
        sinks={0: read},
    )


@pytest.mark.parametrize(
    ("log", "held", "why"),
    [
        (Log(batch(0, 4, 10)), Held(batch=BatchId(0), covered={"s": {0: 10}}), "its last batch"),
        (
            Log(batch(0, 4, 10), late=(batch(1, 4, 20),)),
            Held(batch=BatchId(1), covered={"s": {0: 20}}),
            "committed after it was held, and before the fence: readers see it",
        ),
        (Log(), Held(batch=NO_BATCH, covered={}), "it committed nothing"),
    ],
)
def test_what_a_held_query_says(log: Log, held: Held, why: str) -> None:
    wanted = replace(WANTED, lease_epoch=HELD_UNDER, is_held=True)
    assert hold_query(wanted, cast(ProgressLog, log)) == held, why
    log.records.append(batch(2, 4, 30))  # of a run that still lives: no reader counts it
    assert hold_query(wanted, cast(ProgressLog, log)) == held, why


def test_a_query_that_another_pipeline_took_over_is_not_ours_to_hold() -> None:
    log = Log(batch(0, 4, 10), fence(WANTED.query_id, LeaseEpoch(6), nonce=1))
    with pytest.raises(Fenced):
        hold_query(replace(WANTED, lease_epoch=HELD_UNDER), cast(ProgressLog, log))
