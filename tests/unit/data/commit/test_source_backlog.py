"""How many records of its source topics a table lacks, and when nobody can tell."""

from __future__ import annotations

import pytest
from tests.unit.data.commit.test_covered_offsets import batch

from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds, TopicOffsets
from standpipe.data.commit.source_backlog import source_backlog


def told(topic_id: str = "", **ends: int) -> ToldEnds:
    """Topics of one partition, which end there."""
    topics = {name: TopicOffsets(topic_id=topic_id, offsets={0: end}) for name, end in ends.items()}
    return ToldEnds(asked_boot_ms=1, topics=topics)


def known(number: int = 7, topic_id: str = "", **covered: int) -> CoveredBatches:
    return CoveredBatches(batches=(batch(number, 1, topic_id, **covered),))


@pytest.mark.parametrize(
    ("covered", "ends", "records", "why"),
    [
        (known(S=5), told(S=5), 0, "all is read"),
        (known(S=5), told(S=9), 4, "not all"),
        (known(S=5, T=1), told(S=9, T=3), 6, "of all topics"),
        (known(S=9), told(S=5), 0, "the batch is newer than the answer of Kafka"),
        (known(topic_id="x", S=5), told(topic_id="x", S=9), 4, "the same topic"),
        (known(S=5), told(topic_id="x", S=9), 4, "the batch does not say which"),
    ],
)
def test_records(covered: CoveredBatches, ends: ToldEnds, records: int, why: str) -> None:
    assert source_backlog(covered, ends).records == records, why


@pytest.mark.parametrize(
    ("covered", "ends", "why"),
    [
        (CoveredBatches(), told(S=5), "Nothing is committed"),
        (known(), told(S=5), "which topics"),
        (known(S=5, T=1), told(S=5), "Kafka has not said where T ends"),
        (known(topic_id="x", S=5), told(topic_id="y", S=5), "S was created again"),
    ],
)
def test_unknown_is_never_zero(covered: CoveredBatches, ends: ToldEnds, why: str) -> None:
    found = source_backlog(covered, ends)
    assert found.records is None
    assert why in found.why


def test_a_partition_that_no_batch_has_seen_is_all_backlog() -> None:
    ends = ToldEnds(asked_boot_ms=1, topics={"S": TopicOffsets(offsets={0: 5, 1: 3})})
    found = source_backlog(known(S=5), ends)
    assert found.records == 3
    assert [tuple(each) for each in found.partitions] == [("S", 0, 5, 5), ("S", 1, 3, 0)]


def test_only_the_newest_batch_counts() -> None:
    both = CoveredBatches(batches=(batch(6, 1, "", S=2), batch(7, 1, "", S=5)))
    assert source_backlog(both, told(S=5)).records == 0
